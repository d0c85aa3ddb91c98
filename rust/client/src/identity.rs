//! Who this client is: local address, client id, unique keys of messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;

use parking_lot::Mutex;
use rocketpy_env::{local_month_ms, now_ms, random_u64};
use rocketpy_protocol::message_id::{UniqueKey, UniqueKeys};

use crate::config::ClientConfig;

/// An address of the documentation range. No packet is sent: it only makes the system choose a route to the outside.
const OUTSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// Who a client is.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) client_id: String,
    /// The local address, which is part of the unique keys of its messages.
    pub(crate) local: IpAddr,
}

impl Identity {
    /// Finds the local address on the way to `name_server` (`host:port`).
    pub(crate) fn of(config: &ClientConfig, name_server: &str) -> Self {
        let local = local_address(name_server);
        Self { client_id: client_id(config, local), local }
    }
}

/// `<ip>@<instance name>[@<unit>]`.
///
/// A client without an instance name gets process id and a random number, which is unique in a group. Members sort and hash
/// client ids as text, so any text will do.
///
/// # Source
/// docs/reference/client.md 1.1.
#[doc(alias = "buildMQClientId")]
fn client_id(config: &ClientConfig, local: IpAddr) -> String {
    let ip = match (&config.client_ip, local) {
        (Some(ip), _) => ip.clone(),
        (None, IpAddr::V4(ip)) => ip.to_string(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
    };
    let instance = match &config.instance_name {
        Some(name) => name.clone(),
        None => format!("{}#{}", std::process::id(), random_u64()),
    };
    match config.unit_name.as_deref().map(str::trim).filter(|unit| !unit.is_empty()) {
        Some(unit) => format!("{ip}@{instance}@{unit}"),
        None => format!("{ip}@{instance}"),
    }
}

/// The local address from which `server` (`host:port`) is reached. For a host name, that of the route to the outside.
fn local_address(server: &str) -> IpAddr {
    let towards = match server.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) if server.starts_with("localhost:") => return Ipv4Addr::LOCALHOST.into(),
        Err(_) => OUTSIDE,
    };
    source_towards(towards).or_else(|_| source_towards(OUTSIDE)).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

fn source_towards(address: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    Ok(socket.local_addr()?.ip())
}

/// Makes the unique keys of the messages of one instance.
#[derive(Debug)]
pub(crate) struct UniqueIds {
    keys: UniqueKeys,
    clock: Mutex<Clock>,
}

/// The last reading of the clock.
#[derive(Debug)]
struct Clock {
    now_ms: i64,
    /// Its month: keys count milliseconds from the start.
    month: Range<i64>,
    /// The hash of the keys. It changes where their milliseconds begin again, so that no key is made twice: with a month, and when the
    /// clock was set back.
    hash: u32,
}

/// A reading of the clock, and what else keys of that time have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now_ms: i64,
    month_start_ms: i64,
    hash: u32,
}

impl UniqueIds {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self {
            keys: UniqueKeys::new(address, std::process::id(), 0),
            clock: Mutex::new(Clock { now_ms: 0, month: 0..0, hash: 0 }),
        }
    }

    /// Reads the clock, once for many keys.
    pub(crate) fn moment(&self) -> Moment {
        let mut clock = self.clock.lock();
        let now_ms = now_ms(); // with the lock: an earlier time than the last one is a clock that was set back
        if !clock.month.contains(&now_ms) || now_ms < clock.now_ms {
            clock.month = local_month_ms(now_ms);
            // The random number also keeps the keys of two instances of one process apart.
            clock.hash = random_u64() as u32;
        }
        clock.now_ms = now_ms;
        Moment { now_ms, month_start_ms: clock.month.start, hash: clock.hash }
    }

    pub(crate) fn next(&self, moment: Moment) -> UniqueKey {
        UniqueKey { hash: moment.hash, ..self.keys.next(moment.now_ms, moment.month_start_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ClientConfig {
        ClientConfig::new(["127.0.0.1:9876"])
    }

    #[test]
    fn a_client_id_is_address_then_instance_then_unit() {
        let named = ClientConfig { instance_name: Some("a".into()), ..config() };
        assert_eq!(client_id(&named, Ipv4Addr::new(10, 1, 2, 3).into()), "10.1.2.3@a");
        let unit =
            ClientConfig { unit_name: Some("u".into()), client_ip: Some("1.1.1.1".into()), ..named.clone() };
        assert_eq!(client_id(&unit, Ipv4Addr::LOCALHOST.into()), "1.1.1.1@a@u");
        let blank = ClientConfig { unit_name: Some(" ".into()), ..named };
        assert_eq!(client_id(&blank, Ipv6Addr::LOCALHOST.into()), "[::1]@a");
    }

    #[test]
    fn the_parts_of_a_client_id_have_no_control_characters() {
        let bad = || Some("a\n\u{1b}[2J".to_owned());
        for (field, config) in [
            ("client_ip", ClientConfig { client_ip: bad(), ..config() }),
            ("instance_name", ClientConfig { instance_name: bad(), ..config() }),
            ("unit_name", ClientConfig { unit_name: bad(), ..config() }),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(r"a\n\u{1b}[2J"), "{error}");
        }
        let named = ClientConfig { instance_name: Some("\u{6807} a#1".into()), ..config() };
        assert_eq!(named.check(), Ok(()));
    }

    #[test]
    fn two_clients_without_an_instance_name_differ() {
        let [a, b] = [(); 2].map(|()| client_id(&config(), Ipv4Addr::LOCALHOST.into()));
        assert_ne!(a, b);
        assert!(a.starts_with(&format!("127.0.0.1@{}#", std::process::id())), "{a}");
    }

    #[test]
    fn the_local_address_is_that_of_the_route_to_the_server() {
        assert_eq!(local_address("127.0.0.1:9876"), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(local_address("localhost:9876"), IpAddr::from([127, 0, 0, 1]));
    }

    #[test]
    fn keys_of_one_instance_and_of_two_differ() {
        let [first, second] = [(); 2].map(|()| UniqueIds::new(Ipv4Addr::LOCALHOST.into()));
        let moments = [first.moment(), second.moment()];
        let keys: std::collections::HashSet<String> = (0..1000)
            .flat_map(|_| [first.next(moments[0]), second.next(moments[1])])
            .map(|key| key.to_string())
            .collect();
        assert_eq!(keys.len(), 2000);
    }

    #[test]
    fn keys_of_a_clock_that_was_set_back_differ_from_all_before() {
        let ids = UniqueIds::new(Ipv4Addr::LOCALHOST.into());
        let hashes: Vec<u32> = [0, 0, 3_600_000, 0]
            .into_iter()
            .map(|ahead_ms| {
                ids.clock.lock().now_ms += ahead_ms;
                ids.next(ids.moment()).hash
            })
            .collect();
        assert_eq!(hashes[0], hashes[1]);
        assert_ne!(hashes[1], hashes[2], "the clock was an hour ahead");
        assert_eq!(hashes[2], hashes[3]);
    }
}
