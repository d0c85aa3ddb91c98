//! Messages that a handler gets because an administrator asks for it: once, whatever becomes of them, and beside all offsets
//! (`mqadmin queryMsgById -g -d`).
//!
//! # Source
//! docs/reference/client.md 15.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_protocol::body::{ConsumeMessageDirectlyResult, ConsumeResult};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::info;

use super::concurrent::{Engine, Piece};
use super::send_back::origin_topic;
use super::work::Reason;
use crate::consumer::decode;
use crate::consumer::epoch::Epoch;
use crate::consumer::member::DirectHandlers;

/// How long the handler may take. The broker waits 10 s.
const TIMEOUT: Duration = Duration::from_secs(9);

/// One who waits for the end of a handler.
#[derive(Debug)]
pub(super) struct DirectRequest(Mutex<Option<oneshot::Sender<End>>>);

/// How the handler ended: with an error that it names, or without.
type End = (ConsumeResult, Option<String>);

impl DirectRequest {
    fn new() -> (Arc<Self>, oneshot::Receiver<End>) {
        let (sender, receiver) = oneshot::channel();
        (Arc::new(Self(Mutex::new(Some(sender)))), receiver)
    }

    pub(super) fn returned(&self) {
        self.end((ConsumeResult::Success, None));
    }

    pub(super) fn failed(&self, reason: Option<Reason<'_>>) {
        self.end(match reason {
            Some(Reason::Raised(text)) => (ConsumeResult::Threw, Some(text.to_owned())),
            Some(Reason::Chosen(_)) | None => (ConsumeResult::Later, None),
        });
    }

    fn end(&self, end: End) {
        if let Some(sender) = self.0.lock().take() {
            // Who asked waits no longer.
            drop(sender.send(end));
        }
    }
}

impl DirectHandlers for Engine {
    fn consume_directly<'a>(
        &'a self,
        broker_name: &'a str,
        record: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<ConsumeMessageDirectlyResult, String>> + Send + 'a>> {
        Box::pin(self.consume(broker_name, record))
    }
}

impl Engine {
    /// Has the handler of its topic consume a stored record, and tells how that ended, or why it did not.
    async fn consume(
        &self,
        broker_name: &str,
        record: Bytes,
    ) -> Result<ConsumeMessageDirectlyResult, String> {
        let part = decode::read_one(broker_name, record).map_err(|error| error.to_string())?;
        let topic = origin_topic(&part.record(0)).to_owned();
        let index = self.topic_named(&topic).ok_or_else(|| format!("no handler for topic {topic}"))?;
        let (asked, ended) = DirectRequest::new();
        let (over, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let piece = Piece {
            part,
            topic: index,
            life: Epoch::NEVER,
            over: over.clone(),
            tries: 0,
            asked: Some(asked),
        };
        self.put_first(piece);
        let (consume_result, remark) = match timeout(TIMEOUT, ended).await {
            Ok(Ok(end)) => end,
            Ok(Err(_dropped)) => return Err("the consumer stopped".to_owned()),
            Err(_elapsed) => {
                over.store(true, Ordering::Release); // one that has not begun need not begin any more
                return Err(format!("no handler of topic {topic} ended within {TIMEOUT:?}"));
            }
        };
        info!(group = %self.member.group, topic, ?consume_result, "message consumed on request");
        Ok(ConsumeMessageDirectlyResult {
            auto_commit: true,
            consume_result,
            is_ordered: self.config.ordered,
            remark,
            spent_ms: i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX),
        })
    }
}
