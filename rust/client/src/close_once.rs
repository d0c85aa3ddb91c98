//! Work that ends something once, whoever asks for it and whoever loses patience.

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The end of a producer, a consumer or a client.
#[derive(Debug)]
pub(crate) struct CloseOnce<T> {
    outcome: Mutex<Option<watch::Receiver<Option<T>>>>,
}

impl<T> Default for CloseOnce<T> {
    fn default() -> Self {
        Self { outcome: Mutex::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> CloseOnce<T> {
    /// Begins the work, unless it has begun, and waits for its outcome. `None` if it panicked, or the runtime ended first.
    ///
    /// # Cancel safety
    /// The work goes on if the future is dropped. A later call waits for it.
    pub(crate) async fn run<W>(&self, runtime: &Handle, work: impl FnOnce() -> W) -> Option<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        let begin = || {
            let (tell, outcome) = watch::channel(None);
            let work = work();
            runtime.spawn(async move { tell.send_replace(Some(work.await)) });
            outcome
        };
        let mut outcome = self.outcome.lock().get_or_insert_with(begin).clone();
        outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn the_work_goes_on_when_its_first_caller_is_gone_and_is_done_once() {
        let (ending, go) = (CloseOnce::default(), Arc::new(Notify::new()));
        let work = |number: u32| {
            let go = go.clone();
            move || async move {
                go.notified().await;
                number
            }
        };
        let runtime = Handle::current();
        tokio::select! {
            biased;
            _ = ending.run(&runtime, work(1)) => unreachable!("it waits"),
            () = tokio::task::yield_now() => {}
        }
        go.notify_one();
        let (second, third) = tokio::join!(ending.run(&runtime, work(2)), ending.run(&runtime, work(3)));
        assert_eq!((second, third), (Some(1), Some(1)));
    }

    #[tokio::test]
    async fn work_that_panics_holds_nobody_up() {
        let ending = CloseOnce::<u32>::default();
        assert_eq!(ending.run(&Handle::current(), || async { panic!("as the test wants") }).await, None);
    }
}
