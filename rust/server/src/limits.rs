//! Limits of the system, and what fits below them: open files and memory.

use rocketpy_broker::{MemoryBudget, StoreConfig};
use rocketpy_env::{memory_limit, raise_open_file_limit};
use tracing::{info, warn};

use crate::ServerConfig;
use crate::config::Origin;
use crate::role::Role;

/// Files kept for other uses than connections: logs, libraries, listening sockets, the store's commit log.
const RESERVE: u64 = 256;
/// Connections are never cut below this, however low the limit.
const LEAST: usize = 16;

/// Share of the memory that the process may use for peers, unless `maxPeerBytes` is configured.
const PEER_SHARE: u64 = 4;
/// Minimum of `maxPeerBytes`.
const MIN_PEER_BYTES: usize = 64 << 20;
/// Share of the memory that the kernel may use for open queue files.
const QUEUE_FILE_SHARE: u64 = 8;
/// Memory of the kernel for one open queue file: descriptor, map, and page tables of its 6 MB.
const QUEUE_FILE_BYTES: u64 = 16 << 10;

/// Brings the memory for peers and the number of open queue files below the memory that the process may use, such as that of its
/// container. Comes after [`fit`].
pub(crate) fn fit_memory(config: &mut ServerConfig) {
    let Some(limit_bytes) = memory_limit() else { return warn!("cannot read the memory of this machine") };
    let allowed = config.broker.store.open_queue_files;
    config.broker.store.open_queue_files = queue_files(allowed, limit_bytes);
    if config.broker.store.open_queue_files < allowed {
        let open_queue_files = config.broker.store.open_queue_files;
        info!(limit_bytes, open_queue_files, "number of open queue files reduced to the memory limit");
    }
    let configured = config.broker.max_peer_bytes;
    let is_configured = !matches!(config.origin("maxPeerBytes"), Origin::Default);
    let fits = if is_configured { configured } else { peer_bytes(configured, limit_bytes) };
    config.broker.max_peer_bytes = fits;
    config.name_server.max_peer_bytes = fits;
    if fits < configured {
        info!(
            limit_bytes,
            max_peer_bytes = fits,
            "memory for peers reduced to a quarter of the memory limit"
        );
    } else if fits as u64 > limit_bytes / 2 {
        warn!(limit_bytes, max_peer_bytes = fits, "maxPeerBytes exceeds half of the memory limit");
    }
}

/// The part of the queue files whose maps fit into their share of the memory.
fn queue_files(allowed: usize, limit_bytes: u64) -> usize {
    let room = usize::try_from(limit_bytes / QUEUE_FILE_SHARE / QUEUE_FILE_BYTES).unwrap_or(usize::MAX);
    allowed.min(room.max(LEAST))
}

/// The default within its share of the memory; a number that a program set as it is.
fn peer_bytes(configured: usize, limit_bytes: u64) -> usize {
    if configured != MemoryBudget::DEFAULT_BYTES {
        return configured;
    }
    let share = usize::try_from(limit_bytes / PEER_SHARE).unwrap_or(usize::MAX);
    share.clamp(MIN_PEER_BYTES, configured)
}

/// Raises the limit of open files and brings the numbers of connections below it: beyond it the server could accept nothing
/// and open no file of the store.
pub(crate) fn fit(config: &mut ServerConfig, role: Role) {
    let (has_name_server, has_broker) = (role.has_name_server(), role.has_broker());
    let limit = match raise_open_file_limit() {
        Ok(limit) => limit,
        Err(error) => return warn!(%error, "cannot read the limit of open files"),
    };
    // The default was taken before the limit was raised.
    config.broker.store.open_queue_files = StoreConfig::open_queue_files_of(limit);
    let of_store = if has_broker { config.broker.store.open_queue_files } else { 0 };
    let room = usize::try_from(limit.saturating_sub(RESERVE)).unwrap_or(usize::MAX).saturating_sub(of_store);
    let name_server = if has_name_server { config.name_server.max_connections } else { 0 };
    let broker = if has_broker { config.broker.max_connections } else { 0 };
    // The second port has as many again.
    let ports = if config.broker.vip_channel { 2 } else { 1 };
    let [name_server_fits, broker_fits] = shares(room, name_server, broker, ports);
    if (name_server_fits, broker_fits) == (name_server, broker) {
        return info!(open_files = limit, name_server, broker, "limit of open files allows all connections");
    }
    let numbers = |config: &ServerConfig| (config.broker.max_connections, config.name_server.max_connections);
    let asked_for = numbers(config) != numbers(&ServerConfig::default());
    config.name_server.max_connections = name_server_fits;
    config.broker.max_connections = broker_fits;
    let (open_files, name_server, broker) = (limit, name_server_fits, broker_fits);
    if asked_for {
        warn!(
            open_files,
            name_server,
            broker,
            "limit of open files allows fewer connections than maxConnections; raise it (ulimit -n)"
        );
    } else {
        info!(open_files, name_server, broker, "number of connections reduced to the limit of open files");
    }
}

/// Cuts both numbers by one factor until they fit.
fn shares(room: usize, name_server: usize, broker: usize, ports: usize) -> [usize; 2] {
    let wanted = name_server.saturating_add(broker.saturating_mul(ports));
    if wanted <= room {
        return [name_server, broker];
    }
    let share = |number: usize| {
        let share = number as u128 * room as u128 / wanted as u128;
        usize::try_from(share).unwrap_or(usize::MAX).max(LEAST).min(number)
    };
    [share(name_server), share(broker)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_of_the_memory_for_peers_is_within_a_quarter_of_the_memory() {
        let default = MemoryBudget::DEFAULT_BYTES;
        assert_eq!(peer_bytes(default, 64 << 30), default);
        assert_eq!(peer_bytes(default, 1 << 30), 256 << 20);
        assert_eq!(peer_bytes(default, 100 << 20), MIN_PEER_BYTES);
        assert_eq!(peer_bytes(600 << 20, 100 << 20), 600 << 20, "set by a program");
    }

    #[test]
    fn open_queue_files_take_an_eighth_of_the_memory_at_most() {
        assert_eq!(queue_files(20_000, 64 << 30), 20_000);
        assert_eq!(queue_files(20_000, 512 << 20), 4096);
        assert_eq!(queue_files(100, 512 << 20), 100);
        assert_eq!(queue_files(20_000, 1 << 20), LEAST);
    }

    #[test]
    fn connections_of_all_ports_together_stay_within_the_room() {
        assert_eq!(shares(1_000_000, 10_000, 65_536, 1), [10_000, 65_536]);
        for (room, ports) in [(768, 1), (3_000, 2), (100_000, 2)] {
            let [name_server, broker] = shares(room, 10_000, 65_536, ports);
            assert!(name_server + ports * broker <= room, "{room}: {name_server} and {broker}");
            assert!(name_server > room / 20 && broker > room / 3, "{room}: {name_server} and {broker}");
        }
        assert_eq!(shares(768, 0, 65_536, 1), [0, 768]);
        assert_eq!(shares(0, 10, 65_536, 1), [10, LEAST]);
    }
}
