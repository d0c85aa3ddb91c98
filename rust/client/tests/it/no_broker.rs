//! A name server at which no broker is registered.

use rocketpy_client::{
    Admin, Client, ClientConfig, ClientError, ConsumerConfig, OffsetTarget, Producer, ProducerConfig,
    PullConsumer, SendOptions, Subscription, TopicSpec,
};
use rocketpy_model::Message;
use rocketpy_namesrv::{NameServer, NameServerConfig};
use tokio::runtime::Handle;

use crate::peer::PATIENCE;

async fn alone() -> (NameServer, Client, ClientError) {
    let names = NameServer::start(NameServerConfig::new("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = names.local_addr().to_string();
    let config = ClientConfig { api_timeout: PATIENCE, ..ClientConfig::new([address.clone()]) };
    let client = Client::new(config, Handle::current()).unwrap();
    (names, client, ClientError::NoBrokers { name_server: address })
}

#[tokio::test]
async fn administration_of_no_broker_at_all_is_no_success() {
    let (_names, client, expected) = alone().await;
    let admin = Admin::new(&client);
    let nowhere = TopicSpec { cluster: Some("nowhere".into()), ..TopicSpec::new("t", 1) };
    assert_eq!(admin.create_group("g").await.unwrap_err(), expected);
    assert_eq!(admin.delete_group("g").await.unwrap_err(), expected);
    assert_eq!(admin.groups().await.unwrap_err(), expected);
    assert_eq!(admin.group_members("g").await.unwrap_err(), expected);
    assert_eq!(admin.group_lag("g", None).await.unwrap_err(), expected);
    assert_eq!(admin.group_lag("g", Some("t")).await.unwrap_err(), expected);
    assert_eq!(admin.reset_offsets("g", "t", OffsetTarget::Latest, false).await.unwrap_err(), expected);
    assert_eq!(admin.create_topic(&TopicSpec::new("t", 1)).await.unwrap_err(), expected);
    assert_eq!(admin.create_topic(&nowhere).await.unwrap_err(), expected);
    assert_eq!(admin.delete_topic("t").await.unwrap_err(), expected);
    assert_eq!(admin.describe_topic("t").await.unwrap_err(), expected);
    assert_eq!(admin.queues("t").await.unwrap_err(), expected);
    assert_eq!(admin.topics().await.unwrap_err(), expected);
    assert!(
        admin.cluster().await.unwrap().brokers.is_empty(),
        "who asks for the brokers sees that there are none"
    );
    assert!(expected.hint().unwrap().contains("rocketpy broker --name-server") && expected.retryable());
}

#[tokio::test]
async fn clients_of_no_broker_at_all_are_not_sent_to_create_the_topic() {
    let (_names, client, expected) = alone().await;
    let producer = Producer::new(&client, "ingest", ProducerConfig::default()).await.unwrap();
    let sent = producer.send(&Message::new("t", "x"), SendOptions::default()).await;
    assert_eq!(sent.unwrap_err(), expected);
    let subscriptions = vec![Subscription::new("t", "*")];
    let consumer = PullConsumer::new(&client, "g", subscriptions.clone(), ConsumerConfig::default()).await;
    assert_eq!(consumer.err(), Some(expected));
    let config = ConsumerConfig { allow_missing_topic: true, ..ConsumerConfig::default() };
    assert!(PullConsumer::new(&client, "g", subscriptions, config).await.is_ok());
}
