//! The remoting server and client on tokio: framing, limits, back-pressure, time-outs.
