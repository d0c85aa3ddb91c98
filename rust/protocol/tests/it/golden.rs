//! Reads the vectors of tests/golden.

/// The bytes of a vector file: lines of hex, comments behind `#`.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let hex: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.chars().filter(|character| !character.is_whitespace()))
        .collect();
    assert!(!hex.is_empty() && hex.len().is_multiple_of(2), "a vector of whole bytes");
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
        .collect()
}

/// The bytes of the vector named in the argument.
macro_rules! vector {
    ($name:literal) => {
        $crate::golden::bytes(include_str!(concat!("../../../../tests/golden/", $name, ".hex")))
    };
}

pub(crate) use vector;
