//! A pair whose master becomes the slave, and its slave the master, while both run.

use std::net::TcpListener;

use rocketpy_broker::BrokerRole;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::ChangeBrokerRoleHeader;
use rocketpy_server::{Process, Role};

use crate::pair::{Pair, bodies};
use crate::support::{TIMEOUT, pull, send_with, wait_until};

impl Pair {
    fn change_role(&self, broker: &str, role: &str, force: bool) -> Result<(), String> {
        let header = ChangeBrokerRoleHeader { role, broker_id: None, force: Some(force) };
        let answer = self.caller.call(broker, Command::request(request::CHANGE_BROKER_ROLE, &header));
        if answer.code == 0 { Ok(()) } else { Err(answer.remark.unwrap_or_default()) }
    }

    /// Waits until a broker serves in a role.
    fn wait_for_role(&self, broker: &str, is_master: bool) {
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
    assert!(pair.change_role(&first, "ASYNC_MASTER", false).unwrap_err().contains("a master already"));
    assert!(pair.change_role(&second, "SLAVE", false).unwrap_err().contains("a slave already"));
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
