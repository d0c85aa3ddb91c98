//! Reads of administration at several brokers.

use std::collections::BTreeMap;

use bytes::Bytes;
use rocketpy_client::{
    Admin, Client, ClientConfig, ClientError, ConsumerConfig, Program, PullConsumer, Subscription,
};
use rocketpy_model::{GroupConfig, MessageQueue};
use rocketpy_protocol::body::{
    BrokerData, ClusterInfo, ConsumeStats, OffsetWrapper, SubscriptionGroupWrapper, TopicList,
};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::GetConsumerRunningInfoRequestHeader;
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::{Command, Language, json};
use tokio::runtime::Handle;

use crate::peer::{Act, PATIENCE, Peer, begun, ok, status};

/// Answers with a JSON body.
fn body<T: serde::Serialize>(value: &T) -> Act {
    Act::Answer(ok().with_body(json::to_vec(value)))
}

/// A name server that knows these brokers as `b0`, `b1` and so on.
fn names(brokers: &[&Peer]) -> Peer {
    let table = brokers.iter().enumerate().map(|(number, peer)| {
        let broker_name = format!("b{number}");
        let broker_addrs = [(0, peer.address.clone())].into();
        (
            broker_name.clone(),
            BrokerData { broker_name, cluster: "c".into(), broker_addrs, ..BrokerData::default() },
        )
    });
    let info = ClusterInfo { broker_addr_table: table.collect(), ..ClusterInfo::default() };
    let names = Peer::start();
    names.script(move |command| match command.code {
        request::GET_BROKER_CLUSTER_INFO => body(&info),
        request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
            body(&TopicList { topic_list: vec!["t".to_owned()], ..TopicList::default() })
        }
        _ => Act::Default,
    });
    names
}

fn admin(names: &Peer) -> Admin {
    let config = ClientConfig { api_timeout: PATIENCE, ..ClientConfig::new([names.address.clone()]) };
    Admin::new(&Client::new(config, Handle::current()).unwrap())
}

fn groups(names: &[&str]) -> SubscriptionGroupWrapper {
    let table = names.iter().map(|name| ((*name).to_owned(), GroupConfig::new(*name)));
    SubscriptionGroupWrapper {
        subscription_group_table: table.collect(),
        ..SubscriptionGroupWrapper::default()
    }
}

fn stats(broker_name: &str, committed: i64, end: i64) -> ConsumeStats {
    let offsets =
        OffsetWrapper { broker_offset: end, consumer_offset: committed, ..OffsetWrapper::default() };
    ConsumeStats {
        offset_table: [(MessageQueue::new("t", broker_name, 0), offsets)].into(),
        ..ConsumeStats::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_brokers_are_requested_at_the_same_time() {
    let brokers = [Peer::start(), Peer::start(), Peer::start()];
    for broker in &brokers {
        broker.script(|command| match command.code {
            request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => Act::Hold,
            _ => Act::Default,
        });
    }
    let names = names(&brokers.each_ref());
    let asked = tokio::spawn({
        let admin = admin(&names);
        async move { admin.groups().await }
    });
    let mut held = Vec::new();
    for broker in &brokers {
        held.push(broker.held(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG).await);
    }
    for (number, (_, reply)) in held.into_iter().enumerate() {
        reply.send(ok().with_body(json::to_vec(&groups(&[&format!("g{number}")]))));
    }
    let found: Vec<_> = asked.await.unwrap().unwrap().into_iter().map(|group| group.name).collect();
    assert_eq!(found, ["g0", "g1", "g2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_fails_leaves_the_others_known() {
    let (good, bad) = (Peer::start(), Peer::start());
    good.script(|command| match command.code {
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => body(&groups(&["g"])),
        request::GET_CONSUME_STATS => body(&stats("b0", 3, 10)),
        _ => Act::Default,
    });
    bad.script(|_| Act::Answer(status(response::SYSTEM_ERROR, "out of order")));
    let names = names(&[&good, &bad]);
    let admin = admin(&names);
    let found = admin.known_groups().await.unwrap();
    assert_eq!(found.found.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["g"]);
    assert_eq!(found.missing.len(), 1);
    let missing = &found.missing[0];
    assert_eq!((missing.broker_name.as_str(), &missing.address), ("b1", &bad.address));
    assert_eq!(missing.answered_at_ms, None);
    assert!(matches!(admin.groups().await.unwrap_err(), ClientError::Refused { .. }), "not complete");
    let lag = admin.known_lag("g", None).await.unwrap();
    assert_eq!((lag.found[0].lag(), lag.missing.len()), (7, 1));
    assert!(admin.group_lag("g", None).await.is_err());
    good.script(|_| Act::Answer(status(response::SYSTEM_ERROR, "out of order too")));
    let found = admin.known_groups().await;
    assert!(matches!(found.unwrap_err(), ClientError::Refused { address, .. } if address == good.address));
    bad.script(|command| match command.code {
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => body(&groups(&["g"])),
        _ => Act::Default,
    });
    let missing = admin.known_groups().await.unwrap().missing;
    assert!(missing[0].answered_at_ms.is_some_and(|at_ms| at_ms > 0), "it answered before");
}

/// The progress of group `g`, at a broker that answers 317 with `all` and 208 with `one`.
async fn progress(all: Act2, one: Act2) -> (Vec<(String, u64, bool)>, Peer) {
    let broker = Peer::start();
    broker.script(move |command| match command.code {
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => body(&groups(&["g", "h"])),
        request::GET_BROKER_CONSUME_STATS => all(command),
        request::GET_CONSUME_STATS => one(command),
        _ => Act::Default,
    });
    let names = names(&[&broker]);
    let found = admin(&names).known_progress().await.unwrap();
    assert!(found.missing.is_empty());
    let row = |group: rocketpy_client::GroupProgress| (group.name, group.lag, group.error.is_some());
    (found.found.into_iter().map(row).collect(), broker)
}

type Act2 = fn(&Command) -> Act;

#[tokio::test(flavor = "multi_thread")]
async fn one_request_brings_the_progress_of_all_groups() {
    let all: Act2 = |command| {
        assert_eq!(command.ext.get("isOrder"), Some("false"), "all topics, also ordered ones");
        let of_g = ("g", vec![stats("b0", 3, 10), stats("b1", 0, 5)]);
        body(&BTreeMap::from([("consumeStatsList", vec![BTreeMap::from([of_g])])]))
    };
    let (found, broker) = progress(all, |_| panic!("a request for one group")).await;
    assert_eq!(found, [("g".to_owned(), 12, false), ("h".to_owned(), 0, false)]);
    assert_eq!(broker.seen(request::GET_CONSUME_STATS).len(), 0);
    assert_eq!(broker.seen(request::GET_BROKER_CONSUME_STATS).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_requested_one_by_one_from_a_broker_without_that_request() {
    let one: Act2 = |command| match command.ext.get("consumerGroup") {
        Some("g") => body(&stats("b0", 3, 10)),
        _ => Act::Answer(status(response::SYSTEM_ERROR, "a name that the broker refuses")),
    };
    let unsupported: Act2 = |_| Act::Answer(status(response::REQUEST_CODE_NOT_SUPPORTED, "unknown"));
    let (found, broker) = progress(unsupported, one).await;
    assert_eq!(found, [("g".to_owned(), 7, false), ("h".to_owned(), 0, true)]);
    assert_eq!(broker.seen(request::GET_BROKER_CONSUME_STATS).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_group_is_looked_up_without_the_list_of_all() {
    let broker = Peer::start();
    broker.script(|command| match command.code {
        request::GET_SUBSCRIPTIONGROUP_CONFIG => body(&GroupConfig::new("g")),
        _ => Act::Default,
    });
    let names = names(&[&broker]);
    admin(&names).create_group("g").await.unwrap();
    assert_eq!(broker.seen(request::GET_SUBSCRIPTIONGROUP_CONFIG).len(), 1);
    assert_eq!(broker.seen(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).len(), 0, "it exists");
    broker.script(|command| match command.code {
        request::GET_SUBSCRIPTIONGROUP_CONFIG => {
            Act::Answer(status(response::SUBSCRIPTION_GROUP_NOT_EXIST, "no such group"))
        }
        _ => Act::Default,
    });
    admin(&names).create_group("g").await.unwrap();
    assert_eq!(broker.seen(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).len(), 1);
    assert_eq!(broker.seen(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_id_opens_no_connection_to_a_foreign_address() {
    let (broker, foreign) = (Peer::start(), Peer::start());
    let names = names(&[&broker]);
    let id =
        OffsetMessageId { host: foreign.address.parse().unwrap(), physical_offset: 0.into() }.to_string();
    let error = admin(&names).view_message(&id).await.unwrap_err();
    assert_eq!(error, ClientError::ForeignMessageId { id, address: foreign.address.clone() });
    assert_eq!(foreign.connections().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_names_its_language_and_tells_its_stacks_when_asked() {
    let peer = begun(1);
    let program = Program { language: Language::Python, stacks: Some(|| "\"MainThread\"\n".to_owned()) };
    let config = ClientConfig { program, ..ClientConfig::new([peer.address.clone()]) };
    let client = Client::new(config, Handle::current()).unwrap();
    let subscriptions = vec![Subscription::new("t", "*")];
    let _consumer =
        PullConsumer::new(&client, "report", subscriptions, ConsumerConfig::default()).await.unwrap();
    assert_eq!(peer.wait_for(request::HEART_BEAT, 1).await[0].language, Language::Python);
    let ask = async |stacks| {
        let header = GetConsumerRunningInfoRequestHeader {
            consumer_group: "report",
            client_id: client.client_id(),
            jstack_enable: stacks,
        };
        let answer = peer.ask(Command::request(request::GET_CONSUMER_RUNNING_INFO, &header)).await;
        assert_eq!(answer.code, response::SUCCESS);
        jstack_in(&answer.body)
    };
    assert_eq!(ask(Some(true)).await.as_deref(), Some("\"MainThread\"\n"));
    assert_eq!(ask(Some(false)).await, None);
    assert_eq!(ask(None).await, None);
}

fn jstack_in(body: &Bytes) -> Option<String> {
    json::from_slice::<rocketpy_protocol::body::ConsumerRunningInfo>(body).unwrap().jstack
}
