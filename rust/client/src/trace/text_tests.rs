//! The text of trace records: vectors, and what other writers write.

use super::record::{
    ConsumeResult, TraceRecord, TracedBegin, TracedEnd, TracedKind, TracedRecall, TracedSend,
    TracedTransaction,
};

const SENT: TracedSend<'_> = TracedSend {
    at_ms: 1_700_000_000_000,
    region: "DefaultRegion",
    group: "shop",
    topic: "orders",
    msg_id: "7F0000010001",
    tag: Some("paid"),
    keys: Some("A-17 A-18"),
    store_host: "127.0.0.1:10911",
    body_bytes: 6,
    cost_ms: 3,
    kind: Some(TracedKind::Normal),
    offset_msg_id: Some("7F00000100002A9F0000000000000000"),
    success: true,
    client_host: Some("127.0.0.1@1#2"),
};
const BEGAN: TracedBegin<'_> = TracedBegin {
    at_ms: 1_700_000_000_001,
    region: "DefaultRegion",
    group: "billing",
    request_id: "R1",
    msg_id: "7F0000010001",
    retries: 2,
    keys: None,
};
const ENDED: TracedEnd<'_> = TracedEnd {
    request_id: "R1",
    msg_id: "7F0000010001",
    cost_ms: 12,
    success: false,
    keys: Some("A-17"),
    result: Some(ConsumeResult::Exception),
    at_ms: Some(1_700_000_000_013),
    group: Some("billing"),
};

/// docs/reference/client.md 6.2, with visible separators: `|` between fields, `;` after records.
fn wire(visible: &str) -> String {
    visible.replace('|', "\u{1}").replace(';', "\u{2}")
}

fn read(visible: &str) -> Vec<String> {
    TraceRecord::read_all(&wire(visible)).map(|record| format!("{record:?}")).collect()
}

#[test]
fn each_record_is_written_as_the_facts_say_and_read_again() {
    let half = TracedSend { tag: None, keys: None, kind: Some(TracedKind::Half), ..SENT };
    let transaction = TracedTransaction {
        at_ms: 5,
        region: "DefaultRegion",
        group: "payers",
        topic: "invoices",
        msg_id: "M",
        tag: None,
        keys: Some("k"),
        store_host: "h:1",
        transaction_id: Some("T"),
        state: "COMMIT_MESSAGE",
        from_check: true,
    };
    let recall = TracedRecall {
        at_ms: 6,
        region: "DefaultRegion",
        group: "ingest",
        topic: "reminders",
        msg_id: "M",
        success: true,
    };
    let vectors = [
        (
            TraceRecord::Sent(SENT),
            "Pub|1700000000000|DefaultRegion|shop|orders|7F0000010001|paid|A-17 A-18|127.0.0.1:10911|6|3|0|\
             7F00000100002A9F0000000000000000|true|127.0.0.1@1#2;",
        ),
        (
            TraceRecord::Sent(half),
            "Pub|1700000000000|DefaultRegion|shop|orders|7F0000010001|null|null|127.0.0.1:10911|6|3|1|\
             7F00000100002A9F0000000000000000|true|127.0.0.1@1#2;",
        ),
        (TraceRecord::Began(BEGAN), "SubBefore|1700000000001|DefaultRegion|billing|R1|7F0000010001|2|null;"),
        (TraceRecord::Ended(ENDED), "SubAfter|R1|7F0000010001|12|false|A-17|2|1700000000013|billing;"),
        (
            TraceRecord::TransactionEnded(transaction),
            "EndTransaction|5|DefaultRegion|payers|invoices|M|null|k|h:1|2|T|COMMIT_MESSAGE|true;",
        ),
        (TraceRecord::Recalled(recall), "Recall|6|DefaultRegion|ingest|reminders|M|true;"),
    ];
    for (record, visible) in vectors {
        let written = record.to_string();
        assert_eq!(written, wire(visible));
        assert_eq!(TraceRecord::read_all(&written).collect::<Vec<_>>(), [record]);
        assert_eq!(
            TraceRecord::read_all(&written).next().map(|record| record.msg_id()),
            Some(record.msg_id())
        );
    }
}

#[test]
fn records_of_other_writers_are_read() {
    // Apache 5 has no client host; the oldest have no offset id either.
    let five = TracedSend { client_host: None, ..SENT };
    let oldest = TracedSend { offset_msg_id: None, ..five };
    let head =
        "Pub|1700000000000|DefaultRegion|shop|orders|7F0000010001|paid|A-17 A-18|127.0.0.1:10911|6|3|0";
    assert_eq!(
        read(&format!("{head}|7F00000100002A9F0000000000000000|true;{head}|true;")),
        [format!("{:?}", TraceRecord::Sent(five)), format!("{:?}", TraceRecord::Sent(oldest))]
    );
    let bare = TracedEnd { result: None, at_ms: None, group: None, ..ENDED };
    let coded = TracedEnd { result: ENDED.result, ..bare };
    assert_eq!(
        // The last is that of the cloud.
        read(
            "SubAfter|R1|7F0000010001|12|false|A-17;SubAfter|R1|7F0000010001|12|false|A-17|2;SubAfter|R1|7F0000010001|12|false|A-17|2|;"
        ),
        [bare, coded, coded].map(|record| format!("{:?}", TraceRecord::Ended(record)))
    );
}

#[test]
fn what_cannot_be_read_is_passed_over() {
    assert!(read("").is_empty());
    assert!(read("Pub;Pub|x|;Novel|1|2;SubAfter|R|M|a|true|k;;").is_empty());
    let unknown_kind = "Pub|1|r|g|t|M|null|null|h|6|3|9|O|true;";
    let text = wire(unknown_kind);
    let Some(TraceRecord::Sent(sent)) = TraceRecord::read_all(&text).next() else { panic!("not read") };
    assert_eq!(sent.kind, None);
}

#[test]
fn separators_in_a_text_do_not_split_the_record() {
    let host = "127.0.0.1@a\u{1}b\u{2}c";
    let text = TraceRecord::Sent(TracedSend { client_host: Some(host), ..SENT }).to_string();
    let Some(TraceRecord::Sent(sent)) = TraceRecord::read_all(&text).next() else { panic!("not read") };
    assert_eq!(sent.client_host, Some("127.0.0.1@a?b?c"));
}
