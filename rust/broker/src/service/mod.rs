//! Background work, and its one life cycle: started, stepped, stopped and started again while the broker runs.

mod background;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use background::{ClientExpiry, HeldRequestWatch, HeldSendWatch, OffsetPersistence, Sampling};
use parking_lot::Mutex;
use rocketpy_env::Disk;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::task::JoinHandle;
use tracing::{debug, error, warn};

use crate::shared::Shared;

/// A wait or a round of a service.
pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Work that goes on in rounds as long as the broker runs.
#[doc(alias = "ServiceThread")]
pub(crate) trait Service: Send + Sync + 'static {
    /// Unique among the services of a broker.
    fn name(&self) -> &str;

    /// Waits until the next round is due.
    ///
    /// # Cancel safety
    /// The wait may be dropped at any moment, and begun again.
    fn due(&self) -> Work<'_>;

    /// Does one round. A round that fails says so itself and leaves the next one to try again.
    ///
    /// # Cancel safety
    /// A round that does not end while its service is stopped is dropped.
    fn round(&self) -> Work<'_>;
}

/// The services that run.
#[derive(Default)]
pub(crate) struct Services {
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    service: Arc<dyn Service>,
    /// Held during a round: there is one at a time, whoever asks for it.
    turn: Arc<AsyncMutex<()>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Services {
    /// Starts a service; must be called on a runtime.
    ///
    /// # Panics
    /// A service of that name runs already.
    pub(crate) fn start(&self, service: Arc<dyn Service>) {
        let name = service.name().to_owned();
        let mut running = self.running.lock();
        assert!(!running.contains_key(&name), "service started twice: {name}");
        debug!(service = name, "service started");
        let (stop, stopped) = watch::channel(false);
        let turn = Arc::default();
        let task = tokio::spawn(run(service.clone(), Arc::clone(&turn), stopped));
        running.insert(name, Running { service, turn, stop, task });
    }

    /// Does one round of a service now, between the rounds that come by themselves; false when no such service runs, or it is
    /// stopped first.
    pub(crate) async fn step(&self, name: &str) -> bool {
        let found = self
            .running
            .lock()
            .get(name)
            .map(|found| (found.service.clone(), found.turn.clone(), found.stop.subscribe()));
        let Some((service, turn, stopped)) = found else { return false };
        let _turn = turn.lock().await;
        if *stopped.borrow() {
            return false;
        }
        service.round().await;
        true
    }

    /// Stops one service; false when no such service runs. On return its task has ended.
    ///
    /// A round under way may end within the time given; then it is dropped. One that [`Self::step`] began goes on after that time.
    #[cfg_attr(not(test), expect(dead_code, reason = "promotion and demotion will stop single services"))]
    pub(crate) async fn stop(&self, name: &str, within: Duration) -> bool {
        let found = self.running.lock().remove(name);
        let Some(running) = found else { return false };
        end(BTreeMap::from([(name.to_owned(), running)]), within).await;
        true
    }

    /// Stops all services, side by side; as [`Self::stop`].
    pub(crate) async fn stop_all(&self, within: Duration) {
        let all = std::mem::take(&mut *self.running.lock());
        end(all, within).await;
    }

    /// Ends all services without waiting for them.
    pub(crate) fn abort(&self) {
        for running in self.running.lock().values() {
            running.stop.send_replace(true);
            running.task.abort();
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.abort();
    }
}

async fn run(service: Arc<dyn Service>, turn: Arc<AsyncMutex<()>>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            biased;
            // Also when the services are gone.
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return,
            () = service.due() => {}
        }
        let _turn = turn.lock().await;
        if *stopped.borrow() {
            return;
        }
        service.round().await;
    }
}

async fn end(all: BTreeMap<String, Running>, within: Duration) {
    let deadline = tokio::time::Instant::now() + within;
    for running in all.values() {
        running.stop.send_replace(true);
    }
    for (service, mut running) in all {
        let ended = match tokio::time::timeout_at(deadline, &mut running.task).await {
            Ok(ended) => ended,
            Err(_) => {
                warn!(service, "a round was not done in time, and is dropped");
                running.task.abort();
                running.task.await
            }
        };
        match ended {
            Err(failure) if failure.is_panic() => error!(service, %failure, "service panicked"),
            _ => debug!(service, "service stopped"),
        }
        if tokio::time::timeout_at(deadline, running.turn.lock()).await.is_err() {
            warn!(service, "a round that was asked for is not done in time, and goes on");
        }
    }
}

/// Shortest time between two rounds that deliver messages: what is due or arrives within it shares a round, which costs about as much for
/// one message as for many.
pub(crate) const MESSAGES_PACE: Duration = Duration::from_millis(5);

/// Longest wait for a time of the clock, which may be set meanwhile.
pub(crate) const MAX_CLOCK_WAIT: Duration = Duration::from_secs(1);

/// How long to wait for a time, at the most.
pub(crate) fn until_ms(due_at_ms: i64, now_ms: i64) -> Duration {
    let wait_ms = u64::try_from(due_at_ms.saturating_sub(now_ms)).unwrap_or(0);
    Duration::from_millis(wait_ms).min(MAX_CLOCK_WAIT)
}

/// Flushes the log at a stop, before the progress of a service is written. `copies` says what may come again otherwise. Blocks.
pub(crate) fn flush_at_stop(shared: &Shared<impl Disk>, copies: &str) {
    let (store, patience) = (&shared.store, shared.config().sync_flush_timeout);
    if let Err(error) = store.wait_flushed(store.max_physical_offset(), patience) {
        error!(copies, %error, "not durable at the stop, may come again");
    }
}

/// When the next round of a service is due that comes at intervals.
#[derive(Debug)]
pub(crate) struct Pace {
    period: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    /// The first round is due in `first`.
    pub(crate) fn new(first: Duration, period: Duration) -> Self {
        Self { period, next: Mutex::new(Instant::now() + first) }
    }

    /// Waits for `rest`, `None` for ever, or until somebody rings; then until a round is due.
    pub(crate) async fn due_after(&self, rung: &Notify, rest: Option<Duration>) {
        match rest {
            Some(Duration::ZERO) => {}
            Some(rest) => drop(tokio::time::timeout(rest, rung.notified()).await),
            None => rung.notified().await,
        }
        self.due().await;
    }

    /// Waits until a round is due. Rounds that were missed are not made up for.
    pub(crate) async fn due(&self) {
        let next = *self.next.lock();
        tokio::time::sleep_until(next.into()).await;
        *self.next.lock() = (next + self.period).max(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Does a round when it is rung, and then waits for its gate where it has one.
    #[derive(Default)]
    struct Bell {
        rung: Notify,
        gate: Option<Notify>,
        begun: AtomicUsize,
        done: AtomicUsize,
    }

    impl Service for Bell {
        fn name(&self) -> &str {
            "bell"
        }

        fn due(&self) -> Work<'_> {
            Box::pin(self.rung.notified())
        }

        fn round(&self) -> Work<'_> {
            Box::pin(async {
                self.begun.fetch_add(1, Ordering::SeqCst);
                if let Some(gate) = &self.gate {
                    gate.notified().await;
                }
                self.done.fetch_add(1, Ordering::SeqCst);
            })
        }
    }

    impl Bell {
        fn counts(&self) -> (usize, usize) {
            (self.begun.load(Ordering::SeqCst), self.done.load(Ordering::SeqCst))
        }

        async fn reaches(&self, counts: (usize, usize)) {
            let wait = async {
                while self.counts() != counts {
                    tokio::task::yield_now().await;
                }
            };
            assert!(
                tokio::time::timeout(PATIENCE, wait).await.is_ok(),
                "{:?}, not {counts:?}",
                self.counts()
            );
        }
    }

    #[tokio::test]
    async fn a_service_does_its_rounds_until_it_is_stopped_and_again_after_a_start() {
        let (services, bell) = (Services::default(), Arc::new(Bell::default()));
        services.start(bell.clone());
        bell.rung.notify_one();
        bell.reaches((1, 1)).await;
        assert!(services.stop("bell", PATIENCE).await);
        bell.rung.notify_one();
        tokio::task::yield_now().await;
        assert_eq!(bell.counts(), (1, 1), "it is stopped");
        assert!(!services.stop("bell", PATIENCE).await && !services.step("bell").await);

        services.start(bell.clone());
        bell.reaches((2, 2)).await;
        services.stop_all(PATIENCE).await;
        assert!(!services.step("bell").await);
    }

    #[tokio::test]
    async fn a_step_is_a_round_of_its_own_and_never_beside_another() {
        let bell = Arc::new(Bell { gate: Some(Notify::new()), ..Bell::default() });
        let services = Arc::new(Services::default());
        services.start(bell.clone());
        bell.rung.notify_one();
        bell.reaches((1, 0)).await;
        let stepper = services.clone();
        let step = tokio::spawn(async move { stepper.step("bell").await });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bell.counts(), (1, 0), "the step waits for the round under way");
        let gate = bell.gate.as_ref().unwrap();
        gate.notify_one();
        bell.reaches((2, 1)).await;
        gate.notify_one();
        assert!(step.await.unwrap());
        assert_eq!(bell.counts(), (2, 2));
    }

    #[tokio::test]
    async fn a_stop_lets_a_round_end_and_drops_one_that_does_not() {
        let bell = Arc::new(Bell { gate: Some(Notify::new()), ..Bell::default() });
        let services = Services::default();
        services.start(bell.clone());
        bell.rung.notify_one();
        bell.reaches((1, 0)).await;
        bell.gate.as_ref().unwrap().notify_one();
        services.stop_all(PATIENCE).await;
        assert_eq!(bell.counts(), (1, 1), "the round ended in its time");

        services.start(bell.clone());
        bell.rung.notify_one();
        bell.reaches((2, 1)).await;
        assert!(services.stop("bell", Duration::from_millis(5)).await);
        assert_eq!(bell.counts(), (2, 1), "the round was dropped");
        assert_eq!(Arc::strong_count(&bell), 1, "and nothing holds the service any more");
    }

    #[tokio::test]
    async fn a_stop_waits_for_a_step_and_no_round_follows_it() {
        let bell = Arc::new(Bell { gate: Some(Notify::new()), ..Bell::default() });
        let services = Arc::new(Services::default());
        services.start(bell.clone());
        let step = || {
            let services = services.clone();
            tokio::spawn(async move { services.step("bell").await })
        };
        let under_way = step();
        bell.reaches((1, 0)).await;
        bell.rung.notify_one();
        let late = step();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let stopping = services.clone();
        let stop = tokio::spawn(async move { stopping.stop("bell", PATIENCE).await });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(!stop.is_finished(), "the step is under way");
        bell.gate.as_ref().unwrap().notify_one();
        assert!(stop.await.unwrap() && under_way.await.unwrap());
        assert!(!late.await.unwrap(), "it came too late");
        assert_eq!(bell.counts(), (1, 1));
    }

    #[tokio::test]
    async fn a_missed_round_is_not_made_up_for() {
        let pace = Pace::new(Duration::ZERO, Duration::from_secs(10));
        let begun = Instant::now();
        let Some(long_ago) = begun.checked_sub(Duration::from_secs(3600)) else { return };
        for (due, next) in [(begun, begun + Duration::from_secs(10)), (long_ago, begun)] {
            *pace.next.lock() = due;
            pace.due().await;
            assert!(*pace.next.lock() >= next, "due {:?} ago", begun - due);
        }
    }
}
