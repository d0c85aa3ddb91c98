//! The window of submitted messages: bounds those without an outcome, and knows when those before a flush have theirs.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::config::ProducerConfig;
use crate::error::ClientError;

/// The window counts bytes in units of this size, so that its largest size fits a semaphore.
const UNIT_BYTES: usize = 1024;

/// Bounds the messages that are submitted and not acknowledged.
#[derive(Debug)]
pub(crate) struct Window {
    messages: Semaphore,
    units: Semaphore,
    all_messages: u32,
    all_units: u32,
    rounds: Mutex<Rounds>,
    round_ended: Notify,
}

/// Messages are counted by the flush that they came before: every flush ends a round.
#[derive(Debug)]
struct Rounds {
    /// Number of the oldest round with messages that have no outcome, or of the current one.
    first: u64,
    /// Messages without an outcome, by round; the last is the current round.
    open: VecDeque<usize>,
    closed: bool,
}

/// A message's place in the window. It is given back with [`Window::leave`].
#[derive(Debug, Clone, Copy)]
#[must_use = "a place that is not given back shrinks the window"]
pub(crate) struct Place {
    round: u64,
    units: u32,
}

/// What is in a window, and what fits.
pub(crate) struct WindowUse {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    pub(crate) most_messages: usize,
    pub(crate) most_bytes: usize,
}

impl Window {
    pub(crate) fn new(config: &ProducerConfig) -> Self {
        let bounded = |count: usize| count.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize)) as u32;
        let (all_messages, all_units) =
            (bounded(config.window_messages), bounded(config.window_bytes / UNIT_BYTES));
        Self {
            messages: Semaphore::new(all_messages as usize),
            units: Semaphore::new(all_units as usize),
            all_messages,
            all_units,
            rounds: Mutex::new(Rounds { first: 0, open: VecDeque::from([0]), closed: false }),
            round_ended: Notify::new(),
        }
    }

    /// Number of submitted messages without an outcome.
    pub(crate) fn in_flight(&self) -> usize {
        let in_flight = self.rounds.lock().open.iter().sum();
        assert!(
            in_flight <= self.all_messages as usize,
            "each message in flight has a place of the window: {in_flight}"
        );
        in_flight
    }

    /// How full the window is.
    pub(crate) fn use_now(&self) -> WindowUse {
        let units = self.all_units as usize - self.units.available_permits().min(self.all_units as usize);
        WindowUse {
            messages: self.in_flight(),
            bytes: units * UNIT_BYTES,
            most_messages: self.all_messages as usize,
            most_bytes: self.all_units as usize * UNIT_BYTES,
        }
    }

    /// Waits for a place. Calls `is_full` before it waits, and keeps the result meanwhile. A body larger than the window takes the
    /// whole window.
    ///
    /// # Errors
    /// [`ClientError::WindowFull`], [`ClientError::Closed`].
    pub(crate) async fn enter<G>(
        &self,
        body_bytes: usize,
        wait: Duration,
        is_full: impl FnOnce() -> G,
    ) -> Result<Place, ClientError> {
        if let Some(place) = self.enter_at_once(body_bytes) {
            return place;
        }
        let _meanwhile = is_full();
        let units = self.units_of(body_bytes);
        let both = async { (self.messages.acquire().await, self.units.acquire_many(units).await) };
        let full =
            |_| ClientError::WindowFull { in_flight: self.in_flight(), timeout_ms: wait.as_millis() as u64 };
        match tokio::time::timeout(wait, both).await.map_err(full)? {
            (Ok(message), Ok(bytes)) => self.take(message, bytes),
            _ => unreachable!("the semaphores are never closed"),
        }
    }

    /// As [`enter`](Self::enter), if there is room now.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub(crate) fn enter_at_once(&self, body_bytes: usize) -> Option<Result<Place, ClientError>> {
        let message = self.messages.try_acquire().ok()?;
        let bytes = self.units.try_acquire_many(self.units_of(body_bytes)).ok()?;
        Some(self.take(message, bytes))
    }

    fn units_of(&self, body_bytes: usize) -> u32 {
        u32::try_from(body_bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.all_units)
    }

    fn take(&self, message: SemaphorePermit<'_>, bytes: SemaphorePermit<'_>) -> Result<Place, ClientError> {
        let round = {
            let mut rounds = self.rounds.lock();
            if rounds.closed {
                return Err(ClientError::Closed { what: "producer" });
            }
            *rounds.open.back_mut().expect("there is a current round") += 1;
            rounds.current()
        };
        let units = bytes.num_permits() as u32;
        assert!(
            (1..=self.all_units).contains(&units),
            "a message takes some of the window's bytes, at most all"
        );
        message.forget();
        bytes.forget();
        Ok(Place { round, units })
    }

    /// Gives places back: their messages have an outcome.
    pub(crate) fn leave(&self, places: impl Iterator<Item = Place>) {
        let (mut messages, mut units, mut ended) = (0, 0, false);
        {
            let mut rounds = self.rounds.lock();
            let first = rounds.first;
            for place in places {
                let open = place.round.checked_sub(first).and_then(|at| rounds.open.get_mut(at as usize));
                assert!(
                    open.as_ref().is_some_and(|open| **open > 0),
                    "each place of an open round is given back once"
                );
                open.into_iter().for_each(|open| *open -= 1);
                messages += 1;
                units += place.units as usize;
            }
            while rounds.open.len() > 1 && rounds.open[0] == 0 {
                rounds.open.pop_front();
                rounds.first += 1;
                ended = true;
            }
        }
        self.messages.add_permits(messages);
        self.units.add_permits(units);
        assert!(
            self.messages.available_permits() <= self.all_messages as usize,
            "a window has no more free places than places"
        );
        assert!(
            self.units.available_permits() <= self.all_units as usize,
            "a window has no more free bytes than bytes"
        );
        if ended {
            self.round_ended.notify_waiters();
        }
    }

    /// Lets no more messages in.
    pub(crate) fn close(&self) {
        self.rounds.lock().closed = true;
    }

    /// Begins a round of messages, and returns its number for [`ended_before`](Self::ended_before).
    pub(crate) fn begin_round(&self) -> u64 {
        let mut rounds = self.rounds.lock();
        if rounds.open.back() != Some(&0) {
            rounds.open.push_back(0);
        }
        rounds.current()
    }

    /// Waits until every message of the rounds before `round` has its outcome. Holds nobody up.
    ///
    /// # Errors
    /// [`ClientError::FlushTimeout`].
    pub(crate) async fn ended_before(&self, round: u64, timeout: Duration) -> Result<(), ClientError> {
        let current = self.rounds.lock().current();
        assert!(round <= current, "a flush waits for rounds that have begun: {round} of {current}");
        let ended = async {
            loop {
                let next = self.round_ended.notified();
                if self.rounds.lock().first >= round {
                    return;
                }
                next.await;
            }
        };
        let left = |_| {
            let rounds = self.rounds.lock();
            let before = rounds.open.iter().take(round.saturating_sub(rounds.first) as usize);
            ClientError::FlushTimeout { in_flight: before.sum(), timeout_ms: timeout.as_millis() as u64 }
        };
        tokio::time::timeout(timeout, ended).await.map_err(left)
    }
}

impl Rounds {
    fn current(&self) -> u64 {
        assert!(!self.open.is_empty(), "there is always a current round");
        self.first + self.open.len() as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn window(messages: usize) -> Window {
        Window::new(&ProducerConfig { window_messages: messages, ..ProducerConfig::default() })
    }

    #[tokio::test]
    async fn a_flush_waits_for_the_messages_before_it_and_for_no_other() {
        let window = window(10);
        let before = window.enter(1, LONG, || ()).await.unwrap();
        let flush = window.begin_round();
        let after = window.enter(1, LONG, || ()).await.unwrap();
        assert_eq!(
            window.ended_before(flush, Duration::ZERO).await,
            Err(ClientError::FlushTimeout { in_flight: 1, timeout_ms: 0 }),
            "one came before"
        );
        window.leave([before].into_iter());
        window.ended_before(flush, LONG).await.unwrap();
        assert_eq!(window.in_flight(), 1, "the other has none yet");
        let last = window.begin_round();
        window.leave([after].into_iter());
        window.ended_before(last, LONG).await.unwrap();
        assert_eq!(
            (window.begin_round(), window.rounds.lock().open.len()),
            (last, 1),
            "an empty round goes on"
        );
    }

    #[tokio::test]
    async fn a_full_window_takes_the_next_when_one_leaves_and_none_once_closed() {
        let window = window(1);
        let place = window.enter(1, LONG, || ()).await.unwrap();
        let full = window.enter(1, Duration::ZERO, || ()).await.unwrap_err();
        assert_eq!(full, ClientError::WindowFull { in_flight: 1, timeout_ms: 0 });
        let (next, ()) =
            tokio::join!(window.enter(1, LONG, || ()), async { window.leave([place].into_iter()) });
        window.leave([next.unwrap()].into_iter());
        window.close();
        assert_eq!(window.enter(1, LONG, || ()).await.unwrap_err(), ClientError::Closed { what: "producer" });
        assert_eq!(window.messages.available_permits(), 1, "who is refused takes no place");
    }
    #[tokio::test]
    #[should_panic(expected = "each place of an open round is given back once")]
    async fn a_place_that_is_given_back_twice_is_found() {
        let window = window(2);
        let place = window.enter(1, LONG, || ()).await.unwrap();
        window.leave([place, place].into_iter());
    }
}
