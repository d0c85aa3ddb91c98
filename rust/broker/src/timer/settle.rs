//! Writes how far the timers are, as far as the copies of their messages are durable.

use std::sync::atomic::Ordering;

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::timer::{TimerCheckpoint, Unflushed, write_checkpoint};
use tokio::runtime::Handle;
use tracing::error;

use super::deliver::turn;
use super::retained::Progress;
use super::{HOLDER, Timers};
use crate::service::{due_now_ms, flush_at_stop};

/// Maximum number of turns of the deliveries of a stop.
const TURNS_AT_STOP: usize = 64;

/// Writes the checkpoint if there is progress that holds. Blocks; deliveries continue meanwhile.
pub(crate) fn settle<D: Disk>(timers: &Timers<D>, flushed: PhysicalOffset) {
    let store = timers.store();
    let _one_at_a_time = timers.settling.lock();
    let (durable, checkpoint, unflushed) = {
        let mut state = timers.state.lock();
        let Some(durable) = state.retained.durable(flushed) else { return };
        let checkpoint = after(&timers.checkpoint(), &durable.progress, store.now_ms());
        (durable, checkpoint, state.files.unflushed())
    };
    let written = flush_and_write(timers, &unflushed, &checkpoint);
    let mut state = timers.state.lock();
    let state = &mut *state;
    match written {
        Ok(()) => {
            *timers.written.lock() = checkpoint;
            state.retained.written(durable);
            let removed = state.files.remove_before(checkpoint.read_ms, store.min_physical_offset());
            if let Err(error) = removed {
                error!(%error, "files of delivered timers not removed, retrying");
            }
        }
        Err(error) => {
            error!(%error, "progress of the timers not written, retrying");
            state.retained.not_written(durable);
            state.files.not_flushed(unflushed);
        }
    }
    timers.waiting.store(state.retained.count(), Ordering::Relaxed);
    *timers.seen.lock() = state.seen();
    store.set_waiting_from(HOLDER, state.waiting_from(store));
}

fn after(written: &TimerCheckpoint, progress: &Progress, now_ms: i64) -> TimerCheckpoint {
    let [state, _, counter] = written.data_version;
    let queue_offset = progress.next.to_wire();
    TimerCheckpoint {
        read_ms: progress.read_ms,
        log_flushed: i64::try_from(progress.units_end).unwrap_or(i64::MAX),
        queue_offset,
        master_queue_offset: queue_offset,
        data_version: [state, now_ms, counter.wrapping_add(1)],
        cut: progress.cut,
        earlier_cuts: progress.earlier_cuts,
    }
}

/// The wheel is not flushed: a start makes it anew.
fn flush_and_write<D: Disk>(
    timers: &Timers<D>,
    unflushed: &Unflushed<D>,
    checkpoint: &TimerCheckpoint,
) -> Result<(), EnvError> {
    unflushed.flush()?;
    write_checkpoint(timers.store().disk(), &timers.store().config().root, checkpoint)
}

/// Up to where progress may be written.
pub(crate) fn settled_end(timers: &Timers<impl Disk>) -> PhysicalOffset {
    if planted::has(Bug::TimerAheadOfLog) {
        return timers.store().max_physical_offset();
    }
    timers.store().flushed_offset()
}

/// Delivers what is due, as far as that is soon done, and nothing from then on. One that was taken late may be due before others that are
/// delivered already: the progress, which is a place in their order, would count those as not delivered. Blocks; puts wait on the runtime.
pub(crate) fn deliver_at_stop(timers: &Timers<impl Disk>, runtime: &Handle) {
    let mut turns = 0;
    while turn(timers, due_now_ms(timers.store()), runtime) && turns < TURNS_AT_STOP {
        turns += 1;
    }
    timers.state.lock().is_stopped = true;
}

/// Writes the progress when nothing is delivered any more. Blocks until the log is flushed.
pub(crate) fn settle_at_stop(timers: &Timers<impl Disk>) {
    let is_ahead = timers.state.lock().retained.is_ahead();
    if is_ahead {
        flush_at_stop(timers.intake.ground(), "copies of timer messages");
    }
    settle(timers, timers.store().flushed_offset());
}
