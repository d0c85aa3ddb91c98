//! Calls whose answers an event loop of asyncio waits for.
//!
//! A call is a future of Rust that the loop's own thread polls: a runtime thread that has something for it leaves a note and rings a
//! bell, an eventfd that the loop watches ([`Arrivals`]). So no runtime thread takes the interpreter lock, there is no thread between,
//! and a call that is cancelled is dropped there and then: it took no messages. Outcomes of sends come in the same way, those of a
//! request together. A task awaits an [`Answer`], which wakes it when the loop delivers.

mod answer;
mod arrivals;
mod call;

pub(crate) use self::answer::Answer;
pub(crate) use self::arrivals::Arrivals;
pub(crate) use self::call::Caller;
