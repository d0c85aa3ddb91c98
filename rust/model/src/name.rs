//! The one place that decides which names are good: topics, groups, clusters and brokers, from every entry.
//!
//! Topic and group names become names of directories and keys of files, so what is let through here must be harmless there:
//! the alphabet has no path separator, no dot and no control character.
//!
//! # Source
//! docs/durability.md R12, docs/reference/protocol.md 2.3.1 rule 1, docs/reference/store-format.md 1.1, docs/reference/client.md 4.5.

use std::fmt;

use crate::system::{DLQ_PREFIX, RETRY_PREFIX};

/// Longest name of an ordinary topic.
pub const TOPIC_MAX_BYTES: usize = 127;
/// Longest name of a retry or dead-letter topic.
pub const DERIVED_TOPIC_MAX_BYTES: usize = 255;
/// Longest name of a group.
pub const GROUP_MAX_BYTES: usize = 120;
/// Longest name of a cluster or broker.
pub const CLUSTER_MAX_BYTES: usize = 127;
/// Longest name of a user.
pub const USER_MAX_BYTES: usize = 127;

/// What a name is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A topic.
    Topic,
    /// A producer or consumer group.
    Group,
    /// A cluster.
    Cluster,
    /// A broker.
    Broker,
    /// A user.
    User,
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topic => "topic",
            Self::Group => "group",
            Self::Cluster => "cluster",
            Self::Broker => "broker",
            Self::User => "user",
        })
    }
}

/// Why a name is refused. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("{kind} name is empty")]
    Empty {
        /// What it is the name of.
        kind: NameKind,
    },
    /// It is too long.
    #[error("{kind} name exceeds {limit} characters ({length}): {}", head(.name))]
    TooLong {
        /// What it is the name of.
        kind: NameKind,
        /// The name.
        name: String,
        /// Its length in characters.
        length: usize,
        /// The most that are allowed.
        limit: usize,
    },
    /// It has a character that is not allowed.
    #[error("{kind} name has an invalid character ({character:?}), use {}: {}", alphabet(*.kind), head(.name))]
    Character {
        /// What it is the name of.
        kind: NameKind,
        /// The name.
        name: String,
        /// The first character that is not allowed.
        character: char,
    },
}

impl NameError {
    /// What the refused name should have been the name of.
    #[must_use]
    pub const fn kind(&self) -> NameKind {
        match self {
            Self::Empty { kind } | Self::TooLong { kind, .. } | Self::Character { kind, .. } => *kind,
        }
    }
}

const fn alphabet(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Topic | NameKind::Group => "a-z A-Z 0-9 _ - % |",
        NameKind::Cluster | NameKind::Broker => "a-z A-Z 0-9 _ - % | .",
        NameKind::User => "a-z A-Z 0-9 _ - . @",
    }
}

/// The beginning of a refused name, printable: it came from outside and may be anything.
fn head(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    if short.len() < name.len() { format!("{short:?}...") } else { format!("{short:?}") }
}

/// Checks the name of a topic.
///
/// # Errors
/// When it is empty, too long (127, or 255 behind `%RETRY%` and `%DLQ%`) or has a character outside `%|a-zA-Z0-9_-`.
pub fn check_topic(name: &str) -> Result<(), NameError> {
    let derived = name.starts_with(RETRY_PREFIX) || name.starts_with(DLQ_PREFIX);
    let limit = if derived { DERIVED_TOPIC_MAX_BYTES } else { TOPIC_MAX_BYTES };
    check(NameKind::Topic, name, limit, is_topic_byte)
}

/// Checks the name of a producer or consumer group.
///
/// # Errors
/// When it is empty, longer than 120 or has a character outside `%|a-zA-Z0-9_-`.
pub fn check_group(name: &str) -> Result<(), NameError> {
    check(NameKind::Group, name, GROUP_MAX_BYTES, is_topic_byte)
}

/// Checks the name of a group that a broker's table holds already. Earlier versions of Apache let names be longer than
/// [`check_group`] does, and later ones keep them: all whose retry topic has a name that [`check_topic`] accepts.
///
/// # Errors
/// When it is empty, longer than 248 or has a character outside `%|a-zA-Z0-9_-`.
pub fn check_stored_group(name: &str) -> Result<(), NameError> {
    check(NameKind::Group, name, DERIVED_TOPIC_MAX_BYTES - RETRY_PREFIX.len(), is_topic_byte)
}

/// Checks the name of a cluster. Dots are allowed inside, host names are often used.
///
/// # Errors
/// When it is empty, too long, starts with a dot or has a character outside `%|a-zA-Z0-9_.-`.
pub fn check_cluster(name: &str) -> Result<(), NameError> {
    check_dotted(NameKind::Cluster, name)
}

/// Checks the name of a broker, by the rules of [`check_cluster`].
///
/// # Errors
/// As [`check_cluster`].
pub fn check_broker(name: &str) -> Result<(), NameError> {
    check_dotted(NameKind::Broker, name)
}

/// Checks the name of a user.
///
/// # Errors
/// When it is empty, longer than 127 or has a character outside `a-zA-Z0-9_.@-`.
pub fn check_user(name: &str) -> Result<(), NameError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@');
    check(NameKind::User, name, USER_MAX_BYTES, allowed)
}

fn check_dotted(kind: NameKind, name: &str) -> Result<(), NameError> {
    if name.starts_with('.') {
        return Err(NameError::Character { kind, name: name.to_owned(), character: '.' });
    }
    check(kind, name, CLUSTER_MAX_BYTES, |byte| is_topic_byte(byte) || byte == b'.')
}

const fn is_topic_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-')
}

fn check(kind: NameKind, name: &str, limit: usize, allowed: impl Fn(u8) -> bool) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if name.len() > limit {
        let short = name.chars().take(128).collect();
        return Err(NameError::TooLong { kind, name: short, length: name.chars().count(), limit });
    }
    if !name.bytes().all(&allowed) {
        let refused = |character: &char| !character.is_ascii() || !allowed(*character as u8);
        let character = name.chars().find(refused).unwrap_or('\0');
        return Err(NameError::Character { kind, name: name.to_owned(), character });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_lets_system_names_through() {
        for name in
            ["orders", "%RETRY%g", "%DLQ%g", "a|b", "A_-9", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"]
        {
            assert_eq!(check_topic(name), Ok(()), "{name}");
        }
        assert_eq!(check_group("CID_ONS-HTTP-PROXY"), Ok(()));
        assert_eq!(check_broker("ip-10-0-0-1.internal"), Ok(()));
    }

    #[test]
    fn path_tricks_and_foreign_characters_are_refused_and_named() {
        for (name, character) in [
            ("a/b", '/'),
            ("..", '.'),
            ("../../etc/passwd", '.'),
            ("a\\b", '\\'),
            ("a b", ' '),
            ("a\0", '\0'),
            ("a\n", '\n'),
            ("ü", 'ü'),
            ("a@b", '@'),
        ] {
            match check_topic(name) {
                Err(NameError::Character { character: found, .. }) => {
                    assert_eq!(found, character, "{name:?}")
                }
                other => panic!("{name:?}: {other:?}"),
            }
            assert!(check_group(name).is_err());
        }
        assert!(check_cluster("..").is_err());
        assert!(check_cluster(".hidden").is_err());
        assert_eq!(check_topic(""), Err(NameError::Empty { kind: NameKind::Topic }));
    }

    #[test]
    fn a_stored_group_may_be_as_long_as_its_retry_topic_allows() {
        let longest = "g".repeat(248);
        assert!(check_group(&longest).is_err());
        assert_eq!(check_stored_group(&longest), Ok(()));
        assert_eq!(check_topic(&format!("{RETRY_PREFIX}{longest}")), Ok(()));
        assert!(check_stored_group(&"g".repeat(249)).is_err());
        assert!(check_stored_group("a/b").is_err());
    }

    #[test]
    fn lengths_are_limited_by_kind() {
        assert!(check_topic(&"a".repeat(127)).is_ok());
        assert!(matches!(
            check_topic(&"a".repeat(300)),
            Err(NameError::TooLong { length: 300, limit: 127, .. })
        ));
        assert!(check_topic(&format!("%RETRY%{}", "a".repeat(248))).is_ok());
        assert!(check_topic(&format!("%RETRY%{}", "a".repeat(249))).is_err());
        assert!(check_group(&"a".repeat(120)).is_ok());
        assert!(check_group(&"a".repeat(121)).is_err());
    }

    #[test]
    fn an_error_shows_the_name_without_control_characters() {
        let text = check_topic("a\u{1b}[31m/").unwrap_err().to_string();
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
