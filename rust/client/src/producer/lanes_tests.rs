//! What only a test that stands between two steps of a submit can see.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::Message;
use rocketpy_protocol::body::TopicRouteData;
use tokio::runtime::Handle;

use super::lane::{Limits, Submitted};
use super::lanes::{Lanes, Way, Which};
use super::outcomes::Listener;
use super::recorder::Recorder;
use super::select::Selection;
use super::send::Sender;
use super::window::Window;
use crate::client::Client;
use crate::config::{ClientConfig, ProducerConfig, Selector, SendOptions};
use crate::route::TopicRoute;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_message_that_reaches_its_lane_during_a_flush_does_not_linger() {
    // Nobody listens there: what is sent fails.
    let client = Client::new(ClientConfig::new(["127.0.0.1:1".to_owned()]), Handle::current()).unwrap();
    let config = ProducerConfig { linger: 2 * LONG, ..ProducerConfig::default() };
    let window = Arc::new(Window::new(&config));
    let selection = Arc::new(Selection::new(Selector::default()));
    let (recorder, config) = (Arc::new(Recorder::new()), Arc::new(config));
    let sender = Sender { client, group: "ingest".into(), selection, recorder, config, tracer: None };
    let lanes = Arc::new(Lanes::new(sender, window.clone()));
    let route = TopicRoute::of("t", &TopicRouteData::default()).unwrap();
    let push = async |during_a_flush: bool| {
        let place = window.enter(1, LONG, || ()).await.unwrap();
        let (listener, pending) = Listener::waiter();
        let message = Arc::new(Message::new("t", "x"));
        let submitted = Submitted::new(message, SendOptions::default(), LONG, listener, place);
        let flush = during_a_flush.then(|| (window.begin_round(), lanes.hurry()));
        lanes.push(&route, Way::Any, submitted);
        (pending, flush)
    };
    // The flush begins between the message's place in the window and its lane.
    let (hurries, flush) = push(true).await;
    let (round, hurry) = flush.unwrap();
    window.ended_before(round, LONG).await.unwrap();
    drop(hurry);
    assert!(hurries.await.is_err());
    // A flush that has ended hurries nobody.
    let (_lingers, _) = push(false).await;
    let limits = Limits::new(&ProducerConfig::default());
    let until = lanes.with("t", |topic| topic.lane(Which::Shared)?.lingers_until(LONG, limits));
    assert!(until.flatten().is_some());
}
