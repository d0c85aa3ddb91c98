//! Short work that a request or an event of the store leaves behind.

use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tracing::{error, warn};

/// Work that ends by itself soon. A stopping broker waits for it, for a limited time.
///
/// Work that continues as long as the broker runs is a [`crate::service::Service`].
#[derive(Debug)]
pub(crate) struct Tasks {
    runtime: Handle,
    running: Mutex<JoinSet<()>>,
}

impl Tasks {
    /// The work runs on this runtime.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, running: Mutex::default() }
    }

    /// Starts some work; may be called on any thread.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while let Some(ended) = running.try_join_next() {
            check(ended);
        }
        running.spawn_on(work, &self.runtime);
    }

    /// Does the work here and now as far as it need not wait, and the rest of it as [`Self::spawn`] does. Called on the runtime.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(work);
        // Whatever it waits for hears of its real waker when it is spawned.
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.spawn(work);
        }
    }

    /// Waits until everything has ended, or the time is up. What is left then ends at its next wait; work that blocks its thread
    /// runs to its end.
    pub(crate) async fn join(&self, within: Duration) {
        let mut running = std::mem::take(&mut *self.running.lock());
        let all = async {
            while let Some(ended) = running.join_next().await {
                check(ended);
            }
        };
        if tokio::time::timeout(within, all).await.is_err() {
            warn!(tasks = running.len(), "unfinished requests cancelled at shutdown");
            running.abort_all();
            running.detach_all();
        }
    }
}

fn check(ended: Result<(), JoinError>) {
    if let Err(failure) = ended
        && failure.is_panic()
    {
        error!(%failure, "work of a request panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::until;

    #[tokio::test]
    async fn all_work_has_ended_after_a_join() {
        let (tasks, done) = (Tasks::new(Handle::current()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..10 {
            let done = done.clone();
            tasks.spawn(async move {
                tokio::task::yield_now().await;
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        tasks.join(Duration::from_secs(60)).await;
        assert_eq!(done.load(Ordering::Relaxed), 10);
    }

    #[tokio::test]
    async fn work_that_does_not_end_in_time_is_ended() {
        struct Ended(Arc<AtomicUsize>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (tasks, ended) = (Tasks::new(Handle::current()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let guard = Ended(ended.clone());
            tasks.spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
        }
        tasks.join(Duration::from_millis(5)).await;
        until("all have ended", || ended.load(Ordering::Relaxed) == 3).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn work_that_blocks_its_thread_does_not_hold_up_a_join() {
        let tasks = Tasks::new(Handle::current());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        tasks.spawn(async move { assert!(crate::blocking::blocking(|| ended.recv().is_err())) });
        let join = tasks.join(Duration::from_millis(5));
        tokio::time::timeout(Duration::from_secs(10), join).await.expect("the join is bounded");
        drop(end);
    }

    #[tokio::test]
    async fn ended_work_is_not_kept_and_a_panic_harms_nobody() {
        let tasks = Tasks::new(Handle::current());
        tasks.spawn(async { panic!("on purpose") });
        tokio::task::yield_now().await;
        for _ in 0..100 {
            tasks.spawn(async {});
            tokio::task::yield_now().await;
        }
        assert!(tasks.running.lock().len() < 10);
        tasks.join(Duration::from_secs(60)).await;
    }
}
