//! Requests and replies: a message that asks, and the message that answers it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rocketpy_env::random_u64;
use rocketpy_model::{Message, PropertyError, property, system};
use rocketpy_protocol::record::RecordView;

use super::receipts::receipt_of;
use super::send::Target;
use super::{Producer, validate};
use crate::config::SendOptions;
use crate::error::ClientError;
use crate::receipt::Receipt;
use crate::replies::ReceivedReply;
use crate::send_error::SendError;

impl Producer {
    /// Sends a message and waits for the reply of whoever receives it. The timeout of the options, or that of an attempt, is that of
    /// both.
    ///
    /// A reply is best effort: the broker hands it to this client over a live connection, once.
    ///
    /// # Errors
    /// Those of a send. [`ClientError::NoReply`]: the message was sent, and no reply came in time; a receiver may have worked on it.
    /// [`ClientError::TooManyRequests`] and [`ClientError::Closed`]: it was not sent. [`ClientError::ClosedBeforeReply`]: the producer
    /// was closed meanwhile, and the message may have been sent.
    ///
    /// # Cancel safety
    /// If the future is dropped, the message may have been sent, and its reply is ignored.
    ///
    /// # Source
    /// docs/reference/client.md 5.12.
    pub async fn request(&self, message: &Message, options: SendOptions) -> Result<ReceivedReply, SendError> {
        let started = Instant::now();
        let message: &Message = &self.namespace().wrap_message(message);
        let options = self.namespace().wrap_options(options);
        let sender = &self.shared.sender;
        let timeout =
            options.timeout.unwrap_or(sender.config.attempt_timeout.min(sender.config.send_timeout));
        let id = correlation_id();
        let request = asking(message, &id, self.client().client_id(), timeout)?;
        let outgoing = self.pack(&request, &options)?;
        let of = |error: SendError| error.of(outgoing.keys.get(0));
        let target = self.target(&request, &options).await.map_err(|error| of(error.into()))?;
        let introduced = self.introduce(&message.topic, timeout.saturating_sub(started.elapsed())).await;
        let expected = introduced.and_then(|()| Ok(self.client().replies().expect(&sender.group, id)?));
        let mut pending = expected.inspect_err(|_| sender.recorder.unsent([message])).map_err(of)?;
        self.check().map_err(|error| of(error.into()))?; // a close before it could not end this wait
        let left = timeout.saturating_sub(started.elapsed());
        let sent_and_replied = async {
            tokio::select! {
                biased;
                reply = pending.reply() => return Ok(reply),
                sent = sender.deliver(&outgoing, target, left) => sent?,
            };
            Ok(pending.reply().await)
        };
        let (topic, msg_id) = (message.topic.clone(), outgoing.keys.get(0).to_owned());
        match tokio::time::timeout(left, sent_and_replied).await {
            Ok(Ok(Some(reply))) => Ok(reply),
            Ok(Ok(None)) => Err(of(ClientError::ClosedBeforeReply { topic, msg_id }.into())),
            Ok(Err(error)) => Err(of(error)),
            Err(_elapsed) => {
                let timeout_ms = timeout.as_millis() as u64;
                Err(of(ClientError::NoReply { topic, msg_id, timeout_ms }.into()))
            }
        }
    }

    /// Sends the reply to a request that was received, to the broker that the request came from, if that serves replies.
    ///
    /// # Errors
    /// [`ClientError::NoRequest`] when the message does not ask for a reply, and those of a send. The broker refuses a reply whose
    /// requester is gone; that is not tried again.
    pub async fn reply(
        &self,
        request: &RecordView<'_>,
        broker_name: &str,
        body: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<Receipt, SendError> {
        let started = Instant::now();
        let message = replying(request, body.into())?;
        let outgoing = self.pack(&message, &options)?;
        let of = |error: SendError| error.of(outgoing.keys.get(0));
        let sender = &self.shared.sender;
        let timeout = options.timeout.unwrap_or(sender.config.send_timeout);
        let route = sender.route_within(&message.topic, timeout).await.map_err(|error| of(error.into()))?;
        let same_broker = route.publish.iter().find(|queue| *queue.broker_name == *broker_name);
        let target = same_broker.map_or(Target::Any, |queue| Target::First(queue.clone()));
        let left = timeout.saturating_sub(started.elapsed());
        let stored = sender.deliver(&outgoing, target, left).await.map_err(of)?;
        Ok(receipt_of(&stored, &outgoing.keys, 0))
    }

    /// Makes this producer known to the brokers of a topic before its first request or transaction there: they push replies,
    /// and ask for the end of transactions, only to producers that they know.
    pub(super) async fn introduce(&self, topic: &str, timeout: Duration) -> Result<(), SendError> {
        if self.shared.asked_topics.lock().contains(topic) {
            return Ok(());
        }
        self.shared.sender.route_within(topic, timeout).await?;
        // A broker that does not answer must not use up the time of the request: the next heartbeat tells it.
        let patience = self.shared.sender.config.attempt_timeout.min(timeout / 2);
        if tokio::time::timeout(patience, self.client().heartbeat()).await.is_ok() {
            self.shared.asked_topics.lock().insert(topic.to_owned());
        }
        Ok(())
    }
}

/// The message with what makes it a request.
fn asking(
    message: &Message,
    correlation_id: &str,
    client_id: &str,
    timeout: Duration,
) -> Result<Message, ClientError> {
    validate::check_topic(&message.topic)?;
    let mut request = message.clone();
    for (name, value) in [
        (property::CORRELATION_ID, correlation_id),
        (property::REPLY_TO_CLIENT, client_id),
        (property::TTL, &timeout.as_millis().to_string()),
    ] {
        request.properties.set(name, value).map_err(|error| illegal(name, &error))?;
    }
    Ok(request)
}

/// The reply to a request.
fn replying(request: &RecordView<'_>, body: Bytes) -> Result<Message, ClientError> {
    let of_request = |property: &'static str| {
        request.property(property).ok_or_else(|| ClientError::NoRequest {
            property,
            topic: request.topic.to_owned(),
            msg_id: request
                .unique_key()
                .map_or_else(|| request.offset_message_id().to_string(), str::to_owned),
        })
    };
    let cluster = of_request(property::CLUSTER)?;
    let mut message = Message::new(format!("{cluster}{}", system::REPLY_TOPIC_SUFFIX), body);
    for (name, value) in [
        (property::MESSAGE_TYPE, Some(super::pack::REPLY)),
        (property::CORRELATION_ID, Some(of_request(property::CORRELATION_ID)?)),
        (property::REPLY_TO_CLIENT, Some(of_request(property::REPLY_TO_CLIENT)?)),
        (property::TTL, request.property(property::TTL)),
    ] {
        if let Some(value) = value {
            message.properties.set(name, value).map_err(|error| illegal(name, &error))?;
        }
    }
    Ok(message)
}

fn illegal(name: &str, error: &PropertyError) -> ClientError {
    ClientError::InvalidProperty { name: name.to_owned(), reason: error.to_string() }
}

/// A random UUID.
fn correlation_id() -> String {
    let (high, low) = (random_u64(), random_u64());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFF,
        0x8000 | (low >> 48) & 0x3FFF,
        low & 0xFFFF_FFFF_FFFF
    )
}
