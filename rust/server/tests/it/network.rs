//! A network between a master and its slave that fails: bytes that do not arrive, in one direction or in both, come late, or are gone with
//! their connection; and an end that is gone without a word.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::spawn;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rocketpy_broker::BrokerRole;
use rocketpy_protocol::code::response;
use rocketpy_server::{Process, Role, ServerConfig};

use crate::pair::{Pair, bodies};
use crate::support::{TIMEOUT, wait_until};

/// Long enough for the threads of a pump to look around.
const LOOK: Duration = Duration::from_millis(5);

/// What a network does with the bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Sound,
    /// Bytes do not arrive in these directions, nor does the end of the connection.
    Silent {
        to_slave: bool,
        to_master: bool,
    },
    /// A few bytes at a time, with a pause.
    Slow,
    /// Connections break.
    Broken,
}

/// A port before a master's port for slaves.
struct Proxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
}

struct Shared {
    /// What happens to connections that are there, and where new ones lead.
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    network: Network,
    /// Connections before this one stay silent for ever.
    dead_before: u64,
    connections: u64,
    target: String,
}

impl Proxy {
    fn new(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let state = State { network: Network::Sound, dead_before: 0, connections: 0, target };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let owner = Arc::clone(&shared);
        spawn(move || {
            for slave in listener.incoming().map_while(Result::ok) {
                let (number, target) = {
                    let mut state = owner.state.lock();
                    state.connections += 1;
                    (state.connections, state.target.clone())
                };
                let Ok(master) = TcpStream::connect(target) else { continue };
                for (from, to, is_to_slave) in [(&master, &slave, true), (&slave, &master, false)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let owner = Arc::clone(&owner);
                    spawn(move || owner.pump(number, is_to_slave, from, to));
                }
            }
        });
        Self { shared, addr }
    }

    fn set(&self, network: Network) {
        self.shared.state.lock().network = network;
        self.shared.changed.notify_all();
    }

    /// Whoever is connected hears nothing any more; who connects reaches `target`.
    fn move_to(&self, target: String) {
        let mut state = self.shared.state.lock();
        (state.target, state.dead_before, state.network) = (target, state.connections + 1, Network::Sound);
    }
}

impl Shared {
    fn pump(&self, number: u64, is_to_slave: bool, mut from: TcpStream, mut to: TcpStream) {
        from.set_read_timeout(Some(LOOK)).unwrap();
        let mut buffer = [0; 512];
        loop {
            let read = from.read(&mut buffer);
            let mut state = self.state.lock();
            loop {
                match state.network {
                    _ if number < state.dead_before => {}
                    Network::Silent { to_slave, to_master }
                        if if is_to_slave { to_slave } else { to_master } => {}
                    _ => break,
                }
                self.changed.wait(&mut state);
            }
            let network = state.network;
            drop(state);
            let count = match read {
                Ok(count) if count > 0 && network != Network::Broken => count,
                Err(error) if is_time_out(&error) && network != Network::Broken => continue,
                _ => {
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    return;
                }
            };
            if network == Network::Slow {
                std::thread::sleep(LOOK); // it is what is tried
            }
            if to.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    }
}

fn is_time_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A SYNC_MASTER and its slave, which find a silent end soon.
fn quick(mut config: ServerConfig) -> ServerConfig {
    let replication = &mut config.broker.replication;
    replication.heartbeat_every = Duration::from_millis(100);
    replication.silence_limit = Duration::from_secs(1);
    replication.slave_timeout = Duration::from_millis(300);
    if replication.role != BrokerRole::Slave {
        replication.role = BrokerRole::SyncMaster;
    }
    config
}

#[test]
fn no_fault_of_the_network_lets_a_send_succeed_that_the_slave_has_not_and_all_of_them_heal() {
    let mut pair = Pair::start();
    pair.stop_master();
    pair.master = Some(Process::start(Role::Broker, quick(pair.of_master("master"))).unwrap());
    let proxy = Proxy::new(pair.slave_addr());
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    let mut of_slave = quick(pair.of_slave());
    of_slave.broker.replication.master_address = Some(proxy.addr.to_string());
    pair.slave = Some(Process::start(Role::Broker, of_slave).unwrap());

    let (mut sent, mut codes) = (0, Vec::new());
    let mut send = |pair: &Pair| {
        let code = pair.caller.send(&pair.master(), "orders", &sent.to_string()).code;
        sent += 1;
        code
    };
    wait_until("the slave is there", || send(&pair) == response::SUCCESS);
    let silent = |to_slave, to_master| Network::Silent { to_slave, to_master };
    for network in [silent(true, true), silent(true, false), silent(false, true), Network::Broken] {
        proxy.set(network);
        if network == Network::Broken {
            wait_until("the connection is gone", || send(&pair) == response::SLAVE_NOT_AVAILABLE);
        } else {
            // First nobody answers; then the connection counts for dead.
            wait_until("the slave is let go", || {
                codes.push(send(&pair));
                codes.last() == Some(&response::SLAVE_NOT_AVAILABLE)
            });
        }
        assert!(!codes.contains(&response::SUCCESS), "{network:?}: {codes:?}");
        codes.clear();
        proxy.set(Network::Sound);
        wait_until("the slave is there again", || send(&pair) == response::SUCCESS);
    }
    proxy.set(Network::Slow);
    for _ in 0..5 {
        let code = send(&pair);
        assert!([response::SUCCESS, response::FLUSH_SLAVE_TIMEOUT].contains(&code), "{code}");
    }
    // The master is gone, and no word of that comes through.
    proxy.set(silent(true, true));
    pair.stop_master();
    pair.master = Some(Process::start(Role::Broker, quick(pair.of_master("master"))).unwrap());
    proxy.move_to(pair.slave_addr());
    wait_until("the slave follows the next one", || send(&pair) == response::SUCCESS);

    pair.wait_for_slave();
    assert_eq!(pair.caller.read_all(&pair.master(), "orders"), bodies(0..sent));
    let end = pair.end(&pair.master());
    assert!(pair.log("master", end) == pair.log("slave", end), "byte for byte");
}
