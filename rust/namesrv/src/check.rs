//! Checks of the names, addresses and texts that peers send to the name server, which hands them on to others.
//!
//! # Source
//! docs/durability.md R12.

use rocketpy_model::printable::is_control;
use rocketpy_model::{NameError, TopicConfig, name};
use tracing::warn;

use crate::error::Refusal;
use crate::limits::MAX_ADDRESS_BYTES;

/// Longest namespace and key of the key-value configuration.
const MAX_KEY_BYTES: usize = 255;
/// Longest value of the key-value configuration.
const MAX_VALUE_BYTES: usize = 64 << 10;
/// Most filter servers of one broker.
const MAX_FILTER_SERVERS: usize = 64;

/// Checks `host:port`: a host name, an IPv4 address, or an IPv6 address with or without brackets.
///
/// # Errors
/// The text is no address.
pub(crate) fn address(field: &'static str, value: &str) -> Result<(), Refusal> {
    let is_host_byte = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']' | b'%')
    };
    let parts = value.rsplit_once(':').filter(|(host, port)| {
        !host.is_empty() && host.bytes().all(is_host_byte) && port.parse::<u16>().is_ok()
    });
    match parts {
        Some(_) if value.len() <= MAX_ADDRESS_BYTES => Ok(()),
        _ => Err(Refusal::Address { field, value: value.to_owned() }),
    }
}

/// Checks a namespace or a key.
///
/// # Errors
/// It is empty, too long, or has control characters.
pub(crate) fn key(field: &'static str, value: &str) -> Result<(), Refusal> {
    if value.is_empty() {
        return Err(Refusal::Empty { field });
    }
    length(field, value, MAX_KEY_BYTES)?;
    if value.chars().any(is_control) {
        return Err(Refusal::Control { field, value: value.to_owned() });
    }
    Ok(())
}

/// Checks a value of the key-value configuration.
///
/// # Errors
/// It is too long.
pub(crate) fn value(field: &'static str, value: &str) -> Result<(), Refusal> {
    length(field, value, MAX_VALUE_BYTES)
}

fn length(field: &'static str, value: &str, limit_bytes: usize) -> Result<(), Refusal> {
    if value.len() > limit_bytes {
        return Err(Refusal::TooLong { field, size_bytes: value.len(), limit_bytes });
    }
    Ok(())
}

/// The registered topics whose names are good. The others are left out, and the registration is taken: the broker's other topics
/// need their routes.
///
/// A topic of the system may carry the name of the broker or of its cluster, which may have dots.
pub(crate) fn good_topics(topics: Vec<TopicConfig>, own_names: [&str; 2]) -> Vec<TopicConfig> {
    let stated = topics.len();
    let mut first_bad = None;
    let good: Vec<TopicConfig> = topics
        .into_iter()
        .filter(|topic| match check_topic(&topic.name, own_names) {
            Ok(()) => true,
            Err(error) => {
                first_bad.get_or_insert(error);
                false
            }
        })
        .collect();
    if let Some(error) = first_bad {
        let left_out = stated - good.len();
        warn!(broker = own_names[0], left_out, first = %error, "registration has topics with invalid names, topics ignored");
    }
    good
}

fn check_topic(topic: &str, own_names: [&str; 2]) -> Result<(), NameError> {
    name::check_topic(topic).or_else(|error| {
        let is_good =
            |own: &str| own.contains('.') && name::check_topic(&topic.replacen(own, "own", 1)).is_ok();
        if own_names.into_iter().any(is_good) { Ok(()) } else { Err(error) }
    })
}

/// The filter servers that have addresses.
pub(crate) fn good_filter_servers(servers: Vec<String>) -> Vec<String> {
    let good = servers.into_iter().filter(|server| address("filterServerList", server).is_ok());
    good.take(MAX_FILTER_SERVERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_with_ports() {
        for good in
            ["10.0.0.2:10911", "broker-a.internal:1", "[::1]:10911", "fe80::1%eth0:10911", "b_1:65535"]
        {
            assert!(address("brokerAddr", good).is_ok(), "{good}");
        }
        let long = format!("{}:1", "h".repeat(300));
        for bad in
            ["", "host", ":1", "host:", "host:70000", "a b:1", "a\n:1", "\u{1b}[31m:1", "h\u{f6}st:1", &long]
        {
            let refusal = address("brokerAddr", bad).unwrap_err().to_string();
            assert!(
                refusal.contains("brokerAddr") && !refusal.contains('\u{1b}') && refusal.len() < 200,
                "{refusal}"
            );
        }
    }

    #[test]
    fn topics_of_the_system_may_carry_a_name_with_dots() {
        let topics = |names: &[&str]| names.iter().map(|name| TopicConfig::new(*name, 1)).collect::<Vec<_>>();
        let own = ["ip-10-0-0-1.internal", "c.1"];
        let good = topics(&[
            "orders",
            "%RETRY%group",
            "%DLQ%group",
            "a|b",
            "ip-10-0-0-1.internal",
            "rmq_sys_SYNC_BROKER_MEMBER_ip-10-0-0-1.internal",
            "c.1_REPLY_TOPIC",
        ]);
        assert_eq!(good_topics(good.clone(), own), good);
        let bad = topics(&["../etc", "a\0", "a\n", "\u{1b}[31mred", &"t".repeat(300), "a.b", "", "c.1/../x"]);
        assert_eq!(good_topics(bad, own), []);
    }
}
