//! The state machines, driven by the traces in `traces/`: commands, `----`, and what they must print.
//!
//! `UPDATE_TRACES=1 cargo test -p rocketpy-ha` writes what they print into the files.
#![expect(clippy::disallowed_methods, reason = "a test reads and writes its own files")]

use std::fmt::{Debug, Display};
use std::path::Path;
use std::time::Duration;

use rocketpy_ha::{
    Feed, FeedConfig, FeedStep, Follow, FollowConfig, FollowStep, FrameHead, LogRange, encode_report,
};
use rocketpy_model::PhysicalOffset;

/// A master's feed or a slave's follower, and the world around it.
trait Machine {
    fn run(&mut self, command: &str, arguments: &[u64], now: Duration) -> String;
}

struct Master {
    feed: Feed,
    log: LogRange,
}

impl Machine for Master {
    fn run(&mut self, command: &str, arguments: &[u64], now: Duration) -> String {
        let Self { feed, log } = self;
        match (command, arguments) {
            ("log", &[start, end]) => {
                (log.start, log.end) = (PhysicalOffset(start), PhysicalOffset(end));
                String::new()
            }
            ("report", &[end]) => end_of(feed.heard(&encode_report(PhysicalOffset(end)), *log, now)),
            ("bytes", bytes) => {
                let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
                end_of(feed.heard(&bytes, *log, now))
            }
            ("sent", &[bytes]) => {
                feed.sent(bytes as usize, now);
                String::new()
            }
            ("acknowledged", []) => {
                feed.acknowledged().map_or("nothing\n".to_owned(), |end| format!("{end}\n"))
            }
            ("step", []) => match feed.step(*log, now) {
                Ok(FeedStep::Send { at, max_bytes }) => format!("send {at} max {max_bytes}\n"),
                Ok(FeedStep::Heartbeat { at }) => format!("heartbeat {at}\n"),
                Ok(FeedStep::Pause { until }) => format!("pause until {}\n", until.as_secs_f64()),
                Ok(FeedStep::Wait { until }) => format!("wait until {}\n", until.as_secs()),
                Err(end) => format!("close: {end}\n"),
            },
            _ => panic!("no command of a master: {command} {arguments:?}"),
        }
    }
}

struct Slave(Follow);

const FOLLOW: FollowConfig = FollowConfig {
    report_every: Duration::from_secs(5),
    silence_limit: Duration::from_secs(20),
    max_body_bytes: 1000,
};

impl Machine for Slave {
    fn run(&mut self, command: &str, arguments: &[u64], now: Duration) -> String {
        let Self(follow) = self;
        match (command, arguments) {
            ("head", &[at, body_bytes]) => {
                let head = FrameHead { at: PhysicalOffset(at), body_bytes: body_bytes as u32 };
                end_of(follow.heard(&head.encode(), now))
            }
            ("body", &[bytes]) => end_of(follow.heard(&vec![7; bytes as usize], now)),
            ("bytes", bytes) => {
                let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
                end_of(follow.heard(&bytes, now))
            }
            ("pending", []) => format!("{} from {}\n", follow.pending().len(), follow.end()),
            ("appended", &[bytes]) => {
                follow.appended(bytes as usize);
                String::new()
            }
            ("reported", &[end]) => {
                follow.reported(PhysicalOffset(end), now);
                String::new()
            }
            ("step", &[reportable_end]) => match follow.step(PhysicalOffset(reportable_end), now) {
                Ok(FollowStep::AskForAll) => "ask for all\n".to_owned(),
                Ok(FollowStep::Report { end }) => format!("report {end}\n"),
                Ok(FollowStep::Wait { until }) => format!("wait until {}\n", until.as_secs()),
                Err(end) => format!("close: {end}\n"),
            },
            _ => panic!("no command of a slave: {command} {arguments:?}"),
        }
    }
}

fn end_of<E: Display + Debug>(result: Result<(), E>) -> String {
    result.err().map_or(String::new(), |end| format!("close: {end}\n"))
}

/// What all commands of a block print.
fn run(commands: &str, machine: &mut Option<Box<dyn Machine>>, now: &mut Duration) -> String {
    let mut output = String::new();
    for line in commands.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let command = words.next().expect("a command");
        let arguments: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        match (command, &*arguments) {
            ("at", &[seconds]) => *now = Duration::from_secs(seconds),
            ("master", &[start, end, file_bytes, ref rate @ ..]) => {
                let (start, end) = (PhysicalOffset(start), PhysicalOffset(end));
                let config = FeedConfig {
                    heartbeat_every: Duration::from_secs(5),
                    silence_limit: Duration::from_secs(20),
                    max_body_bytes: 1000,
                    max_bytes_per_second: rate.first().copied(),
                };
                let feed = Feed::new(config, *now);
                *machine = Some(Box::new(Master { feed, log: LogRange { start, end, file_bytes } }));
            }
            ("slave", &[end]) => {
                let follow = Follow::new(FOLLOW, PhysicalOffset(end), *now);
                *machine = Some(Box::new(Slave(follow)));
            }
            ("empty-slave", []) => {
                let follow = Follow::new(FOLLOW, PhysicalOffset::ZERO, *now).asking_for_all();
                *machine = Some(Box::new(Slave(follow)));
            }
            _ => output += &machine.as_mut().expect("a master or a slave").run(command, &arguments, *now),
        }
    }
    output
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut machine, mut now, mut printed) = (None, Duration::ZERO, Vec::new());
    for block in text.split("\n\n").map(str::trim_end).filter(|block| !block.is_empty()) {
        let (commands, _) = block.split_once("----").unwrap_or_else(|| panic!("{name}: no ---- in\n{block}"));
        let output = run(commands.trim_end(), &mut machine, &mut now);
        printed.push(format!("{}\n----\n{output}", commands.trim_end()));
    }
    let printed = printed.join("\n");
    if std::env::var_os("UPDATE_TRACES").is_some() {
        return std::fs::write(&path, &printed).unwrap();
    }
    assert_eq!(text, printed, "{name}");
}

#[test]
fn a_master_feeds_a_slave() {
    check("feed");
}

#[test]
fn a_slave_follows_its_master() {
    check("follow");
}
