//! The limit of open files, and what fits below it.

use rocketpy_broker::StoreConfig;
use rocketpy_env::raise_open_file_limit;
use tracing::{info, warn};

use crate::{Role, ServerConfig};

/// Files kept for other uses than connections: logs, libraries, listening sockets, the store's commit log.
const RESERVE: u64 = 256;
/// Connections are never cut below this, however low the limit.
const LEAST: usize = 16;

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
