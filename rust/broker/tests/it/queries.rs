//! Messages by key.

use rocketpy_broker::{BrokerConfig, LookUpLimits};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{Header, QueryMessageRequestHeader, QueryMessageResponseHeader};
use rocketpy_protocol::record::{RecordView, records};

use crate::support::{Fixture, Send};

fn query<'a>(topic: &'a str, key: &'a str) -> QueryMessageRequestHeader<'a> {
    QueryMessageRequestHeader {
        topic,
        key,
        max_num: 64,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        index_type: None,
        last_key: None,
        is_unique_key: None,
    }
}

async fn ask(fixture: &Fixture, header: QueryMessageRequestHeader<'_>) -> Command {
    fixture.call(Command::request(request::QUERY_MESSAGE, &header)).await
}

fn bodies(answer: &Command) -> Vec<String> {
    let views: Vec<RecordView<'_>> = records(&answer.body).map(Result::unwrap).collect();
    views.iter().map(|view| String::from_utf8(view.body.to_vec()).unwrap()).collect()
}

/// A broker with messages `m0`, `m1`..., each with a key of its own, one that all share, a unique key and a tag.
async fn filled(count: u32, change: impl FnOnce(&mut BrokerConfig)) -> Fixture {
    let fixture = Fixture::start_with(change).await;
    fixture.create_topic("orders", 1).await;
    for number in 0..count {
        let properties =
            format!("KEYS\u{1}own-{number} shared\u{2}UNIQ_KEY\u{1}U{number}\u{2}TAGS\u{1}paid\u{2}");
        let body = format!("m{number}");
        let answer = fixture.send(Send { properties: &properties, ..Send::new("orders", &body) }).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
    }
    fixture.wait_for_end("orders", 0, count.into()).await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_finds_its_messages_and_says_how_far_the_index_is() {
    let fixture = filled(5, |_| {}).await;
    let answer = ask(&fixture, query("orders", "own-3")).await;
    assert_eq!((answer.code, bodies(&answer)), (0, vec!["m3".to_owned()]));
    let header = QueryMessageResponseHeader::read(&answer.ext).unwrap();
    let all = ask(&fixture, query("orders", "shared")).await;
    assert_eq!(bodies(&all), ["m0", "m1", "m2", "m3", "m4"]);
    let last = records(&all.body).last().unwrap().unwrap();
    assert_eq!(header.index_last_update_phyoffset, last.physical_offset.to_wire());
    assert_eq!(header.index_last_update_timestamp, last.stored_at_ms);
    let late =
        QueryMessageRequestHeader { begin_timestamp: last.stored_at_ms + 1, ..query("orders", "shared") };
    assert_eq!(ask(&fixture, late).await.code, 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_found_is_told_with_the_state_of_the_index() {
    let fixture = filled(1, |_| {}).await;
    for (topic, key) in [("orders", "nothing"), ("nowhere", "shared"), ("orders", ""), ("", "shared")] {
        let answer = ask(&fixture, query(topic, key)).await;
        assert_eq!((answer.code, answer.body.len()), (22, 0), "{topic} {key}");
        assert!(QueryMessageResponseHeader::read(&answer.ext).unwrap().index_last_update_timestamp > 0);
        assert!(answer.remark.unwrap().contains(key));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_so_many_are_given_as_the_broker_allows() {
    let fixture = filled(40, |config| config.look_ups = LookUpLimits { by_key: 10, by_unique_key: 3 }).await;
    let newest = |count: u32| (40 - count..40).map(|number| format!("m{number}")).collect::<Vec<_>>();
    assert_eq!(bodies(&ask(&fixture, query("orders", "shared")).await), newest(10));
    let few = QueryMessageRequestHeader { max_num: 2, ..query("orders", "shared") };
    assert_eq!(bodies(&ask(&fixture, few).await), newest(2));
    let unique = QueryMessageRequestHeader { is_unique_key: Some(true), max_num: 0, ..query("orders", "U7") };
    assert_eq!(bodies(&ask(&fixture, unique).await), ["m7"], "the client's number does not count");
    for max_num in [0, -1, i32::MIN] {
        let none = QueryMessageRequestHeader { max_num, ..query("orders", "shared") };
        assert_eq!(ask(&fixture, none).await.code, 22);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn index_types_say_what_a_key_is() {
    let fixture = filled(2, |_| {}).await;
    let typed = |key, index_type| QueryMessageRequestHeader { index_type, ..query("orders", key) };
    for (key, index_type, expected) in [
        ("own-1", Some("K"), Some("m1")),
        ("own-1", Some(""), Some("m1")),
        ("own-1", Some("U"), None),
        ("U1", Some("U"), Some("m1")),
        ("U1", None, Some("m1")),
        ("paid", None, None),
    ] {
        let answer = ask(&fixture, typed(key, index_type)).await;
        assert_eq!(bodies(&answer).first().map(String::as_str), expected, "{key} {index_type:?}");
    }
    assert_eq!(bodies(&ask(&fixture, typed("paid", Some("T"))).await), ["m0", "m1"]);
    let answer = ask(&fixture, typed("paid", Some("X"))).await;
    assert_eq!(answer.code, 29);
    assert!(answer.remark.unwrap().contains("indexType must be K, U or T: X"));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_found_after_a_restart_and_with_files_of_another_size() {
    let fixture = filled(3, |_| {}).await;
    let fixture = fixture.restart().await;
    assert_eq!(bodies(&ask(&fixture, query("orders", "own-2")).await), ["m2"]);
    let fixture =
        fixture.restart_with(|config| (config.store.index_slots, config.store.index_entries) = (7, 5)).await;
    assert_eq!(bodies(&ask(&fixture, query("orders", "own-0")).await), ["m0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_index_the_key_that_switches_it_on_is_named() {
    let fixture = filled(1, |config| config.store.index = false).await;
    let answer = ask(&fixture, query("orders", "own-0")).await;
    assert_eq!(answer.code, 1);
    assert!(answer.remark.unwrap().contains("messageIndexEnable=true"));
    let fixture = fixture.restart_with(|config| config.store.index = true).await;
    assert_eq!(bodies(&ask(&fixture, query("orders", "own-0")).await), ["m0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_a_client_cannot_take_in_one_frame_are_left_out() {
    let fixture = Fixture::start_with(|config| config.store.commit_log_file_size = 32 << 20).await;
    fixture.create_topic("large", 1).await;
    for number in 0..5 {
        let body = number.to_string().repeat(4_000_000);
        let send = Send { properties: "KEYS\u{1}k\u{2}", ..Send::new("large", &body) };
        assert_eq!(fixture.send(send).await.code, 0);
    }
    fixture.wait_for_end("large", 0, 5).await;
    let answer = ask(&fixture, query("large", "k")).await;
    let firsts: Vec<String> = bodies(&answer).iter().map(|body| body[..1].to_owned()).collect();
    assert_eq!(firsts, ["2", "3", "4"], "the newest");
}
