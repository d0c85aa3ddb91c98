use rocketpy_model::{MessageQueue, TopicConfig};
use rocketpy_protocol::body::{TopicConfigSerializeWrapper, TopicStatsTable};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    DeleteTopicRequestHeader, GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader,
};
use rocketpy_protocol::{Command, json};

use crate::support::{Fixture, Pull, create_topic, create_topic_with};

pub(crate) async fn get(fixture: &Fixture, topic: &str) -> Result<TopicConfig, Command> {
    let header = GetTopicConfigRequestHeader { topic, logical: None };
    let answer = fixture.call(Command::request(request::GET_TOPIC_CONFIG, &header)).await;
    if answer.code == 0 { Ok(json::from_slice(&answer.body).unwrap()) } else { Err(answer) }
}

pub(crate) async fn delete(fixture: &Fixture, topic: &str) -> Command {
    fixture.call(Command::request(request::DELETE_TOPIC_IN_BROKER, &DeleteTopicRequestHeader { topic })).await
}

async fn all(fixture: &Fixture) -> TopicConfigSerializeWrapper {
    let answer = fixture.call(Command::bare_request(request::GET_ALL_TOPIC_CONFIG)).await;
    json::from_slice(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_changed_and_deleted() {
    let fixture = Fixture::start().await;
    assert_eq!(get(&fixture, "orders").await.unwrap_err().code, 17);
    let before = all(&fixture).await.data_version;
    fixture.create_topic("orders", 3).await;
    assert_eq!(get(&fixture, "orders").await.unwrap(), TopicConfig::new("orders", 3));
    let mut order = create_topic("orders", 5, 4);
    order.ext.push("order", "true");
    order.ext.push("attributes", "+message.type=FIFO");
    assert_eq!(fixture.call(order).await.code, 0);
    let changed = get(&fixture, "orders").await.unwrap();
    assert_eq!((changed.read_queues, changed.perm.bits(), changed.order), (5, 4, true));
    assert_eq!(changed.attributes["message.type"], "FIFO");
    let table = all(&fixture).await;
    assert!(table.data_version.counter >= before.counter + 2);
    assert!(
        table.topic_config_table.contains_key("orders") && table.topic_config_table.contains_key("TBW102")
    );

    assert_eq!(delete(&fixture, "orders").await.code, 0);
    assert_eq!(get(&fixture, "orders").await.unwrap_err().code, 17);
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.code, 17);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_topic_takes_its_queues_and_offsets_along() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.put("orders", 0, "old").await;
    fixture.wait_for_end("orders", 0, 1).await;
    crate::offsets::commit(&fixture, "TOOLS_CONSUMER", "orders", 0, 1).await;
    delete(&fixture, "orders").await;
    fixture.create_topic("orders", 1).await;
    assert_eq!(fixture.max_offset("orders", 0).await, 0);
    assert_eq!(crate::offsets::stored(&fixture, "TOOLS_CONSUMER", "orders", 0).await, None);
    fixture.put("orders", 0, "new").await;
    fixture.wait_for_end("orders", 0, 1).await;
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.bodies(), ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_topics_are_refused_and_named() {
    let fixture = Fixture::start().await;
    let long = "a".repeat(300);
    for (request, named) in [
        (create_topic("a/b", 1, 6), "a/b"),
        (create_topic(&long, 1, 6), "300"),
        (create_topic("", 1, 6), "empty"),
        (create_topic("TBW102", 1, 6), "TBW102"),
        (create_topic("DefaultCluster", 1, 6), "DefaultCluster"),
        (create_topic("orders", 0, 6), "readQueueNums"),
        (create_topic("orders", -1, 6), "readQueueNums"),
        (create_topic("orders", 1_000_000, 6), "readQueueNums"),
        (create_topic("orders", 1, 99), "perm"),
    ] {
        let answer = fixture.call(request).await;
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, 29, "{remark}");
        assert!(remark.contains(named), "{remark}");
    }
    for (attribute, missing) in [
        ("+queue.type=BatchCQ", "batch consume queues"),
        ("+message.type=MIXED", "enableMixedMessageType"),
        ("+message.type=PRIORITY", "priorities"),
        ("+message.type=LITE", "lite topics"),
        ("+cleanup.policy=COMPACTION", "compaction"),
        ("nonsense", "+retention.hours"),
    ] {
        let answer = fixture.call(create_topic_with("orders", attribute)).await;
        assert_eq!(answer.code, 29, "{attribute}");
        let remark = answer.remark.unwrap();
        assert!(remark.contains(attribute) && remark.contains(missing), "{remark}");
    }
    for topic in ["SCHEDULE_TOPIC_XXXX", "a/b", "DefaultCluster_REPLY_TOPIC"] {
        assert_eq!(delete(&fixture, topic).await.code, 29, "{topic}");
    }
    assert_eq!(delete(&fixture, "never-there").await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statistics_of_a_topic_list_every_queue() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    for _ in 0..3 {
        fixture.put("orders", 1, "x").await;
    }
    fixture.wait_for_end("orders", 1, 3).await;
    let stats = async |topic| {
        let header = GetTopicStatsInfoRequestHeader { topic };
        fixture.call(Command::request(request::GET_TOPIC_STATS_INFO, &header)).await
    };
    let table: TopicStatsTable = json::from_slice(&stats("orders").await.body).unwrap();
    let queue = |id| MessageQueue { topic: "orders".into(), broker_name: "broker-a".into(), queue_id: id };
    assert_eq!(table.offset_table.len(), 2);
    assert_eq!(table.offset_table[&queue(0)].last_update_at_ms, 0);
    let filled = &table.offset_table[&queue(1)];
    assert_eq!((filled.min_offset, filled.max_offset), (0, 3));
    assert!(filled.last_update_at_ms > 1_700_000_000_000);
    assert_eq!(stats("missing").await.code, 17);
    assert!(table.topic_put_tps > 0.0, "three messages since the start, a moment ago");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_takes_the_label_of_each_message_type_that_is_served() {
    let fixture = Fixture::start_with(|config| config.topics.mixed = true).await;
    for kind in ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED", "MIXED"] {
        let answer = fixture.call(create_topic_with("orders", &format!("+message.type={kind}"))).await;
        assert_eq!(answer.code, 0, "{kind}: {:?}", answer.remark);
        fixture.put("orders", 0, kind).await;
    }
}
