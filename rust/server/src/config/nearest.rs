/// The candidate with the fewest edits from `word`, first of equals.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> &'a str {
    candidates.min_by_key(|candidate| edits(word, candidate)).unwrap_or_default()
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
        assert_eq!(nearest("flushDiskTyp", keys.into_iter()), "flushDiskType");
        assert_eq!(nearest("brokername", keys.into_iter()), "brokerName");
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
