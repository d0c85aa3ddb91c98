//! Hostile peers against a server in a process of its own: what it takes from the system at most.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use bytes::BytesMut;
use rocketpy_env::{Disk, RealDisk, raise_open_file_limit};
use rocketpy_model::TopicConfig;
use rocketpy_protocol::body::{KvTable, TopicConfigSerializeWrapper};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::PutKVConfigRequestHeader;
use rocketpy_protocol::{Command, json};
use rocketpy_server::Role;

use crate::binary::{Process, server};
use crate::support::{Caller, config, send, wait_until};

const MIB: usize = 1 << 20;
/// A write that the server does not take for this long is given up: it does not read this peer.
const WRITE_PATIENCE: Duration = Duration::from_millis(200);

fn frame(command: &Command) -> BytesMut {
    let mut frame = BytesMut::new();
    command.encode(&mut frame).unwrap();
    frame
}

/// Connects and writes as much as the server takes; it may close the connection meanwhile.
fn peer(address: &str, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_write_timeout(Some(WRITE_PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    Some(stream)
}

/// A line of `/proc/PID/status`, in MiB.
fn status_mib(pid: u32, name: &str) -> usize {
    let text = RealDisk.read(format!("/proc/{pid}/status").as_ref(), 1 << 16).unwrap();
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

/// A figure of GET_BROKER_RUNTIME_INFO.
fn figure(caller: &Caller, broker: &str, name: &str) -> usize {
    let answer = caller.call(broker, Command::bare_request(request::GET_BROKER_RUNTIME_INFO));
    let table: KvTable = json::from_slice(&answer.body).unwrap();
    table.table[name].parse().unwrap()
}

#[test]
fn both_parts_of_a_server_draw_on_one_budget_and_serve_others_at_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.set("maxPeerBytes", "67108864").unwrap();
    let server = rocketpy_server::Process::start(Role::Standalone, config).unwrap();
    let broker = server.addresses().broker.clone().unwrap();
    let name_server = server.addresses().name_server.clone().unwrap();
    let caller = Caller::new();
    assert_eq!(figure(&caller, &broker, "peerMemoryLimitBytes"), 64 * MIB);
    let before = figure(&caller, &broker, "peerMemoryBytes");

    let value = "v".repeat(60_000);
    let put = |number: usize| {
        let header = PutKVConfigRequestHeader { namespace: "n", key: &number.to_string(), value: &value };
        caller.call(&name_server, Command::request(request::PUT_KV_CONFIG, &header)).code
    };
    let taken = (0..500).take_while(|number| put(*number) == 0).count();
    assert!((200..280).contains(&taken), "16 MiB of entries: {taken}");
    assert!(figure(&caller, &broker, "peerMemoryBytes") - before > taken * value.len());

    let mut partial = frame(&send("orders", "").with_body(vec![7; MIB]));
    partial.truncate(partial.len() - 1);
    let mut peers = Vec::new();
    for number in 0..60 {
        let address = if number % 2 == 0 { &broker } else { &name_server };
        peers.push(peer(address, &partial));
        assert_eq!(caller.send(&broker, "orders", "served meanwhile").code, 0);
    }
    wait_until("the worst are closed", || figure(&caller, &broker, "peersClosedForMemory") > 0);
    wait_until("the bound holds", || figure(&caller, &broker, "peerMemoryBytes") <= 64 * MIB);
    drop(peers);
    let of_entries = before + (taken + 1) * (value.len() + 1000);
    wait_until("frames are given back", || figure(&caller, &broker, "peerMemoryBytes") < of_entries);
    assert_eq!(caller.send(&broker, "orders", "served afterwards").code, 0);
}

#[test]
#[ignore = "moves some GiB; run it alone, for the figure"]
fn hostile_peers_of_every_kind_leave_the_process_below_a_gibibyte() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let topics = (0..20_000).map(|number| format!("a-topic-with-a-long-name-{number:0100}"));
    let wrapper = TopicConfigSerializeWrapper {
        topic_config_table: topics.map(|name| (name.clone(), TopicConfig::new(name, 4))).collect(),
        ..TopicConfigSerializeWrapper::default()
    };
    RealDisk.create_dir_all(&store.join("config")).unwrap();
    RealDisk.replace(&store.join("config/topics.json"), &json::to_vec(&wrapper)).unwrap();
    let process = Process::start(server(&store), &folder.path().join("ready"));
    let peak = |what: &str| eprintln!("{what}: at most {} MiB", status_mib(process.id(), "VmHWM"));
    let caller = Caller::new();
    let serves = || assert_eq!(caller.send(&process.broker, "orders", "x").code, 0);
    serves();
    peak("before");

    let mut large = frame(&send("orders", "").with_body(vec![7; 4 * MIB]));
    large.truncate(large.len() - 1);
    let partial: Vec<_> = (0..500).map(|_| peer(&process.broker, &large)).collect();
    serves();
    peak("500 frames of 4 MiB that lack their end");

    let ask = frame(&Command::bare_request(request::GET_ALL_TOPIC_CONFIG)).repeat(8);
    let silent: Vec<_> = (0..50).map(|_| peer(&process.broker, &ask)).collect();
    serves();
    peak("50 peers that ask for all topics and read nothing");

    let value = "v".repeat(60_000);
    for number in 0..5000 {
        let key = number.to_string();
        let header = PutKVConfigRequestHeader { namespace: "n", key: &key, value: &value };
        caller.call(&process.name_server, Command::request(request::PUT_KV_CONFIG, &header));
    }
    serves();
    peak("5,000 key-value entries of 60 KB");

    let limit = usize::try_from(raise_open_file_limit().unwrap()).unwrap();
    let count = limit.saturating_sub(1000).min(10_000);
    let small: Vec<_> = (0..count).map(|_| peer(&process.broker, &large[..50_000])).collect();
    serves();
    peak(&format!("{count} peers with 50 KB of a frame each"));
    drop((partial, silent, small));
    serves();
    assert!(status_mib(process.id(), "VmHWM") < 1024, "a gibibyte");
}
