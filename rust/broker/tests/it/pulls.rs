use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_model::sys_flag::pull as flag;
use rocketpy_protocol::code::request;

use crate::support::{Fixture, Pull, Send, create_topic, heartbeat};

async fn ten_messages(fixture: &Fixture) {
    fixture.create_topic("orders", 2).await;
    for number in 0..10 {
        let tag = if number % 2 == 0 { "even" } else { "odd" };
        fixture.put_tagged("orders", 0, &number.to_string(), tag).await;
    }
    fixture.wait_for_end("orders", 0, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_in_order_and_within_the_limits() {
    let fixture = Fixture::start().await;
    ten_messages(&fixture).await;
    let all = fixture.pull(Pull::new("orders", 0)).await;
    assert_eq!((all.code, all.next, all.min, all.max), (0, 10, 0, 10));
    assert_eq!(all.bodies(), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);

    let some = fixture.pull(Pull { max_messages: 3, ..Pull::new("orders", 2) }).await;
    assert_eq!((some.bodies().concat().as_str(), some.next), ("234", 5));
    let size = some.records()[0].size() as i32;
    let few = fixture.pull(Pull { max_bytes: Some(2 * size + 10), ..Pull::new("orders", 0) }).await;
    assert_eq!((few.bodies().concat().as_str(), few.next), ("01", 2));
    let one = fixture.pull(Pull { max_bytes: Some(1), ..Pull::new("orders", 0) }).await;
    assert_eq!(one.bodies(), ["0"], "at least one message, whatever its size");
    let lite = fixture.pull(Pull { code: request::LITE_PULL_MESSAGE, ..Pull::new("orders", 9) }).await;
    assert_eq!(lite.bodies(), ["9"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_pulls_are_honoured_when_they_state_their_limits() {
    // One read ends with its consume queue file: one that holds them all.
    let fixture = Fixture::start_with(|config| config.store.consume_queue_file_size = 20_000).await;
    let body = "x".repeat(1000);
    for _ in 0..600 {
        let answer = fixture.send(Send::new("orders", &body)).await;
        assert_eq!(answer.code, 0);
    }
    fixture.wait_for_end("orders", 0, 600).await;
    let asked = Pull { max_messages: 4096, max_bytes: Some(1 << 20), ..Pull::new("orders", 0) };
    assert_eq!(fixture.pull(asked).await.records().len(), 600);
    let unstated = fixture.pull(Pull { max_bytes: None, ..asked }).await;
    assert!(unstated.command.body.len() <= 256 * 1024, "Apache's limit without one of the request's own");
    assert!(unstated.records().len() > 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_filter_and_the_next_offset_lies_behind_what_was_scanned() {
    let fixture = Fixture::start().await;
    ten_messages(&fixture).await;
    let even = fixture.pull(Pull { subscription: "even || other", ..Pull::new("orders", 0) }).await;
    assert_eq!(even.bodies().concat(), "02468");
    assert_eq!(even.next, 10, "behind the filtered tail");
    let none = fixture.pull(Pull { subscription: "nobody", ..Pull::new("orders", 3) }).await;
    assert_eq!((none.code, none.next), (20, 10));
    assert!(none.records().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_outside_of_the_queue_are_corrected() {
    let fixture = Fixture::start().await;
    ten_messages(&fixture).await;
    for (offset, code, next) in
        [(-1, 21, 0), (i64::MIN, 21, 0), (10, 19, 10), (11, 21, 10), (i64::MAX, 21, 10)]
    {
        let pulled = fixture.pull(Pull::new("orders", offset)).await;
        assert_eq!((pulled.code, pulled.next, pulled.min, pulled.max), (code, next, 0, 10), "{offset}");
    }
    let empty = Pull { queue_id: 1, ..Pull::new("orders", 0) };
    let pulled = fixture.pull(empty).await;
    assert_eq!((pulled.code, pulled.next), (19, 0));
    let pulled = fixture.pull(Pull { offset: 5, ..empty }).await;
    assert_eq!((pulled.code, pulled.next), (21, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_pulls_are_refused_and_named() {
    let fixture = Fixture::start_with(|config| config.auto_create_group = false).await;
    fixture.create_topic("orders", 2).await;
    fixture.call(create_topic("write-only", 1, 2)).await;
    let pull = Pull::new("orders", 0);
    let class_filter = flag::SUBSCRIPTION | flag::CLASS_FILTER;
    let long = "a".repeat(300);
    for (pull, code, named) in [
        (Pull { topic: "missing", ..pull }, 17, "missing"),
        (Pull { topic: "a/b", ..pull }, 17, "a/b"),
        (Pull { queue_id: 2, ..pull }, 29, "queues 0 to 1"),
        (Pull { queue_id: -1, ..pull }, 29, "queues 0 to 1"),
        (Pull { group: "unknown", ..pull }, 26, "unknown"),
        (Pull { group: "a/b", ..pull }, 29, "a/b"),
        (Pull { group: &long, ..pull }, 29, "group"),
        (Pull { topic: "write-only", ..pull }, 16, "write-only"),
        (Pull { expression_type: Some("XPATH"), subscription: "a > 1", ..pull }, 1, "XPATH"),
        (Pull { expression_type: Some("SQL92"), subscription: "a >", ..pull }, 23, "character 4"),
        (Pull { flags: class_filter, ..pull }, 1, "filter classes"),
        (Pull { flags: 0, ..pull }, 24, "heartbeat"),
    ] {
        let pulled = fixture.pull(pull).await;
        assert_eq!(pulled.code, code, "{}", pulled.remark);
        assert!(pulled.remark.contains(named), "{named:?} in {:?}", pulled.remark);
    }
    let forbidden = fixture.pull(Pull { topic: "write-only", ..pull }).await;
    assert_eq!(forbidden.command.ext.get("forbiddenType"), Some("3"));

    let unreadable = Fixture::start_with(|config| {
        config.broker_permission = 2;
        config.lite_pull = false;
    })
    .await;
    unreadable.create_topic("orders", 1).await;
    let pulled = unreadable.pull(pull).await;
    assert_eq!((pulled.code, pulled.command.ext.get("forbiddenType")), (16, Some("1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_without_subscription_relies_on_the_heartbeat() {
    let fixture = Fixture::start().await;
    ten_messages(&fixture).await;
    let pull = Pull { group: "group", flags: 0, sub_version: 5, ..Pull::new("orders", 0) };
    assert_eq!(fixture.pull(pull).await.code, 24, "nobody in the group");
    fixture.heartbeat(&fixture.client, &heartbeat("c1", "group", &[("orders", "odd", 5)])).await;
    assert_eq!(fixture.pull(pull).await.bodies().concat(), "13579");
    let newer = fixture.pull(Pull { sub_version: 6, ..pull }).await;
    assert_eq!(newer.code, 25, "{}", newer.remark);
    fixture.create_topic("other", 1).await;
    let other = fixture.pull(Pull { topic: "other", ..pull }).await;
    assert_eq!(other.code, 24);
    assert!(other.remark.contains("other"), "{}", other.remark);

    let sql = async |expression: &str, version| {
        let mut sql = heartbeat("c1", "group", &[("orders", expression, version)]);
        sql.consumer_data_set[0].subscription_data_set[0].expression_type = Some("SQL92".to_owned());
        assert_eq!(fixture.heartbeat(&fixture.client, &sql).await.code, 0);
        fixture.pull(pull).await
    };
    assert_eq!(sql("TAGS = 'odd'", 7).await.bodies().concat(), "13579");
    assert_eq!(sql("TAGS <> 'odd'", 6).await.bodies().concat(), "13579", "an older version changes nothing");
    assert_eq!(sql("TAGS <> 'odd'", 8).await.bodies().concat(), "02468");
    let refused = sql("TAGS <>", 9).await;
    assert_eq!(refused.code, 23);
    assert!(refused.remark.contains("character 8"), "{}", refused.remark);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_may_bring_an_expression_over_properties() {
    let fixture = Fixture::start().await;
    ten_messages(&fixture).await;
    let sql = Pull {
        expression_type: Some("SQL92"),
        subscription: "TAGS = 'odd' AND missing IS NULL",
        ..Pull::new("orders", 0)
    };
    assert_eq!(fixture.pull(sql).await.bodies().concat(), "13579");
    let as_tag = Pull { expression_type: None, subscription: "odd", ..sql };
    assert_eq!(fixture.pull(as_tag).await.bodies().concat(), "13579");
    let nothing = fixture.pull(Pull { subscription: "missing > 1", ..sql }).await;
    assert_eq!((nothing.code, nothing.bodies().len()), (20, 0), "{}", nothing.remark);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_read_is_named_and_everything_else_is_served() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let body = "x".repeat(10_000);
    for _ in 0..3 {
        fixture.put("orders", 0, &body).await;
    }
    fixture.create_topic("others", 1).await;
    for _ in 0..120 {
        fixture.put("others", 0, &body).await; // they lie in the next file as well
    }
    fixture.wait_for_end("others", 0, 120).await;
    let log = fixture.config.store.root.join(format!("commitlog/{:020}", 0));
    let file = RealDisk.open_file(&log, OpenMode::Write).unwrap();
    file.set_len(12_288).unwrap(); // the second message ends behind that
    let first = fixture.pull(Pull { max_messages: 32, ..Pull::new("orders", 0) }).await;
    assert_eq!((first.code, first.bodies(), first.next), (0, vec![body.clone()], 1));
    let second = fixture.pull(Pull::new("orders", 1)).await;
    let remark = second.command.remark.unwrap();
    assert!(second.code == 1 && remark.contains(&log.display().to_string()), "{remark}");
    assert!(remark.contains("cannot be read"), "{remark}");
    assert_eq!(fixture.pull(Pull { max_messages: 1, ..Pull::new("others", 119) }).await.bodies(), [body]);
    fixture.put("others", 0, "goes on").await;
    fixture.wait_for_end("others", 0, 121).await;
}
