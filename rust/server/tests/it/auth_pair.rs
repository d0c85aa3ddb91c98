//! A master and a slave with users.

use rocketpy_broker::BrokerRole;
use rocketpy_protocol::body::{Password, UserInfo};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::UserRequestHeader;
use rocketpy_protocol::{Command, json};
use rocketpy_server::{Process, Role};

use crate::auth::{create_user, user, user_request, users_on};
use crate::pair::Pair;
use crate::support::{Caller, TIMEOUT, pull, wait_until};

fn is_known(pair: &Pair, broker: &str, name: &str) -> bool {
    let asked = Command::request(request::AUTH_GET_USER, &UserRequestHeader { username: name });
    let Ok(answer) = pair.caller.try_call(broker, asked) else { return false };
    answer.code == 0 && json::from_slice::<UserInfo>(&answer.body).is_ok()
}

#[test]
fn a_promoted_slave_has_the_users_of_its_master() {
    let mut pair = Pair::start_with(None, users_on());
    pair.send(0..10);
    pair.wait_for_slave();
    let slave = pair.slave();
    let answer = pair.caller.call(&pair.master(), create_user("alice"));
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let refused = pair.caller.call(&slave, create_user("bob"));
    assert_eq!(refused.code, response::SYSTEM_ERROR, "{:?}", refused.remark);
    assert!(refused.remark.unwrap().contains("slave"));
    wait_until("the slave has the user", || is_known(&pair, &slave, "alice"));

    // A signature of the user is verified at the slave, by its own copy of the secret.
    let alice = Caller::of_user(&user("alice"));
    let denied = alice.call(&slave, pull("orders", 0, 0));
    assert_eq!(denied.code, response::NO_PERMISSION);
    assert!(denied.remark.unwrap().contains("no permission"));

    pair.stop_master();
    wait_until("the slave is promoted", || pair.change_role(&slave, "ASYNC_MASTER", false).is_ok());
    pair.wait_for_role(&slave, true);
    assert!(is_known(&pair, &slave, "alice"));
    let answer = pair.caller.call(&slave, create_user("bob"));
    assert_eq!(answer.code, 0, "a master takes changes: {:?}", answer.remark);
}

#[test]
fn a_sync_master_answers_a_change_of_users_once_its_slave_has_it() {
    let mut pair = Pair::start_with(None, users_on());
    pair.send(0..10);
    pair.wait_for_slave();
    pair.stop_master();
    let mut of_master = pair.of_master("master");
    of_master.broker.replication.role = BrokerRole::SyncMaster;
    pair.master = Some(Process::start(Role::Broker, of_master).unwrap());
    pair.wait_for_slave();
    let (master, slave) = (pair.master(), pair.slave());
    for name in ["alice", "bob"] {
        wait_until("both have it", || {
            pair.caller.call(&master, create_user(name)).code != response::FLUSH_SLAVE_TIMEOUT
        });
        assert!(is_known(&pair, &slave, name), "{name}");
    }
}

/// Users and the token of `haTokenFile`: a slave needs both.
#[test]
fn a_slave_without_the_secret_of_the_servers_or_without_the_token_gets_nothing() {
    let mut pair = Pair::start_with(Some("token"), users_on());
    pair.send(0..10);
    pair.wait_for_slave();
    let (token_file, auth) = (pair.token_file.clone(), pair.auth.clone());
    // A super user of another name finds the master, and gets nothing of its log.
    let info = UserInfo {
        password: Some(Password(user("other").secret)),
        user_type: Some("Super".to_owned()),
        ..UserInfo::default()
    };
    for address in [pair.master(), pair.names.addresses().name_server.clone().unwrap()] {
        let answer = pair.caller.call(&address, user_request(request::AUTH_CREATE_USER, "other", &info));
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }
    let mut other_secret = auth.clone();
    other_secret.peer = Some(user("other"));
    for (token_file, auth) in [(None, auth.clone()), (token_file.clone(), other_secret)] {
        pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
        (pair.token_file, pair.auth) = (token_file, auth);
        pair.slave = Some(Process::start(Role::Broker, pair.of_slave()).unwrap());
        wait_until("the slave says why it does not follow", || {
            let status = pair.try_status(&pair.slave());
            status.and_then(|status| status.not_followed).is_some_and(|cause| cause.contains("did not prove"))
        });
        assert_eq!(pair.try_status(&pair.master()).unwrap().in_sync_slave_nums, 0);
    }
}
