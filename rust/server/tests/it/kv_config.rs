//! kill -9 of a whole server between changes of the name server's key-value configuration.

use std::path::Path;
use std::process::Command as Program;

use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    DeleteKVConfigRequestHeader, GetKVConfigRequestHeader, GetKVConfigResponseHeader, Header,
    PutKVConfigRequestHeader,
};

use crate::binary::{BINARY, Process, server};
use crate::support::Caller;

fn put(caller: &Caller, process: &Process, key: &str, value: &str) {
    let header = PutKVConfigRequestHeader { namespace: "n", key, value };
    let answer = caller.call(&process.name_server, Command::request(request::PUT_KV_CONFIG, &header));
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
}

fn delete(caller: &Caller, process: &Process, key: &str) {
    let header = DeleteKVConfigRequestHeader { namespace: "n", key };
    let answer = caller.call(&process.name_server, Command::request(request::DELETE_KV_CONFIG, &header));
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
}

fn get(caller: &Caller, process: &Process, key: &str) -> Option<String> {
    let header = GetKVConfigRequestHeader { namespace: "n", key };
    let answer = caller.call(&process.name_server, Command::request(request::GET_KV_CONFIG, &header));
    let value = || GetKVConfigResponseHeader::read(&answer.ext).unwrap().value.unwrap().to_owned();
    (answer.code == response::SUCCESS).then(value)
}

fn name_server(kv_config: &Path) -> Program {
    let mut command = Program::new(BINARY);
    command.args(["namesrv", "--port", "0", "--set"]);
    command.arg(format!("kvConfigPath={}", kv_config.display()));
    command
}

#[test]
fn what_was_answered_of_the_key_value_configuration_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ready) = (folder.path().join("store"), folder.path().join("ready"));
    let kv_config = folder.path().join("names/kvConfig.json");
    let caller = Caller::new();
    let starts: [&dyn Fn() -> Program; 2] = [&|| server(&store), &|| name_server(&kv_config)];
    for start in starts {
        for life in 0..4_i32 {
            let process = Process::start(start(), &ready);
            for former in 0..life {
                let kept = get(&caller, &process, &format!("kept-{former}"));
                assert_eq!(kept, Some(former.to_string()));
                assert_eq!(get(&caller, &process, &format!("deleted-{former}")), None);
            }
            put(&caller, &process, &format!("deleted-{life}"), "x");
            delete(&caller, &process, &format!("deleted-{life}"));
            put(&caller, &process, &format!("kept-{life}"), &life.to_string());
            process.kill();
        }
    }
}
