//! Sends that wait until their topic is made.
//!
//! The sends to one topic keep their order: while one of them waits, later ones wait behind it, even if the topic is there by
//! then.

use std::sync::Arc;

use bytes::Bytes;
use rocketpy_protocol::Command;
use rocketpy_remoting::Reply;

use super::rooms::Send;
use super::send;
use crate::desk::Desk;

/// Puts the message once its topic is made.
pub(super) fn wait(desk: &Arc<Desk>, topic: &str, request: &Command, reply: Reply) {
    // A copy: the body is a part of the whole block that was read from the connection, and would keep it in memory.
    let body = Bytes::copy_from_slice(&request.body);
    let send = Send { request: Command { body, ..request.clone() }, reply };
    match desk.rooms.sends_to_new_topics.add(topic, send) {
        Ok(false) => {}
        Ok(true) => {
            let turn = Turn::new(desk.clone(), topic);
            desk.ground.tasks().spawn(turn.put_all());
        }
        Err(refused) => {
            let (send, refusal) = *refused;
            desk.ground.metrics().put_failed();
            send.reply.send(refusal.response());
        }
    }
}

/// The right to put the sends to a topic, one after the other. However it ends, no send is left behind.
struct Turn {
    desk: Arc<Desk>,
    topic: String,
    /// Of the send that is being put.
    bytes: usize,
    /// None was left. Sends that come later belong to another turn.
    is_over: bool,
}

impl Turn {
    fn new(desk: Arc<Desk>, topic: &str) -> Self {
        Self { desk, topic: topic.to_owned(), bytes: 0, is_over: false }
    }

    async fn put_all(mut self) {
        while let Some(Send { request, reply }) = self.next() {
            send::put_and_answer(&self.desk.intake, &self.desk.acks, &request, reply).await;
        }
    }

    fn next(&mut self) -> Option<Send> {
        let next = self.desk.rooms.sends_to_new_topics.next(&self.topic, std::mem::take(&mut self.bytes));
        self.bytes = next.as_ref().map_or(0, Send::bytes);
        self.is_over = next.is_none();
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nothing is left, unless the broker stops or the turn panicked. Then their senders get an error.
        while !self.is_over {
            drop(self.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rocketpy_protocol::code::request;
    use rocketpy_remoting::{Client, ClientConfig, Connection, Handler, Server, ServerConfig};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;
    use crate::testing::TestBroker;

    /// Passes on the right to answer.
    struct Answers(UnboundedSender<Reply>);

    impl Handler for Answers {
        fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
            self.0.send(reply).unwrap();
        }
    }

    #[tokio::test]
    async fn a_turn_that_is_over_leaves_later_sends_alone() {
        let broker = TestBroker::open(|_| {});
        let (sender, mut replies) = unbounded_channel();
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(Answers(sender))).unwrap();
        let client = Client::new(ClientConfig::default());
        let address = server.local_addr().to_string();
        let request = Command::bare_request(request::SEND_MESSAGE);
        let _call = client.start_call(&address, request.clone(), Duration::from_secs(60)).await.unwrap();
        let reply = replies.recv().await.unwrap();

        let mut over = Turn::new(Arc::clone(&broker), "orders");
        assert!(over.next().is_none());
        assert!(broker.rooms.sends_to_new_topics.add("orders", Send { request, reply }).unwrap());
        drop(over);
        assert!(broker.rooms.sends_to_new_topics.has("orders"));
        let mut later = Turn::new(Arc::clone(&broker), "orders");
        assert!(later.next().is_some(), "it is there for its own turn");
        drop(later);
        assert!(!broker.rooms.sends_to_new_topics.has("orders"));
        assert_eq!(broker.rooms.sends_to_new_topics.state.lock().bytes, 0);
    }
}
