//! A pair without a message whose slave is promoted while its master is away.

use std::time::Duration;

use rocketpy_server::{Process, Role, ServerConfig};

use crate::pair::Pair;
use crate::support::{TIMEOUT, wait_until};

impl Pair {
    /// Promotes the slave of a pair without a message, whose master ends as by `kill -9`. Returns the folder of that master.
    fn promote_without_messages(&mut self) -> &'static str {
        let first = self.master();
        wait_until("the slave follows", || {
            self.try_status(&first).is_some_and(|status| !status.ha_connection_info.is_empty())
        });
        let cut = self.cut_power();
        self.stop_master();
        let second = self.slave();
        self.change_role(&second, "ASYNC_MASTER", true).unwrap();
        self.wait_for_role(&second, true);
        cut
    }
}

#[test]
fn former_master_with_an_empty_log_becomes_the_slave_at_its_start() {
    let mut pair = Pair::start();
    let cut = pair.promote_without_messages();
    pair.master = Some(Process::start(Role::Broker, pair.of_master(cut)).unwrap());
    let (first, second) = (pair.master(), pair.slave());
    assert!(!pair.try_status(&first).unwrap().master, "it starts as the slave");
    assert_eq!(pair.caller.send(&second, "orders", "1").code, 0);
    wait_until("the former master follows", || {
        pair.end(&second) > 0 && pair.end(&first) == pair.end(&second)
    });
}

#[test]
fn running_master_with_an_empty_log_becomes_the_slave_of_a_promoted_one() {
    let mut pair = Pair::start();
    let cut = pair.promote_without_messages();
    let second = pair.slave();
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    let mut of_first = pair.of_master(cut);
    of_first.broker.replication.sync_back_timeout = Duration::from_millis(1);
    pair.master = Some(Process::start(Role::Broker, of_first).unwrap());
    let first = pair.master();
    assert!(pair.try_status(&first).unwrap().master, "it knows of no other");
    let port = second.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    pair.slave = Some(Process::start(Role::Broker, ServerConfig { port, ..pair.of_slave() }).unwrap());
    pair.wait_for_role(&first, false);
    assert!(pair.try_status(&second).unwrap().master);
}

#[test]
fn former_master_with_messages_of_its_own_does_not_start_beside_a_slave_promoted_empty() {
    let mut pair = Pair::start();
    let cut = pair.promote_without_messages();
    let second = pair.slave();
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    let mut of_first = pair.of_master(cut);
    of_first.broker.replication.sync_back_timeout = Duration::from_millis(1);
    pair.master = Some(Process::start(Role::Broker, of_first).unwrap());
    pair.send(0..1);
    pair.stop_master();
    let port = second.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    pair.slave = Some(Process::start(Role::Broker, ServerConfig { port, ..pair.of_slave() }).unwrap());
    let refused =
        Process::start(Role::Broker, pair.of_master(cut)).expect_err("it does not start").to_string();
    assert!(refused.contains("is also a master of this broker name"), "{refused}");
    assert!(refused.contains("diverge at 0"), "{refused}");
}
