//! The address that goes into records.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// An address that every append reads and that rarely changes.
#[derive(Debug)]
pub(crate) struct HostCell {
    /// An IPv4 address and its port, with bit 48 set; 0 for an IPv6 address.
    packed: AtomicU64,
    address: RwLock<SocketAddr>,
}

impl HostCell {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { packed: AtomicU64::new(Self::pack(address)), address: RwLock::new(address) }
    }

    fn pack(address: SocketAddr) -> u64 {
        match address {
            SocketAddr::V4(v4) => 1 << 48 | u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port()),
            SocketAddr::V6(_) => 0,
        }
    }

    pub(crate) fn get(&self) -> SocketAddr {
        match self.packed.load(Ordering::Relaxed) {
            0 => *self.address.read(),
            packed => SocketAddr::from((Ipv4Addr::from_bits((packed >> 16) as u32), packed as u16)),
        }
    }

    pub(crate) fn set(&self, address: SocketAddr) {
        let mut slot = self.address.write();
        *slot = address;
        self.packed.store(Self::pack(address), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was_set() {
        let cell = HostCell::new("127.0.0.1:10911".parse().unwrap());
        assert_eq!(cell.get().to_string(), "127.0.0.1:10911");
        for address in ["255.255.255.255:65535", "[2001:db8::1]:10911", "0.0.0.0:0"] {
            cell.set(address.parse().unwrap());
            assert_eq!(cell.get().to_string(), address);
        }
    }
}
