//! Message trace: what clients did with messages, as messages of a trace topic.
//!
//! A [`Tracer`] belongs to one producer or consumer. `send` and `consume` make its records, `tracer` keeps them until `dispatch` sends them in the background,
//! `text` reads and writes them.
//!
//! # Source
//! docs/reference/client.md 6.

mod consume;
pub(crate) mod dispatch;
mod record;
mod send;
mod text;
#[cfg(test)]
mod text_tests;
mod tracer;

pub(crate) use self::consume::{Consumption, Uncommitted};
pub use self::record::{
    ConsumeResult, TraceRecord, TracedBegin, TracedEnd, TracedKind, TracedRecall, TracedSend,
    TracedTransaction,
};
pub(crate) use self::send::Acknowledged;
pub(crate) use self::tracer::Tracer;
