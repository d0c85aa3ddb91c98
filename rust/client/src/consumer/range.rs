//! Reads a range of a queue outside any group, for scans.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_filter::{TagFilter, Tags};
use rocketpy_model::{MessageQueue, QueueOffset, system};
use rocketpy_protocol::body::SubscriptionData;
use tokio::task::JoinHandle;
use tracing::debug;

use super::batch::PulledPart;
use super::decode::{self, Answer, Kind};
use crate::client::Client;
use crate::error::{ClientError, Grant};
use crate::wire::{self, Pull};

const OPERATION: &str = "range read";
const PULL_MESSAGES: u32 = 4096;
const PULL_BYTES: u32 = 1 << 20;
/// How long the broker may wait for the end of the range: a message is acknowledged a moment before it is in its consume queue.
const DISPATCH: Duration = Duration::from_millis(500);
/// Least time between two pulls that wait: a broker may answer at once that there is nothing.
const PAUSE: Duration = Duration::from_millis(50);
/// Attempts of one pull.
const ATTEMPTS: u32 = 3;
/// Maximum time for which a broker holds one pull of a read that waits: a dead connection is noticed after it.
const MAX_HOLD: Duration = Duration::from_secs(15);

/// Reads one queue between two offsets, outside any group. Pulls one part ahead.
#[derive(Debug)]
pub struct RangeReader {
    reading: Arc<Reading>,
    /// Offset after the last part that was read.
    at: QueueOffset,
    ahead: Option<JoinHandle<Result<Answer, ClientError>>>,
    pulls_ahead: bool,
}

struct Reading {
    client: Client,
    queue: Arc<MessageQueue>,
    from: QueueOffset,
    to: QueueOffset,
    expression: String,
    filter: TagFilter,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}..{}]", self.queue, self.from, self.to)
    }
}

impl RangeReader {
    /// Reads `[from, to)` of a queue; `tags` as in a subscription.
    ///
    /// # Errors
    /// [`ClientError::InvalidExpression`], [`ClientError::NoRoute`], those of reaching a name server.
    pub async fn new(
        client: &Client,
        queue: MessageQueue,
        from: QueueOffset,
        to: QueueOffset,
        tags: impl Into<Tags>,
    ) -> Result<Self, ClientError> {
        client.check()?;
        let (filter, expression) = tags.into().filter()?;
        client.api().route(&queue.topic).await.map_err(|error| needing(error, &queue))?;
        let (client, queue) = (client.clone(), Arc::new(queue));
        let reading = Arc::new(Reading { client, queue, from, to, expression, filter });
        Ok(Self { reading, at: from, ahead: None, pulls_ahead: true })
    }

    /// The first messages of the range, at least one, and where the rest begins; `None` for an empty range.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) async fn first(mut self) -> Result<Option<(PulledPart, QueueOffset)>, ClientError> {
        self.pulls_ahead = false;
        Ok(self.next().await?.map(|part| (part, self.at)))
    }

    /// As [`first`](Self::first), of a range that may not be there yet: waits for its first message. `None`: none came in time.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) async fn first_within(
        self,
        wait: Duration,
    ) -> Result<Option<(PulledPart, QueueOffset)>, ClientError> {
        let (reading, deadline) = (self.reading.clone(), Instant::now() + wait);
        let mut at = self.at;
        while at < reading.to {
            let left = || deadline.saturating_duration_since(Instant::now());
            let answer = reading.pull(at, left().min(MAX_HOLD)).await?;
            reading.client.check()?;
            if answer.kind == Kind::NothingNew {
                if left().is_zero() {
                    return Ok(None);
                }
                tokio::time::sleep(PAUSE.min(left())).await;
                continue;
            }
            let next = reading.check_progress(at, &answer)?;
            assert!(next > at, "each pull of a waiting read moves it forward: {at} to {next}");
            at = next;
            if let Some(mut part) = answer.pulled.part {
                part.clip(reading.from, reading.to);
                if !part.is_empty() {
                    return Ok(Some((part, at)));
                }
            }
        }
        Ok(None)
    }

    /// The next messages of the range, at least one, or `None` at its end.
    ///
    /// # Errors
    /// [`ClientError::OffsetOutOfRange`] when a part of the range is not, or no longer, in the queue; those of reaching
    /// the broker, after some attempts. Calling again continues where it failed.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<PulledPart>, ClientError> {
        self.reading.client.check()?;
        while self.at < self.reading.to {
            let task = self.ahead.get_or_insert_with(|| Reading::start(&self.reading, self.at));
            let answer = task.await;
            self.ahead = None;
            let answer = match answer {
                Ok(answer) => answer?,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return Err(ClientError::Closed { what: "runtime" }),
            };
            let next = self.reading.check_progress(self.at, &answer)?;
            assert!(next > self.at, "each pull of a range read moves it forward");
            self.at = next;
            if next < self.reading.to && self.pulls_ahead {
                self.ahead = Some(Reading::start(&self.reading, next));
            }
            if let Some(mut part) = answer.pulled.part {
                part.clip(self.reading.from, self.reading.to);
                if !part.is_empty() {
                    return Ok(Some(part));
                }
            }
        }
        Ok(None)
    }
}

/// Names all that a range read needs, if it was denied.
fn needing(error: ClientError, queue: &MessageQueue) -> ClientError {
    error.needing(|| vec![Grant::subscribe(&queue.topic), Grant::join(system::TOOLS_GROUP)])
}

impl Drop for RangeReader {
    fn drop(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            ahead.abort();
        }
    }
}

impl Reading {
    fn start(self: &Arc<Self>, at: QueueOffset) -> JoinHandle<Result<Answer, ClientError>> {
        let reading = self.clone();
        self.client.runtime().spawn(async move { reading.pull(at, DISPATCH).await })
    }

    /// The answer to a pull, which the broker holds for the time given while there is nothing.
    async fn pull(&self, at: QueueOffset, hold: Duration) -> Result<Answer, ClientError> {
        let deadline = Instant::now() + hold;
        let mut attempt = 1;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.try_pull(at, if attempt == 1 { hold } else { left }).await {
                Err(error) if attempt < ATTEMPTS && error.retryable() => {
                    debug!(queue = %self.queue, %error, "range read failed, retrying");
                    attempt += 1;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    drop(self.client.api().refresh_route(&self.queue.topic).await);
                }
                result => return result.map_err(|error| needing(error, &self.queue)),
            }
        }
    }

    async fn try_pull(&self, at: QueueOffset, hold: Duration) -> Result<Answer, ClientError> {
        let route = self.client.api().route(&self.queue.topic).await?;
        let address = route.any_address(&self.queue.broker_name);
        let address = address.ok_or_else(|| ClientError::broker_not_found(&self.queue))?;
        assert!(at < self.to, "a range read pulls nothing behind its range");
        let wanted = u32::try_from(self.to.get() - at.get()).unwrap_or(u32::MAX);
        let request = wire::pull(&Pull {
            group: system::TOOLS_GROUP,
            queue: &self.queue,
            offset: at,
            max_messages: wanted.min(PULL_MESSAGES),
            max_bytes: PULL_BYTES,
            suspend_ms: i64::try_from(hold.as_millis()).ok().filter(|hold_ms| *hold_ms > 0),
            subscription: &self.expression,
            expression_type: SubscriptionData::TAG,
        });
        let api = self.client.api();
        let answer = api.call(address, OPERATION, request, api.timeout() + hold).await?;
        decode::read_answer(OPERATION, address, &self.queue, at, &self.filter, answer)
    }

    /// The offset to continue at. A range that the queue does not hold entirely is an error.
    fn check_progress(&self, at: QueueOffset, answer: &Answer) -> Result<QueueOffset, ClientError> {
        let next = answer.pulled.next;
        match answer.kind {
            Kind::Found | Kind::NoMatch if next > at => Ok(next),
            // The queue ends before the range does, or begins after it.
            _ => Err(ClientError::OffsetOutOfRange {
                queue: (*self.queue).clone(),
                offset: at,
                min: if next > at { next } else { QueueOffset(0) },
                max: if next > at { self.to } else { next },
            }),
        }
    }
}
