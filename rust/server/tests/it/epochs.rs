//! A master that lost the end of its log, and the slave that has it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rocketpy_broker::BrokerRole;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{CopyLogHeader, ResetMasterFlushOffsetHeader};
use rocketpy_server::{Process, Role};

use crate::pair::{Pair, bodies};
use crate::support::{TIMEOUT, send_with, wait_until};

#[test]
fn a_master_that_lost_its_end_takes_it_back_from_its_slave_before_it_serves() {
    take_back(Pair::start());
}

#[test]
fn a_pair_with_a_token_gives_the_log_to_nobody_without_it() {
    let mut pair = Pair::start_with_token(Some("secret"));
    pair.send(0..10);
    pair.wait_for_slave();
    for (token, says) in [(None, "set haTokenFile at this slave too"), (Some("another"), "did not prove")] {
        pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
        match token {
            None => pair.token_file = None,
            Some(token) => pair.set_token(token),
        }
        pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
        wait_until("the slave says why it does not follow", || {
            pair.try_status(&pair.slave()).unwrap().not_followed.is_some_and(|cause| cause.contains(says))
        });
        assert_eq!(pair.try_status(&pair.master()).unwrap().in_sync_slave_nums, 0);
    }
    let mut of_apache = TcpStream::connect(pair.slave_addr()).unwrap();
    of_apache.write_all(&0_u64.to_be_bytes()).unwrap();
    of_apache.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(of_apache.read(&mut [0; 12]).unwrap(), 0, "let go without a byte");

    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    pair.set_token("secret");
    pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
    no_answer_for_anybody_opens_the_log(&pair);
    take_back(pair);
}

/// Without it a slave that restarts during a promotion acknowledges for the former master again.
#[test]
fn a_slave_that_left_its_master_stays_away_over_a_restart_and_follows_again_later() {
    let mut pair = Pair::start();
    pair.send(0..10);
    pair.wait_for_slave();
    a_slave_tells_how_it_follows(&pair);
    let restart = |pair: &mut Pair, stay_away| {
        pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
        let mut config = pair.of_slave();
        config.broker.intervals.stay_away = stay_away;
        pair.slave = Some(Process::start(Role::Broker, config).unwrap());
    };
    let why = |pair: &Pair| pair.try_status(&pair.slave()).unwrap().not_followed;
    let left = format!("left {} because another slave was being promoted", pair.slave_addr());
    let answer = pair.caller.call(&pair.slave(), Command::bare_request(request::LEAVE_MASTER));
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    assert!(why(&pair).is_some_and(|why| why.contains(&left)), "{:?}", why(&pair));

    restart(&mut pair, TIMEOUT);
    let names = pair.names.addresses().name_server.clone().unwrap();
    wait_until("the slave is registered, so it could find its master", || {
        let brokers = pair.caller.route(&names, "orders").map(|route| route.broker_datas).unwrap_or_default();
        brokers.iter().any(|broker| broker.broker_addrs.get(&1) == Some(&pair.slave()))
    });
    assert!(why(&pair).is_some_and(|why| why.contains(&left)), "{:?}", why(&pair));
    pair.send(10..20);
    assert!(pair.end(&pair.slave()) < pair.end(&pair.master()));

    restart(&mut pair, Duration::ZERO);
    pair.wait_for_slave();
    assert_eq!(why(&pair), None);
}

/// A slave stays with its master, whoever asks it to leave.
#[test]
fn strangers_detach_no_slave_of_a_pair_with_a_token_and_its_slaves_promote_each_other() {
    let mut pair = Pair::start_with_token(Some("secret"));
    pair.send(0..10);
    pair.wait_for_slave();
    let slave = pair.slave();
    for proof in [None, Some("bm8gcHJvb2Y=")] {
        let mut asked = Command::bare_request(request::LEAVE_MASTER);
        proof.into_iter().for_each(|proof| asked.ext.push("proof", proof));
        let refused = pair.caller.call(&slave, asked);
        assert_ne!(refused.code, 0);
        assert!(refused.remark.unwrap().contains("did not prove"));
    }
    pair.send(10..20);
    pair.wait_for_slave();

    let mut of_second = pair.of_slave();
    (of_second.broker.broker_id, of_second.broker.store.root) = (2, pair.path("second"));
    let second = Process::start(Role::Broker, of_second).unwrap();
    let address = second.addresses().broker.clone().unwrap();
    wait_until("the second slave has all", || {
        pair.try_status(&address)
            .is_some_and(|status| status.master_commit_log_max_offset == pair.end(&slave) as i64)
    });
    pair.stop_master();
    wait_until("the slave is promoted, because the other one leaves on its proof", || {
        pair.change_role(&slave, "ASYNC_MASTER", false).is_ok()
    });
    pair.wait_for_role(&slave, true);
    let names = pair.names.addresses().name_server.clone().unwrap();
    wait_until("the name server accepts the proof of the new master", || {
        let brokers = pair.caller.route(&names, "orders").map(|route| route.broker_datas).unwrap_or_default();
        brokers.iter().any(|broker| broker.broker_addrs.get(&0) == Some(&slave))
    });
    second.stop(TIMEOUT).unwrap();
}

/// Who asks for the state with a text of its choice gets no proof that a slave takes for another request.
fn no_answer_for_anybody_opens_the_log(pair: &Pair) {
    pair.wait_for_slave();
    let slave = pair.slave();
    let greeting =
        r#"{"brokerName":"pair","brokerId":0,"address":"","start":0,"end":0,"epochs":[],"maxBodyBytes":1}"#;
    let mut asked = Command::bare_request(request::GET_BROKER_HA_STATUS);
    asked.ext.push("nonce", greeting);
    let status = pair.caller.call(&slave, asked);
    let proof = status.ext.get("proof").expect("it proves that it knows the token");
    let mut asked = Command::request(request::COPY_LOG, &CopyLogHeader { greeting });
    asked.ext.push("proof", proof);
    asked.body = status.body.clone();
    let refused = pair.caller.call(&slave, asked);
    assert!(refused.body.is_empty() && refused.remark.unwrap().contains("did not prove"));
}

/// Cuts the power of the master, and starts it with the log that is left.
fn take_back(mut pair: Pair) {
    let had = pair.caller.read_all(&pair.master(), "orders");
    pair.send(0..10);
    pair.wait_for_slave();
    let cut = pair.cut_power();
    pair.send(10..30);
    pair.wait_for_slave();
    let end = pair.end(&pair.master());
    pair.stop_master();

    pair.master = Some(Process::start(Role::Broker, pair.of_master(cut)).unwrap());
    assert_eq!(pair.end(&pair.master()), end);
    assert_eq!(pair.caller.read_all(&pair.master(), "orders"), [had.clone(), bodies(0..30)].concat());
    // The slave follows on, in the next life.
    pair.send(30..40);
    pair.wait_for_slave();
    assert_eq!(pair.caller.read_all(&pair.master(), "orders"), [had, bodies(0..40)].concat());
}

#[test]
fn a_master_that_goes_on_without_what_its_slave_has_does_not_feed_it() {
    let mut pair = Pair::start();
    pair.send(0..10);
    pair.wait_for_slave();
    let cut = pair.cut_power();
    pair.send(10..30);
    pair.wait_for_slave();
    let end = pair.end(&pair.master());
    pair.stop_master();
    let slave = pair.slave.take().unwrap();
    slave.stop(TIMEOUT).unwrap();
    let kept = pair.log("slave", end);

    let mut alone = pair.of_master(cut);
    alone.broker.replication.sync_back_timeout = Duration::ZERO;
    pair.master = Some(Process::start(Role::Broker, alone).unwrap());
    pair.send(100..150);
    assert!(pair.end(&pair.master()) > end);
    let slave = Process::start(Role::Broker, pair.of_slave()).unwrap();
    let address = slave.addresses().broker.clone().unwrap();
    wait_until("the slave says why it does not follow", || {
        let status = pair.try_status(&address).unwrap();
        status.not_followed.is_some_and(|cause| cause.contains("the logs diverge at"))
    });
    assert_eq!(pair.end(&address), end);
    slave.stop(TIMEOUT).unwrap();
    assert_eq!(pair.log("slave", end), kept, "nothing was cut, nothing was appended");
}

#[test]
fn slave_with_other_log_file_size_is_rejected_and_both_sizes_are_named() {
    let pair = Pair::start();
    pair.send(0..10);
    let mut of_second = pair.of_slave();
    of_second.broker.broker_id = 2;
    of_second.broker.store.root = pair.path("second");
    of_second.broker.store.commit_log_file_size *= 2;
    // Without a log it does not start.
    let error = Process::start(Role::Broker, of_second.clone()).unwrap_err();
    assert!(error.to_string().contains("1048576") && error.to_string().contains("2097152"), "{error}");
    assert!(error.hint().unwrap().contains("mappedFileSizeCommitLog=1048576"), "{error}");

    // With one it stays and says why it does not follow.
    let mut alone = of_second.clone();
    (alone.broker.broker_name, alone.broker.broker_id) = ("other".to_owned(), 0);
    alone.broker.replication.role = BrokerRole::AsyncMaster;
    let other = Process::start(Role::Broker, alone).unwrap();
    pair.caller.create_topic(other.addresses().broker.as_ref().unwrap(), "orders");
    assert_eq!(pair.caller.send(other.addresses().broker.as_ref().unwrap(), "orders", "x").code, 0);
    other.stop(TIMEOUT).unwrap();
    let second = Process::start(Role::Broker, of_second).unwrap();
    let address = second.addresses().broker.clone().unwrap();
    wait_until("the slave says why it does not follow", || {
        let why = pair.try_status(&address).unwrap().not_followed;
        why.is_some_and(|why| why.contains("mappedFileSizeCommitLog=1048576") && why.contains("2097152"))
    });
    second.stop(TIMEOUT).unwrap();
}

#[test]
fn what_waits_in_the_end_that_a_master_took_back_is_delivered() {
    let mut pair = Pair::start();
    pair.send(0..1);
    pair.wait_for_slave();
    let cut = pair.cut_power();
    assert_eq!(
        pair.caller.call(&pair.master(), send_with("orders", "late", Some("DELAY\u{1}2\u{2}"))).code,
        0
    );
    pair.wait_for_slave();
    pair.stop_master();
    pair.master = Some(Process::start(Role::Broker, pair.of_master(cut)).unwrap());
    wait_until("it is delivered", || pair.caller.read_all(&pair.master(), "orders") == ["0", "late"]);
}

fn a_slave_tells_how_it_follows(pair: &Pair) {
    let status = |broker: &str| pair.try_status(broker).unwrap();
    assert_eq!(status(&pair.master()).ha_client_runtime_info, None);
    let end = status(&pair.master()).master_commit_log_max_offset;
    let follows = || status(&pair.slave()).ha_client_runtime_info.unwrap();
    let told = follows();
    assert_eq!(
        (told.master_addr.as_str(), told.max_offset, told.is_activated),
        (&*pair.slave_addr(), end, true)
    );
    assert!(told.last_read_timestamp > 1_700_000_000_000 && told.last_write_timestamp > 1_700_000_000_000);
    assert!(told.transferred_byte_in_second > 0);
    wait_until("the slave has asked how far its master has flushed", || follows().master_flush_offset > 0);
    wait_until("the figure is another one, until the slave asks again", || {
        let reset = ResetMasterFlushOffsetHeader { master_flush_offset: 7 };
        let reset = Command::request(request::RESET_MASTER_FLUSH_OFFSET, &reset);
        assert_eq!(pair.caller.call(&pair.slave(), reset).code, 0);
        follows().master_flush_offset == 7
    });
}
