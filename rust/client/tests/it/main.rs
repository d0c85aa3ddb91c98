//! The client over real sockets: against scripted peers, which can fail as no real broker does on demand, and against
//! RocketPy's own name server and broker.

mod bodies;
mod cluster;
mod commits;
mod consume;
mod denied;
mod handover;
mod lanes;
mod late_commits;
mod lying;
mod many;
mod no_broker;
mod others;
mod outage;
mod peer;
mod push;
mod range;
mod reads;
mod request;
mod send;
mod shared;
mod starts;
mod stats;
mod submit;
mod submitting;
mod transaction;
