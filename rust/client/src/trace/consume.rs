//! Traces of a consumer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rocketpy_env::now_ms;
use rocketpy_model::{MessageQueue, QueueOffset, property};
use rocketpy_protocol::record::RecordView;

use super::record::{ConsumeResult, DEFAULT_REGION, TraceRecord, TracedBegin, TracedEnd};
use super::tracer::Tracer;
use crate::consumer::PulledBatch;

/// Most messages of a consumer whose commit is waited for. The ends of others are not traced.
const MAX_UNCOMMITTED: usize = 65_536;

/// A message that a consumer got and is not done with.
#[derive(Debug)]
pub(crate) struct Consumption {
    msg_id: String,
    keys: Option<String>,
    request_id: Arc<str>,
    began: Instant,
    /// Messages that were handed out together.
    share: u32,
}

impl Tracer {
    /// Traces that messages are handed out together. Returns what [`ended`](Self::ended) wants, each with what came with its message;
    /// messages that are not traced are left out.
    pub(crate) fn began<'a, T>(
        &self,
        messages: impl Iterator<Item = (T, RecordView<'a>)>,
    ) -> Vec<(T, Consumption)> {
        let ids = self.client.ids();
        let request_id: Arc<str> = ids.next(ids.moment()).to_string().into();
        let (at_ms, began) = (now_ms(), Instant::now());
        let is_traced = |record: &RecordView<'_>| {
            record.property(property::TRACE_ON) != Some("false") && self.traces(record.topic)
        };
        let traced: Vec<_> = messages.filter(|(_, record)| is_traced(record)).collect();
        let share = traced.len() as u32;
        let begun = traced.into_iter().map(|(place, record)| {
            let msg_id =
                record.unique_key().map_or_else(|| record.offset_message_id().to_string(), str::to_owned);
            let keys = record.keys().map(str::to_owned);
            let of =
                (record.property(property::MSG_REGION).unwrap_or(DEFAULT_REGION), record.reconsume_times);
            (of, (place, Consumption { msg_id, keys, request_id: request_id.clone(), began, share }))
        });
        let (records, consumptions): (Vec<_>, Vec<_>) = begun.unzip();
        self.offer(records.into_iter().zip(&consumptions).map(|((region, retries), (_, one))| {
            let record = TracedBegin {
                at_ms,
                region,
                group: &self.group,
                request_id: &one.request_id,
                msg_id: &one.msg_id,
                retries: retries.into(),
                keys: one.keys.as_deref(),
            };
            (TraceRecord::Began(record), one.keys.as_deref())
        }));
        consumptions
    }

    /// Traces how messages ended.
    pub(crate) fn ended<'a>(
        &self,
        messages: impl IntoIterator<Item = &'a Consumption>,
        result: ConsumeResult,
        success: bool,
    ) {
        let at_ms = Some(now_ms());
        self.offer(messages.into_iter().map(|one| {
            let record = TracedEnd {
                request_id: &one.request_id,
                msg_id: &one.msg_id,
                cost_ms: one.began.elapsed().as_millis() as i64 / i64::from(one.share.max(1)),
                success,
                keys: one.keys.as_deref(),
                result: Some(result),
                at_ms,
                group: Some(&self.group),
            };
            (TraceRecord::Ended(record), one.keys.as_deref())
        }));
    }
}

/// Messages that a pull consumer handed out: a commit ends them.
pub(crate) struct Uncommitted {
    pub(crate) tracer: Arc<Tracer>,
    messages: Mutex<Messages>,
}

#[derive(Default)]
struct Messages {
    queues: BTreeMap<Arc<MessageQueue>, BTreeMap<QueueOffset, Consumption>>,
    count: usize,
}

impl Messages {
    /// False when there are too many.
    fn insert(&mut self, queue: &Arc<MessageQueue>, offset: QueueOffset, consumption: Consumption) -> bool {
        let of_queue = self.queues.entry(queue.clone()).or_default();
        if self.count >= MAX_UNCOMMITTED && !of_queue.contains_key(&offset) {
            return false;
        }
        self.count += usize::from(of_queue.insert(offset, consumption).is_none());
        assert!(self.count <= MAX_UNCOMMITTED, "the number of messages whose commit is awaited has a bound");
        true
    }

    /// Takes those before `offset`.
    fn take_before(
        &mut self,
        queue: &MessageQueue,
        offset: QueueOffset,
    ) -> BTreeMap<QueueOffset, Consumption> {
        let Some(of_queue) = self.queues.get_mut(queue) else { return BTreeMap::new() };
        let rest = of_queue.split_off(&offset);
        let taken = std::mem::replace(of_queue, rest);
        assert!(taken.len() <= self.count, "messages that a commit ends were counted");
        self.count -= taken.len();
        taken
    }

    fn forget(&mut self, queue: &MessageQueue) {
        let forgotten = self.queues.remove(queue).map_or(0, |of_queue| of_queue.len());
        assert!(forgotten <= self.count, "messages of a lost queue were counted");
        self.count -= forgotten;
    }
}

impl Uncommitted {
    pub(crate) fn new(tracer: Arc<Tracer>) -> Self {
        Self { tracer, messages: Mutex::default() }
    }

    /// Messages are handed out. One that is handed out again counts from now.
    pub(crate) fn handed_out(&self, batch: &PulledBatch) {
        let places = batch.parts().iter().flat_map(|part| {
            let queue = part.queue();
            part.spans()
                .iter()
                .zip(part.iter())
                .map(move |(span, record)| ((queue, span.queue_offset), record))
        });
        let begun = self.tracer.began(places);
        let mut messages = self.messages.lock();
        let kept = begun.into_iter().map(|((queue, offset), one)| messages.insert(queue, offset, one));
        let refused = kept.filter(|is_kept| !is_kept).count();
        drop(messages);
        self.tracer.drop_records(refused);
    }

    /// A broker has taken a commit of messages before `offset`.
    pub(crate) fn committed(&self, queue: &MessageQueue, offset: QueueOffset) {
        let done = self.messages.lock().take_before(queue, offset);
        self.tracer.ended(done.values(), ConsumeResult::Success, true);
    }

    /// The queue was another member's meanwhile, which got the messages too.
    pub(crate) fn forget(&self, queue: &MessageQueue) {
        self.messages.lock().forget(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumption(id: &str) -> Consumption {
        Consumption {
            msg_id: id.to_owned(),
            keys: None,
            request_id: "R".into(),
            began: Instant::now(),
            share: 1,
        }
    }

    #[test]
    fn a_commit_ends_what_was_handed_out_before_it_in_its_queue() {
        let (mut messages, [one, other]) =
            (Messages::default(), [0, 1].map(|id| Arc::new(MessageQueue::new("t", "b", id))));
        for offset in 0..3 {
            assert!(messages.insert(&one, QueueOffset(offset), consumption("first")));
            assert!(messages.insert(&other, QueueOffset(offset), consumption("other")));
        }
        assert!(messages.insert(&one, QueueOffset(2), consumption("again")));
        assert_eq!(messages.count, 6, "one that comes again counts once");
        assert_eq!(messages.take_before(&one, QueueOffset(2)).len(), 2);
        let last = messages.take_before(&one, QueueOffset(9));
        assert_eq!(last.values().map(|one| one.msg_id.as_str()).collect::<Vec<_>>(), ["again"]);
        messages.forget(&other);
        assert_eq!((messages.count, messages.take_before(&other, QueueOffset(9)).len()), (0, 0));
    }

    #[test]
    fn messages_that_nobody_commits_have_a_bound() {
        let (mut messages, queue) = (Messages::default(), Arc::new(MessageQueue::new("t", "b", 0)));
        let kept = (0..MAX_UNCOMMITTED as u64 + 10)
            .filter(|at| messages.insert(&queue, QueueOffset(*at), consumption("M")));
        assert_eq!(kept.count(), MAX_UNCOMMITTED);
        assert!(messages.insert(&queue, QueueOffset(0), consumption("again")), "it has its place");
        messages.take_before(&queue, QueueOffset(1));
        assert!(messages.insert(&queue, QueueOffset(MAX_UNCOMMITTED as u64), consumption("M")));
    }
    #[test]
    #[should_panic(expected = "messages of a lost queue were counted")]
    fn messages_of_a_lost_queue_that_were_not_counted_are_found() {
        let (mut messages, queue) = (Messages::default(), Arc::new(MessageQueue::new("t", "b", 0)));
        assert!(messages.insert(&queue, QueueOffset(0), consumption("M")));
        messages.count = 0;
        messages.forget(&queue);
    }
}
