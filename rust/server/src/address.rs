//! Addresses to listen on, and addresses that clients can use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use crate::ServerError;

/// Warnings at the start of a server that other machines can reach, by what is open.
pub(crate) const OPEN_TO_ALL: &str = "any host that reaches this address can read, write and delete all messages; start with --secure, or \
                                      restrict access with a firewall";

pub(crate) const OPEN_LISTS: &str = "any host that reaches this address can send the requests of authenticationWhitelist without a user, and any user those \
                                     of authorizationWhitelist without a policy; clear both lists";
pub(crate) const NOT_ENCRYPTED: &str = "connections from other hosts may be plain: others on the network can read messages and replay requests; start with \
                                        --secure, or set tlsServerMode=enforcing";
pub(crate) const OPEN_METRICS: &str = "any host that reaches the metrics can read the names of topics and groups there; set metricsPromExporterHost=127.0.0.1, \
                                       or tlsServerNeedClientAuth=require";

/// The address to listen on. Blocks while a name is looked up.
///
/// # Errors
/// The host has no address.
pub(crate) fn listen(host: &str, port: u16) -> Result<SocketAddr, ServerError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let unknown = |reason: String| ServerError::Host { host: host.to_owned(), reason };
    let found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?.collect();
    let v4 = found.iter().find(|address| address.is_ipv4());
    v4.or(found.first()).copied().ok_or_else(|| unknown("no address found".to_owned()))
}

/// Whether other machines may reach an address.
pub(crate) fn is_beyond_loopback(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// `host:port` that a client on this machine can use.
pub(crate) fn reachable(address: SocketAddr) -> String {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address.to_string()
}

/// Whether `host:port`, as somebody wrote it, is where a server of this machine listens. Names but `localhost` are not looked up.
pub(crate) fn is_same(given: &str, listening: SocketAddr) -> bool {
    let Some((host, port)) = given.rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip = if host == "localhost" { Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { host.parse::<IpAddr>() };
    let Ok(ip) = ip else { return false };
    let is_here = ip == listening.ip() || listening.ip().is_unspecified() && ip.is_loopback();
    port.parse() == Ok(listening.port()) && is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_other_machines_reach_is_a_danger() {
        for (address, is_danger) in [
            ("127.0.0.1:1", false),
            ("127.9.9.9:1", false),
            ("[::1]:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("10.0.0.7:1", true),
        ] {
            assert_eq!(is_beyond_loopback(address.parse().unwrap()), is_danger, "{address}");
        }
    }

    #[test]
    fn the_own_address_is_known_however_it_is_written() {
        for (given, listening, expected) in [
            ("127.0.0.1:7", "127.0.0.1:7", true),
            ("localhost:7", "127.0.0.1:7", true),
            ("localhost:7", "0.0.0.0:7", true),
            ("[::1]:7", "[::1]:7", true),
            ("127.0.0.1:8", "127.0.0.1:7", false),
            ("10.0.0.1:7", "127.0.0.1:7", false),
            ("127.0.0.1", "127.0.0.1:7", false),
            ("other:7", "127.0.0.1:7", false),
        ] {
            assert_eq!(is_same(given, listening.parse().unwrap()), expected, "{given} {listening}");
        }
    }

    #[test]
    fn names_are_looked_up_and_wildcards_become_loopback() {
        assert_eq!(listen("127.0.0.1", 5).unwrap().to_string(), "127.0.0.1:5");
        assert!(listen("localhost", 5).unwrap().ip().is_loopback());
        let error = listen("no such host", 5).unwrap_err().to_string();
        assert!(error.contains("no such host"), "{error}");
        assert_eq!(reachable("0.0.0.0:7".parse().unwrap()), "127.0.0.1:7");
        assert_eq!(reachable("[::]:7".parse().unwrap()), "[::1]:7");
        assert_eq!(reachable("10.0.0.1:7".parse().unwrap()), "10.0.0.1:7");
    }
}
