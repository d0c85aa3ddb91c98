//! Fuzzing: what reads bytes from outside gets any bytes. It must not panic, and what it accepts must write to itself.
//!
//! A target is a function of bytes. `tools/fuzz` lets libFuzzer look for bytes that break one; `cargo test` runs every file of
//! the corpus, `rust/proof/fuzz/corpus`, through its target once. A file whose name begins with `seed-` is one of the target's
//! seeds, which a test compares; the others broke a target once.
//!
//! It cannot show that damage is noticed: the simulated disk does that.

mod auth;
mod later;
mod record;
mod seed;
mod store;
mod store_sample;
mod wire;

/// Something that reads bytes from outside.
pub struct Target {
    /// Names it on the command line, and the folder of its corpus.
    pub name: &'static str,
    /// Reads the bytes. A panic is a fault.
    pub run: fn(&[u8]),
    /// Sound bytes to start from, with a name each.
    pub seeds: fn() -> Vec<Seed>,
}

/// The name and the bytes of a seed.
pub type Seed = (String, Vec<u8>);

pub const TARGETS: &[Target] = &[
    Target { name: "frame", run: wire::frame, seeds: seed::frames },
    Target { name: "header", run: wire::header, seeds: seed::headers },
    Target { name: "json", run: wire::json, seeds: seed::json },
    Target { name: "record", run: record::record, seeds: seed::records },
    Target { name: "batch", run: record::batch, seeds: seed::batches },
    Target { name: "sql", run: later::sql, seeds: later::expressions },
    Target { name: "text", run: later::text, seeds: later::texts },
    Target { name: "auth", run: auth::auth, seeds: auth::seeds },
    Target { name: "timer", run: later::timer, seeds: later::timers },
    Target { name: "import", run: store::import, seeds: seed::imports },
    Target { name: "checkpoint", run: store::checkpoint, seeds: || store_sample::seeds("checkpoint") },
    Target { name: "index", run: store::index, seeds: || store_sample::seeds("index") },
    Target { name: "queue", run: store::queue, seeds: || store_sample::seeds("consumequeue") },
    Target { name: "log", run: store::log, seeds: || store_sample::seeds("commitlog") },
];

#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
