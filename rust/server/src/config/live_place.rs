//! Where live values are, and the command that removes one.

use std::path::Path;

/// File of a broker's live values in `config` of its store.
pub(super) const BROKER_FILE: &str = "live.properties";

/// Command that removes a live value.
pub(super) fn unset_command(file: &Path, key: &str) -> String {
    let folder = file.parent().filter(|_| file.file_name().is_some_and(|name| name == BROKER_FILE));
    let store = folder.and_then(Path::parent).unwrap_or(file);
    let store = if store.as_os_str().is_empty() { Path::new(".") } else { store };
    format!("rocketpy config unset --store {} {}", quoted(&store.display().to_string()), quoted(key))
}

/// Quotes a word for a shell, if it needs quotes.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
