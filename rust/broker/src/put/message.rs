//! A message on its way into the store.

use std::net::SocketAddr;

use rocketpy_model::PhysicalOffset;

/// Origin of a put, which decides the rules that apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client sends it. System topics are closed, the broker must be writable, the body has a limit (`maxMessageSize`), and retries that
    /// were tried too often go to the dead letters. The broker adds its own properties.
    Client,
    /// The broker stores it, mostly a message that a client sent before. Every topic is open, a body may
    /// have any length that the log can hold, and the properties are stored as they are.
    Broker,
}

/// Whether a message still has to wait for its delivery time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Its properties decide (`DELAY` and the timer properties).
    Asked,
    /// It has waited already. Its properties still say how long, and no longer count.
    Over,
    /// It is dead: its delay level is taken out. Timer properties still count.
    Dropped,
}

/// The topic from which a missing topic is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Template<'a> {
    pub(crate) topic: &'a str,
    /// Queues that the sender wants; the template's number is the most it gets.
    pub(crate) queues: i32,
}

/// A message, or a batch of them, that is to be stored.
///
/// Everything is borrowed: on the way of a client's message nothing is copied before the log, but for its properties, which
/// the broker rewrites.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "MessageExtBrokerInner")]
pub(crate) struct NewMessage<'a> {
    pub(crate) topic: &'a str,
    /// For a topic that does not exist yet; without one only retry topics are made.
    pub(crate) template: Option<Template<'a>>,
    /// Negative: the broker chooses.
    pub(crate) queue_id: i32,
    /// The producer's own flag, never interpreted.
    pub(crate) flag: i32,
    /// Bits of `rocketpy_model::sys_flag`; the store sets the two address bits.
    pub(crate) sys_flag: i32,
    /// The producer's clock.
    pub(crate) born_at_ms: i64,
    /// The producer's address.
    pub(crate) born_host: SocketAddr,
    /// Deliveries so far.
    pub(crate) reconsume_times: i32,
    /// Deliveries after which a retry is dead; `None`: the group says.
    pub(crate) max_reconsume_times: Option<i32>,
    /// The half message of a committed transaction message.
    pub(crate) prepared_transaction_offset: Option<PhysicalOffset>,
    pub(crate) delay: Delay,
    /// The body is a wire batch: each of its items becomes a record of its own.
    pub(crate) is_batch: bool,
    /// As it is stored.
    pub(crate) body: &'a [u8],
    /// Properties as text. Of a batch only its unique key and `WAIT` count: its items have properties of their own.
    pub(crate) properties: &'a [u8],
}
