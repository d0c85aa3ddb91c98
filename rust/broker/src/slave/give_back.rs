//! Offsets that consumers committed at a slave, on their way back to its master.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::ask::{Master, NotTaken};
use crate::table::offset::Place;
use crate::table::offset_adopt::MasterOffsets;

/// Maximum number of offsets that are remembered. What is beyond is consumed again once the master is back.
const MAX_COMMITS: usize = 100_000;

/// A group, a topic and a queue.
type Queue = (String, String, u32);

/// What consumers committed at this slave, which its master has not been told of.
///
/// While the master is away consumers continue at its slave. The master's offsets count once it is back, so they have to be its slave's first.
#[derive(Debug, Default)]
pub(crate) struct OwnCommits(Mutex<BTreeMap<Queue, i64>>);

impl OwnCommits {
    /// Remembers a commit.
    pub(crate) fn note(&self, place: Place<'_>, offset: i64) {
        let mut commits = self.0.lock();
        let queue = (place.group.to_owned(), place.topic.to_owned(), place.queue_id);
        if commits.len() < MAX_COMMITS || commits.contains_key(&queue) {
            commits.insert(queue, offset);
        }
    }

    /// Tells the master those that are beyond its own. What it cannot take, because it has not so many messages or no such group, is left out.
    ///
    /// # Errors
    /// The master does not answer; what it was not told of is remembered.
    pub(super) async fn give_to(&self, master: &Master<'_>) -> Result<(), NotTaken> {
        if self.0.lock().is_empty() {
            return Ok(());
        }
        let theirs = MasterOffsets::new(master.consumer_offsets().await?);
        loop {
            let Some(((group, topic, queue_id), offset)) = self.0.lock().pop_first() else { return Ok(()) };
            let place = Place { group: &group, topic: &topic, queue_id };
            if theirs.get(place).is_some_and(|known| known >= offset) {
                continue;
            }
            match master.commit(place, offset).await {
                Err(error @ NotTaken::Call(_)) => {
                    self.0.lock().entry((group, topic, queue_id)).or_insert(offset);
                    return Err(error);
                }
                Err(cause) => {
                    tracing::warn!(group, topic, queue_id, offset, %cause, "consumer offset not sent to the master")
                }
                Ok(()) => {
                    tracing::debug!(group, topic, queue_id, offset, "consumer offset sent to the master")
                }
            }
        }
    }
}
