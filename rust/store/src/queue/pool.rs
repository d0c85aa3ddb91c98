//! Open consume queue files, bounded in number: thousands of queues share a few hundred file handles.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

/// A file of a queue: the queue's uid and the start of the file.
pub(crate) type FileKey = (u64, u64);

/// Keeps the files that were used lately, by the second-chance rule.
#[derive(Debug)]
pub(crate) struct FilePool<F> {
    limit: usize,
    state: Mutex<State<F>>,
}

#[derive(Debug)]
struct State<F> {
    open: HashMap<FileKey, Slot<F>>,
    /// Keys in the order in which they are considered when room is needed. May hold keys that are closed already.
    order: VecDeque<FileKey>,
}

#[derive(Debug)]
struct Slot<F> {
    file: Arc<F>,
    used: bool,
}

impl<F> FilePool<F> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::new(State { open: HashMap::new(), order: VecDeque::new() }) }
    }

    /// The open file of a key.
    pub(crate) fn get(&self, key: FileKey) -> Option<Arc<F>> {
        let mut state = self.state.lock();
        let slot = state.open.get_mut(&key)?;
        slot.used = true;
        Some(Arc::clone(&slot.file))
    }

    /// Keeps a file open for later, in place of one that was not used lately.
    pub(crate) fn put(&self, key: FileKey, file: Arc<F>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        while state.open.len() >= self.limit {
            let Some(oldest) = state.order.pop_front() else { break };
            match state.open.get_mut(&oldest) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    state.order.push_back(oldest);
                }
                _ => drop(state.open.remove(&oldest)),
            }
        }
        assert!(state.open.len() < self.limit.max(1), "there is room for one more");
        if state.open.insert(key, Slot { file, used: false }).is_none() {
            state.order.push_back(key);
        }
    }

    /// Closes all files of a queue.
    pub(crate) fn forget(&self, uid: u64) {
        let mut state = self.state.lock();
        state.open.retain(|key, _| key.0 != uid);
        state.order.retain(|key| key.0 != uid);
    }

    pub(crate) fn forget_file(&self, key: FileKey) {
        let mut state = self.state.lock();
        state.open.remove(&key);
        state.order.retain(|other| *other != key);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.state.lock().open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_what_is_used_and_stays_in_its_bound() {
        let pool = FilePool::new(3);
        for start in 0..100 {
            pool.put((1, start), Arc::new(start));
            assert_eq!(pool.get((1, 0)).as_deref(), Some(&0), "the file in use stays open");
            assert!(pool.len() <= 3);
        }
        pool.forget(1);
        assert_eq!(pool.len(), 0);
        assert!(pool.get((1, 0)).is_none());
    }
}
