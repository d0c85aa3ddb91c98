//! The window of proofs: each proof is accepted once, and not long after it was made.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rocketpy_protocol::proof::Proof;

/// Maximum difference between the clocks of client and server, and maximum age of a proof.
pub(crate) const MAX_SKEW_MS: i64 = 5 * 60 * 1000;
/// Streams further in the future than this are forgotten: the clock was set back. Smaller steps keep them, because their proofs would be
/// accepted again.
const MAX_FUTURE_MS: i64 = 60 * 60 * 1000;
/// Requests of a stream that may come behind a later one.
const WINDOW: u64 = 4096;
/// Maximum number of streams of all users; one takes some 600 bytes. Super users may have more.
const MAX_STREAMS: usize = 65_536;
/// Maximum number of streams of a user: one cannot take the places of all others.
const MAX_STREAMS_OF_USER: usize = 4_096;
/// Users are spread over as many locks.
const SHARDS: usize = 16;
/// Minimum time between two searches for streams that can be forgotten.
const SEARCH_EVERY_MS: i64 = 1_000;

/// Why a proof is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Replayed {
    #[error("its proof is {seconds} s old or early, check the clocks of client and server")]
    Time { seconds: i64 },
    #[error("its proof was accepted before")]
    Again,
    #[error("its proof is more than {WINDOW} requests older than the last one of its stream")]
    Behind,
    #[error("too many streams of proofs, share one client object or wait 10 minutes")]
    TooManyStreams,
}

/// The proofs that were accepted. A stream is forgotten when all its proofs are too old to be accepted again.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    shards: [Mutex<Shard>; SHARDS],
    streams: AtomicUsize,
    searched_at_ms: AtomicI64,
}

type Shard = HashMap<Box<str>, HashMap<u128, Stream>>;

#[derive(Debug)]
struct Stream {
    /// Bits of the last [`WINDOW`] counters, each at its remainder.
    seen: Box<[u64; WINDOW as usize / 64]>,
    highest: u64,
    /// Time of its latest proof.
    newest_ms: i64,
}

impl ReplayWindow {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            streams: AtomicUsize::new(0),
            searched_at_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// Accepts a proof whose MAC holds, once. Streams of other users do not keep a super user out.
    pub(crate) fn accept(
        &self,
        is_super: bool,
        user: &str,
        proof: &Proof,
        now_ms: i64,
    ) -> Result<(), Replayed> {
        let age_ms = now_ms.saturating_sub(proof.at_ms);
        if !(-MAX_SKEW_MS..=MAX_SKEW_MS).contains(&age_ms) {
            return Err(Replayed::Time { seconds: age_ms / 1000 });
        }
        let mut shard = self.shard(user).lock();
        if let Some(stream) = shard.get_mut(user).and_then(|streams| streams.get_mut(&proof.stream)) {
            return stream.accept(proof);
        }
        if !self.has_room(is_super, &shard, user) {
            drop(shard);
            self.forget(now_ms);
            shard = self.shard(user).lock();
            if !self.has_room(is_super, &shard, user) {
                return Err(Replayed::TooManyStreams);
            }
        }
        let streams = shard.entry(user.into()).or_default();
        let stream = streams.entry(proof.stream).or_insert_with(|| {
            self.streams.fetch_add(1, Ordering::Relaxed);
            Stream::new()
        });
        stream.accept(proof)
    }

    fn has_room(&self, is_super: bool, shard: &Shard, user: &str) -> bool {
        let of_user = shard.get(user).map_or(0, HashMap::len);
        of_user < MAX_STREAMS_OF_USER && (is_super || self.streams.load(Ordering::Relaxed) < MAX_STREAMS)
    }

    /// Forgets streams whose proofs are all too old, of all users.
    fn forget(&self, now_ms: i64) {
        let searched_at_ms = self.searched_at_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(searched_at_ms) < SEARCH_EVERY_MS && now_ms >= searched_at_ms {
            return;
        }
        self.searched_at_ms.store(now_ms, Ordering::Relaxed);
        for shard in &self.shards {
            shard.lock().retain(|_, streams| {
                let before = streams.len();
                // A stream of the far future was accepted before the clock was set back.
                let is_needed = |stream: &Stream| {
                    let age_ms = now_ms.saturating_sub(stream.newest_ms);
                    (-MAX_FUTURE_MS..=MAX_SKEW_MS).contains(&age_ms)
                };
                streams.retain(|_, stream| is_needed(stream));
                self.streams.fetch_sub(before - streams.len(), Ordering::Relaxed);
                !streams.is_empty()
            });
        }
    }

    fn shard(&self, user: &str) -> &Mutex<Shard> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(user);
        &self.shards[hash as usize % SHARDS]
    }
}

impl Stream {
    fn new() -> Self {
        Self { seen: Box::new([0; WINDOW as usize / 64]), highest: 0, newest_ms: i64::MIN }
    }

    fn accept(&mut self, proof: &Proof) -> Result<(), Replayed> {
        let counter = proof.counter;
        if counter > self.highest {
            self.clear(self.highest + 1, counter);
            self.highest = counter;
        } else if self.highest - counter >= WINDOW {
            return Err(Replayed::Behind);
        }
        let (word, bit) = place(counter);
        if self.seen[word] & bit != 0 {
            return Err(Replayed::Again);
        }
        self.seen[word] |= bit;
        self.newest_ms = self.newest_ms.max(proof.at_ms);
        Ok(())
    }

    /// Counters from `first` to `last` were not seen.
    fn clear(&mut self, first: u64, last: u64) {
        if last - first >= WINDOW - 1 {
            self.seen.fill(0);
            return;
        }
        for counter in first..=last {
            let (word, bit) = place(counter);
            self.seen[word] &= !bit;
        }
    }
}

/// Word and bit of a counter.
const fn place(counter: u64) -> (usize, u64) {
    let at = (counter % WINDOW) as usize;
    (at / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use rocketpy_protocol::Command;
    use rocketpy_protocol::proof::ProofStream;

    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    /// Proofs of one stream, made at a time.
    fn proofs(id: u64, count: usize, at_ms: i64) -> Vec<Proof> {
        let stream = ProofStream::new([1, id]);
        let proof = |_| {
            let mut command = Command::bare_request(26);
            stream.sign(&mut command, "alice", "secret", at_ms);
            Proof::read(&command).unwrap().unwrap()
        };
        (0..count).map(proof).collect()
    }

    #[test]
    fn proof_is_accepted_once_in_any_order() {
        let window = ReplayWindow::new();
        let mut proofs = proofs(1, 1_000, NOW_MS);
        shuffle(&mut proofs);
        for proof in &proofs {
            assert_eq!(window.accept(false, "alice", proof, NOW_MS), Ok(()));
        }
        for proof in &proofs {
            assert_eq!(window.accept(false, "alice", proof, NOW_MS), Err(Replayed::Again));
        }
    }

    /// Any order that is the same every time.
    fn shuffle(proofs: &mut [Proof]) {
        proofs.sort_by_key(|proof| proof.counter.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
    }

    #[test]
    fn old_and_future_proofs_are_refused() {
        let window = ReplayWindow::new();
        let at = |offset_ms| {
            let proof = proofs(offset_ms as u64, 1, NOW_MS + offset_ms)[0];
            window.accept(false, "alice", &proof, NOW_MS)
        };
        assert_eq!(at(-MAX_SKEW_MS), Ok(()));
        assert_eq!(at(MAX_SKEW_MS), Ok(()));
        assert_eq!(at(-MAX_SKEW_MS - 1), Err(Replayed::Time { seconds: 300 }));
        assert_eq!(at(MAX_SKEW_MS + 1), Err(Replayed::Time { seconds: -300 }));
        assert!(at(i64::MIN).is_err() && at(i64::MAX - NOW_MS).is_err());
    }

    #[test]
    fn proof_far_behind_the_last_one_is_refused() {
        let window = ReplayWindow::new();
        let proofs = proofs(1, WINDOW as usize + 2, NOW_MS);
        let (first, second) = (&proofs[0], &proofs[1]);
        assert_eq!(window.accept(false, "alice", &proofs[WINDOW as usize], NOW_MS), Ok(()));
        assert_eq!(window.accept(false, "alice", first, NOW_MS), Err(Replayed::Behind));
        assert_eq!(window.accept(false, "alice", second, NOW_MS), Ok(()));
        assert_eq!(window.accept(false, "alice", second, NOW_MS), Err(Replayed::Again));
    }

    #[test]
    fn user_cannot_use_up_the_counters_of_another() {
        let window = ReplayWindow::new();
        let proof = proofs(1, 1, NOW_MS)[0];
        assert_eq!(window.accept(false, "mallory", &proof, NOW_MS), Ok(()));
        assert_eq!(window.accept(false, "alice", &proof, NOW_MS), Ok(()));
    }

    #[test]
    fn streams_of_a_user_are_bounded_and_forgotten_when_their_proofs_are_old() {
        let window = ReplayWindow::new();
        for id in 0..MAX_STREAMS_OF_USER as u64 {
            assert_eq!(window.accept(false, "alice", &proofs(id, 1, NOW_MS)[0], NOW_MS), Ok(()));
        }
        let another = |now_ms| window.accept(false, "alice", &proofs(u64::MAX, 1, now_ms)[0], now_ms);
        assert_eq!(another(NOW_MS), Err(Replayed::TooManyStreams));
        assert_eq!(
            window.accept(false, "bob", &proofs(0, 1, NOW_MS)[0], NOW_MS),
            Ok(()),
            "others are not in its way"
        );
        let later_ms = NOW_MS + MAX_SKEW_MS + 1;
        assert_eq!(another(later_ms), Ok(()));
        assert_eq!(window.streams.load(Ordering::Relaxed), 1);
        assert!(
            window.accept(false, "alice", &proofs(7, 1, NOW_MS)[0], later_ms).is_err(),
            "a forgotten one is too old"
        );
    }

    #[test]
    fn streams_of_a_clock_that_was_set_back_make_room() {
        let window = ReplayWindow::new();
        let accept = |id, at_ms, now_ms| window.accept(false, "alice", &proofs(id, 1, at_ms)[0], now_ms);
        let ahead_ms = NOW_MS + 24 * MAX_FUTURE_MS;
        for id in 0..MAX_STREAMS_OF_USER as u64 {
            assert_eq!(accept(id, ahead_ms, ahead_ms), Ok(()));
        }
        let back_ms = ahead_ms - MAX_FUTURE_MS;
        assert_eq!(
            accept(u64::MAX, back_ms, back_ms),
            Err(Replayed::TooManyStreams),
            "a small step keeps them"
        );
        assert_eq!(accept(u64::MAX, NOW_MS, NOW_MS), Ok(()));
        assert_eq!(window.streams.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn super_users_are_heard_while_others_have_all_streams() {
        let window = ReplayWindow::new();
        window.streams.store(MAX_STREAMS, Ordering::Relaxed);
        let proof = proofs(1, 1, NOW_MS)[0];
        assert_eq!(window.accept(false, "bob", &proof, NOW_MS), Err(Replayed::TooManyStreams));
        assert_eq!(window.accept(true, "root", &proof, NOW_MS), Ok(()));
    }

    proptest! {
        #[test]
        fn window_accepts_what_a_set_of_all_counters_would(
            counters in prop::collection::vec(0..3 * WINDOW as usize, 1..200)
        ) {
            static PROOFS: LazyLock<Vec<Proof>> = LazyLock::new(|| proofs(1, 3 * WINDOW as usize, NOW_MS));
            let (proofs, window) = (&*PROOFS, ReplayWindow::new());
            let (mut seen, mut highest) = (std::collections::HashSet::new(), 0);
            for at in counters {
                let counter = proofs[at].counter;
                let expected = match () {
                    () if counter + WINDOW <= highest => Err(Replayed::Behind),
                    () if !seen.insert(counter) => Err(Replayed::Again),
                    () => Ok(()),
                };
                highest = highest.max(counter);
                prop_assert_eq!(window.accept(false, "alice", &proofs[at], NOW_MS), expected);
            }
        }
    }
}
