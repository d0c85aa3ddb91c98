//! Questions to the user's own code which queues a member reads.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::MessageQueue;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::namespace::Namespace;

/// How long a question waits for its answer, half a round of rebalancing. The assignment stays as it was meanwhile, and after it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A question which queues of a topic a member reads.
///
/// It has to be answered; one that is dropped leaves the assignment as it was.
#[derive(Debug)]
pub struct Allocation {
    pub group: Arc<str>,
    /// The member that asks.
    pub client_id: String,
    /// All queues of the topic, sorted as every member sorts them.
    pub queues: Vec<MessageQueue>,
    /// The client ids of all members, sorted as every member sorts them.
    pub members: Vec<String>,
    answer: oneshot::Sender<Vec<MessageQueue>>,
}

impl Allocation {
    /// Whether somebody waits for the answer. One who waited too long, or was closed, does not.
    pub fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Answers with some of the queues. Others leave the assignment as it was.
    pub fn answer(self, queues: Vec<MessageQueue>) {
        // Nobody waits any more: the next round asks again.
        drop(self.answer.send(queues));
    }
}

/// The questions of one consumer, one after the other. They end when it is closed.
#[derive(Debug)]
pub struct Allocations(mpsc::Receiver<Allocation>);

impl Allocations {
    /// The next question; `None` once the consumer is closed.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Allocation> {
        self.0.recv().await
    }
}

/// Why a member cannot have its share of a topic. It keeps the queues that it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoShare {
    #[error("no room is known of {what} {name}")]
    NoRoom { what: &'static str, name: String },
    #[error("the topic has no such queue: {queue}")]
    NoSuchQueue { queue: MessageQueue },
    #[error("the function that shares queues out gave no answer")]
    NotAnswered,
    #[error("the function that shares queues out gave no answer within {} s", timeout.as_secs())]
    Slow { timeout: Duration },
}

/// Asks for the queues of one consumer.
#[derive(Debug, Clone)]
pub struct Allocator {
    questions: Arc<Mutex<Option<mpsc::Sender<Allocation>>>>,
    timeout: Duration,
}

impl Allocator {
    /// What asks, and what is asked.
    pub fn new() -> (Self, Allocations) {
        Self::with_timeout(ANSWER_TIMEOUT)
    }

    fn with_timeout(timeout: Duration) -> (Self, Allocations) {
        let (sender, receiver) = mpsc::channel(1); // a round asks for one topic at a time
        (Self { questions: Arc::new(Mutex::new(Some(sender))), timeout }, Allocations(receiver))
    }

    /// # Errors
    /// The user's code did not answer in time, or named a queue that the topic does not have.
    pub(crate) async fn ask(
        &self,
        namespace: &Namespace,
        group: &Arc<str>,
        queues: &[MessageQueue],
        members: &[String],
        me: &str,
    ) -> Result<Vec<MessageQueue>, NoShare> {
        let (answer, answered) = oneshot::channel();
        let mut shown = queues.to_vec();
        namespace.strip_queues(&mut shown);
        let question = Allocation {
            group: namespace.strip(group).into(),
            client_id: me.to_owned(),
            queues: shown,
            members: members.to_vec(),
            answer,
        };
        let sender = self.questions.lock().clone().ok_or(NoShare::NotAnswered)?;
        sender.try_send(question).map_err(|error| match error {
            TrySendError::Full(_) => NoShare::Slow { timeout: self.timeout },
            TrySendError::Closed(_) => NoShare::NotAnswered,
        })?;
        drop(sender);
        match timeout(self.timeout, answered).await {
            Ok(Ok(mut share)) => {
                namespace.wrap_queues(&mut share);
                match share.iter().find(|queue| !queues.contains(queue)) {
                    Some(queue) => Err(NoShare::NoSuchQueue { queue: queue.clone() }),
                    None => Ok(share),
                }
            }
            Ok(Err(_dropped)) => Err(NoShare::NotAnswered),
            Err(_elapsed) => Err(NoShare::Slow { timeout: self.timeout }),
        }
    }

    /// Ends the questions.
    pub fn end(&self) {
        self.questions.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: u32) -> Vec<MessageQueue> {
        (0..count).map(|id| MessageQueue::new("t", "b", id)).collect()
    }

    #[tokio::test]
    async fn an_answer_counts_when_it_comes_in_time_and_names_queues_of_the_topic() {
        let (allocator, mut allocations) = Allocator::new();
        let (group, members) = (Arc::from("g"), ["a".to_owned()]);
        tokio::spawn(async move {
            let first = allocations.next().await.unwrap();
            assert_eq!((&*first.group, &*first.client_id, first.queues.len()), ("g", "a", 2));
            assert!(first.is_wanted());
            first.answer(queues(1));
            allocations.next().await.unwrap().answer(queues(3));
            drop(allocations.next().await);
        });
        let ask = || async { allocator.ask(&Namespace::default(), &group, &queues(2), &members, "a").await };
        assert_eq!(ask().await, Ok(queues(1)));
        assert_eq!(ask().await, Err(NoShare::NoSuchQueue { queue: MessageQueue::new("t", "b", 2) }));
        assert_eq!(ask().await, Err(NoShare::NotAnswered));
    }

    #[tokio::test]
    async fn questions_have_a_bound_a_timeout_and_an_end() {
        let timeout = Duration::from_millis(1);
        let (allocator, mut allocations) = Allocator::with_timeout(timeout);
        let (group, slow) = (Arc::from("g"), Err(NoShare::Slow { timeout }));
        let ask = || async { allocator.ask(&Namespace::default(), &group, &queues(1), &[], "a").await };
        assert_eq!((ask().await, ask().await), (slow.clone(), slow), "the second one finds no room");
        assert!(!allocations.next().await.unwrap().is_wanted());
        allocator.end();
        assert_eq!(ask().await, Err(NoShare::NotAnswered));
        assert!(allocations.next().await.is_none());
    }
}
