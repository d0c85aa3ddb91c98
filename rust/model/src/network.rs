//! Networks of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network of addresses, or one address. IPv4 addresses that are mapped into IPv6 count as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// Its first address.
    first: IpAddr,
    bits: u8,
}

/// Bits of IPv6 that a host shares with no other: it has all addresses behind them.
const HOST_BITS: u8 = 64;

/// Address under which a host is counted: with IPv6 the first of its network of 64 bits.
#[must_use]
pub fn host_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        ip @ IpAddr::V4(_) => ip,
        ip @ IpAddr::V6(_) => masked(ip, HOST_BITS).unwrap_or(ip),
    }
}

/// The text is neither an address nor a network. A retry does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an IP address or a network such as 10.0.0.0/8")]
pub struct NetworkError;

impl Network {
    /// Whether the address is in the network.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        masked(ip.to_canonical(), self.bits) == Some(self.first)
    }

    /// Its first address.
    #[must_use]
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// Number of leading bits that all its addresses share.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether it is one address.
    #[must_use]
    pub const fn is_address(&self) -> bool {
        self.bits == width(self.first)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| NetworkError)?)),
            None => (text, None),
        };
        let ip: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let bits = bits.unwrap_or_else(|| width(ip));
        let (ip, bits) = match (ip.to_canonical(), bits.checked_sub(96)) {
            (canonical @ IpAddr::V4(_), Some(bits)) if ip.is_ipv6() => (canonical, bits),
            _ => (ip, bits),
        };
        Ok(Self { first: masked(ip, bits).ok_or(NetworkError)?, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, bits } = self;
        if self.is_address() { write!(f, "{first}") } else { write!(f, "{first}/{bits}") }
    }
}

const fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// The first address of the network; `None` for too many bits.
fn masked(ip: IpAddr, bits: u8) -> Option<IpAddr> {
    let host = u32::from(width(ip).checked_sub(bits)?);
    Some(match ip {
        IpAddr::V4(ip) => IpAddr::V4((u32::MAX.checked_shl(host).unwrap_or(0) & u32::from(ip)).into()),
        IpAddr::V6(ip) => {
            IpAddr::V6(Ipv6Addr::from(u128::MAX.checked_shl(host).unwrap_or(0) & u128::from(ip)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, ip: &str) -> bool {
        network.parse::<Network>().unwrap().contains(ip.parse().unwrap())
    }

    #[test]
    fn network_contains_addresses_of_its_family_alone() {
        assert!(contains("10.0.0.0/8", "10.200.1.2") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.4"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "fe80::1") && !contains("::/0", "1.2.3.4"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1") && !contains("2001:db8::/32", "2001:db9::1"));
    }

    #[test]
    fn mapped_addresses_count_as_ipv4() {
        for network in
            ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.1/128", "10.0.0.0/24", "::ffff:10.0.0.0/120"]
        {
            assert!(contains(network, "10.0.0.1") && contains(network, "::ffff:10.0.0.1"), "{network}");
            assert!(!contains(network, "10.0.1.1"), "{network}");
        }
    }

    #[test]
    fn host_with_ipv6_is_its_network() {
        let host = |ip: &str| host_of(ip.parse().unwrap()).to_string();
        assert_eq!([host("10.1.2.3"), host("::ffff:10.1.2.3")], ["10.1.2.3", "10.1.2.3"]);
        assert_eq!([host("2001:db8:1:2:3:4:5:6"), host("2001:db8:1:2::")], ["2001:db8:1:2::"; 2]);
    }

    #[test]
    fn text_of_a_network_reads_back() {
        for (text, shown) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
            ("::/0", "::/0"),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.to_string(), shown);
            assert_eq!(shown.parse(), Ok(network));
        }
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0",
            "a",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
            " 10.0.0.1",
            "10.0.0.1\n",
            "*",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text:?}");
        }
    }
}
