//! Proof of what an acknowledgement promises (docs/durability.md): histories, the harnesses that write them, and the one checker
//! that reads them.

pub mod assertions;
pub mod checker;
pub mod fuzz;
pub mod history;
mod journal;
mod later;
pub mod planted;
pub mod real;
pub mod sim;
