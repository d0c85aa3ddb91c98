//! Open connections by client address.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use rocketpy_model::network::host_of;

use super::rule::Rules;

/// Number of open connections of each address that has any: counted also without a quota, so that a new one knows them.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<HashMap<IpAddr, u64>>);

impl Connections {
    /// Counts a connection, unless the address has `limit` already.
    pub(super) fn open(&self, peer: IpAddr, limit: Option<u64>) -> bool {
        let mut counts = self.0.lock();
        let count = counts.entry(host_of(peer)).or_default();
        if limit.is_some_and(|limit| *count >= limit) {
            return false;
        }
        *count += 1;
        true
    }

    pub(super) fn close(&self, peer: IpAddr) {
        let (mut counts, host) = (self.0.lock(), host_of(peer));
        let count = counts.get_mut(&host).expect("a connection that ends was counted");
        assert!(*count > 0, "an address is counted while it has connections: {host}");
        *count -= 1;
        if *count == 0 {
            counts.remove(&host);
        }
    }

    /// Numbers of connections by the id of the quota of their addresses.
    pub(super) fn by_rule(&self, rules: &Rules) -> HashMap<String, u64> {
        let mut all = HashMap::new();
        for (ip, count) in &*self.0.lock() {
            if let Some((rule, _)) = rules.find_address(*ip) {
                *all.entry(rule.id().to_owned()).or_default() += count;
            }
        }
        all
    }
}
