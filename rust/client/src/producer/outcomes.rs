//! Who is told the outcome of a submitted message, and how: request by request.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tracing::error;

use super::pack::KeyList;
use super::receipts::{Stored, outcome_of};
use crate::error::ClientError;
use crate::receipt::{Receipt, SendStatus};
use crate::send_error::SendError;

/// A submitted message. Await it for its receipt; dropping it does not take the message back.
#[derive(Debug)]
#[must_use = "a submitted message that is not awaited fails silently"]
pub struct PendingSend {
    receiver: oneshot::Receiver<Result<Receipt, SendError>>,
}

impl Future for PendingSend {
    type Output = Result<Receipt, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let gone = Err(ClientError::Abandoned.into());
        Pin::new(&mut self.receiver).poll(context).map(|result| result.unwrap_or(gone))
    }
}

/// Takes the outcomes of messages that were submitted with tickets.
pub trait OutcomeSink: Send + Sync {
    /// Takes the outcomes of all messages of one request. Runs on a runtime thread and must not block.
    fn told(&self, outcomes: Outcomes);
}

/// The outcomes of the messages of one request.
#[derive(Debug)]
pub struct Outcomes {
    request: Arc<EndedRequest>,
    tickets: Tickets,
}

impl Outcomes {
    /// The ticket of every message, in the order in which they were submitted.
    pub fn tickets(&self) -> impl ExactSizeIterator<Item = u64> {
        self.tickets.iter().map(|(ticket, _)| *ticket)
    }

    /// The outcome of every message, in the same order.
    pub fn into_outcomes(self) -> impl ExactSizeIterator<Item = Outcome> + Send {
        let request = self.request;
        self.tickets.into_iter().map(move |(_, index)| Outcome { request: request.clone(), index })
    }
}

/// The outcome of one message. It keeps what its whole request ended with.
#[derive(Debug, Clone)]
pub struct Outcome {
    request: Arc<EndedRequest>,
    index: u32,
}

impl Outcome {
    /// What the receipt says how far the message got; `None`: it was not acknowledged.
    pub fn status(&self) -> Option<SendStatus> {
        self.request.result.as_ref().ok().map(|stored| stored.status)
    }

    /// Makes the receipt.
    ///
    /// # Errors
    /// The message was not acknowledged.
    pub fn receipt(&self) -> Result<Receipt, SendError> {
        self.request.outcome(self.index as usize)
    }
}

/// Tickets of messages, each with its message's index in the request.
type Tickets = Vec<(u64, u32)>;

/// What one request ended with.
#[derive(Debug)]
pub(crate) struct EndedRequest {
    pub(crate) result: Result<Stored, SendError>,
    /// Unique key of each message; empty for one that never got any.
    pub(crate) keys: KeyList,
}

impl EndedRequest {
    fn outcome(&self, index: usize) -> Result<Receipt, SendError> {
        outcome_of(&self.result, &self.keys, index)
    }
}

/// Receives the outcome of a message.
pub(crate) enum Listener {
    Waiter(oneshot::Sender<Result<Receipt, SendError>>),
    Ticket(Arc<dyn OutcomeSink>, u64),
}

impl Listener {
    pub(crate) fn waiter() -> (Self, PendingSend) {
        let (sender, receiver) = oneshot::channel();
        (Self::Waiter(sender), PendingSend { receiver })
    }
}

/// The listener of a message that was taken. If it is dropped first, as at the end of the runtime, the outcome is an error.
pub(crate) struct Done(Option<Listener>);

impl Done {
    pub(crate) fn new(listener: Listener) -> Self {
        Self(Some(listener))
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if self.0.is_some() {
            let result = Err(ClientError::Abandoned.into());
            tell([&mut *self], EndedRequest { result, keys: KeyList::default() });
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(Listener::Waiter(_)) => "Waiter",
            Some(Listener::Ticket(..)) => "Ticket",
            None => "Told",
        })
    }
}

/// Tells every listener of a request its outcome; those with tickets of one sink together.
pub(crate) fn tell<'a>(listeners: impl IntoIterator<Item = &'a mut Done>, ended: EndedRequest) {
    let request = Arc::new(ended);
    let mut sink: Option<(Arc<dyn OutcomeSink>, Tickets)> = None;
    for (index, done) in listeners.into_iter().enumerate() {
        match done.0.take() {
            None => {}
            // The caller may have dropped the receiver.
            Some(Listener::Waiter(sender)) => drop(sender.send(request.outcome(index))),
            Some(Listener::Ticket(own, ticket)) => match &mut sink {
                Some((sink, tickets)) if Arc::ptr_eq(sink, &own) => tickets.push((ticket, index as u32)),
                _ => {
                    let before = sink.replace((own, vec![(ticket, index as u32)]));
                    hand_over(before, &request);
                }
            },
        }
    }
    hand_over(sink, &request);
}

fn hand_over(sink: Option<(Arc<dyn OutcomeSink>, Tickets)>, request: &Arc<EndedRequest>) {
    if let Some((sink, tickets)) = sink {
        guard(|| sink.told(Outcomes { request: request.clone(), tickets }));
    }
}

/// A panic of a listener must not end the lane: other messages wait in it.
fn guard(told: impl FnOnce()) {
    let told = catch_unwind(AssertUnwindSafe(told));
    told.unwrap_or_else(|_| error!("callback of a submitted message panicked"));
}
