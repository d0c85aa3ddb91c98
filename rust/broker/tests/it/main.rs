//! The broker over real sockets and real files: every request code, every kind of bad input, what survives a restart.
//!
//! Name servers are not part of these tests; the server's tests have both.

mod administration;
mod confirmed_reads;
mod created_again;
mod delays;
mod frames;
mod groups;
mod held_pulls;
mod members;
mod offsets;
mod peers;
mod pulls;
mod queries;
mod quotas;
mod refused_sends;
mod replication;
mod replies;
mod resets;
mod restarts;
mod retention;
mod send_backs;
mod sends;
mod slaves;
mod state;
mod statistics;
mod support;
mod sync_flush;
mod system_offsets;
mod timers;
mod tools;
mod topics;
mod transactions;
