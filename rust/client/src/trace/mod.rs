//! Message trace: what clients did with messages, as messages of a trace topic.
//!
//! A [`Tracer`] belongs to one producer or consumer. `send` and `consume` make its records, `dispatch` sends them in the background,
//! `text` reads and writes them.
//!
//! # Source
//! docs/reference/client.md 6.

mod consume;
mod dispatch;
mod record;
mod send;
mod text;
#[cfg(test)]
mod text_tests;

pub(crate) use self::consume::{Consumption, Uncommitted};
pub(crate) use self::dispatch::Tracer;
pub use self::record::{
    ConsumeResult, TraceRecord, TracedBegin, TracedEnd, TracedKind, TracedRecall, TracedSend,
    TracedTransaction,
};
pub(crate) use self::send::Acknowledged;

/// Region of a broker that does not say its own.
const DEFAULT_REGION: &str = "DefaultRegion";
