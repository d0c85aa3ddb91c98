//! The settings of brokers on the wire: Java properties.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Reads what a broker says of itself: a line for each setting, in which nothing is escaped.
pub(super) fn pairs(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect()
}

/// Writes changes. Brokers read them as Java reads a properties file, so what has a meaning there is escaped.
pub(super) fn text(changes: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (key, value) in changes {
        escape(key, &mut text);
        text.push('=');
        escape(value, &mut text);
        text.push('\n');
    }
    text
}

fn escape(from: &str, to: &mut String) {
    for unit in from.encode_utf16() {
        match char::from_u32(u32::from(unit)) {
            Some(c) if c.is_ascii_alphanumeric() || "_-.;,/@%|".contains(c) => to.push(c),
            // Writing to a text does not fail.
            _ => {
                let _written = write!(to, "\\u{unit:04x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_lines_with_an_equals_sign() {
        let read = pairs("brokerName=a\nmessageDelayLevel=1s 5s\nodd=x=y\nnothing\nempty=\n");
        let expected = [("brokerName", "a"), ("empty", ""), ("messageDelayLevel", "1s 5s"), ("odd", "x=y")];
        assert_eq!(read, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn what_java_would_read_otherwise_is_escaped() {
        let changes = [("a b", "c:\\d\n\u{1F600}"), ("flushDiskType", "SYNC_FLUSH")];
        let text = text(&changes.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        assert_eq!(text, "a\\u0020b=c\\u003a\\u005cd\\u000a\\ud83d\\ude00\nflushDiskType=SYNC_FLUSH\n");
    }
}
