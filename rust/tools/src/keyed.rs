//! Records of a key: the places of the log that the index names, and which of the records there belong to a queue.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::files::QueueFiles;
use rocketpy_store::reader::{QueueRange, ReadError, StoreReader};

use crate::ToolError;
use crate::selection::Selection;

/// Places of the log to read, in order: first single records, then a place from which everything is read.
pub(crate) type Jumps = VecDeque<PhysicalOffset>;

/// Where the records of the key may be. `None` without a key, and when no index is known to be complete.
///
/// If no topic is given, looks in all that have queues: the index knows keys only by topic.
pub(crate) fn jumps<D: Disk>(
    reader: &StoreReader<D>,
    selection: &Selection,
) -> Result<Option<Jumps>, ToolError> {
    let Some(key) = selection.key.as_deref().filter(|key| !key.is_empty() && !selection.scans_log) else {
        return Ok(None);
    };
    let topics = match selection.topics.is_empty() {
        true => reader.topic_names()?,
        false => selection.topics.clone(),
    };
    let Some(mut places) = reader.key_places(&topics, key)? else { return Ok(None) };
    let from = selection.physical_from.unwrap_or_default();
    places.offsets.retain(|&place| place >= from);
    Ok(Some(places.offsets.into_iter().chain([places.covered_to]).collect()))
}

/// The parts of queues that are wanted: a record belongs to them when its entry leads to it. Of a topic without queues, which was
/// deleted, every record does.
pub(crate) struct Members<D: Disk> {
    without_queues: BTreeSet<String>,
    queues: HashMap<(String, u32), (QueueRange, QueueFiles<D>)>,
}

impl<D: Disk> Members<D> {
    pub(crate) fn open(
        reader: &StoreReader<D>,
        ranges: Vec<QueueRange>,
        without_queues: BTreeSet<String>,
    ) -> Result<Self, ReadError> {
        let mut log = reader.open_log()?;
        let mut queues = HashMap::with_capacity(ranges.len());
        for range in ranges {
            let queue = reader.open_queue(&range.topic, range.queue_id, &mut log)?;
            queues.insert((range.topic.clone(), range.queue_id), (range, queue));
        }
        Ok(Self { without_queues, queues })
    }

    /// Whether an entry of these parts leads to the record.
    pub(crate) fn hold(&mut self, view: &RecordView<'_>) -> Result<bool, ReadError> {
        let Some((range, queue)) = self.queues.get_mut(&(view.topic.to_owned(), view.queue_id)) else {
            return Ok(self.without_queues.contains(view.topic));
        };
        let offset: QueueOffset = view.queue_offset;
        if !(range.start..range.end).contains(&offset) {
            return Ok(false);
        }
        Ok(queue.entry(offset)?.is_some_and(|entry| entry.physical_offset == view.physical_offset))
    }
}
