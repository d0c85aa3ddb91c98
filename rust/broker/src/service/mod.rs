//! Background work, and its one life cycle: started, stepped, stopped and started again while the broker runs.

pub(crate) mod background;

use std::any::Any;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::Disk;
use rocketpy_store::Store;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::task::JoinHandle;
use tracing::{debug, error, warn};

use crate::ground::Ground;

/// Pause after a round that panicked. Each further one in a row doubles it, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause after a round that panicked, and pause between two reminders of a service that does no more rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A wait or a round of a service.
pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Background work in rounds while the broker runs.
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
    ///
    /// # Panics
    /// A round that panics is logged. The next one comes after a pause, unless [`Self::goes_on_after_panic`] says otherwise.
    fn round(&self) -> Work<'_>;

    /// Whether a round that panicked leaves a state from which the next one can continue. The locks are free then, and what they guard
    /// is as the panic left it.
    fn goes_on_after_panic(&self) -> bool {
        true
    }
}

/// The services that run.
#[derive(Default)]
pub(crate) struct Services {
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    service: Arc<dyn Service>,
    /// Held during a round: there is one at a time, whoever asks for it.
    turn: Arc<AsyncMutex<Turn>>,
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

    /// Does one round of a service now, between the rounds that come by themselves; false when no such service runs, it is
    /// stopped first, or the round panics.
    pub(crate) async fn step(&self, name: &str) -> bool {
        let found = self
            .running
            .lock()
            .get(name)
            .map(|found| (found.service.clone(), found.turn.clone(), found.stop.subscribe()));
        let Some((service, turn, stopped)) = found else { return false };
        let mut turn = turn.lock().await;
        !*stopped.borrow() && turn.round(&*service).await
    }

    /// Stops all services, side by side. On return their tasks have ended.
    ///
    /// A round under way may end within the time given; then it is dropped. One that [`Self::step`] began continues after that time.
    pub(crate) async fn stop_all(&self, within: Duration) {
        let all = std::mem::take(&mut *self.running.lock());
        let deadline = tokio::time::Instant::now() + within;
        for running in all.values() {
            running.stop.send_replace(true);
        }
        for (service, mut running) in all {
            let ended = match tokio::time::timeout_at(deadline, &mut running.task).await {
                Ok(ended) => ended,
                Err(_) => {
                    warn!(service, "round of a service not finished in time, cancelled");
                    running.task.abort();
                    running.task.await
                }
            };
            match ended {
                // Not in a round.
                Err(failure) if failure.is_panic() => error!(service, %failure, "service panicked"),
                _ => debug!(service, "service stopped"),
            }
            if tokio::time::timeout_at(deadline, running.turn.lock()).await.is_err() {
                warn!(service, "requested round of a service not finished in time, still running");
            }
        }
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

/// The right to do a round.
#[derive(Debug, Default)]
struct Turn {
    /// A round panicked, and the service does not continue after that.
    is_broken: bool,
}

impl Turn {
    /// Does one round; false when it panics, or one before it did and was the last.
    async fn round(&mut self, service: &dyn Service) -> bool {
        if self.is_broken {
            return false;
        }
        let Err(panic) = caught(service.round()).await else { return true };
        error!(service = service.name(), panic = text_of(&*panic), "round of a service panicked");
        self.is_broken = !service.goes_on_after_panic();
        false
    }
}

/// Does the work. A panic in it becomes the error.
async fn caught(mut work: Work<'_>) -> Result<(), Box<dyn Any + Send>> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(done) => done.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

async fn run(service: Arc<dyn Service>, turn: Arc<AsyncMutex<Turn>>, mut stopped: watch::Receiver<bool>) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::select! {
            biased;
            // Also when the services are gone.
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return,
            () = service.due() => {}
        }
        let mut turn = turn.lock().await;
        if *stopped.borrow() {
            return;
        }
        if turn.round(&*service).await {
            pause = FIRST_PAUSE;
            continue;
        }
        let is_broken = turn.is_broken;
        drop(turn);
        if is_broken {
            return remind(&*service, stopped).await;
        }
        let is_over = stopped.wait_for(|is_stopped| *is_stopped);
        if tokio::time::timeout(pause, is_over).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Says until the stop that a service does no more rounds.
async fn remind(service: &dyn Service, mut stopped: watch::Receiver<bool>) {
    loop {
        error!(service = service.name(), "service stopped after a panic; restart the broker");
        let is_over = stopped.wait_for(|is_stopped| *is_stopped);
        if tokio::time::timeout(LONGEST_PAUSE, is_over).await.is_ok() {
            return;
        }
    }
}

/// Minimum time between two rounds that deliver messages. Messages that become due or arrive within it share a round, whose cost hardly
/// depends on their number.
pub(crate) const MESSAGES_PACE: Duration = Duration::from_millis(5);

/// Maximum wait for a time of the clock, which may be set meanwhile.
pub(crate) const MAX_CLOCK_WAIT: Duration = Duration::from_secs(1);

/// The time by which messages are due. A stored time may be a moment older than the clock: no copy says that it was stored before it was due.
pub(crate) fn due_now_ms(store: &Store<impl Disk>) -> i64 {
    due_at(store.now_ms())
}

/// The same for a time that was read before.
pub(crate) fn due_at(now_ms: i64) -> i64 {
    now_ms - 1
}

/// How long to wait for a time, at the most.
pub(crate) fn until_ms(due_at_ms: i64, now_ms: i64) -> Duration {
    let wait_ms = u64::try_from(due_at_ms.saturating_sub(now_ms)).unwrap_or(0);
    Duration::from_millis(wait_ms).min(MAX_CLOCK_WAIT)
}

/// Flushes the log at a stop, before the progress of a service is written. `copies` says what may come again otherwise. Blocks.
pub(crate) fn flush_at_stop(ground: &Ground<impl Disk>, copies: &str) {
    let (store, patience) = (ground.store(), ground.config().sync_flush_timeout);
    if let Err(error) = store.wait_flushed(store.max_physical_offset(), patience) {
        error!(copies, %error, "log not flushed at shutdown, copies may be delivered again");
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
        /// Number of rounds that panic first.
        panics: usize,
        breaks: bool,
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
                let before = self.begun.fetch_add(1, Ordering::SeqCst);
                assert!(before >= self.panics, "on purpose");
                if let Some(gate) = &self.gate {
                    gate.notified().await;
                }
                self.done.fetch_add(1, Ordering::SeqCst);
            })
        }

        fn goes_on_after_panic(&self) -> bool {
            !self.breaks
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
        services.stop_all(PATIENCE).await;
        bell.rung.notify_one();
        tokio::task::yield_now().await;
        assert_eq!(bell.counts(), (1, 1), "it is stopped");
        assert!(!services.step("bell").await);

        services.start(bell.clone());
        bell.reaches((2, 2)).await;
        services.stop_all(PATIENCE).await;
        assert!(!services.step("bell").await);
    }

    #[tokio::test]
    async fn a_service_goes_on_after_rounds_that_panic() {
        let (services, bell) = (Services::default(), Arc::new(Bell { panics: 2, ..Bell::default() }));
        services.start(bell.clone());
        assert!(!services.step("bell").await, "it panics");
        bell.rung.notify_one();
        bell.reaches((2, 0)).await;
        bell.rung.notify_one();
        bell.reaches((3, 1)).await;
        assert!(services.step("bell").await);
        services.stop_all(PATIENCE).await;
    }

    #[tokio::test]
    async fn a_service_that_cannot_go_on_after_a_panic_does_no_more_rounds_and_can_be_stopped() {
        let (services, bell) =
            (Services::default(), Arc::new(Bell { panics: 1, breaks: true, ..Bell::default() }));
        services.start(bell.clone());
        bell.rung.notify_one();
        bell.reaches((1, 0)).await;
        assert!(!services.step("bell").await);
        assert_eq!(bell.counts(), (1, 0));
        services.stop_all(PATIENCE).await;
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
        services.stop_all(Duration::from_millis(5)).await;
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
        let stop = tokio::spawn(async move { stopping.stop_all(PATIENCE).await });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(!stop.is_finished(), "the step is under way");
        bell.gate.as_ref().unwrap().notify_one();
        stop.await.unwrap();
        assert!(under_way.await.unwrap());
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
