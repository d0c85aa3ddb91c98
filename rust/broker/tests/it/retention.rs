//! What clients see of retention and of flush policies.

use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_broker::{DeleteHours, FlushMode, RetentionConfig, topic_retention};
use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk, now_ms};
use rocketpy_model::sys_flag::{self, pull as flag};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    GetMinOffsetRequestHeader, GetMinOffsetResponseHeader, Header, SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
};
use rocketpy_protocol::record::records;

use crate::state::runtime_value;
use crate::support::{Fixture, Pull, Send, TIMEOUT, create_topic_with, wait_until};
use crate::transactions::{end, prepare};

/// Rounds that follow each other at once, and no hour for old files.
fn busy() -> RetentionConfig {
    RetentionConfig {
        delete_hours: DeleteHours::default(),
        interval: Duration::from_millis(10),
        first_after: Duration::ZERO,
        log_file_pause: Duration::ZERO,
        queue_file_pause: Duration::ZERO,
        ..RetentionConfig::default()
    }
}

async fn min_offset(fixture: &Fixture, topic: &str) -> i64 {
    let header = GetMinOffsetRequestHeader { topic, queue_id: 0 };
    let answer = fixture.call(Command::request(request::GET_MIN_OFFSET, &header)).await;
    GetMinOffsetResponseHeader::read(&answer.ext).unwrap().offset
}

async fn search(fixture: &Fixture, topic: &str, timestamp: i64, boundary: &str) -> i64 {
    let header = SearchOffsetRequestHeader {
        topic,
        queue_id: 0,
        timestamp,
        boundary_type: Some(boundary),
        broker_name: None,
    };
    let answer = fixture.call(Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP, &header)).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    SearchOffsetResponseHeader::read(&answer.ext).unwrap().offset
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_message_that_goes_with_its_file_is_counted() {
    let fixture = Fixture::start_with(|config| {
        config.store.commit_log_file_size = 64 << 10;
        config.store.retention = RetentionConfig { max_bytes: Some(3 * (64 << 10)), ..busy() };
        config.delay_levels = "3s".parse().unwrap();
        config.transaction_check_interval = Duration::from_millis(100);
        config.transaction_timeout = Duration::ZERO;
    })
    .await;
    fixture.create_topic("orders", 1).await;
    let transaction = "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}";
    for properties in ["DELAY\u{1}1\u{2}", "TIMER_DELAY_SEC\u{1}3\u{2}", transaction] {
        let send = Send { properties, ..Send::new("orders", "x") };
        assert_eq!(fixture.send(send).await.code, 0);
    }
    // A transaction that has ended does not count as lost.
    let ended = prepare(&fixture, "ended").await;
    assert_eq!(fixture.call(end(ended, sys_flag::TRANSACTION_ROLLBACK, false)).await.code, 0);
    wait_until("it is in the wheel", async || runtime_value(&fixture, "timersWaiting").await == "1").await;
    let body = "x".repeat(4000);
    for _ in 0..100 {
        fixture.put("orders", 0, &body).await;
    }
    wait_until("old files go", async || runtime_value(&fixture, "commitLogMinOffset").await != "0").await;
    for count in ["delayedDropped", "timersDropped", "transactionsLost"] {
        wait_until(count, async || runtime_value(&fixture, count).await == "1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_stays_whatever_its_age_while_a_message_in_it_waits() {
    for restarts in [false, true] {
        tokio::join!(
            outlives_its_file("DELAY\u{1}1\u{2}", restarts),
            outlives_its_file("TIMER_DELAY_SEC\u{1}4\u{2}", restarts),
            outlives_its_file("", restarts),
        );
    }
}

/// A message with such properties, a half message without them, waits for longer than its file is kept, and comes.
async fn outlives_its_file(properties: &str, restarts: bool) {
    let all_day = (0..24).map(|hour| format!("{hour};")).collect::<String>();
    let mut fixture = Fixture::start_with(|config| {
        config.store.commit_log_file_size = 64 << 10;
        config.store.retention = RetentionConfig {
            reserved_time: Duration::from_secs(1),
            delete_hours: all_day.parse().unwrap(),
            ..busy()
        };
        config.delay_levels = "4s".parse().unwrap();
    })
    .await;
    for topic in ["orders", "filler"] {
        fixture.create_topic(topic, 1).await;
    }
    let fill = async |fixture: &Fixture| {
        for _ in 0..50 {
            fixture.put("filler", 0, &"x".repeat(4000)).await;
        }
    };
    let starts_after = async |fixture: &Fixture, place: u64| {
        let start: u64 = runtime_value(fixture, "commitLogMinOffset").await.parse().unwrap();
        start > place
    };
    fill(&fixture).await;
    let (half, waits_at) = if properties.is_empty() {
        let half = prepare(&fixture, "half").await;
        (Some(half), half.1.unsigned_abs())
    } else {
        let waits_at = runtime_value(&fixture, "commitLogMaxOffset").await.parse().unwrap();
        assert_eq!(fixture.send(Send { properties, ..Send::new("orders", "later") }).await.code, 0);
        (None, waits_at)
    };
    fill(&fixture).await;
    wait_until("files before it go", async || starts_after(&fixture, 0).await).await;
    if restarts {
        fixture = fixture.restart().await;
    }
    if let Some(half) = half {
        tokio::time::sleep(Duration::from_secs(3)).await; // several times as long as its file would be kept
        let committed = fixture.call(end(half, sys_flag::TRANSACTION_COMMIT, false)).await;
        assert_eq!(committed.code, 0, "{:?}", committed.remark);
    }
    fixture.wait_for_end("orders", 0, 1).await;
    for count in ["delayedDropped", "timersDropped", "transactionsLost"] {
        assert_eq!(runtime_value(&fixture, count).await, "0", "{properties} {restarts}");
    }
    wait_until("its file goes once it has come", async || starts_after(&fixture, waits_at).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_below_the_minimum_is_sent_to_it_and_offsets_of_groups_stay_as_they_were_committed() {
    let fixture = Fixture::start_with(|config| {
        config.store.commit_log_file_size = 64 << 10;
        config.store.retention = RetentionConfig { max_bytes: Some(3 * (64 << 10)), ..busy() };
    })
    .await;
    fixture.create_topic("orders", 1).await;
    let plain = Pull::new("orders", 0);
    let commit = Pull { flags: plain.flags | flag::COMMIT_OFFSET, commit_offset: 2, ..plain };
    let body = "x".repeat(4000);
    for _ in 0..100 {
        fixture.put("orders", 0, &body).await;
    }
    fixture.wait_for_end("orders", 0, 100).await;
    wait_until("old files go", async || runtime_value(&fixture, "commitLogMinOffset").await != "0").await;
    wait_until("the minimum follows", async || min_offset(&fixture, "orders").await > 50).await;
    let moved = fixture.pull(commit).await;
    assert_eq!((moved.code, moved.remark.as_str()), (21, "OFFSET_TOO_SMALL"));
    assert!(moved.next == moved.min && moved.min > 50 && moved.max == 100, "{} {}", moved.min, moved.max);
    let found = fixture.pull(Pull::new("orders", moved.next)).await;
    assert_eq!((found.code, found.records()[0].queue_offset.get() as i64), (0, moved.next));
    for (time, boundary, expected) in [
        (0, "lower", moved.min),
        (0, "upper", moved.min),
        (now_ms() + 60_000, "lower", 100),
        (now_ms() + 60_000, "upper", 99),
    ] {
        assert_eq!(search(&fixture, "orders", time, boundary).await, expected, "{time} {boundary}");
    }
    let stored = crate::offsets::stored(&fixture, commit.group, "orders", 0).await;
    assert_eq!(stored, Some(2), "as Apache's: the pull moves the consumer, nobody moves what it committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_are_refused_on_a_disk_that_is_nearly_full_and_taken_again_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("store");
    RealDisk.create_dir_all(&disk).unwrap();
    let mount = Process::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&disk).output();
    if !mount.as_ref().is_ok_and(|output| output.status.success()) {
        let reason = format!("root is needed to mount a file system: {mount:?}");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        return eprintln!("skipped: {reason}");
    }
    let mut config = crate::support::config(&folder);
    config.store.commit_log_file_size = 64 << 10;
    config.store.retention = busy();
    (config.store.index_slots, config.store.index_entries) = (100, 400);
    let fixture = Fixture::start_on(folder, config).await;
    fixture.put("orders", 0, "before").await;
    let ballast = disk.join("ballast");
    RealDisk.replace(&ballast, &vec![1; 3700 << 10]).unwrap();
    let mut refused = None;
    wait_until("sends are refused", async || {
        let answer = fixture.send(Send::new("orders", "during")).await;
        refused = (answer.code != 0).then_some(answer);
        refused.is_some()
    })
    .await;
    let refused = refused.unwrap();
    let remark = refused.remark.as_deref().unwrap_or_default();
    assert_eq!(refused.code, 14, "SERVICE_NOT_AVAILABLE: {remark}");
    assert!(
        remark.contains("% full") && remark.contains("90 %") && remark.contains("free disk space"),
        "{remark}"
    );
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.code, 0, "reads go on");
    RealDisk.remove_file(&ballast).unwrap();
    wait_until("sends are taken", async || fixture.send(Send::new("orders", "after")).await.code == 0).await;
    fixture.broker.shutdown().await;
    drop(fixture.broker);
    assert!(Process::new("umount").arg(&disk).status().unwrap().success());
}

/// Changes when the first records of the log were stored. The broker is stopped, and its records have no checksum.
fn age_records(fixture: &Fixture, count: usize, by_ms: i64) {
    let path = fixture.config.store.commit_log_dir().join(format!("{:020}", 0));
    let bytes = RealDisk.read(&path, 1 << 30).unwrap();
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    let mut at = 0;
    for record in records(&bytes).take(count) {
        let record = record.unwrap();
        let stored_at_ms = record.stored_at_ms - by_ms;
        file.write_all_at(at + 56, &stored_at_ms.to_be_bytes()).unwrap();
        at += record.size() as u64;
    }
    file.sync().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_keeps_its_messages_for_hours_of_its_own() {
    let fixture = Fixture::start_with(|config| config.store.record_check = false).await;
    fixture.create_topic("orders", 1).await;
    for _ in 0..5 {
        fixture.put("orders", 0, "x").await;
    }
    fixture.wait_for_end("orders", 0, 5).await;
    fixture.broker.shutdown().await;
    age_records(&fixture, 3, 2 * 3_600_000);
    let fixture = fixture.restart().await;
    assert_eq!(min_offset(&fixture, "orders").await, 0);
    let answer = fixture.call(create_topic_with("orders", "+retention.hours=3")).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    assert_eq!(min_offset(&fixture, "orders").await, 0);
    assert_eq!(fixture.call(create_topic_with("orders", "+retention.hours=1")).await.code, 0);
    assert_eq!(min_offset(&fixture, "orders").await, 3, "at once");
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.next, 3);
    let fixture = fixture.restart().await;
    assert_eq!(min_offset(&fixture, "orders").await, 3, "before the first request of a new start");
    let known = topic_retention(&fixture.config.store.root).unwrap();
    assert_eq!(
        known,
        [(Arc::from("orders"), Duration::from_secs(3600))].into(),
        "from the file beside the broker"
    );
    let refused = fixture.call(create_topic_with("orders", "+retention.hours=soon")).await;
    assert!(refused.code != 0 && refused.remark.unwrap().contains("retention.hours=HOURS"));
}

#[test]
fn the_hours_of_topics_are_read_from_the_backup_too_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config");
    assert!(topic_retention(dir.path()).unwrap().is_empty());
    RealDisk.create_dir_all(&folder).unwrap();
    let table =
        r#"{"topicConfigTable":{"orders":{"topicName":"orders","attributes":{"retention.hours":"3"}}}}"#;
    RealDisk.replace(&folder.join("topics.json"), b"{").unwrap();
    assert!(topic_retention(dir.path()).is_err());
    RealDisk.replace(&folder.join("topics.json.bak"), table.as_bytes()).unwrap();
    let names = || RealDisk.list(&folder).unwrap().into_iter().map(|file| file.name).collect::<Vec<_>>();
    let before = names();
    let known = topic_retention(dir.path()).unwrap();
    assert_eq!(known, [(Arc::from("orders"), Duration::from_secs(3 * 3600))].into());
    assert_eq!(names(), before);
    assert_eq!(RealDisk.read(&folder.join("topics.json"), 100).unwrap(), b"{");
}

/// Bytes that are acknowledged, as the one client here knows, and not durable.
async fn unflushed(fixture: &Fixture) -> u64 {
    runtime_value(fixture, "remainHowManyDataToFlush").await.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_has_a_flush_policy_of_its_own() {
    for broker in [FlushMode::Async, FlushMode::Sync] {
        let fixture = Fixture::start_with(|config| {
            config.store.flush = broker;
            config.store.flush_interval = Duration::from_secs(3600);
        })
        .await;
        for (topic, attributes) in [("slow", "+flush.type=SYNC_FLUSH"), ("fast", "+flush.type=ASYNC_FLUSH")] {
            let answer = fixture.call(create_topic_with(topic, attributes)).await;
            assert_eq!(answer.code, 0, "{:?}", answer.remark);
        }
        for _ in 0..20 {
            fixture.put("slow", 0, "x").await;
            assert_eq!(unflushed(&fixture).await, 0, "answered means flushed");
        }
        // The checkpoint flushes every second: some send comes in between.
        wait_until("an answer comes before the flush", async || {
            fixture.put("fast", 0, "x").await;
            unflushed(&fixture).await > 0
        })
        .await;
        assert_ne!(fixture.call(create_topic_with("slow", "+flush.type=NEVER")).await.code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_wait_is_answered_before_the_flush_whatever_broker_and_topic_say() {
    let fixture = Fixture::start_with(|config| {
        config.store.flush = FlushMode::Sync;
        config.store.flush_interval = Duration::from_secs(3600);
    })
    .await;
    assert_eq!(fixture.call(create_topic_with("slow", "+flush.type=SYNC_FLUSH")).await.code, 0);
    wait_until("an answer comes before the flush", async || {
        let answer = fixture.send(Send { properties: "WAIT\u{1}false\u{2}", ..Send::new("slow", "x") }).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        unflushed(&fixture).await > 0
    })
    .await;
    fixture.put("slow", 0, "x").await;
    assert_eq!(unflushed(&fixture).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_may_ask_for_old_files_to_go_now() {
    let fixture = Fixture::start_with(|config| {
        config.store.commit_log_file_size = 64 << 10;
        // However full the disk of this machine is.
        config.store.retention = RetentionConfig {
            reserved_time: Duration::ZERO,
            max_used_percent: 95,
            clean_forcibly: false,
            ..busy()
        };
    })
    .await;
    fixture.create_topic("orders", 1).await;
    let body = "x".repeat(4000);
    for _ in 0..40 {
        fixture.put("orders", 0, &body).await;
    }
    fixture.wait_for_end("orders", 0, 40).await;
    assert_eq!(runtime_value(&fixture, "commitLogMinOffset").await, "0", "it is not the hour for it");
    let asked = Command::bare_request(request::DELETE_EXPIRED_COMMITLOG);
    assert_eq!(fixture.client.call(&fixture.address, asked, TIMEOUT).await.unwrap().code, 0);
    wait_until("old files go", async || min_offset(&fixture, "orders").await > 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_can_be_asked_for_and_a_queue_whose_messages_are_gone_keeps_its_numbers() {
    let fixture = Fixture::start_with(|config| {
        config.store.commit_log_file_size = 64 << 10;
        config.store.consume_queue_file_size = 200;
        let hour = Duration::from_secs(3600);
        config.store.retention =
            RetentionConfig { max_bytes: Some(64 << 10), interval: hour, first_after: hour, ..busy() };
    })
    .await;
    fixture.create_topic("old", 1).await;
    fixture.create_topic("orders", 1).await;
    for _ in 0..25 {
        fixture.put("old", 0, "x").await;
    }
    let body = "x".repeat(4000);
    for _ in 0..60 {
        fixture.put("orders", 0, &body).await;
    }
    fixture.wait_for_end("orders", 0, 60).await;
    let files = || {
        let dir = fixture.config.store.root.join("consumequeue/old/0");
        RealDisk.list(&dir).map_or(0, |files| files.len())
    };
    wait_until("the entries are written", async || files() == 3).await;
    assert_eq!(min_offset(&fixture, "old").await, 0);
    let clean = || fixture.call(Command::bare_request(request::CLEAN_EXPIRED_CONSUMEQUEUE));
    wait_until("the round goes through", async || {
        assert_eq!(clean().await.code, 0);
        min_offset(&fixture, "old").await == 25 && files() == 1
    })
    .await;
    fixture.put("old", 0, "x").await;
    fixture.wait_for_end("old", 0, 26).await;
}
