//! Files, maps and locks of the real disk.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests of the door look at what lies behind it"
)]

mod files;
mod lock;
mod region;
#[cfg(feature = "sim")]
mod sim;
