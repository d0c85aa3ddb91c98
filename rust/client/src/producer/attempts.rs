//! The attempts of one send: how many there may be, how long each may take, and which broker has its turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::retry::Next;
use crate::config::ProducerConfig;
use crate::error::ClientError;
use crate::route::TopicRoute;
use crate::send_error::SendError;

/// Further attempts after refusals that a wait rarely ends, such as those of a full disk.
const REFUSED_RETRIES: u32 = 2;
/// No attempt is cut shorter than this for the sake of another broker.
const SHORTEST_SHARE: Duration = Duration::from_millis(100);

/// The attempts of one request so far.
pub(super) struct Attempts {
    started: Instant,
    timeout: Duration,
    made: u32,
    /// Attempts that were refused for a reason that may stay.
    refused: u32,
    /// Attempts whose broker was silent until their end.
    silent: u32,
    /// Pauses so far.
    pauses: u32,
    /// Brokers that failed since the last pause. All brokers have their turn before the next one.
    in_round: Vec<Arc<str>>,
    /// Brokers tried, each once.
    tried: Vec<Arc<str>>,
    last: Option<Arc<str>>,
    may_have_been_applied: bool,
}

impl Attempts {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            started: Instant::now(),
            timeout,
            made: 0,
            refused: 0,
            silent: 0,
            pauses: 0,
            in_round: Vec::new(),
            tried: Vec::new(),
            last: None,
            may_have_been_applied: false,
        }
    }

    pub(super) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    /// Time for an attempt at `broker`. An attempt that no other can follow, because its message may not be stored twice, has all that
    /// is left.
    pub(super) fn limit(
        &self,
        config: &ProducerConfig,
        route: &TopicRoute,
        broker: &Arc<str>,
        is_only_chance: bool,
    ) -> Duration {
        let left = self.left();
        if is_only_chance || config.retries.is_some_and(|retries| self.made >= retries) {
            return left;
        }
        let is_other = |name: &Arc<str>| name != broker && !self.tried.contains(name);
        let has_others = route.publish.iter().any(|queue| is_other(&queue.broker_name));
        let is_alone = route.publish.iter().all(|queue| queue.broker_name == *broker);
        let share = self.share(left, config.attempt_timeout, has_others, is_alone);
        assert!(share <= left, "an attempt ends with its send: {share:?} of {left:?}");
        share
    }

    /// The part of the time that is `left` for one attempt.
    ///
    /// Where another broker was not tried yet, half of it at most. Otherwise each attempt that ends in silence is followed by a longer
    /// one: a broker that is only stopped stores every copy once it continues. A lone broker has half of the time, or more.
    fn share(&self, left: Duration, attempt: Duration, has_others: bool, is_alone: bool) -> Duration {
        if has_others {
            let half = left / 2;
            return if half < SHORTEST_SHARE { left } else { attempt.min(half) };
        }
        let longer = attempt.saturating_mul(2_u32.saturating_pow(self.silent));
        let share = if is_alone { longer.max(left / 2) } else { longer };
        if left.saturating_sub(share) <= attempt { left } else { share }
    }

    /// Whether a broker is to have no turn now.
    pub(super) fn is_spent(&self, broker: &Arc<str>) -> bool {
        self.in_round.contains(broker) || self.last.as_ref() == Some(broker)
    }

    /// Notes a failed attempt. `may_recover`: a wait may help.
    pub(super) fn failed(&mut self, broker: &Arc<str>, error: &ClientError, may_recover: bool) {
        self.made += 1;
        self.refused += u32::from(!may_recover);
        let is_silent = matches!(error, ClientError::Timeout { .. } | ClientError::Congested { .. });
        self.silent += u32::from(is_silent);
        self.last = Some(broker.clone());
        for list in [&mut self.tried, &mut self.in_round] {
            if !list.contains(broker) {
                list.push(broker.clone());
            }
        }
        self.may_have_been_applied |= error.may_have_been_applied();
        assert!(self.tried.len() <= self.made as usize, "each broker tried has had an attempt");
        assert!(self.refused <= self.made && self.silent <= self.made, "an attempt fails once");
    }

    /// Whether another attempt may follow, apart from the error of the last one.
    pub(super) fn may_continue(&self, retries: Option<u32>) -> bool {
        let is_within = match retries {
            Some(retries) => self.made <= retries,
            None => self.refused <= REFUSED_RETRIES,
        };
        is_within && !self.left().is_zero()
    }

    /// The pause before the next attempt; `None` while another broker has not had its turn.
    pub(super) fn pause(
        &mut self,
        config: &ProducerConfig,
        route: &TopicRoute,
        next: Next,
    ) -> Option<Duration> {
        let has_turn = |name: &Arc<str>| !self.in_round.contains(name);
        if next == Next::Elsewhere && route.publish.iter().any(|queue| has_turn(&queue.broker_name)) {
            return None;
        }
        assert!(!self.in_round.is_empty(), "a pause follows a failed attempt");
        self.in_round.clear();
        self.pauses = self.pauses.saturating_add(1);
        Some(config.backoff.pause(self.pauses).min(self.left()))
    }

    /// Error of the send: of its only attempt, or of the last one with the brokers tried before.
    pub(super) fn give_up(&self, topic: &str, last: ClientError, of_attempt: bool) -> SendError {
        let broker = self.last.clone();
        if self.made <= u32::from(of_attempt) {
            return SendError { broker, ..last.into() };
        }
        let failed = ClientError::SendFailed {
            topic: topic.to_owned(),
            attempts: self.made,
            elapsed_ms: self.started.elapsed().as_millis() as u64,
            brokers: self.tried.join(","),
            may_have_been_applied: self.may_have_been_applied,
            last: Arc::new(last),
        };
        SendError { broker, ..failed.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Shares of attempts that all end in silence, in milliseconds.
    fn shares(total_s: u32, brokers: u32) -> Vec<u128> {
        let (mut attempts, mut left, mut shares) = (Attempts::new(SECOND), total_s * SECOND, Vec::new());
        while !left.is_zero() {
            let has_others = attempts.silent + 1 < brokers;
            let share = attempts.share(left, 3 * SECOND, has_others, brokers == 1);
            assert!(!share.is_zero() && share <= left);
            left -= share;
            attempts.silent += 1;
            shares.push(share.as_millis());
        }
        shares
    }

    #[test]
    fn silent_broker_leaves_time_for_the_others_and_gets_few_copies() {
        assert_eq!(shares(60, 2), [3000, 6000, 12_000, 24_000, 15_000]);
        assert_eq!(shares(60, 3), [3000, 3000, 12_000, 24_000, 18_000]);
        assert_eq!(shares(60, 1), [30_000, 15_000, 15_000], "a lone broker may only be stopped");
        assert_eq!(shares(3, 2), [1500, 1500], "half of a short timeout");
        assert_eq!(shares(3, 1), [3000], "a timeout of one attempt is not cut");
        let tiny = Attempts::new(SECOND).share(SECOND / 10, 3 * SECOND, true, false);
        assert_eq!(tiny, SECOND / 10);
    }
}
