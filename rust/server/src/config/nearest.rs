/// Most candidates that are named.
const MOST: usize = 3;

/// The candidates that look like `word`, best first; none when nothing does.
///
/// One looks like it when few letters have to change, or when the one holds the other.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<(usize, &str)> = candidates
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= word.chars().count() / 3 || holds(candidate, word))
        .collect();
    near.sort_by_key(|(edits, _)| *edits);
    near.into_iter().take(MOST).map(|(_, candidate)| candidate).collect()
}

/// Whether the word is a part of the candidate, or the other way round.
fn holds(candidate: &str, word: &str) -> bool {
    const LEAST: usize = 4; // shorter ones are in many
    let (candidate, word) = (candidate.to_lowercase(), word.to_lowercase());
    word.len() >= LEAST && (candidate.contains(&word) || word.contains(&candidate))
}

/// Levenshtein distance, letters compared without case.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_the_key_that_was_meant() {
        let keys = ["flushDiskType", "flushIntervalCommitLog", "brokerName"];
        assert_eq!(nearest("flushDiskTyp", keys.into_iter()), ["flushDiskType"]);
        assert_eq!(nearest("brokername", keys.into_iter()), ["brokerName"]);
        assert_eq!(nearest("flush", keys.into_iter()), ["flushDiskType", "flushIntervalCommitLog"]);
        assert_eq!(nearest("myBrokerName", keys.into_iter()), ["brokerName"]);
        assert_eq!(nearest("foo", keys.into_iter()), [""; 0], "nothing looks like it");
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
