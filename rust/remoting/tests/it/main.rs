//! Remoting over real sockets on loopback. One side is made of raw bytes, written here independently of the codec, or is the other
//! half of this crate.
mod client;
mod flow;
mod hooks;
mod hostile;
mod lifecycle;
mod memory;
mod push;
mod server;
mod support;
mod tls;
