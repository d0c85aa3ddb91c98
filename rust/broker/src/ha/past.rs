//! `config/replication.json`: what a broker knows of the past of its log, kept over its starts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use parking_lot::Mutex;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, random_u64};
use rocketpy_ha::{
    Diverged, Epoch, Epochs, FeedEnd, Greeting, MasterRestarts, Relation, TAIL_BYTES, Tail, TwoHistories,
    Witnesses,
};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{FlushMode, Store, StoreError};
use serde::{Deserialize, Serialize};

use super::MAX_BODY_BYTES;
use super::shared_secret::SharedSecret;
use crate::BrokerError;
use crate::config_file::ConfigFile;

/// Name of the file. Apache has none of it.
const FILE: &str = "replication.json";
/// Maximum number of slave addresses that are kept, and the maximum length of one.
const MAX_ADDRESSES: usize = 64;
const MAX_ADDRESS_BYTES: usize = 300;

/// The past of a log, in memory and in its file.
#[derive(Debug)]
pub(crate) struct Past<D: Disk> {
    broker_name: String,
    broker_id: u64,
    secret: Option<SharedSecret>,
    /// Held over a write, and taken before the state: writes come in the order of what they hold.
    file: Mutex<ConfigFile<D>>,
    /// Never held over a write: reports of slaves, for which sends wait, take it.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lives: MasterRestarts,
    content: Content,
    is_written: bool,
}

/// Content of the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Content {
    /// Which lives wrote the log.
    epochs: Epochs,
    /// Whether the last epoch belongs to a master that sent no epochs.
    is_untold: bool,
    /// Where lives began after a sudden end, in bytes of the log.
    lives: Vec<u64>,
    /// End of each slave's log, by its address.
    slaves: BTreeMap<String, u64>,
    /// Where the slaves of RocketPy answer requests, by their broker ids.
    addresses: BTreeMap<u64, String>,
    /// The folder was a slave's since: what others have after its end is not this log.
    was_slave: bool,
    /// Whether a slave ended suddenly and may have lost records that it had reported to its master.
    may_have_lost: bool,
    /// Whether a master rejected this log because it is not a beginning of its own.
    #[serde(rename = "isParted")]
    is_diverged: bool,
    /// Where the log of this slave's master ended when it last connected.
    master_end: u64,
    /// Replication address of the master that this slave left, because another slave was to be promoted.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_master: Option<String>,
    /// The process that wrote this last does not flush before it answers: a sudden end of it may take what it had.
    flushes_later: bool,
    /// Which slaves have what was acknowledged since it waits for slaves.
    witnesses: Option<Witnesses>,
}

/// Why a broker gives another one nothing of its log.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoBeginning {
    #[error(
        "brokerId {id} is already used by the slave at {address}: set another one (brokerId, --broker-id)"
    )]
    IdTaken { id: u64, address: String },
    #[error("brokerName {found} of the connecting broker differs from {own}")]
    OtherName { found: String, own: String },
    #[error(transparent)]
    Diverged(#[from] Diverged),
    #[error("the logs share no epoch: the slave has another log. Give the slave an empty folder")]
    Strange,
    #[error(transparent)]
    OtherLife(#[from] TwoHistories),
    #[error(
        "the logs differ before {end}: `rocketpy store diff` shows where they diverge, and `rocketpy store cut --apply` cuts off the rest"
    )]
    OtherBytes { end: PhysicalOffset },
    #[error(transparent)]
    Removed(#[from] FeedEnd),
    #[error("cannot read the log: {0}")]
    Log(#[from] StoreError),
}

impl NoBeginning {
    /// Whether the slave may have bytes of its own.
    pub(super) fn is_other_log(&self) -> bool {
        matches!(self, Self::Diverged(_) | Self::Strange | Self::OtherLife(_) | Self::OtherBytes { .. })
    }
}

impl<D: Disk> Past<D> {
    /// Reads the file; `None` when there is none and none is wanted.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn load(
        disk: D,
        root: &Path,
        (broker_name, broker_id): (&str, u64),
        secret: Option<SharedSecret>,
        is_wanted: bool,
    ) -> Result<Option<Self>, BrokerError> {
        let file = ConfigFile::on(disk, root, FILE);
        if !is_wanted && file.is_missing() {
            return Ok(None);
        }
        let content = file.load()?.unwrap_or_default();
        Ok(Some(Self::of(file, content, (broker_name, broker_id), secret)))
    }

    /// Content of the file, read without changing anything; `None` without a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn look(
        disk: D,
        root: &Path,
        names: (&str, u64),
        secret: Option<SharedSecret>,
    ) -> Result<Option<Self>, BrokerError> {
        let file = ConfigFile::on(disk, root, FILE);
        let content: Option<Content> = file.look()?;
        Ok(content.map(|content| Self::of(file, content, names, secret)))
    }

    fn of(
        file: ConfigFile<D>,
        mut content: Content,
        (broker_name, broker_id): (&str, u64),
        secret: Option<SharedSecret>,
    ) -> Self {
        let lives = MasterRestarts {
            starts: std::mem::take(&mut content.lives).into_iter().map(PhysicalOffset).collect(),
            slaves: std::mem::take(&mut content.slaves)
                .into_iter()
                .map(|(name, end)| (name, PhysicalOffset(end)))
                .collect(),
        };
        let state = State { lives, content, is_written: true };
        let broker_name = broker_name.to_owned();
        Self { broker_name, broker_id, secret, file: Mutex::new(file), state: Mutex::new(state) }
    }

    /// Begins a life as a master with the log as the store has it. Its sends wait for `needed` slaves.
    ///
    /// # Durability
    /// On return the life is in the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn begin_life(&self, store: &Store<D>, needed: usize) -> Result<(), EnvError> {
        let (mut state, end) = (self.state.lock(), store.max_physical_offset());
        let State { lives, content, .. } = &mut *state;
        let is_new = !store.recovery().clean_exit || content.was_slave;
        let begins = lives.begin(end, is_new) && !planted::has(Bug::NoEpochBegun);
        (content.is_diverged, content.left_master) = (false, None);
        content.note_start(store.recovery().clean_exit, store.config().flush);
        let after_loss = std::mem::take(&mut content.may_have_lost);
        if begins || content.epochs.list().is_empty() {
            content.epochs.begin(Epoch { id: random_u64(), start: end, after_loss });
            content.is_untold = false;
            let last = content.epochs.list().last().map(|last| last.start);
            assert_eq!(
                last,
                Some(end),
                "the epoch of a new master is the last one and begins at the log's end"
            );
        }
        content.witnesses = Witnesses::begin(content.witnesses.take(), end, needed);
        if planted::has(Bug::EpochNotWritten) {
            return Ok(());
        }
        state.is_written = false;
        drop(state);
        self.settle()
    }

    /// Whether the folder is a slave's, or was one before this start.
    pub(crate) fn was_slave(&self) -> bool {
        self.state.lock().content.was_slave
    }

    /// Notes that the folder is a master's: all that its first start as one has to do is done.
    ///
    /// # Durability
    /// On return that is in the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn end_following(&self) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        state.content.was_slave = false;
        state.is_written = false;
        drop(state);
        self.settle()
    }

    /// Notes that the folder is a slave's: its next life as a master is a new one.
    ///
    /// # Durability
    /// On return that is in the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn begin_following(&self, store: &Store<D>) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        state.content.was_slave = true;
        state.content.note_start(store.recovery().clean_exit, store.config().flush);
        state.is_written = false;
        drop(state);
        self.settle()
    }

    /// A slave has again all that its master had when it connected.
    pub(super) fn regained(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.content.may_have_lost) {
            state.is_written = false;
        }
    }

    /// Whether nothing of the own log behind `at` was acknowledged, where it diverges from a master's with these epochs.
    pub(super) fn is_unpromised_behind(&self, at: PhysicalOffset, master: &Epochs) -> bool {
        let state = self.state.lock();
        let vouch = |witnesses: &Witnesses| witnesses.vouch_for(at);
        let is_unpromised = state.content.witnesses.as_ref().is_some_and(vouch)
            && state.lives.slaves.values().all(|had| *had <= at)
            && !master.are_after_loss_at(at);
        is_unpromised || planted::has(Bug::AcknowledgedCut)
    }

    /// Whether a master with these epochs continues from this log, and this one has not gone on as well, or with nothing that was acknowledged.
    /// An empty log has nothing to lose. A slave promoted with an empty log shares no epoch with its former master.
    pub(crate) fn gives_way_to(&self, other: &Epochs, is_empty: bool) -> bool {
        if is_empty && !other.list().is_empty() && self.had_slaves() {
            return true;
        }
        let own = self.epochs();
        let goes_on = |at| own.end_with_one_of(other) || self.is_unpromised_behind(at, other);
        own.continued_at(other).is_some_and(goes_on)
    }

    /// Where this log and that of another master diverge; `None` when they are not known to. A former slave of this broker that shares no
    /// epoch was promoted with an empty log.
    pub(crate) fn diverges_at(&self, master: &str, other: &Epochs) -> Option<PhysicalOffset> {
        let own = self.epochs();
        let is_whole =
            |epochs: &Epochs| epochs.list().first().is_some_and(|first| first.start == PhysicalOffset::ZERO);
        let was_slave = || self.state.lock().content.addresses.values().any(|address| address == master);
        let is_common = own.list().iter().any(|epoch| other.list().contains(epoch));
        match own.continued_at(other) {
            None if !is_common && is_whole(&own) && is_whole(other) && was_slave() => {
                Some(PhysicalOffset::ZERO)
            }
            at => at,
        }
    }

    /// Takes over the epochs of another broker, before bytes of them are taken.
    ///
    /// # Durability
    /// On return they are in the file.
    ///
    /// # Errors
    /// The file cannot be written: nothing may be taken.
    pub(super) fn adopt(&self, epochs: &Epochs) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        if state.content.epochs != *epochs {
            state.content.epochs = epochs.clone();
            state.content.is_untold = false;
            state.content.witnesses = None;
            state.is_written = false;
        }
        drop(state);
        self.settle()
    }

    /// The same for a slave and its master: what that acknowledges from now on, others may have. What this broker knows of its own slaves may
    /// also come with the copy of another one's folder.
    ///
    /// # Durability
    /// As [`Self::adopt`].
    ///
    /// # Errors
    /// As [`Self::adopt`].
    pub(super) fn adopt_of_master(&self, epochs: &Epochs, end: PhysicalOffset) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        let content = &mut state.content;
        (content.witnesses, content.is_diverged, content.master_end) = (None, false, end.get());
        state.is_written = false;
        drop(state);
        self.adopt(epochs)
    }

    /// Where the log of this slave's master ended when it last connected.
    pub(crate) fn master_end(&self) -> PhysicalOffset {
        PhysicalOffset(self.state.lock().content.master_end)
    }

    /// Address of the master that this slave left; see [`Self::note_left_master`].
    pub(super) fn left_master(&self) -> Option<String> {
        self.state.lock().content.left_master.clone()
    }

    /// Notes that this slave left its master for a promotion.
    ///
    /// # Durability
    /// On return a start of this slave knows it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn note_left_master(&self, address: String) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        state.content.left_master = Some(address);
        state.is_written = false;
        drop(state);
        self.settle()
    }

    /// This slave follows a master again. [`Self::settle`] writes it; until then a start stays away from the master that was left.
    pub(super) fn follows_again(&self) {
        let mut state = self.state.lock();
        if state.content.left_master.take().is_some() {
            state.is_written = false;
        }
    }

    /// A master says that this log is not a beginning of its own.
    ///
    /// # Durability
    /// On return that is in the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn note_diverged(&self) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.content.is_diverged, true) {
            state.is_written = false;
        }
        drop(state);
        self.settle()
    }

    /// Whether the last master that this slave reached said that its log is another one.
    pub(super) fn is_diverged(&self) -> bool {
        self.state.lock().content.is_diverged
    }

    /// A slave is about to take bytes of a master that tells no epochs.
    ///
    /// # Durability
    /// On return that is in the file.
    ///
    /// # Errors
    /// The file cannot be written: nothing may be taken.
    pub(super) fn adopt_untold(&self, end: PhysicalOffset) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        let content = &mut state.content;
        content.is_diverged = false; // its answers show whether the logs diverge
        if !content.is_untold && !content.epochs.list().is_empty() {
            content.epochs.begin(Epoch { id: random_u64(), start: end, after_loss: false });
            content.is_untold = true;
            let last = content.epochs.list().last().map(|last| last.start);
            assert_eq!(last, Some(end), "a master without notified slaves writes in an epoch of its own");
            state.is_written = false;
        }
        drop(state);
        self.settle()
    }

    /// Whether the last bytes of the log are not known to be of a master that tells its epochs.
    pub(super) fn is_untold(&self) -> bool {
        let state = self.state.lock();
        state.content.is_untold || state.content.epochs.list().is_empty()
    }

    /// Whether both ends have to prove a secret.
    pub(crate) fn has_secret(&self) -> bool {
        self.secret.is_some()
    }

    /// Whether operators have to prove the token of `haTokenFile`.
    pub(crate) fn has_token(&self) -> bool {
        self.secret.as_ref().is_some_and(SharedSecret::has_token)
    }

    /// Proves the secret of this broker to who has heard `parts`; `None` where there is none.
    pub(crate) fn prove(&self, parts: &[&[u8]]) -> Option<String> {
        self.secret.as_ref().map(|secret| secret.prove(parts))
    }

    /// Whether another broker proves the secret, if there is one.
    pub(crate) fn is_proved(&self, parts: &[&[u8]], proof: Option<&str>) -> bool {
        let secret = self.secret.as_ref();
        secret.is_none_or(|secret| proof.is_some_and(|proof| secret.is_proof(parts, proof)))
    }

    /// Whether an operator proves the token of `haTokenFile`; false without one.
    pub(crate) fn is_token_proved(&self, parts: &[&[u8]], proof: Option<&str>) -> bool {
        let secret = self.secret.as_ref();
        secret.zip(proof).is_some_and(|(secret, proof)| secret.is_proof_of_token(parts, proof))
    }

    /// The epochs of the log.
    pub(crate) fn epochs(&self) -> Epochs {
        self.state.lock().content.epochs.clone()
    }

    /// Where slaves of RocketPy answered requests when they last connected, by their broker ids.
    pub(crate) fn addresses(&self) -> BTreeMap<u64, String> {
        self.state.lock().content.addresses.clone()
    }

    /// Whether slaves had bytes of this log, as far as is known.
    pub(super) fn had_slaves(&self) -> bool {
        let state = self.state.lock();
        !state.lives.slaves.is_empty() || !state.content.addresses.is_empty()
    }

    /// Greeting of this broker.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) fn greeting(
        &self,
        store: &Store<D>,
        address: &str,
        file_bytes: u64,
    ) -> Result<Greeting, StoreError> {
        let (start, end) = (store.min_physical_offset(), store.max_physical_offset());
        let from = PhysicalOffset(end.get().saturating_sub(TAIL_BYTES)).max(start);
        let from = if end > start { from.max((end - 1).block_start(file_bytes)) } else { from };
        assert!(start <= from && from <= end, "the tail of a log lies within it: {start}, {from}, {end}");
        let tail = match crc_of(store, from, end)? {
            Some(crc) if from < end => Some(Tail { from, crc }),
            _ => None,
        };
        Ok(Greeting {
            broker_name: self.broker_name.clone(),
            broker_id: self.broker_id,
            address: address.to_owned(),
            start,
            end,
            epochs: self.epochs(),
            max_body_bytes: MAX_BODY_BYTES,
            file_bytes,
            nonce: format!("{:016x}{:016x}", random_u64(), random_u64()),
            proof: None,
            tail,
            refusal: None,
            is_other_log: false,
        })
    }

    /// Says whether another broker has a beginning of this log. `address` is what its connection comes from.
    ///
    /// # Errors
    /// It has not, or that is not known.
    pub(super) fn check_greeting(
        &self,
        other: &Greeting,
        store: &Store<D>,
        address: Option<IpAddr>,
    ) -> Result<(), NoBeginning> {
        if other.broker_name != self.broker_name {
            return Err(NoBeginning::OtherName {
                found: other.broker_name.clone(),
                own: self.broker_name.clone(),
            });
        }
        let (start, end) = (store.min_physical_offset(), store.max_physical_offset());
        if other.start < other.end && other.end < start {
            return Err(FeedEnd::Removed { next: other.end, start }.into());
        }
        match (other.relation(&self.epochs(), end), address) {
            (Relation::Beginning, _) => {}
            (Relation::Diverged(diverged), _) => return Err(diverged.into()),
            (Relation::Unknown, Some(address)) if other.epochs.list().is_empty() => {
                self.check(address, other.end)?
            }
            (Relation::Unknown, _) => return Err(NoBeginning::Strange),
        }
        match other.tail {
            Some(Tail { from, crc })
                if start <= from
                    && other.end <= end
                    && other.end.saturating_sub(from) <= TAIL_BYTES
                    && crc_of(store, from, other.end)?.is_some_and(|own| own != crc) =>
            {
                Err(NoBeginning::OtherBytes { end: other.end })
            }
            _ => Ok(()),
        }
    }

    /// Notes where a slave that greeted answers requests.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn greeted(&self, slave: &Greeting) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        let addresses = &mut state.content.addresses;
        if addresses.get(&slave.broker_id) == Some(&slave.address) || slave.address.len() > MAX_ADDRESS_BYTES
        {
            return Ok(());
        }
        if addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&slave.broker_id) {
            addresses.pop_last(); // no real slave has so great an id
        }
        addresses.insert(slave.broker_id, slave.address.clone());
        state.is_written = false;
        drop(state);
        self.settle()
    }

    /// Says whether a slave that connects has a beginning of this log, of whose end alone is known.
    ///
    /// # Errors
    /// It may have another one.
    pub(super) fn check(&self, slave: IpAddr, reported: PhysicalOffset) -> Result<(), TwoHistories> {
        self.state.lock().lives.check(&slave.to_string(), reported)
    }

    /// A slave that passed the check is about to be fed. `name` tells it from others.
    ///
    /// # Durability
    /// On return it is in the file that it got bytes of this life.
    ///
    /// # Errors
    /// The file cannot be written: the slave must not be fed.
    pub(super) fn connected(
        &self,
        slave: IpAddr,
        name: &str,
        reported: PhysicalOffset,
    ) -> Result<(), EnvError> {
        let mut state = self.state.lock();
        let is_new = state.content.witnesses.as_mut().is_some_and(|witnesses| witnesses.add(name));
        if state.lives.connected(&slave.to_string(), reported) || is_new {
            state.is_written = false;
        }
        drop(state);
        self.settle()
    }

    /// A slave has the log up to `end`. [`Self::settle`] writes it; what the file does not say makes checks stricter.
    pub(super) fn acknowledged(&self, slave: IpAddr, end: PhysicalOffset) {
        let mut state = self.state.lock();
        if state.lives.acknowledged(&slave.to_string(), end) {
            state.is_written = false;
        }
    }

    /// Writes what is not in the file. Blocks.
    ///
    /// # Durability
    /// On return all that was said before is in the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn settle(&self) -> Result<(), EnvError> {
        let file = self.file.lock();
        let mut state = self.state.lock();
        if state.is_written {
            return Ok(());
        }
        let MasterRestarts { starts, slaves } = &state.lives;
        let lives = starts.iter().map(|start| start.get()).collect();
        let slaves = slaves.iter().map(|(name, end)| (name.clone(), end.get())).collect();
        let content = Content { lives, slaves, ..state.content.clone() };
        state.is_written = true; // unless more is said while it is written
        drop(state);
        file.save(&content).inspect_err(|_| self.state.lock().is_written = false)
    }
}

impl Content {
    /// Notes whether the store may have less than it had before its last process ended.
    fn note_start(&mut self, was_closed: bool, flush: FlushMode) {
        let flushes_later = flush == FlushMode::Async;
        let flushed_later = std::mem::replace(&mut self.flushes_later, flushes_later);
        // A file of an earlier version does not say how that one flushed.
        self.may_have_lost |= !was_closed && (flushed_later || flushes_later);
    }
}

/// The CRC-32 of a part of the log; `None` when some of it is not there.
fn crc_of<D: Disk>(
    store: &Store<D>,
    mut from: PhysicalOffset,
    end: PhysicalOffset,
) -> Result<Option<u32>, StoreError> {
    let mut hasher = crc32fast::Hasher::new();
    while from < end {
        match store.log_slice(from, end.saturating_sub(from) as usize)? {
            Some(bytes) if !bytes.is_empty() => {
                hasher.update(&bytes);
                from += bytes.len() as u64;
                assert!(from <= end, "a checksum of the log covers no byte past its end: {from} of {end}");
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use rocketpy_env::RealDisk;
    use rocketpy_protocol::json;

    use super::*;
    use crate::testing::TestBroker;

    impl Past<RealDisk> {
        /// The past of a broker with a token.
        pub(crate) fn of_token(broker: &TestBroker, token: &str) -> Self {
            let root = broker.ground.config().store.root.clone();
            let secret = Some(SharedSecret::of_token(token));
            Self::load(RealDisk, &root, ("pair", 1), secret, true).unwrap().unwrap()
        }
    }

    #[test]
    fn a_diverged_log_keeps_its_key_in_the_file() {
        let content: Content = json::from_slice(br#"{"isParted": true}"#).unwrap();
        assert!(content.is_diverged);
        let written = String::from_utf8(json::to_vec(&content)).unwrap();
        assert!(written.contains(r#""isParted":true"#), "{written}");
    }

    #[test]
    fn a_sudden_end_is_judged_by_how_the_process_flushed_that_ended() {
        let after = |flush, was_closed, then| {
            let mut content = Content::default();
            content.note_start(true, flush);
            content.note_start(was_closed, then);
            content.may_have_lost
        };
        assert!(after(FlushMode::Async, false, FlushMode::Async));
        assert!(after(FlushMode::Async, false, FlushMode::Sync), "it is started with another mode");
        assert!(!after(FlushMode::Sync, false, FlushMode::Sync));
        assert!(!after(FlushMode::Async, true, FlushMode::Async));
    }

    #[tokio::test]
    async fn who_follows_a_master_vouches_for_nothing_that_its_folder_knew_of_slaves() {
        let broker = TestBroker::open(|_| ());
        let (store, root) = (broker.ground.store(), broker.ground.config().store.root.clone());
        let past = Past::load(*store.disk(), &root, ("pair", 0), None, true).unwrap().unwrap();
        past.begin_life(store, 1).unwrap();
        let end = store.max_physical_offset();
        past.connected([10, 0, 0, 2].into(), "1", end).unwrap();
        assert!(past.is_unpromised_behind(end, &past.epochs()), "it acknowledged nothing without that one");
        past.adopt(&past.epochs()).unwrap();
        assert!(past.is_unpromised_behind(end, &past.epochs()), "what it takes back is its own");
        past.adopt_of_master(&past.epochs(), end).unwrap();
        assert!(!past.is_unpromised_behind(end, &past.epochs()));
    }
}
