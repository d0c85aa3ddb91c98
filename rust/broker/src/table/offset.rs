//! The offsets of consumer groups, and the file that keeps them.
#![cfg_attr(
    not(feature = "sim"),
    expect(unreachable_pub, reason = "the simulator uses the table from outside")
)]

use std::path::Path;
use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_protocol::body::ConsumerOffsetSerializeWrapper;
use tokio::runtime::Handle;
use tracing::warn;

use super::offset_adopt::MasterOffsets;
use super::offset_content::Snapshot;
pub(crate) use super::offset_reader::Reader;
use super::offset_shared::SharedOffsets;
pub use super::offset_state::{CommitError, Place, Readable};
pub(crate) use super::offset_state::{PullAt, Pulling};
use super::offset_state::{Pulled, SetBack, State};
use crate::BrokerError;
use crate::config_file::ConfigFile;
pub use crate::table::group_commit::Written;
use crate::table::group_commit::{GroupCommit, Kept, NoRoomToWait, Wait};

/// Committed offset of every group in every queue, stored in `config/consumerOffset.json`.
///
/// # Durability
/// The first offset of a group for a queue is on disk before its commit is answered, and before a pull of the group hands out a
/// message. Later ones are written every few seconds and at the stop: a kill may set offsets back by that much, never forward. A
/// change that removes offsets is on disk before it is answered.
#[doc(alias = "ConsumerOffsetManager")]
#[derive(Debug)]
pub struct OffsetTable<D: Disk = RealDisk> {
    table: Arc<GroupCommit<File<D>>>,
}

#[derive(Debug)]
struct File<D: Disk>(ConfigFile<D>);

impl<D: Disk> Kept for File<D> {
    type State = State;
    type Content = Snapshot;

    fn begin(&self, state: &mut State) -> Self::Content {
        state.begin()
    }

    fn write(&self, snapshot: &Snapshot) -> Result<(), EnvError> {
        self.0.save(&snapshot.content())
    }

    fn end(&self, state: &mut State, snapshot: &Snapshot, is_written: bool) {
        state.end(snapshot.number, is_written);
    }
}

impl<D: Disk> OffsetTable<D> {
    /// Reads the file of a store. Whoever waits for a write first writes.
    ///
    /// # Errors
    /// The file cannot be read, or not be decoded while it has no good backup.
    #[cfg(any(test, feature = "sim"))]
    pub fn open(disk: D, store_root: &Path) -> Result<Self, BrokerError> {
        Self::open_with(disk, store_root, None)
    }

    /// Reads the file of a store, which is then written on threads of this runtime.
    ///
    /// # Errors
    /// The file cannot be read, or not be decoded while it has no good backup.
    pub(crate) fn open_with(
        disk: D,
        store_root: &Path,
        runtime: Option<Handle>,
    ) -> Result<Self, BrokerError> {
        let file = ConfigFile::on(disk, store_root, "consumerOffset.json");
        let loaded = file.load::<ConsumerOffsetSerializeWrapper>()?.unwrap_or_default();
        Ok(Self { table: GroupCommit::new(File(file), State::new(loaded), runtime) })
    }

    /// Sets offsets beyond the end of their queue back to that end. After a truncation queue offsets are used again, and a consumer
    /// ahead of them would skip messages (docs/durability.md R7). A group whose offset was set back, and with `is_suspect` every
    /// group, must pull at the end or before it, before it commits beyond: its members may have outlived what the queue lost.
    ///
    /// # Durability
    /// Offsets that were set back are on disk on return, before the first request is served: once the queue has grown again, no later
    /// start can tell.
    pub fn clamp(&self, max_offset: impl Fn(&str, u32) -> i64, is_suspect: bool) -> Result<(), EnvError> {
        if planted::has(Bug::OffsetClampMissing) {
            return Ok(());
        }
        let (set_back, snapshot) = self.table.with(|state| {
            let set_back = state.set_back(max_offset, is_suspect);
            let is_written = set_back != SetBack::Nothing && !planted::has(Bug::ClampNotPersisted);
            (set_back, is_written.then(|| state.begin()))
        });
        // Nobody else uses the table yet: it is written on this thread.
        let Some(snapshot) = snapshot else { return Ok(()) };
        let written = self.table.kept().write(&snapshot);
        self.table.with(|state| state.end(snapshot.number, written.is_ok()));
        match written {
            // They hold for this life, and are written with the next offsets: a full disk refuses no start.
            Err(error) if set_back == SetBack::Guards => {
                warn!(%error, "ends of the queues at this start not written to consumerOffset.json yet");
                Ok(())
            }
            written => written,
        }
    }

    /// The offset that a group has committed.
    pub fn get(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        self.table.with(|state| state.get(group, topic, queue_id))
    }

    /// Stores an offset; it may go backwards. What is returned ends when some offset of the group for the queue is on disk; `None`
    /// when one already is.
    ///
    /// # Errors
    /// The offset is not stored.
    pub fn commit(
        &self,
        place: Place<'_>,
        offset: i64,
        readable: Readable,
    ) -> Result<Option<Written>, CommitError> {
        self.commit_of(None, place, offset, readable)
    }

    /// [`Self::commit`] of a reader that may remember an earlier topic of this name.
    ///
    /// # Errors
    /// The offset is not stored.
    pub(crate) fn commit_of(
        &self,
        reader: Option<Reader>,
        place: Place<'_>,
        offset: i64,
        readable: Readable,
    ) -> Result<Option<Written>, CommitError> {
        let committed = self.table.change(|state, room| {
            let wait = state.commit(place, offset, readable, reader, room)?;
            self.keep_version(state);
            Ok::<_, CommitError>(((), wait))
        });
        Ok(committed?.1)
    }

    /// Stores an offset that a person chose for a group whose members have stopped: none of them stands beyond what survived.
    pub(crate) fn reset(
        &self,
        place: Place<'_>,
        offset: i64,
        readable: Readable,
    ) -> Result<Option<Written>, CommitError> {
        if offset <= readable.max {
            self.table.with(|state| {
                state.take_reset(place);
                state.trust(place);
            });
        }
        self.commit(place, offset, readable)
    }

    /// Stores an offset that a person chose for a group whose members may run: the next pull is sent there, and until then their
    /// commits do not count.
    pub(crate) fn reset_running(
        &self,
        place: Place<'_>,
        offset: i64,
        readable: Readable,
    ) -> Result<Option<Written>, CommitError> {
        let written = self.reset(place, offset, readable)?;
        self.table.with(|state| state.note_reset(place, offset));
        Ok(written)
    }

    /// Notes that a reader asks for the offset of its group. Returns where the group begins, if it has read an earlier topic of this
    /// name and nothing of this one.
    pub(crate) fn asked(&self, place: Place<'_>, readable: Readable, reader: Reader) -> Option<i64> {
        self.table.with(|state| state.asked(place, readable, reader))
    }

    /// A connection has ended.
    pub(crate) fn disconnected(&self, connection_id: u64) {
        self.table.with(|state| state.disconnected(connection_id));
    }

    /// What a pull may do, and what it waits for. `starts_here` says whether its offset is where the group begins in a queue for
    /// which it has none.
    pub(crate) fn pull(
        &self,
        pull: &PullAt<'_>,
        starts_here: impl FnOnce() -> bool,
    ) -> Result<(Pulling, Option<Written>), CommitError> {
        let ((pulling, waits), written) = self.table.change(|state, room| {
            let Pulled { pulling, wait, ends_doubt } = state.pull(pull, starts_here, room)?;
            if pull.commit.is_some() {
                self.keep_version(state);
            }
            let waits = wait != Wait::No;
            assert!(
                !waits || matches!(pulling, Pulling::Reads { .. }),
                "a reader that is sent elsewhere waits for no write: {pulling:?}"
            );
            // The end of a doubt is written at once: after a kill the group would have to go back again. The pull does not wait for it.
            let wait = if ends_doubt && !waits && room.is_ok() { Wait::Next } else { wait };
            Ok::<_, CommitError>(((pulling, waits), wait))
        })?;
        Ok((pulling, written.filter(|_| waits)))
    }

    /// A reader of the group pulls at this offset; returns where it has to go back to, if it has to.
    #[cfg(feature = "sim")]
    pub fn reader_at(&self, place: Place<'_>, offset: i64, readable: Readable) -> Option<i64> {
        let at = PullAt { place, offset, commit: None, readable, reader: None };
        match self.pull(&at, || false) {
            Ok((Pulling::Moved { to } | Pulling::Reset { to } | Pulling::Foreign { to }, _)) => Some(to),
            Ok((Pulling::Reads { .. }, _)) | Err(_) => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn gate(&self) -> &Arc<crate::testing::Gate> {
        &self.table.kept().0.gate
    }

    fn keep_version(&self, state: &mut State) {
        if state.is_version_due() {
            state.move_version(self.table.kept().0.disk().now_ms());
        }
    }

    /// Merges the offsets of the master of this broker, which go before its own. Whether something changed: then the next write takes
    /// them along.
    ///
    /// # Errors
    /// [`CommitError::Full`]: nothing is merged.
    pub(crate) fn adopt(
        &self,
        master: &MasterOffsets,
        max_offset: impl Fn(&str, u32) -> i64,
        is_earlier: impl Fn(&str, u64) -> bool,
    ) -> Result<bool, CommitError> {
        self.table.with(|state| master.merge_into(state, max_offset, is_earlier))
    }

    /// Notes where a pull ended.
    pub(crate) fn pulled(&self, place: Place<'_>, offset: i64) {
        self.table.with(|state| state.pulled(place, offset));
    }

    pub(crate) fn last_pulled(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        self.table.with(|state| state.last_pulled(group, topic, queue_id))
    }

    /// Topics for which the group has stored offsets.
    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        self.table.with(|state| state.topics_of(group))
    }

    /// Groups that have stored offsets for the topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        self.table.with(|state| state.groups_of(topic))
    }

    /// Removes a topic: a later one of the same name starts without offsets.
    ///
    /// # Durability
    /// On disk when what is returned ends: offsets that a crash brought back would be ahead of the later topic's messages.
    ///
    /// # Errors
    /// Nothing is removed.
    pub fn remove_topic(&self, topic: &str) -> Result<Option<Written>, CommitError> {
        self.remove_creation(topic, 0)
    }

    /// [`Self::remove_topic`] of a topic that has this creation number. Groups that had offsets in it are noted: their members may go
    /// on as if a later topic of this name were the same.
    ///
    /// # Errors
    /// Nothing is removed.
    pub(crate) fn remove_creation(&self, topic: &str, number: u64) -> Result<Option<Written>, CommitError> {
        self.remove(|state| state.remove_topic(topic, number))
    }

    /// Removes a group, as [`OffsetTable::remove_topic`] does a topic.
    pub(crate) fn remove_group(&self, group: &str) -> Result<Option<Written>, CommitError> {
        self.remove(|state| state.remove_group(group))
    }

    fn remove(&self, remove: impl FnOnce(&mut State)) -> Result<Option<Written>, CommitError> {
        let removed = self.table.change(|state, room| {
            room?;
            remove(state);
            Ok::<_, CommitError>(((), Wait::Next))
        });
        Ok(removed?.1)
    }

    /// The offsets as they are, for somebody who reads many of them. Cheap: they are shared.
    pub(crate) fn shared(&self) -> SharedOffsets {
        SharedOffsets::new(self.table.with(|state| state.look()))
    }

    /// All that the file holds, or will hold.
    pub(crate) fn content(&self) -> ConsumerOffsetSerializeWrapper {
        let snapshot = self.table.with(|state| state.look());
        snapshot.content()
    }

    /// Writes the file when something changed since the last time; `None` when nothing did.
    ///
    /// # Errors
    /// Too many wait for it.
    pub fn persist(&self) -> Result<Option<Written>, CommitError> {
        let persisted = self.table.change(|state, room| {
            let wait = if state.is_changed { room.map(|()| Wait::Next)? } else { Wait::No };
            Ok::<_, NoRoomToWait>(((), wait))
        });
        Ok(persisted?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: Place<'_> = Place { group: "g", topic: "t", queue_id: 0 };

    fn open(root: &Path) -> OffsetTable {
        RealDisk.create_dir_all(&root.join("config")).unwrap();
        OffsetTable::open(RealDisk, root).unwrap()
    }

    fn to(max: i64) -> Readable {
        Readable { min: 0, max }
    }

    fn pull(table: &OffsetTable, offset: i64, readable: Readable) -> Pulling {
        table
            .pull(&PullAt { place: QUEUE, offset, commit: None, readable, reader: None }, || false)
            .unwrap()
            .0
    }

    fn reads() -> Pulling {
        Pulling::Reads { refused: None }
    }

    #[test]
    fn an_offset_that_was_set_back_stays_so_after_a_kill() {
        let root = tempfile::tempdir().unwrap();
        let other = Place { queue_id: 1, ..QUEUE };
        let table = open(root.path());
        table.commit(QUEUE, 10, to(10)).unwrap().unwrap().now().unwrap();
        table.commit(other, 10, to(10)).unwrap().unwrap().now().unwrap();
        let table = open(root.path());
        table.clamp(|_, queue_id| if queue_id == 0 { 4 } else { 10 }, false).unwrap();
        assert_eq!((table.get("g", "t", 0), table.get("g", "t", 1)), (Some(4), Some(10)));
        // Nothing else was written; meanwhile the queue has grown behind the old offset.
        let table = open(root.path());
        table.clamp(|_, _| 20, false).unwrap();
        assert_eq!((table.get("g", "t", 0), table.get("g", "t", 1)), (Some(4), Some(10)));
    }

    #[test]
    fn the_first_offset_of_a_group_is_on_disk_and_later_ones_are_written_together() {
        let root = tempfile::tempdir().unwrap();
        let table = open(root.path());
        table.commit(QUEUE, 0, to(10)).unwrap().expect("the first one is waited for").now().unwrap();
        assert!(table.commit(QUEUE, 5, to(10)).unwrap().is_none(), "a kill cannot take all of it");
        assert_eq!(open(root.path()).get("g", "t", 0), Some(0));
        table.persist().unwrap().unwrap().now().unwrap();
        assert!(table.persist().unwrap().is_none());
        assert_eq!(open(root.path()).get("g", "t", 0), Some(5));

        table.remove_topic("t").unwrap().unwrap().now().unwrap();
        assert_eq!(open(root.path()).get("g", "t", 0), None);
        assert!(table.commit(QUEUE, 1, to(1)).unwrap().is_some(), "the first one again");
    }

    #[test]
    fn a_write_saves_what_was_there_when_it_began() {
        let root = tempfile::tempdir().unwrap();
        let table = open(root.path());
        let other = Place { topic: "other", ..QUEUE };
        for place in [QUEUE, other] {
            table.commit(place, 1, to(10)).unwrap().unwrap().now().unwrap();
            table.pulled(place, 1);
        }
        let snapshot = table.table.with(State::begin);
        let before = snapshot.content();
        table.commit(QUEUE, 2, to(10)).unwrap();
        table.pulled(QUEUE, 3);
        drop(table.remove_topic("other").unwrap());
        assert_eq!(snapshot.content(), before);
        assert_eq!((table.get("g", "t", 0), table.last_pulled("g", "t", 0)), (Some(2), Some(3)));
        assert_eq!(table.topics_of("g"), ["t"]);
    }

    #[test]
    fn a_commit_above_the_end_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let table = open(root.path());
        let above = table.commit(QUEUE, 11, to(10)).unwrap_err();
        assert_eq!(above, CommitError::AboveEnd { offset: 11, max_offset: 10 });
        assert_eq!(table.get("g", "t", 0), None);
        assert!(table.commit(QUEUE, 10, to(10)).is_ok());
        let pull = PullAt { place: QUEUE, offset: 3, commit: Some(12), readable: to(10), reader: None };
        let refused = Some(CommitError::AboveEnd { offset: 12, max_offset: 10 });
        assert_eq!(table.pull(&pull, || true).unwrap().0, Pulling::Reads { refused });
        assert_eq!(table.get("g", "t", 0), Some(10));
    }

    #[test]
    fn a_group_whose_offset_was_set_back_must_pull_there_before_it_commits_beyond() {
        let root = tempfile::tempdir().unwrap();
        let table = open(root.path());
        table.commit(QUEUE, 10, to(10)).unwrap().unwrap().now().unwrap();
        let table = open(root.path());
        table.clamp(|_, _| 4, false).unwrap();
        // The queue has grown beyond the place where a member still stands.
        let before = table.commit(QUEUE, 10, to(20)).unwrap_err();
        assert_eq!(before, CommitError::BeforeStart { offset: 10, max_offset: 4 });
        assert_eq!(pull(&table, 10, to(20)), Pulling::Moved { to: 4 });
        assert_eq!(table.get("g", "t", 0), Some(4));
        // Retention has removed what was there: the first message that is left will do.
        assert_eq!(pull(&table, 10, Readable { min: 6, max: 20 }), Pulling::Moved { to: 6 });
        assert_eq!(pull(&table, 4, to(20)), reads());
        assert_eq!(pull(&table, 12, to(20)), reads());
        assert!(table.commit(QUEUE, 12, to(20)).unwrap().is_none());
    }

    #[test]
    fn a_person_may_put_a_stopped_group_anywhere_up_to_the_end() {
        let root = tempfile::tempdir().unwrap();
        open(root.path()).commit(QUEUE, 10, to(10)).unwrap().unwrap().now().unwrap();
        let table = open(root.path());
        table.clamp(|_, _| 4, false).unwrap();
        assert!(table.reset(QUEUE, 21, to(20)).is_err());
        assert!(
            table.commit(QUEUE, 20, to(20)).is_err(),
            "a reset that is refused says nothing of the members"
        );
        table.reset(QUEUE, 20, to(20)).unwrap();
        assert_eq!(pull(&table, 20, to(20)), reads());
        assert_eq!(table.get("g", "t", 0), Some(20));
    }

    #[test]
    fn after_a_start_in_doubt_every_group_shows_where_it_stands() {
        let root = tempfile::tempdir().unwrap();
        open(root.path()).commit(QUEUE, 2, to(10)).unwrap().unwrap().now().unwrap();
        for is_suspect in [false, true] {
            let table = open(root.path());
            table.clamp(|_, _| 4, is_suspect).unwrap();
            // A member that committed 9 outlived the start; its commit was not written.
            assert_eq!(table.commit(QUEUE, 9, to(20)).is_err(), is_suspect);
            let moved = if is_suspect { Pulling::Moved { to: 4 } } else { reads() };
            assert_eq!(pull(&table, 9, to(20)), moved);
            assert_eq!(pull(&table, 3, to(20)), reads());
            assert_eq!(pull(&table, 9, to(20)), reads());
        }
    }

    #[test]
    fn a_member_that_did_not_pull_between_two_starts_still_goes_back_to_where_the_first_left_the_queue() {
        let root = tempfile::tempdir().unwrap();
        open(root.path()).commit(QUEUE, 2, to(10)).unwrap().unwrap().now().unwrap();
        open(root.path()).clamp(|_, _| 4, true).unwrap();
        // The queue has grown beyond the place where the member is before the next start, in order or not.
        for is_suspect in [false, true] {
            let table = open(root.path());
            table.clamp(|_, _| 20, is_suspect).unwrap();
            assert_eq!(pull(&table, 9, to(20)), Pulling::Moved { to: 4 });
            assert!(table.commit(QUEUE, 9, to(20)).is_err());
        }
        let table = open(root.path());
        table.clamp(|_, _| 20, false).unwrap();
        assert_eq!(pull(&table, 3, to(20)), reads());
        assert!(table.persist().unwrap().is_none(), "what it showed is written at once");
        let table = open(root.path());
        table.clamp(|_, _| 20, false).unwrap();
        assert_eq!(pull(&table, 9, to(20)), reads());
    }

    #[test]
    fn a_pull_stores_where_its_group_begins_once() {
        let root = tempfile::tempdir().unwrap();
        let table = open(root.path());
        let readable = Readable { min: 2, max: 8 };
        let at = |offset| PullAt { place: QUEUE, offset, commit: None, readable, reader: None };
        assert!(table.pull(&at(5), || false).unwrap().1.is_none());
        assert_eq!(table.get("g", "t", 0), None);
        table.pull(&at(5), || true).unwrap().1.expect("it waits for the file").now().unwrap();
        assert_eq!(open(root.path()).get("g", "t", 0), Some(5));
        assert!(table.pull(&at(7), || true).unwrap().1.is_none());
        assert_eq!(table.get("g", "t", 0), Some(5));
        for (offset, start) in [(0, 2), (100, 8)] {
            table.remove_group("g").unwrap().unwrap().now().unwrap();
            table.pull(&at(offset), || true).unwrap().1.unwrap().now().unwrap();
            assert_eq!(table.get("g", "t", 0), Some(start));
        }
    }
}
