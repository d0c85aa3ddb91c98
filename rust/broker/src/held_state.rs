//! What waits for the store: behind a lock, and next to it what the store's threads read before they take the lock.

use rocketpy_env::planted::{self, Bug};

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Mutex, PoisonError};

/// What waits, for `N` kinds of offset.
pub(crate) trait Waits<const N: usize> {
    /// The first offset of each kind that ends a wait; `u64::MAX` when nobody waits for that kind.
    fn first(&self) -> [u64; N];
}

/// Keeps what waits until the store says that it has come far enough.
///
/// The store notes how far it is, and then calls [`HeldState::reached`]. [`HeldState::hold`] shows that somebody waits, and then
/// looks how far the store is. One of the two sees the other.
#[derive(Debug)]
pub(crate) struct HeldState<S, const N: usize> {
    state: Mutex<S>,
    first: [AtomicU64; N],
}

impl<S: Waits<N>, const N: usize> HeldState<S, N> {
    /// Keeps nothing yet.
    pub(crate) fn new(empty: S) -> Self {
        let first = empty.first().map(AtomicU64::new);
        Self { state: Mutex::new(empty), first }
    }

    /// Reads what waits, or changes it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut state);
        self.show(&state);
        result
    }

    /// Adds something that waits, then looks whether its wait is over: that may have happened before the store saw it. `look` gets
    /// what `add` returned.
    ///
    /// # Errors
    /// Those of `add`, which has added nothing then.
    pub(crate) fn hold<K, T, E>(
        &self,
        add: impl FnOnce(&mut S) -> Result<K, E>,
        look: impl FnOnce(&mut S, K) -> T,
    ) -> Result<T, E> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let added = add(&mut state)?;
        if !planted::has(Bug::HeldShownLate) {
            self.show(&state);
        }
        // With the fence in `reached`: either the store's thread sees what was added, or `look` sees what the store did.
        fence(Ordering::SeqCst);
        let result = look(&mut state, added);
        self.show(&state);
        Ok(result)
    }

    /// The store has come to this offset of a kind: `take` takes out what waited for it. `None` when nobody did.
    pub(crate) fn reached<T>(&self, kind: usize, offset: u64, take: impl FnOnce(&mut S) -> T) -> Option<T> {
        fence(Ordering::SeqCst);
        (offset >= self.first[kind].load(Ordering::Acquire)).then(|| self.with(take))
    }

    fn show(&self, state: &S) {
        for (shown, first) in self.first.iter().zip(state.first()) {
            shown.store(first, Ordering::Release);
        }
    }
}
