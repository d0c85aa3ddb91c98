//! The client against RocketPy's own name server and broker.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rocketpy_broker::{Broker, BrokerConfig, StoreConfig};
use rocketpy_client::{
    Admin, Client, ClientConfig, ClientError, ConsumerConfig, FoundMessage, MessageQuery, OffsetTarget,
    Producer, ProducerConfig, PullConsumer, QueryKind, RangeReader, SendOptions, Start, Subscription,
    TopicSpec,
};
use rocketpy_model::{Message, QueueOffset};
use rocketpy_namesrv::{NameServer, NameServerConfig};
use rocketpy_protocol::code::response;
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::peer::PATIENCE;

const ANY_PORT: &str = "127.0.0.1:0";
/// An address that only brokers of these tests use, so that no other connection takes the port of one that restarts.
const ANY_PORT_TWICE: &str = "127.0.7.5:0";

pub(crate) struct Cluster {
    names: NameServer,
    broker: Option<Broker>,
    listen: SocketAddr,
    store: TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let names = NameServer::start(NameServerConfig::new(ANY_PORT.parse().unwrap())).await.unwrap();
        let store = tempfile::tempdir().unwrap();
        let mut cluster = Self { names, broker: None, listen: ANY_PORT_TWICE.parse().unwrap(), store };
        cluster.start_broker().await;
        cluster
    }

    /// Starts the broker on the store, the second time on the same port.
    pub(crate) async fn start_broker(&mut self) {
        let config = BrokerConfig {
            store: StoreConfig {
                commit_log_file_size: 16 << 20,
                busy_timeout: PATIENCE,
                ..StoreConfig::new(self.store.path())
            },
            listen: self.listen,
            name_servers: vec![self.names.local_addr().to_string()],
            ..BrokerConfig::default()
        };
        let broker = Broker::start(config).await.unwrap();
        assert!(broker.registered(PATIENCE).await);
        self.listen = broker.local_addr();
        self.broker = Some(broker);
    }

    pub(crate) async fn stop_broker(&mut self) {
        self.broker.take().unwrap().shutdown().await;
    }

    pub(crate) fn client(&self) -> Client {
        let names = [self.names.local_addr().to_string()];
        let config = ClientConfig { api_timeout: PATIENCE, ..ClientConfig::new(names) };
        Client::new(config, Handle::current()).unwrap()
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::new(&self.client())
    }

    pub(crate) async fn producer(&self) -> Producer {
        let config =
            ProducerConfig { send_timeout: PATIENCE, attempt_timeout: PATIENCE, ..ProducerConfig::default() };
        Producer::new(&self.client(), "ingest", config).await.unwrap()
    }

    pub(crate) async fn consumer(&self, group: &str, tags: &str) -> PullConsumer {
        let config = ConsumerConfig { start: Start::Earliest, ..ConsumerConfig::default() };
        PullConsumer::new(&self.client(), group, vec![Subscription::new("t", tags)], config).await.unwrap()
    }
}

fn numbered(number: usize) -> Message {
    let mut message = Message::new("t", number.to_string());
    message.set_tag(if number.is_multiple_of(2) { "even" } else { "odd" }).unwrap();
    message.set_order_key(format!("key-{}", number % 10)).unwrap();
    message
}

async fn send(cluster: &Cluster, count: usize) {
    let messages: Vec<Message> = (0..count).map(numbered).collect();
    let outcome = cluster.producer().await.send_many(messages, SendOptions::default()).await.unwrap();
    outcome.check().unwrap();
}

/// Waits until a condition of another process or task is true, and fails after [`PATIENCE`].
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never came true: {what}");
}

/// Polls until `count` numbers have come.
pub(crate) async fn receive(consumers: &[&PullConsumer], count: usize) -> Vec<usize> {
    let mut numbers = Vec::new();
    let all = async {
        while numbers.len() < count {
            for consumer in consumers {
                let batch = consumer.poll(100, Duration::from_millis(50)).await.unwrap();
                numbers.extend(batch.iter().map(|message| number(&message.record())));
            }
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("too few messages came"));
    numbers
}

fn number(record: &RecordView<'_>) -> usize {
    std::str::from_utf8(record.body).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_is_read_back_in_the_order_of_its_keys() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 8)).await.unwrap();
    send(&cluster, 5000).await;
    let consumer = cluster.consumer("report", "*").await;
    let numbers = receive(&[&consumer], 5000).await;
    let mut last = BTreeMap::new();
    for number in &numbers {
        if let Some(before) = last.insert(number % 10, *number) {
            assert!(before < *number, "out of order");
        }
    }
    let mut sorted = numbers;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..5000).collect::<Vec<_>>(), "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_filtered_and_do_not_hold_commits_back() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 2)).await.unwrap();
    send(&cluster, 1000).await;
    let consumer = cluster.consumer("even", "even").await;
    let numbers = receive(&[&consumer], 500).await;
    assert!(numbers.iter().all(|number| number.is_multiple_of(2)));
    let lag_ends = async {
        loop {
            consumer.commit().await.unwrap();
            let lag = cluster.admin().group_lag("even", Some("t")).await.unwrap();
            if lag.lag() == 0 {
                break;
            }
            assert!(consumer.poll(1, Duration::from_millis(20)).await.unwrap().is_empty());
        }
    };
    tokio::time::timeout(PATIENCE, lag_ends).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_continues_where_it_committed() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 4)).await.unwrap();
    send(&cluster, 1000).await;
    let first = cluster.consumer("report", "*").await;
    let mut numbers = receive(&[&first], 300).await;
    first.commit().await.unwrap();
    first.close().await.unwrap();
    first.client().close().await;
    let second = cluster.consumer("report", "*").await;
    numbers.extend(receive(&[&second], 1000 - numbers.len()).await);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>(), "none missing, none twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_share_the_queues_and_one_takes_over() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 4)).await.unwrap();
    let (first, second) = (cluster.consumer("report", "*").await, cluster.consumer("report", "*").await);
    eventually("the queues are shared", async || {
        first.assignment().len() == 2 && second.assignment().len() == 2
    })
    .await;
    assert!(first.assignment().iter().all(|queue| !second.assignment().contains(queue)));
    let members = cluster.admin().group_members("report").await.unwrap();
    assert_eq!(members.len(), 2);
    send(&cluster, 400).await;
    let mut numbers = receive(&[&first, &second], 400).await;
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 400);
    second.close().await.unwrap();
    eventually("one has all queues", async || first.assignment().len() == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_brings_a_new_message_at_once() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 1)).await.unwrap();
    let consumer = cluster.consumer("report", "*").await;
    assert!(consumer.poll(1, Duration::from_millis(100)).await.unwrap().is_empty());
    let waiting = tokio::spawn({
        let consumer = consumer.clone();
        async move { receive(&[&consumer], 1).await }
    });
    cluster.producer().await.send(&numbered(7), SendOptions::default()).await.unwrap();
    assert_eq!(waiting.await.unwrap(), [7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_and_producer_survive_a_restart_of_the_broker() {
    let mut cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 2)).await.unwrap();
    let (producer, consumer) = (cluster.producer().await, cluster.consumer("report", "*").await);
    for number in 0..10 {
        producer.send(&numbered(number), SendOptions::default()).await.unwrap();
    }
    let mut numbers = receive(&[&consumer], 10).await;
    consumer.commit().await.unwrap();
    cluster.stop_broker().await;
    let waiting = {
        let producer = producer.clone();
        tokio::spawn(async move { producer.send(&numbered(10), SendOptions::default()).await })
    };
    eventually("a send is tried again", async || producer.stats().retried.messages > 0).await;
    cluster.start_broker().await;
    waiting.await.unwrap().unwrap();
    for number in 11..20 {
        producer.send(&numbered(number), SendOptions::default()).await.unwrap();
    }
    numbers.extend(receive(&[&consumer], 10).await);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    eventually("the member is known again", async || {
        cluster.admin().group_members("report").await.unwrap().len() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_made_by_the_first_message() {
    let cluster = Cluster::start().await;
    let producer = cluster.producer().await;
    let receipt = producer.send(&numbered(1), SendOptions::default()).await.unwrap();
    assert_eq!(receipt.queue_offset, QueueOffset(0));
    eventually("the topic is known", async || cluster.admin().describe_topic("t").await.is_ok()).await;
    let topic = cluster.admin().describe_topic("t").await.unwrap();
    assert_eq!((topic.brokers.len(), topic.brokers[0].write_queues), (1, 4));
    let record = cluster.admin().view_message(&receipt.offset_msg_id).await.unwrap();
    let view = RecordView::parse(&record).unwrap();
    assert_eq!((number(&view), view.unique_key()), (1, Some(receipt.msg_id.as_str())));
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_made_listed_described_and_deleted() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.create_topic(&TopicSpec::new("t", 3)).await.unwrap();
    assert!(admin.topics().await.unwrap().contains(&"t".to_owned()));
    send(&cluster, 30).await;
    let topic = admin.describe_topic("t").await.unwrap();
    assert_eq!((topic.brokers[0].read_queues, topic.brokers[0].perm), (3, 6));
    assert_eq!(topic.queues.len(), 3);
    assert_eq!(topic.queues.iter().map(|queue| queue.max_offset.get()).sum::<u64>(), 30);
    assert!(topic.queues.iter().any(|queue| queue.last_stored_at_ms.is_some()));
    let busiest = topic.queues.iter().max_by_key(|queue| queue.max_offset).unwrap();
    assert_eq!(admin.max_offset(&busiest.queue).await.unwrap(), busiest.max_offset);
    assert_eq!(admin.min_offset(&busiest.queue).await.unwrap(), QueueOffset(0));
    let stored_at = admin.earliest_stored_at(&busiest.queue).await.unwrap().unwrap();
    assert_eq!(admin.search_offset(&busiest.queue, stored_at).await.unwrap(), QueueOffset(0));
    assert_eq!(admin.search_offset(&busiest.queue, i64::MAX).await.unwrap(), busiest.max_offset);
    admin.delete_topic("t").await.unwrap();
    assert!(!admin.topics().await.unwrap().contains(&"t".to_owned()));
    assert_eq!(admin.describe_topic("t").await.unwrap_err(), ClientError::NoRoute { topic: "t".into() });
    assert_eq!(admin.delete_topic("t").await.unwrap_err(), ClientError::NoSuchTopic { topic: "t".into() });
    let hint = admin.delete_topic("t").await.unwrap_err().hint().unwrap();
    assert!(hint.contains("topic list") && !hint.contains("create"), "{hint}");
    let system = admin.delete_topic("TBW102").await.unwrap_err();
    assert!(matches!(system, ClientError::SystemTopic { .. }) && system.hint().is_some());
    assert!(!system.to_string().contains("send"), "{system}");
    let nowhere = TopicSpec { cluster: Some("nowhere".into()), ..TopicSpec::new("t", 1) };
    let error = admin.create_topic(&nowhere).await.unwrap_err();
    assert_eq!(error, ClientError::ClusterNotFound { cluster: "nowhere".into() });
    assert_eq!(admin.cluster().await.unwrap().brokers.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_listed_measured_and_reset_while_nobody_is_in_them() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.create_topic(&TopicSpec::new("t", 2)).await.unwrap();
    send(&cluster, 100).await;
    let consumer = cluster.consumer("report", "*").await;
    receive(&[&consumer], 100).await;
    consumer.commit().await.unwrap();
    let groups = admin.groups().await.unwrap();
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["report"], "those of the system are not shown");
    assert_eq!(groups[0].members, [consumer.client().client_id()]);
    let lag = admin.group_lag("report", None).await.unwrap();
    let rows = lag.rows.iter().filter(|row| &*row.queue.topic == "t").count();
    assert_eq!((rows, lag.lag()), (2, 0));
    let active = admin.reset_offsets("report", "t", OffsetTarget::Earliest, false).await.unwrap_err();
    assert_eq!(active, ClientError::GroupActive { group: "report".into(), members: 1 });
    consumer.close().await.unwrap();
    let reset = admin.reset_offsets("report", "t", OffsetTarget::Earliest, false).await.unwrap();
    assert!(reset.iter().all(|(_, offset)| *offset == QueueOffset(0)) && reset.len() == 2);
    assert_eq!(admin.group_lag("report", Some("t")).await.unwrap().lag(), 100);
    admin.reset_offsets("report", "t", OffsetTarget::Latest, false).await.unwrap();
    assert_eq!(admin.group_lag("report", Some("t")).await.unwrap().lag(), 0);
    let (queue, _) = &reset[0];
    assert_eq!(admin.committed_offset("nobody", queue).await.unwrap(), None);
    admin.delete_group("report").await.unwrap();
    assert!(admin.groups().await.unwrap().is_empty());
    let unknown = admin.delete_group("report").await.unwrap_err();
    assert_eq!(unknown.code(), Some(response::SUBSCRIPTION_GROUP_NOT_EXIST), "{unknown}");
    for _again in 0..2 {
        admin.create_group("fresh").await.unwrap();
    }
    assert_eq!(admin.groups().await.unwrap()[0].name, "fresh");
    let reset = admin.reset_offsets("fresh", "t", OffsetTarget::Latest, false).await.unwrap();
    assert_eq!(reset.iter().map(|(_, offset)| offset.get()).sum::<u64>(), 100);
    assert!(matches!(admin.create_group("a b").await, Err(ClientError::InvalidGroup { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_skips_what_was_there_before() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 2)).await.unwrap();
    send(&cluster, 50).await;
    let subscriptions = vec![Subscription::new("t", "*")];
    let config = ConsumerConfig { start: Start::Latest, ..ConsumerConfig::default() };
    let latest = PullConsumer::new(&cluster.client(), "late", subscriptions, config).await.unwrap();
    cluster.producer().await.send(&numbered(1000), SendOptions::default()).await.unwrap();
    assert_eq!(receive(&[&latest], 1).await, [1000]);
}

/// Queues appear and receive messages before the members notice them: a topic grows, and one is created by its first send.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_begins_at_the_end_misses_nothing_of_queues_that_appear_later() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 1)).await.unwrap();
    send(&cluster, 50).await;
    let names = [cluster.names.local_addr().to_string()];
    let slow = ClientConfig {
        api_timeout: PATIENCE,
        route_refresh_interval: Duration::from_millis(500),
        ..ClientConfig::new(names)
    };
    let client = Client::new(slow, Handle::current()).unwrap();
    let late = ConsumerConfig {
        start: Start::Latest,
        rebalance_interval: Duration::from_millis(500),
        allow_missing_topic: true,
        ..ConsumerConfig::default()
    };
    let subscriptions = ["t", "made"].map(|topic| Subscription::new(topic, "*")).into();
    let latest = PullConsumer::new(&client, "late", subscriptions, late).await.unwrap();
    cluster.admin().create_topic(&TopicSpec::new("t", 4)).await.unwrap();
    let producer = cluster.producer().await;
    for number in 1000..1040 {
        producer.send(&numbered(number), SendOptions::default()).await.unwrap();
    }
    for number in 2000..2100 {
        producer.send(&Message::new("made", number.to_string()), SendOptions::default()).await.unwrap();
    }
    let mut numbers = receive(&[&latest], 140).await;
    numbers.sort_unstable();
    assert_eq!(numbers, (1000..1040).chain(2000..2100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_comes_back_as_it_was() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 1)).await.unwrap();
    let body: Vec<u8> = (0..1_000_000_u32).map(|number| (number / 100) as u8).collect();
    let producer = cluster.producer().await;
    producer.send(&Message::new("t", body.clone()), SendOptions::default()).await.unwrap();
    let consumer = cluster.consumer("report", "*").await;
    let batch = consumer.poll(10, PATIENCE).await.unwrap();
    let message = batch.iter().next().unwrap();
    let record = message.record();
    assert!(record.body.len() < body.len() / 2, "it travels compressed");
    assert_eq!(
        *record.plain_body(&rocketpy_protocol::compression::DecompressLimits::default()).unwrap(),
        *body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_cover_a_topic_exactly() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.create_topic(&TopicSpec::new("t", 4)).await.unwrap();
    send(&cluster, 3000).await;
    let client = cluster.client();
    let mut numbers = Vec::new();
    for queue in admin.queues("t").await.unwrap() {
        let end = admin.max_offset(&queue).await.unwrap();
        let middle = QueueOffset(end.get() / 2);
        for (from, to) in [(QueueOffset(0), middle), (middle, end)] {
            let mut reader = RangeReader::new(&client, queue.clone(), from, to, "*").await.unwrap();
            while let Some(part) = reader.next().await.unwrap() {
                numbers.extend(part.iter().map(|record| number(&record)));
            }
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..3000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn submitted_messages_arrive_in_order() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 4)).await.unwrap();
    let producer = cluster.producer().await;
    for number in 0..2000 {
        drop(producer.submit(numbered(number), SendOptions::default()).await.unwrap());
    }
    producer.flush(PATIENCE).await.unwrap();
    let consumer = cluster.consumer("report", "*").await;
    let numbers = receive(&[&consumer], 2000).await;
    let mut last = BTreeMap::new();
    for number in &numbers {
        if let Some(before) = last.insert(number % 10, *number) {
            assert!(before < *number, "out of order");
        }
    }
    assert_eq!(numbers.len(), 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_found_by_key_unique_key_tag_and_offset_id() {
    let cluster = Cluster::start().await;
    let (admin, producer) = (cluster.admin(), cluster.producer().await);
    admin.create_topic(&TopicSpec::new("t", 4)).await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..20 {
        let mut message = numbered(number);
        message.set_keys(["all", &format!("own-{number}")]).unwrap();
        receipts.push(producer.send(&message, SendOptions::default()).await.unwrap());
    }
    let body = |found: &FoundMessage| {
        let view = RecordView::parse(&found.record).unwrap();
        String::from_utf8(view.body.to_vec()).unwrap()
    };
    let found = async |key: &str, query: &MessageQuery| {
        let found = admin.query_messages("t", key, query).await.unwrap();
        found.iter().map(body).collect::<Vec<_>>()
    };
    let all = MessageQuery::default();
    while found("own-19", &all).await.is_empty() {} // It is acknowledged before it is in the index.
    assert_eq!(found("own-7", &all).await, ["7"]);
    let numbers = |range: std::ops::Range<u32>| range.map(|number| number.to_string()).collect::<Vec<_>>();
    let mut by_all = found("all", &all).await;
    by_all.sort_by_key(|number| number.parse::<u32>().unwrap());
    assert_eq!(by_all, numbers(0..20), "from every queue");
    assert_eq!(found("all", &MessageQuery { max_messages: 3, ..all }).await.len(), 3);
    assert_eq!(found("all", &MessageQuery { end_ms: 1000, ..all }).await, numbers(0..0));
    assert_eq!(found("even", &MessageQuery { kind: QueryKind::Tag, ..all }).await.len(), 10);
    assert_eq!(found(&receipts[3].msg_id, &all).await, numbers(0..0), "a unique key is no key");

    let (third, nothing) = (&receipts[3], "7F0000010001000000000000000000FF");
    let by_id = admin.message_by_unique_key("t", &third.msg_id).await.unwrap().unwrap();
    assert_eq!((body(&by_id), &by_id.queue), ("3".to_owned(), &third.queue));
    assert_eq!(admin.message("t", &third.msg_id).await.unwrap(), Some(by_id.clone()));
    assert_eq!(admin.message("t", &third.offset_msg_id).await.unwrap(), Some(by_id));
    assert_eq!(admin.message_by_unique_key("t", nothing).await.unwrap(), None);
    assert_eq!(admin.message("t", nothing).await.unwrap(), None);
    assert_eq!(admin.message("t", "no id at all").await.unwrap(), None);
    // No message begins one byte further. Another server is not asked.
    let place: OffsetMessageId = third.offset_msg_id.parse().unwrap();
    let beside = OffsetMessageId { physical_offset: place.physical_offset + 1, ..place };
    assert_eq!(admin.message("t", &beside.to_string()).await.unwrap(), None);
    let elsewhere = OffsetMessageId { host: "203.0.113.7:10911".parse().unwrap(), ..place };
    assert_eq!(admin.message("t", &elsewhere.to_string()).await.unwrap(), None);

    let error = admin.query_messages("not a topic", "k", &all).await.unwrap_err();
    assert!(matches!(error, ClientError::InvalidTopic { .. }), "{error}");
    let error = admin.query_messages("nowhere", "k", &all).await.unwrap_err();
    assert!(matches!(error, ClientError::NoRoute { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_whose_broker_is_gone_says_so_and_continues_when_it_is_back() {
    let mut cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 2)).await.unwrap();
    let patience = Duration::from_millis(50);
    let config = ConsumerConfig { unreachable_timeout: Some(patience), ..ConsumerConfig::default() };
    let subscriptions = vec![Subscription::new("t", "*")];
    let consumer = PullConsumer::new(&cluster.client(), "g", subscriptions, config).await.unwrap();
    send(&cluster, 10).await;
    receive(&[&consumer], 10).await;
    let state = consumer.state();
    assert_eq!((state.assigned.len(), state.brokers.len()), (2, 1));
    assert_eq!(state.brokers[0].trouble, None);
    cluster.stop_broker().await;
    for _ in 0..2 {
        let error = consumer.poll(1, PATIENCE).await.unwrap_err();
        assert!(
            matches!(&error, ClientError::Unreachable { silence_ms, .. } if *silence_ms >= 50),
            "{error:?}"
        );
        assert!(error.retryable() && error.hint().is_some());
    }
    assert!(consumer.state().brokers[0].trouble.is_some());
    cluster.start_broker().await;
    eventually("the broker is reached", async || consumer.state().brokers[0].trouble.is_none()).await;
    send(&cluster, 10).await;
    receive(&[&consumer], 10).await;
}
