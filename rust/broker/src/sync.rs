//! Locks and atomics of the piece whose thread schedules are explored: those of the standard library.
//!
//! `rust/proof/tests/schedule` compiles `held_state.rs` once more, with those of `shuttle` in place of this module.

pub(crate) use std::sync::{Mutex, PoisonError, atomic};
