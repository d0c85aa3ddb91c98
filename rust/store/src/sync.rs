//! Locks and atomics of the pieces whose thread schedules are explored: those of the standard library.
//!
//! `rust/proof/tests/schedule` compiles `wake.rs`, `append_bell.rs`, `flush/turn.rs`, `dispatch/backlog.rs` and `allocate/next_file.rs` once more, with those of `shuttle` in place of this module.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic};
