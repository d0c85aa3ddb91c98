//! Configuration files: TOML, and Java properties.

use std::path::Path;
use std::str::Chars;

use rocketpy_env::{Disk, RealDisk};

use super::ConfigError;

/// Largest configuration file that is read.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads `KEY`, `VALUE` pairs from a TOML file (ending `.toml`) or from Java properties (any other ending).
///
/// # Errors
/// The file cannot be read, or is not what its ending says.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let bytes = RealDisk
        .read(path, MAX_FILE_BYTES)
        .map_err(|source| ConfigError::File { path: path.to_owned(), reason: source.to_string() })?;
    // Editors on Windows write a mark of the byte order before the first key.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    // Comments may be in any charset, as for Java; keys and values are checked below.
    let text = String::from_utf8_lossy(bytes);
    if is_toml(path) {
        toml_pairs(&text).map_err(|reason| ConfigError::File { path: path.to_owned(), reason })
    } else {
        properties_pairs(&text).map_err(|reason| ConfigError::File { path: path.to_owned(), reason })
    }
}

/// Whether a file is TOML by its name, and not Java properties as Apache's broker.conf.
pub(super) fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"))
}

fn toml_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err("it is not UTF-8".to_owned());
    }
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    table.into_iter().map(|(key, value)| Ok((key.clone(), toml_text(&key, value)?))).collect()
}

fn toml_text(key: &str, value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(value) => Ok(value.to_string()),
        toml::Value::Array(items) => {
            let items: Result<Vec<String>, String> =
                items.into_iter().map(|item| toml_text(key, item)).collect();
            Ok(items?.join(";"))
        }
        toml::Value::Table(_) | toml::Value::Datetime(_) => {
            Err(format!("{key} must be a text, a number, true, false or a list of these"))
        }
    }
}

/// Reads Java properties text: `key=value`, `key:value` or `key value`, comments with `#` and `!`, continued lines.
///
/// Written here because the crates for it bring a regular expression engine for fifty lines.
///
/// # Source
/// <https://docs.oracle.com/javase/8/docs/api/java/util/Properties.html#load-java.io.Reader->
pub(super) fn properties_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = line.to_owned();
        while is_continued(&whole) {
            whole.pop();
            match lines.next() {
                Some(next) => whole.push_str(next.trim_start()),
                None => break,
            }
        }
        if whole.contains(char::REPLACEMENT_CHARACTER) {
            return Err(format!("a line is not UTF-8: {whole}"));
        }
        let (key, value) = split_pair(&whole);
        pairs.push((unescape(key)?, unescape(value)?.trim_end().to_owned()));
    }
    Ok(pairs)
}

fn is_continued(line: &str) -> bool {
    line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

fn split_pair(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if !escaped && (c == '=' || c == ':' || c.is_whitespace()) {
            let rest = line[at..].trim_start();
            let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (&line[..at], value.trim_start());
        }
        escaped = !escaped && c == '\\';
    }
    (line, "")
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('u') => {
                let high = escaped_unit(&mut chars)?;
                let mut units = vec![high];
                // A character beyond the first 65,536 is two units.
                if (0xd800..0xdc00).contains(&high) && chars.as_str().starts_with("\\u") {
                    chars.nth(1);
                    units.push(escaped_unit(&mut chars)?);
                }
                let text = String::from_utf16(&units);
                out.push_str(&text.map_err(|_| format!("\\u{high:04x} is not a character"))?);
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    Ok(out)
}

fn escaped_unit(chars: &mut Chars<'_>) -> Result<u16, String> {
    let digits: String = chars.by_ref().take(4).collect();
    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
    unit.ok_or_else(|| format!("\\u{digits} is not a character"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "# note\n! note\nbrokerName = a\\\n  b\nbrokerClusterName:c\n\nlistenPort 10\npath=C\\:\\\\x\\u0041 \nempty=\n";
        let pairs = properties_pairs(text).unwrap();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("brokerName", "ab"),
                ("brokerClusterName", "c"),
                ("listenPort", "10"),
                ("path", "C:\\xA"),
                ("empty", "")
            ]
        );
        for bad in ["a=\\u12", "a=\\ud83d", "a=\\ud83dx", "a=\\ude00"] {
            assert!(properties_pairs(bad).is_err(), "{bad}");
        }
        assert_eq!(properties_pairs("a=\\ud83d\\ude00").unwrap()[0].1, "\u{1f600}");
    }

    #[test]
    fn toml_lists_join_and_tables_are_refused() {
        let pairs = toml_pairs("namesrvAddr = ['a:1', 'b:2']\nlistenPort = 5\ntraceOn = false").unwrap();
        assert!(pairs.contains(&("namesrvAddr".to_owned(), "a:1;b:2".to_owned())));
        assert!(pairs.contains(&("listenPort".to_owned(), "5".to_owned())));
        assert!(toml_pairs("[broker]\nname = 'x'").unwrap_err().contains("broker"));
        assert!(toml_pairs("nonsense").is_err());
    }
}
