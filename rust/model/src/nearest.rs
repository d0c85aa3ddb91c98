//! Known names that are similar to an unknown one.

/// Maximum number of similar names.
const MOST: usize = 3;
/// Maximum size of a word that is compared; a name of a topic has up to 127 bytes.
const MOST_BYTES: usize = 128;
/// Maximum number of letters that differ in a typing error; long names with one ending differ in few more.
const MOST_EDITS: usize = 3;

/// Up to 3 candidates that are similar to `word`, the best first.
///
/// A candidate is similar if few letters differ, or if one contains the other. A word of more than 128 bytes has no similar candidates: the
/// work grows with its length.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    if word.len() > MOST_BYTES {
        return Vec::new();
    }
    let edits = |candidate: &str| strsim::levenshtein(&word.to_lowercase(), &candidate.to_lowercase());
    let mut near: Vec<(usize, &str)> = candidates
        .map(|candidate| (edits(candidate), candidate))
        .filter(|(edits, candidate)| {
            *edits <= (word.chars().count() / 3).min(MOST_EDITS) || holds(candidate, word)
        })
        .collect();
    near.sort_by_key(|(edits, _)| *edits);
    near.into_iter().take(MOST).map(|(_, candidate)| candidate).collect()
}

/// Whether the word is a part of the candidate, or the other way round.
fn holds(candidate: &str, word: &str) -> bool {
    const LEAST: usize = 4; // shorter words are part of many
    let (candidate, word) = (candidate.to_lowercase(), word.to_lowercase());
    word.len().min(candidate.len()) >= LEAST && (candidate.contains(&word) || word.contains(&candidate))
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
        assert_eq!(nearest(&"brokerName".repeat(13), keys.into_iter()), [""; 0], "too long to be compared");
        let none = nearest("authenticationEnabled", ["duplicationEnable"].into_iter());
        assert_eq!(none, [""; 0], "they share an ending only");
        assert_eq!(nearest("foo", keys.into_iter()), [""; 0], "nothing looks like it");
        assert_eq!(
            nearest("orders-eu", ["e", "orders"].into_iter()),
            ["orders"],
            "short names are part of many"
        );
    }
}
