//! What a store tells its owner.

use std::sync::Arc;

use rocketpy_model::{PhysicalOffset, QueueOffset};

use crate::error::StoreError;

/// A record that has become readable in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    pub topic: Arc<str>,
    pub queue_id: u32,
    /// Queue offset behind the record: the new maximum as far as this record goes.
    pub next_offset: QueueOffset,
    /// Tag hash, sign-extended, as in the consume queue.
    pub tags_code: i64,
    pub stored_at_ms: i64,
}

/// Receives what happens in a store, but for `waits` on the store's own threads: none of these may block or call back into
/// `shutdown`.
#[doc(alias = "MessageArrivingListener")]
pub trait StoreListener: Send + Sync {
    /// The log is durable before this offset. Offsets only grow.
    fn flushed(&self, _offset: PhysicalOffset) {}
    /// Queue entries became readable; in log order, many at once under load.
    fn arrived(&self, _arrivals: &[Arrival]) {}
    /// Consume queues and index cover the log before this offset. Offsets only grow. Comes after [`Self::arrived`].
    fn dispatched(&self, _offset: PhysicalOffset) {}
    /// An append is about to wait for the disk, on its caller's thread: `wait` has to be called, once.
    fn waits(&self, wait: &mut dyn FnMut()) {
        wait();
    }
    /// A flush failed; no append is acknowledged any more. Called once.
    fn poisoned(&self, _error: &StoreError) {}
}

/// A listener for nobody.
#[derive(Debug, Default)]
pub struct NoListener;

impl StoreListener for NoListener {}
