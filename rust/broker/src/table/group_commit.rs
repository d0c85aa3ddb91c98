//! Group commit of a file: changes are made in memory, one writer at a time writes all of them, and all who wait for that write
//! are answered together.
//!
//! However many requests change a table at once, two writes cover all of them: the one that is under way, and the next one, which
//! takes everything that came meanwhile. No thread that serves connections writes.
#![cfg_attr(
    not(feature = "sim"),
    expect(unreachable_pub, reason = "the simulator uses the table of offsets from outside")
)]

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_env::EnvError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Maximum number of requests that may wait for the writes of one file. Each keeps its request in memory.
const MAX_WAITING: usize = 10_000;

/// State that is stored in a file.
pub(crate) trait Kept: Send + Sync + 'static {
    /// In-memory state, including changes that are not on disk yet.
    type State: fmt::Debug + Send + 'static;
    /// Content of one write.
    type Content;

    /// Begins a write of everything that has changed so far. The lock is held: whatever takes long belongs into `write`.
    fn begin(&self, state: &mut Self::State) -> Self::Content;

    /// Writes the file. No lock is held.
    fn write(&self, content: &Self::Content) -> Result<(), EnvError>;

    /// Takes note of how the write ended. After a failed one everybody who waits gets the error, those for the next one too.
    fn end(&self, state: &mut Self::State, content: &Self::Content, is_written: bool);
}

/// Which write a change waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// None.
    No,
    /// The one that is under way.
    Current,
    /// The one that begins next.
    Next,
}

/// Nobody else may wait for the writes of this file now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoRoomToWait {
    pub(crate) limit: usize,
}

/// Ends when the change is on disk.
#[derive(Debug)]
#[must_use = "a change is not on disk before this has ended"]
pub struct Written(oneshot::Receiver<Result<(), EnvError>>);

impl Written {
    /// Waits for the write.
    ///
    /// # Errors
    /// The write failed, or the process is ending. The change may be on disk all the same.
    pub(crate) async fn done(self) -> Result<(), EnvError> {
        self.0.await.unwrap_or_else(|_| Err(given_up()))
    }

    /// The outcome, of a table without a runtime.
    ///
    /// # Errors
    /// The write failed.
    #[cfg(any(test, feature = "sim"))]
    pub fn now(mut self) -> Result<(), EnvError> {
        self.0.try_recv().unwrap_or_else(|_| Err(given_up()))
    }
}

fn given_up() -> EnvError {
    EnvError::Unsupported { operation: "write the broker's tables while it stops", path: "config".into() }
}

fn panicked() -> EnvError {
    let source = std::io::Error::other("the writer panicked, its message went to standard error");
    EnvError::from_io("write the broker's tables", "config".as_ref(), source)
}

/// A file with what is kept in it, and everybody who waits for its writes.
#[derive(Debug)]
pub(crate) struct GroupCommit<K: Kept> {
    kept: K,
    inner: Mutex<Inner<K::State>>,
    /// Runs the writes, on its threads for blocking work. Without one whoever waits first writes.
    runtime: Option<Handle>,
}

#[derive(Debug)]
struct Inner<S> {
    state: S,
    /// Answered by the write that is under way.
    current: Vec<Waiter>,
    /// Answered by the next one.
    next: Vec<Waiter>,
    is_running: bool,
}

type Waiter = oneshot::Sender<Result<(), EnvError>>;

impl<K: Kept> GroupCommit<K> {
    pub(crate) fn new(kept: K, state: K::State, runtime: Option<Handle>) -> Arc<Self> {
        let inner = Inner { state, current: Vec::new(), next: Vec::new(), is_running: false };
        Arc::new(Self { kept, inner: Mutex::new(inner), runtime })
    }

    pub(crate) fn kept(&self) -> &K {
        &self.kept
    }

    /// Reads the state, or makes a change that needs no write of its own.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut K::State) -> T) -> T {
        look(&mut self.inner.lock().state)
    }

    /// Changes the state. `change` is told whether there is room to wait for a write, and returns the write to wait for.
    pub(crate) fn change<T, E>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut K::State, Result<(), NoRoomToWait>) -> Result<(T, Wait), E>,
    ) -> Result<(T, Option<Written>), E> {
        let mut inner = self.inner.lock();
        let waiting = inner.current.len() + inner.next.len();
        assert!(
            inner.is_running || waiting == 0,
            "requests wait for a file only while its writer runs: {waiting}"
        );
        let is_full = waiting >= MAX_WAITING;
        let room = if is_full { Err(NoRoomToWait { limit: MAX_WAITING }) } else { Ok(()) };
        let (result, wait) = change(&mut inner.state, room)?;
        assert!(
            wait == Wait::No || !is_full,
            "requests that wait for a file are within their limit: {wait:?}"
        );
        let (sender, receiver) = oneshot::channel();
        match wait {
            Wait::No => return Ok((result, None)),
            Wait::Current if inner.is_running => inner.current.push(sender),
            Wait::Current | Wait::Next => inner.next.push(sender),
        }
        let starts = !std::mem::replace(&mut inner.is_running, true);
        drop(inner);
        if starts {
            self.start();
        }
        Ok((result, Some(Written(receiver))))
    }

    fn start(self: &Arc<Self>) {
        match &self.runtime {
            Some(runtime) => {
                let writer = self.clone();
                drop(runtime.spawn_blocking(move || writer.run()));
            }
            None => self.run(),
        }
    }

    /// Writes until nobody waits.
    fn run(&self) {
        while let Some(content) = self.begin() {
            let mut guard = EndsAfterPanic { group: self, content: &content, is_armed: true };
            let result = self.kept.write(&content);
            guard.is_armed = false;
            self.end(&content, result, true);
        }
    }

    fn begin(&self) -> Option<K::Content> {
        let mut inner = self.inner.lock();
        if inner.next.is_empty() {
            inner.is_running = false;
            return None;
        }
        inner.current = std::mem::take(&mut inner.next);
        Some(self.kept.begin(&mut inner.state))
    }

    /// Tells everybody who waited how the write ended. After a failed one those who wait for the next one get the error as well. If
    /// the writer does not continue, the next change starts another one.
    fn end(&self, content: &K::Content, result: Result<(), EnvError>, goes_on: bool) {
        let mut inner = self.inner.lock();
        inner.is_running = goes_on;
        self.kept.end(&mut inner.state, content, result.is_ok());
        let mut done = std::mem::take(&mut inner.current);
        if result.is_err() {
            done.append(&mut inner.next);
        }
        drop(inner);
        for waiter in done {
            // Whoever waited may have gone.
            drop(waiter.send(result.clone()));
        }
    }
}

/// Ends a write as a failed one when the writer panics.
struct EndsAfterPanic<'a, K: Kept> {
    group: &'a GroupCommit<K>,
    content: &'a K::Content,
    is_armed: bool,
}

impl<K: Kept> Drop for EndsAfterPanic<'_, K> {
    fn drop(&mut self) {
        if self.is_armed {
            self.group.end(self.content, Err(panicked()), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Gate, until};

    /// A number whose file is a list of the values that were written.
    #[derive(Debug, Default)]
    struct Number {
        gate: Arc<Gate>,
        written: Mutex<Vec<u64>>,
        fails: Mutex<bool>,
        panics: Mutex<bool>,
        ended: Mutex<Vec<bool>>,
    }

    impl Kept for Number {
        type State = u64;
        type Content = u64;

        fn begin(&self, state: &mut u64) -> u64 {
            *state
        }

        fn write(&self, content: &u64) -> Result<(), EnvError> {
            self.gate.pass();
            assert!(!std::mem::take(&mut *self.panics.lock()), "on purpose");
            if *self.fails.lock() {
                return Err(EnvError::NoSpace { operation: "write", path: "number".into() });
            }
            self.written.lock().push(*content);
            Ok(())
        }

        fn end(&self, _state: &mut u64, _content: &u64, is_written: bool) {
            self.ended.lock().push(is_written);
        }
    }

    fn add(group: &Arc<GroupCommit<Number>>, wait: Wait) -> Option<Written> {
        let added = group.change(|state, _| {
            *state += 1;
            Ok::<_, NoRoomToWait>(((), wait))
        });
        added.unwrap().1
    }

    fn number() -> Arc<GroupCommit<Number>> {
        GroupCommit::new(Number::default(), 0, Some(Handle::current()))
    }

    #[tokio::test]
    async fn all_who_come_during_a_write_share_the_next() {
        let group = number();
        let gate = group.kept().gate.clone();
        gate.close();
        let first = add(&group, Wait::Next).unwrap();
        until("the first write is under way", || gate.arrived() == 1).await;
        let others: Vec<_> = (0..600).map(|_| add(&group, Wait::Next).unwrap()).collect();
        let with_the_first = add(&group, Wait::Current).unwrap();
        assert!(add(&group, Wait::No).is_none());
        assert!(group.kept().written.lock().is_empty());
        gate.open();
        first.done().await.unwrap();
        with_the_first.done().await.unwrap();
        for other in others {
            other.done().await.unwrap();
        }
        assert_eq!(*group.kept().written.lock(), [1, 603], "one write, and one for all others");
    }

    #[tokio::test]
    async fn a_failed_write_fails_all_who_wait_and_the_next_one_begins_anew() {
        let group = number();
        let gate = group.kept().gate.clone();
        gate.close();
        *group.kept().fails.lock() = true;
        let first = add(&group, Wait::Next).unwrap();
        until("the first write is under way", || gate.arrived() == 1).await;
        let second = add(&group, Wait::Next).unwrap();
        gate.open();
        assert!(first.done().await.is_err());
        assert!(second.done().await.is_err(), "it may build upon what was not written");
        *group.kept().fails.lock() = false;
        add(&group, Wait::Next).unwrap().done().await.unwrap();
        assert_eq!(*group.kept().written.lock(), [3]);
    }

    #[tokio::test]
    async fn a_writer_that_panics_counts_as_a_failed_write() {
        let group = number();
        let gate = group.kept().gate.clone();
        gate.close();
        *group.kept().panics.lock() = true;
        let first = add(&group, Wait::Next).unwrap();
        until("the first write is under way", || gate.arrived() == 1).await;
        let second = add(&group, Wait::Next).unwrap();
        gate.open();
        for written in [first, second] {
            let error = written.done().await.unwrap_err();
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        add(&group, Wait::Next).unwrap().done().await.unwrap();
        assert_eq!(*group.kept().written.lock(), [3]);
        assert_eq!(*group.kept().ended.lock(), [false, true]);
    }

    #[tokio::test]
    async fn more_than_may_wait_are_told_so() {
        let group = number();
        let gate = group.kept().gate.clone();
        gate.close();
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| add(&group, Wait::Next).unwrap()).collect();
        let refused = group.change(|_, room| room.map(|()| ((), Wait::Next))).unwrap_err();
        assert_eq!(refused.limit, MAX_WAITING);
        gate.open();
        for written in waiting {
            written.done().await.unwrap();
        }
        assert!(add(&group, Wait::Next).is_some());
    }

    #[test]
    fn without_a_runtime_a_change_is_on_disk_on_return() {
        let group = GroupCommit::new(Number::default(), 0, None);
        add(&group, Wait::Next).unwrap().now().unwrap();
        add(&group, Wait::Next).unwrap().now().unwrap();
        assert_eq!(*group.kept().written.lock(), [1, 2]);
    }
}
