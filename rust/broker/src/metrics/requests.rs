//! Times of requests, and requests that were rejected.
//!
//! Each thread adds to one of some shards: their locks are free but while the metrics are read.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rocketpy_protocol::code::{request, response};
use rocketpy_remoting::{AnswerObserver, Answered, Outcome};

use super::histogram::Buckets;
use super::{Kind, Metric};

/// More than there are threads that answer most requests.
const SHARDS: usize = 16;
/// Number shared by all codes that the protocol does not have: clients may send any.
const UNKNOWN: i32 = -1;

/// What the labels of a request say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestKind {
    request: i32,
    response: i32,
    pub(crate) was_held: bool,
    outcome: Outcome,
}

impl RequestKind {
    /// One number for all codes that the protocol does not have.
    fn known(self) -> Self {
        let known = |code: i32, name: Option<&str>| if name.is_some() { code } else { UNKNOWN };
        Self {
            request: known(self.request, request::name_of(self.request)),
            response: known(self.response, response::name_of(self.response)),
            ..self
        }
    }

    /// Name of the request, in lower case.
    pub(crate) fn request(&self) -> String {
        request::name_of(self.request).unwrap_or("unknown").to_lowercase()
    }

    /// Name of the answer, in lower case.
    pub(crate) fn response(&self) -> String {
        response::name_of(self.response).unwrap_or("unknown").to_lowercase()
    }

    /// Label `result`.
    pub(crate) fn result(&self) -> &'static str {
        match self.outcome {
            Outcome::Sent => "success",
            Outcome::OneWay => "oneway",
            Outcome::Failed => "process_request_failed",
            Outcome::Closed => "write_channel_failed",
        }
    }
}

type Hasher = BuildHasherDefault<DefaultHasher>;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The most frequent ones come to the front: a search is short.
    times: Vec<(RequestKind, Buckets)>,
    rejected: HashMap<&'static str, u64, Hasher>,
}

impl Counts {
    fn times_of(&mut self, kind: RequestKind) -> &mut Buckets {
        let place =
            |times: &[(RequestKind, Buckets)], kind| times.iter().position(|(known, _)| *known == kind);
        let found = place(&self.times, kind).or_else(|| place(&self.times, kind.known()));
        let at = match found {
            Some(0) => 0,
            Some(at) => {
                self.times.swap(at - 1, at);
                at - 1
            }
            None => {
                self.times.push((kind.known(), Buckets::default()));
                self.times.len() - 1
            }
        };
        &mut self.times[at].1
    }
}

/// Times by what their labels say.
type Times = Vec<(RequestKind, Buckets)>;
/// Numbers of rejected requests by reason.
type Rejections = Vec<(&'static str, u64)>;

/// Times and rejections since the start.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes([Shard; SHARDS]);

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

impl RequestTimes {
    /// All of them, by what their labels say.
    pub(crate) fn read(&self) -> (Times, Rejections) {
        let (mut times, mut rejected) = (HashMap::<_, Buckets>::new(), HashMap::<_, u64>::new());
        for Shard(counts) in &self.0 {
            let counts = counts.lock();
            counts.times.iter().for_each(|(kind, buckets)| times.entry(*kind).or_default().merge(buckets));
            counts.rejected.iter().for_each(|(reason, count)| *rejected.entry(*reason).or_default() += count);
        }
        (times.into_iter().collect(), rejected.into_iter().collect())
    }
}

fn bounds() -> &'static [f64] {
    match Metric::RequestLatency.declared().kind {
        Kind::Histogram(bounds) => bounds,
        Kind::Counter | Kind::Gauge => &[],
    }
}

impl AnswerObserver for RequestTimes {
    fn answered(&self, answer: &Answered) {
        let Answered { request, response, was_held, outcome, took, .. } = *answer;
        let kind = RequestKind { request, response, was_held, outcome };
        let took_ms = took.as_secs_f64() * 1000.0;
        assert!(
            outcome != Outcome::Failed || answer.refused_for.is_none(),
            "a request that was given up has no reason of a refusal: {answer:?}"
        );
        let mut counts = SHARD.with(|shard| self.0[*shard].0.lock());
        counts.times_of(kind).observe(bounds(), took_ms);
        if let Some(reason) = answer.refused_for {
            *counts.rejected.entry(reason).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn codes_that_the_protocol_does_not_have_share_a_series() {
        let times = RequestTimes::default();
        for request in [7, 8_888_888, 9_999_999] {
            times.answered(&Answered {
                request,
                response: response::SYSTEM_BUSY,
                was_held: false,
                outcome: Outcome::Sent,
                took: Duration::from_millis(2),
                refused_for: Some("busy"),
            });
        }
        let (times, rejected) = times.read();
        assert_eq!(rejected, [("busy", 3)]);
        let [(kind, buckets)] = times[..] else { panic!("{times:?}") };
        assert_eq!(
            (kind.request(), kind.response(), kind.result()),
            ("unknown".to_owned(), "system_busy".to_owned(), "success")
        );
        assert_eq!((buckets.counts[1], buckets.sum), (3, 6.0));
    }
}
