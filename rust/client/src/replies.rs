//! Requests that wait for their replies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_env::now_ms;
use rocketpy_model::{MessageQueue, PhysicalOffset, QueueOffset, property};
use rocketpy_protocol::header::ReplyMessageRequestHeader;
use rocketpy_protocol::record::{RecordFields, RecordView};
use rocketpy_protocol::{Command, Header, properties_text};
use tokio::sync::oneshot;

use crate::error::ClientError;

/// Most requests of one instance that wait at a time. Each keeps a task of its caller busy.
const MAX_REQUESTS: usize = 16_384;
/// Ends a property in the text of properties.
const END: u8 = 2;

/// A reply, in the form of a stored message.
///
/// It was pushed to this client and not read from a queue: its offsets are 0, and its queue names the address of the broker that
/// pushed it, because a reply does not carry the broker's name.
#[derive(Clone)]
pub struct ReceivedReply {
    record: Bytes,
    queue: Arc<MessageQueue>,
}

impl ReceivedReply {
    /// The message; its body may be compressed.
    ///
    /// # Panics
    /// Never: it was parsed when it came.
    pub fn record(&self) -> RecordView<'_> {
        RecordView::parse(&self.record).expect("it was parsed when it came")
    }

    /// The record's bytes, and the queue that it names.
    pub fn into_parts(self) -> (Bytes, Arc<MessageQueue>) {
        (self.record, self.queue)
    }

    /// Reads PUSH_REPLY_MESSAGE_TO_CLIENT.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(push: &Command, peer: SocketAddr) -> Result<Self, String> {
        let header = ReplyMessageRequestHeader::read(&push.ext).map_err(|error| error.to_string())?;
        let mut properties = header.properties.unwrap_or_default().as_bytes().to_vec();
        if properties.last().is_some_and(|last| *last != END) {
            properties.push(END);
        }
        properties_text::push(&mut properties, property::ARRIVE_TIME, &now_ms().to_string());
        let queue_id = u32::try_from(header.queue_id).unwrap_or(0);
        let fields = RecordFields {
            topic: header.topic,
            queue_id,
            flag: header.flag,
            sys_flag: header.sys_flag,
            born_at_ms: header.born_timestamp,
            born_host: host(header.born_host),
            store_host: host(header.store_host),
            reconsume_times: header.reconsume_times.unwrap_or(0),
            prepared_transaction_offset: PhysicalOffset::ZERO,
            body: &push.body,
            properties: &properties,
            may_have_crc: true,
        };
        let mut record = Vec::new();
        let plan = fields.encode(false, &mut record).map_err(|error| error.to_string())?;
        plan.finish(&mut record, QueueOffset(0), PhysicalOffset::ZERO, header.store_timestamp);
        RecordView::parse(&record).map_err(|error| error.to_string())?; // so that handing it out cannot fail
        let queue = Arc::new(MessageQueue::new(header.topic, &*peer.to_string(), queue_id));
        Ok(Self { record: record.into(), queue })
    }
}

impl fmt::Debug for ReceivedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedReply").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// An address as brokers write it, Java's with a slash before it.
fn host(text: &str) -> SocketAddr {
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    text.trim_start_matches('/').parse().unwrap_or(unknown)
}

/// The requests of an instance that wait, by correlation id.
///
/// # Source
/// docs/reference/client.md 5.12.
#[derive(Default)]
#[doc(alias = "RequestFutureHolder")]
pub(crate) struct Replies {
    waiting: Mutex<HashMap<String, Waiting>>,
}

struct Waiting {
    group: Arc<str>,
    tell: oneshot::Sender<ReceivedReply>,
}

/// A request that waits; dropped, it waits no longer.
pub(crate) struct PendingReply {
    replies: Arc<Replies>,
    correlation_id: String,
    told: oneshot::Receiver<ReceivedReply>,
}

impl Replies {
    /// Begins to wait for the reply to a request of a producer group.
    ///
    /// # Errors
    /// [`ClientError::TooManyRequests`].
    pub(crate) fn expect(
        self: &Arc<Self>,
        group: &Arc<str>,
        correlation_id: String,
    ) -> Result<PendingReply, ClientError> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MAX_REQUESTS {
            return Err(ClientError::TooManyRequests { limit: MAX_REQUESTS });
        }
        let (tell, told) = oneshot::channel();
        match waiting.entry(correlation_id.clone()) {
            Entry::Vacant(entry) => entry.insert(Waiting { group: group.clone(), tell }),
            Entry::Occupied(_) => unreachable!("a correlation id has 122 random bits"),
        };
        assert!(waiting.len() <= MAX_REQUESTS, "the number of requests that wait for replies has a bound");
        drop(waiting);
        Ok(PendingReply { replies: self.clone(), correlation_id, told })
    }

    /// Takes a reply that a broker pushed. False when nobody waits for it.
    ///
    /// # Errors
    /// Why the reply cannot be read.
    pub(crate) fn arrived(&self, push: &Command, peer: SocketAddr) -> Result<bool, String> {
        let properties = push.ext.get("properties").unwrap_or_default().as_bytes();
        let Some(id) = properties_text::get(properties, property::CORRELATION_ID) else {
            return Err(format!("it has no property {}", property::CORRELATION_ID));
        };
        if !self.waiting.lock().contains_key(id) {
            return Ok(false);
        }
        let reply = ReceivedReply::read(push, peer)?;
        let waiting = self.waiting.lock().remove(id);
        Ok(waiting.is_some_and(|waiting| waiting.tell.send(reply).is_ok()))
    }

    /// Ends the waits of a producer group.
    pub(crate) fn give_up(&self, group: &str) {
        self.waiting.lock().retain(|_, waiting| *waiting.group != *group);
    }
}

impl PendingReply {
    /// Waits for the reply; `None` when the producer was closed.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(crate) async fn reply(&mut self) -> Option<ReceivedReply> {
        (&mut self.told).await.ok()
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.replies.waiting.lock().remove(&self.correlation_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_bounded_and_leave_when_they_end() {
        let (replies, group) = (Arc::<Replies>::default(), Arc::from("g"));
        let all: Vec<_> =
            (0..MAX_REQUESTS).map(|id| replies.expect(&group, id.to_string()).unwrap()).collect();
        let refused = replies.expect(&group, "one more".to_owned()).err();
        assert_eq!(refused, Some(ClientError::TooManyRequests { limit: MAX_REQUESTS }));
        drop(all);
        assert!(replies.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn a_group_that_ends_ends_its_own_waits() {
        let replies = Arc::<Replies>::default();
        let mut ended = replies.expect(&Arc::from("g"), "1".to_owned()).unwrap();
        let _other = replies.expect(&Arc::from("h"), "2".to_owned()).unwrap();
        replies.give_up("g");
        assert!(ended.reply().await.is_none());
        assert_eq!(replies.waiting.lock().keys().collect::<Vec<_>>(), ["2"]);
    }

    #[test]
    fn hosts_are_read_as_both_brokers_write_them() {
        assert_eq!(host("/127.0.0.1:80"), host("127.0.0.1:80"));
        assert_eq!(host("nowhere").port(), 0);
    }
}
