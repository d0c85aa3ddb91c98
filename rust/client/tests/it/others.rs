//! Members of one group that subscribe to different topics or tags.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rocketpy_client::{Client, ClientConfig, ClientError, ConsumerConfig};
use rocketpy_protocol::body::OtherSubscription;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::key;
use rocketpy_protocol::json;
use tokio::runtime::Handle;

use crate::consume::join;
use crate::peer::{Act, Peer, begun, ok, with};

/// A broker that says of group `report`, while the switch is on, that another member differs.
fn broker_with_another_member() -> (Peer, Arc<AtomicBool>) {
    let (peer, is_there) = (begun(1), Arc::new(AtomicBool::new(true)));
    let other = OtherSubscription {
        group: "report".to_owned(),
        client_id: "127.0.0.1@other".to_owned(),
        subscriptions: "t: A".to_owned(),
    };
    let text = String::from_utf8(json::to_vec(&vec![other])).unwrap();
    let switch = is_there.clone();
    peer.script(move |request| match request.code {
        request::HEART_BEAT if switch.load(Ordering::Relaxed) => {
            Act::Answer(with(ok(), key::OTHER_SUBSCRIPTIONS, &text))
        }
        _ => Act::Default,
    });
    (peer, is_there)
}

/// A client whose heartbeats come every few milliseconds.
fn lively(peer: &Peer) -> Client {
    let heartbeat_interval = Duration::from_millis(5);
    let config = ClientConfig { heartbeat_interval, ..ClientConfig::new([peer.address.clone()]) };
    Client::new(config, Handle::current()).unwrap()
}

#[tokio::test]
async fn a_poll_tells_of_a_member_with_other_subscriptions_until_it_is_gone() {
    let (peer, is_there) = broker_with_another_member();
    let consumer = join(&lively(&peer), ConsumerConfig::default()).await.unwrap();
    for _ in 0..2 {
        let error = consumer.poll(1, Duration::from_secs(60)).await.unwrap_err();
        let ClientError::OtherSubscriptions { group, client_id, subscriptions } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((&**group, &**client_id, &**subscriptions), ("report", "127.0.0.1@other", "t: A"));
        assert!(error.hint().unwrap().contains("allow_other_subscriptions"));
    }
    is_there.store(false, Ordering::Relaxed);
    // Two more heartbeats: the first one may have been answered before.
    let seen = peer.seen(request::HEART_BEAT).len();
    peer.wait_for(request::HEART_BEAT, seen + 3).await;
    assert!(consumer.poll(1, Duration::from_millis(20)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_consumer_that_allows_it_goes_on() {
    let (peer, _is_there) = broker_with_another_member();
    let config = ConsumerConfig { allow_other_subscriptions: true, ..ConsumerConfig::default() };
    let consumer = join(&lively(&peer), config).await.unwrap();
    let seen = peer.seen(request::HEART_BEAT).len();
    peer.wait_for(request::HEART_BEAT, seen + 3).await;
    assert!(consumer.poll(1, Duration::from_millis(20)).await.unwrap().is_empty());
}
