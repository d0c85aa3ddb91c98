//! The name server over real sockets: what brokers, clients and tools ask, and the exact texts that they get.
mod admin;
mod clusters;
mod liveness;
mod registration;
mod routes;
mod support;
