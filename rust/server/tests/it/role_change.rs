//! A pair whose master becomes the slave, and its slave the master, while both run.
#![expect(clippy::disallowed_methods, reason = "a test reads its own files")]

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use rocketpy_broker::BrokerRole;
use rocketpy_model::GroupConfig;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    ChangeBrokerRoleHeader, DeleteTopicRequestHeader, GetTopicConfigRequestHeader, Header,
    PullMessageResponseHeader,
};
use rocketpy_protocol::{Command, json};
use rocketpy_server::{Process, Role, ServerConfig};

use crate::pair::{Pair, bodies};
use crate::support::{TIMEOUT, pull, pull_as, send_with, wait_until};

impl Pair {
    pub(crate) fn change_role(&self, broker: &str, role: &str, force: bool) -> Result<(), String> {
        let header = ChangeBrokerRoleHeader { role, broker_id: None, force: Some(force) };
        let answer = self.caller.call(broker, Command::request(request::CHANGE_BROKER_ROLE, &header));
        if answer.code == 0 { Ok(()) } else { Err(answer.remark.unwrap_or_default()) }
    }

    /// Waits until a broker serves in a role.
    pub(crate) fn wait_for_role(&self, broker: &str, is_master: bool) {
        wait_until("the broker has its new role", || {
            self.try_status(broker).is_some_and(|status| status.master == is_master)
        });
    }
}

#[test]
fn a_demoted_master_follows_the_promoted_slave_and_nothing_is_lost() {
    let mut pair = Pair::start();
    let (first, second) = (pair.master(), pair.slave());
    pair.send(0..20);
    pair.wait_for_slave();
    let refused = pair.change_role(&second, "ASYNC_MASTER", false).unwrap_err();
    assert!(refused.contains(&format!("the master at {first} answers")), "{refused}");
    assert!(pair.change_role(&first, "ASYNC_MASTER", false).unwrap_err().contains("already a master"));
    assert!(pair.change_role(&second, "SLAVE", false).unwrap_err().contains("already a slave"));
    assert!(
        pair.change_role(&second, "KING", false).unwrap_err().contains("ASYNC_MASTER, SYNC_MASTER or SLAVE")
    );

    for (body, properties) in [("delayed", "DELAY\u{1}2\u{2}"), ("timed", "TIMER_DELAY_SEC\u{1}4\u{2}")] {
        assert_eq!(pair.caller.call(&first, send_with("orders", body, Some(properties))).code, 0);
    }
    pair.caller.create_topic(&first, "new"); // the slave asks for topics every 3 s
    pair.change_role(&first, "SLAVE", false).unwrap();
    pair.wait_for_role(&first, false);
    assert_ne!(pair.caller.send(&first, "orders", "x").code, 0, "a slave takes no messages");
    pair.change_role(&second, "SYNC_MASTER", false).unwrap();
    pair.wait_for_role(&second, true);
    assert_eq!(
        pair.caller.call(&second, pull("new", 0, 0)).code,
        response::PULL_NOT_FOUND,
        "it has the topic"
    );
    let names = pair.names.addresses().name_server.clone().unwrap();
    wait_until("clients find the topic at the new master", || {
        let brokers = pair.caller.route(&names, "new").map(|route| route.broker_datas).unwrap_or_default();
        brokers.iter().any(|broker| broker.broker_addrs.get(&0) == Some(&second))
    });
    // The former master has the whole log of the new one, and follows it.
    wait_until("the former master follows", || pair.caller.send(&second, "orders", "20").code == 0);
    wait_until("what waited at the former master is delivered by the new one", || {
        let read = pair.caller.read_all(&second, "orders");
        ["delayed", "timed"].iter().all(|waited| read.iter().any(|body| body == waited))
    });
    let read = pair.caller.read_all(&second, "orders");
    assert_eq!(read[..20], bodies(0..20));
    wait_until("the logs are as long as each other", || pair.end(&first) == pair.end(&second));

    let logs = ["master", "slave"].map(|name| pair.log(name, pair.end(&second)));
    assert!(logs[0] == logs[1], "byte for byte");

    // The roles outlive both processes, whatever the configuration says.
    for process in [pair.slave.take(), pair.master.take()].into_iter().flatten() {
        process.stop(TIMEOUT).unwrap();
    }
    pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
    pair.master = Some(Process::start(Role::Broker, pair.of_master("master")).unwrap());
    let (first, second) = (pair.master(), pair.slave());
    assert!(pair.try_status(&second).unwrap().master && !pair.try_status(&first).unwrap().master);
    assert_eq!(pair.caller.read_all(&second, "orders"), read);
}

#[test]
fn a_master_without_messages_is_demoted_and_serves_before_another_one_is_promoted() {
    let pair = Pair::start();
    let (first, second) = (pair.master(), pair.slave());
    wait_until("a slave follows", || {
        pair.try_status(&first).is_some_and(|status| !status.ha_connection_info.is_empty())
    });
    pair.change_role(&first, "SLAVE", false).unwrap();
    pair.wait_for_role(&first, false);
    pair.change_role(&second, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&second, true);
    assert_eq!(pair.caller.send(&second, "orders", "1").code, 0);
    wait_until("the former master has the message", || {
        pair.end(&second) > 0 && pair.end(&first) == pair.end(&second)
    });
}

#[test]
fn one_role_change_at_a_time_and_one_that_fails_leaves_the_master_as_it_was() {
    let mut pair = Pair::start();
    pair.send(0..1);
    pair.wait_for_slave();
    pair.stop_master();
    let mut of_master = pair.of_master("master");
    let replication = &mut of_master.broker.replication;
    (replication.is_bounded, replication.max_bytes_per_second) = (true, 4096);
    pair.master = Some(Process::start(Role::Broker, of_master).unwrap());
    let first = pair.master();
    let body = "x".repeat(100_000);
    for _ in 0..5 {
        assert_eq!(pair.caller.send(&first, "orders", &body).code, 0);
    }
    wait_until("the slave follows again", || {
        pair.try_status(&first).is_some_and(|status| !status.ha_connection_info.is_empty())
    });
    let header = ChangeBrokerRoleHeader { role: "SLAVE", broker_id: None, force: Some(false) };
    let demote = || Command::request(request::CHANGE_BROKER_ROLE, &header);
    let [one, other] = pair.caller.call_both(&first, [demote(), demote()]);
    let remarks = [one, other].map(|answer| answer.remark.unwrap_or_default());
    assert!(remarks.iter().any(|why| why.contains("no slave had the whole log within 10 s")), "{remarks:?}");
    assert!(remarks.iter().any(|why| why.contains("another role change is in progress")), "{remarks:?}");
    assert_eq!(pair.caller.send(&first, "orders", "still a master").code, 0);

    // The slave knows by now that its master had more.
    pair.stop_master();
    let refused = pair.change_role(&pair.slave(), "ASYNC_MASTER", false).unwrap_err();
    assert!(refused.contains("the master had the log up to"), "{refused}");
}

#[test]
fn of_two_masters_with_histories_of_their_own_the_second_does_not_start() {
    let mut pair = Pair::start();
    pair.send(0..10);
    pair.wait_for_slave();
    let (first, second) = (pair.master(), pair.slave());
    pair.change_role(&first, "SLAVE", false).unwrap();
    pair.wait_for_role(&first, false);
    pair.change_role(&second, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&second, true);
    wait_until("the former master follows", || {
        pair.try_status(&second).is_some_and(|status| status.in_sync_slave_nums == 1)
    });
    let at = pair.end(&second);
    pair.stop_master(); // it knows the new life, and has no byte of it
    assert_eq!(pair.caller.send(&second, "orders", "at the one").code, 0);
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    pair.master = Some(Process::start(Role::Broker, pair.of_master("master")).unwrap());
    let first = pair.master();
    pair.change_role(&first, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&first, true);
    assert_eq!(pair.caller.send(&first, "orders", "at the other").code, 0);
    let names = pair.names.addresses().name_server.clone().unwrap();
    wait_until("it is registered", || pair.caller.route(&names, "orders").is_some());
    let refused = Process::start(Role::Broker, pair.of_slave()).expect_err("it does not start").to_string();
    assert!(refused.contains(&format!("{first} is also a master of this broker name")), "{refused}");
    assert!(refused.contains(&format!("diverge at {at}")), "{refused}");
}

#[test]
fn the_id_of_a_slave_that_is_away_is_not_given_to_another_one() {
    let mut pair = Pair::start();
    pair.send(0..1);
    pair.wait_for_slave();
    let mut of_second = pair.of_slave();
    of_second.broker.store.root = pair.path("second");
    let second = Process::start(Role::Broker, of_second).unwrap();
    let (address, taken) = (second.addresses().broker.clone().unwrap(), pair.slave());
    wait_until("the second slave with the id of the first says why it does not follow", || {
        let why = pair.try_status(&address).and_then(|status| status.not_followed);
        why.is_some_and(|why| why.contains(&format!("brokerId 1 is already used by the slave at {taken}")))
    });
    second.stop(TIMEOUT).unwrap();
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    let (first, names) = (pair.master(), pair.names.addresses().name_server.clone().unwrap());
    pair.change_role(&first, "SLAVE", true).unwrap();
    wait_until("the former master has another id than the slave that is away", || {
        let brokers = pair.caller.route(&names, "orders").map(|route| route.broker_datas).unwrap_or_default();
        brokers.iter().any(|broker| broker.broker_addrs.get(&2) == Some(&first))
    });
}

#[test]
fn a_slave_is_promoted_when_its_master_is_gone_and_a_master_without_a_slave_is_demoted_by_force_only() {
    let mut pair = Pair::start();
    pair.send(0..20);
    pair.wait_for_slave();
    pair.stop_master();
    let second = pair.slave();
    // The port above its own is another's, in this test or before it.
    let port: u16 = second.rsplit_once(':').unwrap().1.parse().unwrap();
    let _taken = TcpListener::bind(("127.0.0.1", port + 1));
    pair.change_role(&second, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&second, true);
    assert_eq!(pair.caller.send(&second, "orders", "20").code, 0);
    assert_eq!(pair.caller.read_all(&second, "orders"), bodies(0..21));

    let refused = pair.change_role(&second, "SLAVE", false).unwrap_err();
    assert!(refused.contains("no slave is connected"), "{refused}");
    assert_eq!(pair.caller.send(&second, "orders", "21").code, 0, "it takes messages again");
    pair.change_role(&second, "SLAVE", true).unwrap();
    pair.wait_for_role(&second, false);
}

#[test]
fn a_master_takes_back_also_what_its_slave_wrote_as_master_meanwhile() {
    let mut pair = Pair::start();
    pair.send(0..10);
    pair.wait_for_slave();
    let cut = pair.cut_power();
    pair.stop_master();
    let second = pair.slave();
    pair.change_role(&second, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&second, true);
    for body in bodies(10..20) {
        assert_eq!(pair.caller.send(&second, "orders", &body).code, 0);
    }
    pair.change_role(&second, "SLAVE", true).unwrap();
    pair.wait_for_role(&second, false);
    pair.master = Some(Process::start(Role::Broker, pair.of_master(cut)).unwrap());
    assert_eq!(pair.caller.read_all(&pair.master(), "orders"), bodies(0..20));
    pair.send(20..30);
    pair.wait_for_slave();
}

#[test]
fn a_slave_is_not_promoted_while_another_one_has_more_of_the_log() {
    let mut pair = Pair::start();
    pair.send(0..10);
    pair.wait_for_slave();
    let behind = pair.slave.take().unwrap();
    behind.stop(TIMEOUT).unwrap();
    let mut of_second = pair.of("second");
    (of_second.broker.broker_id, of_second.broker.replication.role) = (2, BrokerRole::Slave);
    pair.send(10..20);
    let second = Process::start(Role::Broker, of_second).unwrap();
    let ahead = second.addresses().broker.clone().unwrap();
    pair.wait_for_slave();
    pair.stop_master();
    pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
    let refused = pair.change_role(&pair.slave(), "ASYNC_MASTER", false).unwrap_err();
    assert!(refused.contains(&format!("the slave at {ahead} has the log up to")), "{refused}");
    pair.change_role(&ahead, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&ahead, true);
    assert_eq!(pair.caller.read_all(&ahead, "orders"), bodies(0..20));
    second.stop(TIMEOUT).unwrap();
}

impl Pair {
    /// A pair whose master answers a send once its slave has it.
    fn start_in_sync() -> Self {
        let mut pair = Self::start();
        pair.stop_master();
        pair.master = Some(Process::start(Role::Broker, pair.of_sync_master("master")).unwrap());
        wait_until("the slave follows again", || {
            pair.caller.send(&pair.master(), "orders", "first").code == response::SUCCESS
        });
        pair
    }

    fn of_sync_master(&self, name: &str) -> ServerConfig {
        let mut config = self.of_master(name);
        config.broker.replication.role = BrokerRole::SyncMaster;
        config
    }

    /// The bodies that a broker has, without those that tried whether it takes messages.
    fn read_numbers(&self, broker: &str) -> Vec<String> {
        let mut read = self.caller.read_all(broker, "orders");
        read.retain(|body| body != "first");
        read
    }

    /// Waits until the broker of a folder has the log of the one that was the slave at first, byte for byte.
    fn wait_for_log(&self, name: &str) {
        let (of_slave, of_master) = (&self.master(), &self.slave());
        wait_until("the slave has its master's log", || {
            let end = |broker| self.try_status(broker).map(|status| status.master_commit_log_max_offset);
            let Some(end) = end(of_slave).filter(|found| Some(*found) == end(of_master)) else {
                return false;
            };
            self.log(name, end as u64) == self.log("slave", end as u64)
        });
    }
}

/// A slave that asks its master for tables once an hour has what the master answers.
#[test]
fn topics_groups_and_first_offsets_of_a_sync_master_are_answered_once_its_slave_has_them() {
    let mut pair = Pair::start_in_sync();
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    let mut of_slave = pair.of_slave();
    of_slave.broker.intervals.ask_master = Duration::from_secs(3600);
    pair.slave = Some(Process::start(Role::Broker, of_slave).unwrap());
    let (master, slave) = (pair.master(), pair.slave());
    wait_until("the slave follows again", || {
        pair.caller.send(&master, "orders", "first").code == response::SUCCESS
    });
    let knows = |topic| {
        let asked = GetTopicConfigRequestHeader { topic, logical: None };
        pair.caller.call(&slave, Command::request(request::GET_TOPIC_CONFIG, &asked)).code
            == response::SUCCESS
    };
    for topic in ["one", "two"] {
        assert!(!knows(topic));
        pair.caller.create_topic(&master, topic);
        assert!(knows(topic), "{topic}");
    }
    let group = json::to_vec(&GroupConfig::new("readers"));
    let group = Command::bare_request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group);
    assert_eq!(pair.caller.call(&master, group).code, response::SUCCESS);
    assert_eq!(pair.caller.committed(&slave, "readers", "orders"), None);
    pair.caller.commit(&master, "readers", "orders", 1);
    assert_eq!(pair.caller.committed(&slave, "readers", "orders"), Some(1));
}

#[test]
fn a_slave_removes_the_queues_of_a_topic_that_its_master_deleted() {
    let pair = Pair::start();
    pair.send(0..1);
    let master = pair.master();
    pair.caller.create_topic(&master, "seasonal");
    assert_eq!(pair.caller.send(&master, "seasonal", "one").code, response::SUCCESS);
    let queues = |topic: &str| pair.path("slave").join("consumequeue").join(topic).is_dir();
    wait_until("the slave has its queue", || queues("seasonal"));
    let deleted = DeleteTopicRequestHeader { topic: "seasonal" };
    let deleted = pair.caller.call(&master, Command::request(request::DELETE_TOPIC_IN_BROKER, &deleted));
    assert_eq!(deleted.code, response::SUCCESS);
    wait_until("the slave has no queue of it", || !queues("seasonal"));
    assert!(queues("orders"));
}

/// A pair whose master waits for one slave, and a second slave.
fn start_with_two_slaves() -> (Pair, Process) {
    let pair = Pair::start_in_sync();
    let second = Process::start(Role::Broker, of_second(&pair)).unwrap();
    wait_until("both slaves follow", || {
        pair.try_status(&pair.master()).is_some_and(|status| status.in_sync_slave_nums == 2)
    });
    (pair, second)
}

fn of_second(pair: &Pair) -> ServerConfig {
    let mut config = pair.of_slave();
    (config.broker.broker_id, config.broker.store.root) = (2, pair.path("second"));
    config
}

fn broker(process: &Process) -> String {
    process.addresses().broker.clone().unwrap()
}

#[test]
fn a_master_that_was_replaced_acknowledges_nothing_with_the_slave_that_was_not_promoted() {
    let (pair, second) = start_with_two_slaves();
    let (first, promoted) = (pair.master(), pair.slave());
    pair.send(0..20);
    let names = pair.names.addresses().name_server.clone().unwrap();
    wait_until("the name server knows both slaves", || {
        let brokers = pair.caller.route(&names, "orders").map(|route| route.broker_datas).unwrap_or_default();
        brokers.iter().any(|data| data.broker_addrs.len() == 3)
    });
    pair.change_role(&promoted, "SYNC_MASTER", true).unwrap(); // as if the master stood still
    pair.wait_for_role(&promoted, true);
    assert!(!pair.caller.is_acknowledged(&first, "orders", "to nobody"));
    wait_until("the other slave follows the new master", || {
        pair.caller.send(&promoted, "orders", "first").code == response::SUCCESS
    });
    assert_eq!(pair.read_numbers(&promoted), bodies(0..20));
    second.stop(TIMEOUT).unwrap();
}

#[test]
fn a_former_master_with_another_end_stops_no_promotion_and_serves_and_becomes_nothing() {
    let (mut pair, second) = start_with_two_slaves();
    let names = pair.names.addresses().name_server.clone().unwrap();
    pair.send(0..20);
    wait_until("both slaves have all", || pair.end(&broker(&second)) == pair.end(&pair.master()));
    second.stop(TIMEOUT).unwrap();
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    for _ in 0..50 {
        assert_eq!(pair.caller.send(&pair.master(), "orders", "alone").code, response::SLAVE_NOT_AVAILABLE);
    }
    pair.stop_master();
    pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
    let second = Process::start(Role::Broker, of_second(&pair)).unwrap();
    let (promoted, other) = (pair.slave(), broker(&second));
    pair.change_role(&promoted, "SYNC_MASTER", false).unwrap();
    pair.wait_for_role(&promoted, true);
    wait_until("the other slave follows", || {
        pair.caller.send(&promoted, "orders", "first").code == response::SUCCESS
    });
    for body in bodies(20..25) {
        assert_eq!(pair.caller.send(&promoted, "orders", &body).code, 0);
    }

    // It fed two slaves while each send waited for one: nothing tells that its own end was promised to nobody.
    pair.master = Some(Process::start(Role::Broker, pair.of_sync_master("master")).unwrap());
    let former = pair.master();
    wait_until("the log names the offset of the divergence", || {
        let why = pair.try_status(&former).and_then(|status| status.not_followed);
        why.is_some_and(|why| why.contains("the logs diverge at"))
    });
    let serves_nobody = |pair: &Pair, broker: &str| {
        let pulled = pair.caller.call(broker, pull("orders", 21, 0));
        assert_eq!(pulled.code, response::SYSTEM_BUSY);
        assert!(pulled.remark.unwrap().contains("has diverged from its master"));
    };
    serves_nobody(&pair, &former);
    let refused = pair.try_status(&promoted).unwrap().refused_slaves;
    assert!(refused.iter().any(|slave| slave.addr == former && slave.why.contains("the logs diverge at")));
    wait_until("clients do not find it", || {
        let brokers = pair.caller.route(&names, "orders").map(|route| route.broker_datas).unwrap_or_default();
        brokers.iter().all(|data| data.broker_addrs.values().all(|address| *address != former))
    });
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    let refused = pair.change_role(&former, "SYNC_MASTER", false).unwrap_err();
    assert!(refused.contains("differs from the last master"), "{refused}");
    pair.change_role(&other, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&other, true);
    assert_eq!(pair.read_numbers(&other), bodies(0..25));
    // Also after a start while its master is away.
    pair.stop_master();
    second.stop(TIMEOUT).unwrap();
    pair.master = Some(Process::start(Role::Broker, pair.of_sync_master("master")).unwrap());
    serves_nobody(&pair, &pair.master());
}

#[test]
fn a_group_that_was_ahead_of_the_promoted_slave_goes_back_to_where_its_queue_ended() {
    let mut pair = Pair::start();
    pair.send(0..20);
    pair.wait_for_slave();
    wait_until("a first pull makes the group", || {
        pair.caller.call(&pair.master(), pull_as("g", "orders", 0, 0)).code == response::SUCCESS
    });
    wait_until("all can be read", || pair.caller.read_all(&pair.master(), "orders").len() == 20);
    pair.caller.commit(&pair.master(), "g", "orders", 10);
    wait_until("the slave has the offset", || {
        pair.caller.committed(&pair.slave(), "g", "orders") == Some(10)
    });
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    pair.send(20..30); // a member of the group has got them, and lives on
    pair.stop_master();
    pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
    let promoted = pair.slave();
    pair.change_role(&promoted, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&promoted, true);
    for body in bodies(40..80) {
        assert_eq!(pair.caller.send(&promoted, "orders", &body).code, 0);
    }
    let member = pair.caller.call(&promoted, pull_as("g", "orders", 30, 0));
    assert_eq!(member.code, response::PULL_OFFSET_MOVED);
    assert_eq!(PullMessageResponseHeader::read(&member.ext).unwrap().next_begin_offset, 20);
}

/// What all files of a folder hold.
fn bytes_in(folder: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { bytes_in(&path) } else { std::fs::read(path).unwrap() })
        .collect()
}

#[test]
fn a_former_master_that_starts_as_one_becomes_the_slave_and_loses_only_what_nobody_was_promised() {
    let mut pair = Pair::start_in_sync();
    pair.send(0..20);
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    for body in ["alone", "alone too"] {
        assert_eq!(
            pair.caller.send(&pair.master(), "orders", body).code,
            response::SLAVE_NOT_AVAILABLE,
            "not acknowledged"
        );
    }
    pair.stop_master();
    pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
    let second = pair.slave();
    pair.change_role(&second, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&second, true);
    for body in bodies(20..30) {
        assert_eq!(pair.caller.send(&second, "orders", &body).code, 0);
    }

    pair.master = Some(Process::start(Role::Broker, pair.of_sync_master("master")).unwrap());
    let first = pair.master();
    pair.wait_for_role(&first, false);
    pair.wait_for_log("master");
    assert_eq!(pair.read_numbers(&second), bodies(0..30));
    let entries = std::fs::read_dir(pair.path("master")).unwrap().map(|entry| entry.unwrap().path());
    let kept_in = entries.into_iter().find(|path| path.to_string_lossy().contains("/repair-")).unwrap();
    let copy = bytes_in(&kept_in);
    assert!(copy.windows(9).any(|bytes| bytes == b"alone too"), "there is a copy of what was cut off");

    // It is a slave by now, whatever its configuration says.
    pair.stop_master();
    pair.master = Some(Process::start(Role::Broker, pair.of_sync_master("master")).unwrap());
    assert!(!pair.try_status(&pair.master()).unwrap().master);
}

#[test]
fn a_running_master_whose_slave_was_promoted_becomes_the_slave() {
    let pair = Pair::start_in_sync();
    let (first, second) = (pair.master(), pair.slave());
    pair.send(0..20);
    pair.change_role(&second, "ASYNC_MASTER", true).unwrap();
    pair.wait_for_role(&second, true);
    assert!(!pair.caller.is_acknowledged(&first, "orders", "to nobody"), "no slave has it");
    for body in bodies(20..30) {
        assert_eq!(pair.caller.send(&second, "orders", &body).code, 0);
    }
    pair.wait_for_role(&first, false);
    pair.wait_for_log("master");
    assert_eq!(pair.read_numbers(&second), bodies(0..30));
}

#[test]
fn a_master_that_began_anew_while_its_promoted_slave_was_away_gives_way_once_that_is_back() {
    let mut pair = Pair::start_in_sync();
    pair.send(0..20);
    let cut = pair.cut_power();
    pair.stop_master();
    let second = pair.slave();
    pair.change_role(&second, "ASYNC_MASTER", false).unwrap();
    pair.wait_for_role(&second, true);
    for body in bodies(20..30) {
        assert_eq!(pair.caller.send(&second, "orders", &body).code, 0);
    }
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();

    let mut of_first = pair.of_sync_master(cut);
    of_first.broker.replication.sync_back_timeout = Duration::from_millis(1);
    pair.master = Some(Process::start(Role::Broker, of_first).unwrap());
    let first = pair.master();
    assert!(pair.try_status(&first).unwrap().master, "it knows of no other");
    assert_eq!(pair.caller.send(&first, "orders", "alone").code, response::SLAVE_NOT_AVAILABLE);
    // At its former address, as the name server knows it.
    let port = second.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    pair.slave = Some(Process::start(Role::Broker, ServerConfig { port, ..pair.of_slave() }).unwrap());
    pair.wait_for_role(&first, false);
    pair.wait_for_log(cut);
    assert_eq!(pair.read_numbers(&pair.slave()), bodies(0..30));
}

#[test]
fn what_a_former_master_acknowledged_alone_is_not_cut_off() {
    let pair = Pair::start();
    let (first, second) = (pair.master(), pair.slave());
    pair.send(0..20);
    pair.wait_for_slave();
    pair.change_role(&second, "ASYNC_MASTER", true).unwrap();
    pair.wait_for_role(&second, true);
    pair.send(20..21); // by an ASYNC_MASTER, which does not know yet
    let end = pair.end(&first);
    assert_eq!(pair.caller.send(&second, "orders", "another").code, 0);
    pair.wait_for_role(&first, false);
    wait_until("the log names the offset of the divergence", || {
        let why = pair.try_status(&first).and_then(|status| status.not_followed);
        why.is_some_and(|why| why.contains("the logs diverge at"))
    });
    assert_eq!(pair.end(&first), end);
}
