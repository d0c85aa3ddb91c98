//! Progress of the delay levels of a master, copied by its slave.

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::{PhysicalOffset, system};
use rocketpy_protocol::body::DelayOffsetSerializeWrapper;
use rocketpy_store::Store;

use super::progress::Progress;
use super::{Delays, HOLDER, LEVELS, State};

impl<D: Disk> Delays<D> {
    /// Takes over how far the master is, in memory and in the file, and no further than the queues go here. Whether that is news. Blocks.
    ///
    /// # Durability
    /// On return it survives a power loss.
    ///
    /// # Errors
    /// The file is not written: what was known before counts.
    pub(crate) fn adopt(&self, mut master: DelayOffsetSerializeWrapper) -> Result<bool, EnvError> {
        let store = self.store();
        master.offset_table.retain(|level, offset| (1..=LEVELS as i32).contains(level) && *offset >= 0);
        for (level, offset) in &mut master.offset_table {
            let bounds = store.queue_bounds(system::SCHEDULE_TOPIC, level.unsigned_abs() - 1);
            *offset = bounds.max.to_wire().min(*offset);
        }
        let mut state = self.state.lock();
        let is_news = *state.progress.file() != master;
        if is_news {
            state.file.save(&master)?;
            self.start(store, &mut state, master);
        }
        // Messages came since, also where the master has delivered none.
        state.first_at = first_waiting(store, &state.progress);
        store.set_waiting_from(HOLDER, state.waiting_from());
        Ok(is_news)
    }

    fn start(&self, store: &Store<D>, state: &mut State<D>, file: DelayOffsetSerializeWrapper) {
        state.progress = Progress::new(file, |level| store.queue_bounds(system::SCHEDULE_TOPIC, level - 1));
        state.due_at_ms = vec![Some(0); LEVELS as usize];
        state.misdated = vec![None; LEVELS as usize];
        state.first_at = first_waiting(store, &state.progress);
        *self.seen.lock() = state.seen();
    }
}

/// Physical offset of the first waiting message of each level. An unreadable message may be anywhere.
fn first_waiting(store: &Store<impl Disk>, progress: &Progress) -> Vec<Option<PhysicalOffset>> {
    let of_level = |level: u32| {
        let next = progress.next(level as usize);
        match store.entries(system::SCHEDULE_TOPIC, level, next, 1) {
            Ok(entries) => entries.first().map(|entry| entry.physical_offset),
            Err(_) => Some(PhysicalOffset::ZERO),
        }
    };
    (0..LEVELS).map(of_level).collect()
}
