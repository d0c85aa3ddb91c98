//! Which name server is asked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::ClientError;
use crate::log_throttle::LogThrottle;

/// Addresses of the name servers. The one that answered last is asked first.
///
/// # Source
/// docs/reference/client.md 2.2.
#[derive(Debug)]
pub(crate) struct NameServers {
    addresses: Vec<String>,
    current: AtomicUsize,
    /// One of them has answered since the client was made.
    has_answered: AtomicBool,
    /// What the log says of each.
    failures: Mutex<Vec<LogThrottle>>,
}

impl NameServers {
    /// Parses a list whose texts may each hold several addresses, separated by `;` or `,`. `start` picks the one asked first.
    ///
    /// # Errors
    /// [`ClientError::NoNameServer`], [`ClientError::InvalidAddress`].
    pub(crate) fn parse(list: &[String], start: u64) -> Result<Self, ClientError> {
        let mut addresses: Vec<String> = Vec::new();
        let texts = list.iter().flat_map(|text| text.split([';', ','])).map(str::trim);
        for address in texts.filter(|text| !text.is_empty()) {
            let address = without_scheme(address);
            if !is_address(address) {
                return Err(ClientError::InvalidAddress { address: address.to_owned() });
            }
            if !addresses.iter().any(|known| known == address) {
                addresses.push(address.to_owned());
            }
        }
        if addresses.is_empty() {
            return Err(ClientError::NoNameServer);
        }
        let current = AtomicUsize::new(start as usize % addresses.len());
        let failures = Mutex::new(addresses.iter().map(|_| LogThrottle::default()).collect());
        Ok(Self { addresses, current, has_answered: AtomicBool::new(false), failures })
    }

    pub(crate) fn first(&self) -> &str {
        &self.addresses[0]
    }

    /// All addresses, the current one first.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = (usize, &str)> {
        let current = self.current.load(Ordering::Relaxed);
        let count = self.addresses.len();
        assert!(
            current < count,
            "the current name server is one of those that are known: {current} of {count}"
        );
        (0..count).map(move |step| {
            let index = (current + step) % count;
            (index, self.addresses[index].as_str())
        })
    }

    /// All addresses, in the order given.
    pub(crate) fn all(&self) -> &[String] {
        &self.addresses
    }

    /// Notes an answer: this one is asked first from now on. True when its silence was reported before.
    pub(crate) fn answered(&self, index: usize) -> bool {
        self.current.store(index, Ordering::Relaxed);
        self.has_answered.store(true, Ordering::Relaxed);
        self.failures.lock()[index].worked()
    }

    /// Whether any has answered: if not, the addresses may be wrong.
    pub(crate) fn have_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Notes that one did not answer. True when that is to be reported.
    pub(crate) fn failed(&self, index: usize) -> bool {
        self.failures.lock()[index].failed(Instant::now())
    }
}

/// Apache's clients accept `http://host:port` and drop everything up to the last slash.
fn without_scheme(address: &str) -> &str {
    match address.strip_prefix("http://").or_else(|| address.strip_prefix("https://")) {
        Some(rest) => rest.trim_end_matches('/'),
        None => address,
    }
}

/// Whether a text is `host:port`.
pub(crate) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_is_plausible = if host.starts_with('[') {
        host.ends_with(']')
    } else {
        !host.is_empty() && !host.contains([':', '/', ' '])
    };
    host_is_plausible && port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &[&str]) -> Result<NameServers, ClientError> {
        NameServers::parse(&list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), 0)
    }

    #[test]
    fn one_text_may_hold_several_addresses() {
        let servers = parse(&["a:1; b:2,c:3", "a:1", "[::1]:4", "http://d:5"]).unwrap();
        assert_eq!(servers.all(), ["a:1", "b:2", "c:3", "[::1]:4", "d:5"]);
    }

    #[test]
    fn the_one_that_answered_is_asked_first() {
        let servers = parse(&["a:1;b:2;c:3"]).unwrap();
        assert!(!servers.have_answered());
        assert!(!servers.answered(1), "nothing was reported");
        assert!(servers.have_answered());
        assert_eq!(servers.in_turn().collect::<Vec<_>>(), [(1, "b:2"), (2, "c:3"), (0, "a:1")]);
    }

    #[test]
    fn what_is_no_address_is_named() {
        for text in ["a", "a:", ":1", "a:b", "a:0", "a:70000", "::1:9876", "a/b:1"] {
            let error = parse(&[text]).unwrap_err();
            assert_eq!(error, ClientError::InvalidAddress { address: text.to_owned() });
        }
        assert_eq!(parse(&[" ; "]).unwrap_err(), ClientError::NoNameServer);
    }
}
