//! `submit`: messages are handed over one by one and sent together as they gather.
//!
//! Every queue has a lane with at most one request under way. Messages that arrive during a request are sent together in the
//! next one. A queue therefore keeps its order, a lone message does not wait, and many messages need few requests.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::{Message, MessageQueue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::error;

use super::options::SendOptions;
use super::pack::{self, Outgoing, Packed, Packer};
use super::receipts::receipt_of;
use super::send::{Sender, Target};
use crate::config::ProducerConfig;
use crate::error::ClientError;
use crate::receipt::Receipt;
use crate::send_error::SendError;

/// The window counts bytes in units of this size, so that its largest size fits a semaphore.
const UNIT_BYTES: usize = 1024;

/// A submitted message. Await it for its receipt; dropping it does not take the message back.
#[derive(Debug)]
#[must_use = "a submitted message that is not awaited fails silently"]
pub struct PendingSend {
    receiver: oneshot::Receiver<Result<Receipt, SendError>>,
}

impl Future for PendingSend {
    type Output = Result<Receipt, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let gone = Err(ClientError::Closed { what: "runtime" }.into());
        Pin::new(&mut self.receiver).poll(context).map(|result| result.unwrap_or(gone))
    }
}

/// Receives the outcome of a message. If it is dropped first, as at the end of the runtime, the outcome is an error.
#[derive(Default)]
pub(crate) struct Done(Option<Listener>);

enum Listener {
    Waiter(oneshot::Sender<Result<Receipt, SendError>>),
    Callback(Box<dyn FnOnce(Result<Receipt, SendError>) + Send>),
}

impl Done {
    pub(crate) fn waiter() -> (Self, PendingSend) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(Listener::Waiter(sender))), PendingSend { receiver })
    }

    pub(crate) fn callback(callback: impl FnOnce(Result<Receipt, SendError>) + Send + 'static) -> Self {
        Self(Some(Listener::Callback(Box::new(callback))))
    }

    /// Drops the listener without an outcome.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    fn tell(&mut self, result: Result<Receipt, SendError>) {
        match self.0.take() {
            None => {}
            // The caller may have dropped the receiver.
            Some(Listener::Waiter(sender)) => drop(sender.send(result)),
            Some(Listener::Callback(callback)) => {
                // A panic must not end the lane: other messages wait in it.
                let told = std::panic::catch_unwind(AssertUnwindSafe(|| callback(result)));
                told.unwrap_or_else(|_| error!("callback of a submitted message panicked"));
            }
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.tell(Err(ClientError::Closed { what: "runtime" }.into()));
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(Listener::Waiter(_)) => "Waiter",
            Some(Listener::Callback(_)) => "Callback",
            None => "Told",
        })
    }
}

/// Bounds the messages that are submitted and not acknowledged.
#[derive(Debug)]
pub(crate) struct Window {
    messages: Arc<Semaphore>,
    units: Arc<Semaphore>,
    all_messages: u32,
    all_units: u32,
}

/// A message's place in the window, free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _message: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

impl Window {
    pub(crate) fn new(config: &ProducerConfig) -> Self {
        let bounded = |count: usize| count.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize)) as u32;
        let (all_messages, all_units) =
            (bounded(config.window_messages), bounded(config.window_bytes / UNIT_BYTES));
        Self {
            messages: Arc::new(Semaphore::new(all_messages as usize)),
            units: Arc::new(Semaphore::new(all_units as usize)),
            all_messages,
            all_units,
        }
    }

    /// Number of submitted messages without an outcome.
    pub(crate) fn in_flight(&self) -> usize {
        (self.all_messages as usize).saturating_sub(self.messages.available_permits())
    }

    /// Waits for a place. A body larger than the window takes the whole window.
    ///
    /// # Errors
    /// [`ClientError::WindowFull`].
    pub(crate) async fn enter(&self, body_bytes: usize, timeout: Duration) -> Result<Place, ClientError> {
        let units =
            u32::try_from(body_bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.all_units);
        let (messages, bytes) = (self.messages.clone(), self.units.clone());
        let place = async {
            let message = messages.acquire_owned().await.expect("never closed");
            let units = bytes.acquire_many_owned(units).await.expect("never closed");
            Place { _message: message, _units: units }
        };
        let full = |_| ClientError::WindowFull {
            in_flight: self.in_flight(),
            timeout_ms: timeout.as_millis() as u64,
        };
        tokio::time::timeout(timeout, place).await.map_err(full)
    }

    /// Waits until every message that entered before has its outcome. Messages that enter during the wait queue behind it.
    ///
    /// # Errors
    /// [`ClientError::FlushTimeout`].
    pub(crate) async fn drained(&self, timeout: Duration) -> Result<(), ClientError> {
        let all = self.messages.acquire_many(self.all_messages);
        match tokio::time::timeout(timeout, all).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ClientError::FlushTimeout {
                in_flight: self.in_flight(),
                timeout_ms: timeout.as_millis() as u64,
            }),
        }
    }
}

/// A message in a lane.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) message: Message,
    pub(crate) options: SendOptions,
    pub(crate) timeout: Duration,
    pub(crate) done: Done,
    pub(crate) place: Place,
}

/// The lanes of one producer.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    table: Mutex<HashMap<(MessageQueue, bool), Lane>>,
}

/// The waiting messages of one queue, all bound to it or all not. A lane is in the table while its task runs.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Submitted>,
}

impl Lanes {
    /// Puts a message in the lane of its queue and starts the lane's task if none runs.
    pub(crate) fn push(
        self: &Arc<Self>,
        sender: &Sender,
        queue: MessageQueue,
        bound: bool,
        submitted: Submitted,
    ) {
        let mut table = self.table.lock();
        match table.get_mut(&(queue.clone(), bound)) {
            Some(lane) => lane.waiting.push_back(submitted),
            None => {
                table.insert((queue.clone(), bound), Lane { waiting: VecDeque::from([submitted]) });
                drop(table);
                let (lanes, sender) = (self.clone(), sender.clone());
                let runtime = sender.client.runtime().clone();
                // It ends when the lane is empty; `Window::drained` waits for that.
                runtime.spawn(async move { lanes.run(sender, queue, bound).await });
            }
        }
    }

    async fn run(&self, sender: Sender, queue: MessageQueue, bound: bool) {
        let mut packer = Packer::new(&sender.config);
        while let Some((outgoing, taken)) = self.take(&sender, &mut packer, &(queue.clone(), bound)) {
            let target = if bound { Target::Only(queue.clone()) } else { Target::First(queue.clone()) };
            // The longest timeout applies: giving up earlier would fail messages that may still wait.
            let timeout = taken.iter().map(|submitted| submitted.timeout).max().unwrap_or_default();
            let result = sender.deliver(&outgoing, target, timeout).await;
            for (index, mut submitted) in taken.into_iter().enumerate() {
                let result = result.as_ref().map(|stored| receipt_of(stored, &outgoing.keys, index));
                submitted.done.tell(result.map_err(|error| error.clone().of(outgoing.keys.get(index))));
                drop(submitted.place);
            }
        }
    }

    /// Takes the messages that fit into the next request; ends the lane when none waits.
    fn take(
        &self,
        sender: &Sender,
        packer: &mut Packer,
        lane: &(MessageQueue, bool),
    ) -> Option<(Outgoing, Vec<Submitted>)> {
        let mut waiting = self.waiting(lane)?;
        let (ids, moment, mut taken) = (sender.client.ids(), sender.client.ids().moment(), Vec::new());
        while let Some(next) = waiting.front() {
            if packer.push(&next.message, next.options.given(), ids, moment) == Packed::Full {
                break;
            }
            taken.extend(waiting.pop_front());
        }
        self.put_back(lane, waiting);
        let outgoing = match taken.as_slice() {
            [only] => {
                packer.clear();
                pack::single(&only.message, only.options.given(), &sender.config, ids, moment)
            }
            _ => packer.finish(&lane.0.topic, ids, moment),
        };
        Some((outgoing, taken))
    }

    /// Takes all waiting messages, so that packing holds no lock.
    fn waiting(&self, lane: &(MessageQueue, bool)) -> Option<VecDeque<Submitted>> {
        let mut table = self.table.lock();
        let waiting = std::mem::take(&mut table.get_mut(lane)?.waiting);
        if waiting.is_empty() {
            table.remove(lane);
            return None;
        }
        Some(waiting)
    }

    /// Puts the messages that did not fit back in front of those that arrived since.
    fn put_back(&self, lane: &(MessageQueue, bool), mut rest: VecDeque<Submitted>) {
        let mut table = self.table.lock();
        if let Some(lane) = table.get_mut(lane) {
            rest.append(&mut lane.waiting);
            lane.waiting = rest;
        }
    }
}
