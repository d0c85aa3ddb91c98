//! Composition: configuration, lifecycle, name server and broker in one process.
