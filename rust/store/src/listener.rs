//! Events that a store reports to its listeners.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rocketpy_model::{PhysicalOffset, QueueOffset};

use crate::error::{AppendError, StoreError};

/// A record that has become readable in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Topic of the queue.
    pub topic: Arc<str>,
    /// Queue within the topic.
    pub queue_id: u32,
    /// Queue offset after the record: the new maximum as far as this record goes.
    pub next_offset: QueueOffset,
    /// Tag hash, sign-extended, as in the consume queue.
    pub tags_code: i64,
    /// The store's clock when the record was appended.
    pub stored_at_ms: i64,
}

/// Receives what happens in a store. [`Self::flushed`], [`Self::arrived`] and [`Self::dispatched`] come on the store's own threads, the
/// others on the thread that each of them names. Only [`Self::waits`] and [`Self::removes_waiting`] may block, and none may call
/// `shutdown`.
#[doc(alias = "MessageArrivingListener")]
pub trait StoreListener: Send + Sync {
    /// The log is durable before this offset. Offsets only grow.
    fn flushed(&self, _offset: PhysicalOffset) {}
    /// A flush has ended. Comes on the thread that flushed.
    fn flush_took(&self, _took: Duration) {}
    /// Queue entries became readable; in log order, many at once under load.
    fn arrived(&self, _arrivals: &[Arrival]) {}
    /// Consume queues and index cover the log before this offset. Offsets only grow. Comes after [`Self::arrived`].
    fn dispatched(&self, _offset: PhysicalOffset) {}
    /// An append is about to wait for the disk or for dispatch, on its caller's thread. The listener calls `wait` once, or not at
    /// all: then the append is refused with [`AppendError::TooManyWait`].
    fn waits(&self, wait: &mut dyn FnMut()) {
        wait();
    }
    /// A file of the log is about to be removed for want of space though messages in it wait ([`crate::Store::set_waiting_from`]). Comes on
    /// the cleaning thread, or on the thread that calls [`crate::Store::clean`], and may block.
    fn removes_waiting(&self, _file: &Range<PhysicalOffset>) {}
    /// A flush failed, or an assertion ([`StoreError::AssertionFailed`]); no append is acknowledged any more. Called once for each, on the
    /// thread that meets the failure: one of the store's, or that of a call such as an append, which may serve connections.
    fn poisoned(&self, _error: &StoreError) {}
}

/// All listeners, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Listeners(RwLock<Arc<[Arc<dyn StoreListener>]>>);

impl Listeners {
    pub(crate) fn add(&self, listener: Arc<dyn StoreListener>) {
        let mut listeners = self.0.write();
        *listeners = listeners.iter().cloned().chain([listener]).collect();
    }

    /// Removes all listeners. This thread drops them, unless another one is just calling them.
    pub(crate) fn clear(&self) {
        let former = std::mem::take(&mut *self.0.write());
        drop(former); // not under the lock: a listener may hold anything
    }

    fn all(&self) -> Arc<[Arc<dyn StoreListener>]> {
        Arc::clone(&self.0.read())
    }

    pub(crate) fn flushed(&self, offset: PhysicalOffset) {
        self.all().iter().for_each(|listener| listener.flushed(offset));
    }

    pub(crate) fn flush_took(&self, took: Duration) {
        self.all().iter().for_each(|listener| listener.flush_took(took));
    }

    pub(crate) fn arrived(&self, arrivals: &[Arrival]) {
        self.all().iter().for_each(|listener| listener.arrived(arrivals));
    }

    pub(crate) fn dispatched(&self, offset: PhysicalOffset) {
        self.all().iter().for_each(|listener| listener.dispatched(offset));
    }

    pub(crate) fn removes_waiting(&self, file: &Range<PhysicalOffset>) {
        self.all().iter().for_each(|listener| listener.removes_waiting(file));
    }

    pub(crate) fn poisoned(&self, error: &StoreError) {
        self.all().iter().for_each(|listener| listener.poisoned(error));
    }

    /// Runs `wait` inside all listeners, each around the next.
    ///
    /// # Errors
    /// Those of `wait`, and [`AppendError::TooManyWait`] when a listener does not let the append wait.
    pub(crate) fn waiting(&self, wait: impl FnOnce() -> Result<(), AppendError>) -> Result<(), AppendError> {
        let (mut wait, mut result) = (Some(wait), None);
        wait_around(&self.all(), &mut || result = wait.take().map(|wait| wait()));
        result.unwrap_or(Err(AppendError::TooManyWait))
    }
}

fn wait_around(listeners: &[Arc<dyn StoreListener>], wait: &mut dyn FnMut()) {
    match listeners.split_first() {
        None => wait(),
        Some((first, others)) => first.waits(&mut || wait_around(others, wait)),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    struct Notes(&'static str, Arc<Mutex<Vec<String>>>);

    struct LetsNobodyWait;

    impl StoreListener for LetsNobodyWait {
        fn waits(&self, _wait: &mut dyn FnMut()) {}
    }

    impl StoreListener for Notes {
        fn flushed(&self, offset: PhysicalOffset) {
            self.1.lock().push(format!("{} hears of {offset}", self.0));
        }

        fn waits(&self, wait: &mut dyn FnMut()) {
            self.1.lock().push(format!("{} begins", self.0));
            wait();
            self.1.lock().push(format!("{} ends", self.0));
        }
    }

    #[test]
    fn each_listener_hears_everything_and_a_wait_happens_once_inside_of_all() {
        let listeners = Listeners::default();
        assert!(listeners.waiting(|| Ok(())).is_ok(), "nobody listens");
        let notes = Arc::new(Mutex::new(Vec::new()));
        listeners.add(Arc::new(Notes("a", Arc::clone(&notes))));
        listeners.add(Arc::new(Notes("b", Arc::clone(&notes))));
        listeners.flushed(PhysicalOffset(7));
        let refused = listeners.waiting(|| Err(AppendError::ShutDown));
        assert!(matches!(refused, Err(AppendError::ShutDown)), "{refused:?}");
        let expected =
            ["a hears of 7", "b hears of 7", "a begins", "b begins", "b ends", "a ends"].map(str::to_owned);
        assert_eq!(*notes.lock(), expected);
        listeners.add(Arc::new(LetsNobodyWait));
        let refused = listeners.waiting(|| panic!("it may not wait"));
        assert!(matches!(refused, Err(AppendError::TooManyWait)), "{refused:?}");
        listeners.clear();
        assert_eq!(Arc::strong_count(&notes), 1, "nobody is held any more");
    }
}
