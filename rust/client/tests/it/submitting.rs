//! What the tests of `submit` and of its lanes share.

use rocketpy_client::{Producer, ProducerConfig, SendOptions};
use rocketpy_protocol::code::request;

use crate::peer::{Act, Peer, client};

pub(crate) async fn producer(peer: &Peer, config: ProducerConfig) -> Producer {
    Producer::new(&client(&[peer]), "ingest", config).await.unwrap()
}

/// No send is answered from now on.
pub(crate) fn hold_sends(peer: &Peer) {
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => Act::Hold,
        _ => Act::Default,
    });
}

/// Messages with these go to one queue, in order.
pub(crate) fn keyed() -> SendOptions {
    SendOptions { order_key: Some("k".into()), ..SendOptions::default() }
}
