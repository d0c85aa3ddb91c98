//! Finds where the logs of two stores diverge.

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::files::NOWHERE;
use rocketpy_store::reader::StoreReader;
use serde::Serialize;

use crate::walk::{Checks, LogWalk, Step};
use crate::{ToolError, Watch, tell};

/// How two logs relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Both end at the same place, with the same records as far as both have any.
    Equal,
    /// The second one has all of the first, and more.
    FirstIsBeginning,
    /// The first one has all of the second, and more.
    SecondIsBeginning,
    /// Both have records of their own after a common offset.
    Diverged,
    /// They have no place in common.
    Apart,
}

/// Where the logs of two stores diverge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogDiff {
    /// How they relate.
    pub relation: Relation,
    /// Where both have a log from.
    pub common_start: PhysicalOffset,
    /// Up to here they have the same.
    pub common_end: PhysicalOffset,
    /// The last record that both have.
    pub last_common: Option<DiffRecord>,
    pub first: DiffLog,
    pub second: DiffLog,
}

/// One of two logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiffLog {
    /// Its first byte.
    pub start: PhysicalOffset,
    /// Behind its last record.
    pub end: PhysicalOffset,
    /// Records behind the common ones.
    pub own_records: u64,
    /// Their bytes, with what fills the ends of files.
    pub own_bytes: u64,
    /// The first of them.
    pub first_own: Option<DiffRecord>,
    /// Where damage or a missing file ends what could be compared.
    pub damaged_at: Option<PhysicalOffset>,
}

/// A record that a person can look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiffRecord {
    /// Its place in the log.
    pub physical_offset: PhysicalOffset,
    pub topic: String,
    pub queue_id: u32,
    /// Its place in the queue.
    pub queue_offset: QueueOffset,
    /// When it was stored, in milliseconds since 1970.
    pub stored_at_ms: i64,
}

impl DiffRecord {
    fn of(record: &RecordView<'_>) -> Self {
        Self {
            physical_offset: record.physical_offset,
            topic: record.topic.to_owned(),
            queue_id: record.queue_id,
            queue_offset: record.queue_offset,
            stored_at_ms: record.stored_at_ms,
        }
    }
}

/// A walk over one of the two logs.
struct Side<D: Disk> {
    walk: LogWalk<D>,
    log: DiffLog,
}

impl<D: Disk> Side<D> {
    fn new(reader: &StoreReader<D>) -> Result<Self, ToolError> {
        let walk = LogWalk::new(reader, NOWHERE, Checks::Layout)?;
        let start = walk.start();
        let log =
            DiffLog { start, end: start, own_records: 0, own_bytes: 0, first_own: None, damaged_at: None };
        Ok(Self { walk, log })
    }

    fn go_to(&mut self, at: PhysicalOffset) {
        self.walk.go_to(at);
        self.log.end = at;
    }

    /// Copies the next record into a buffer; `None` at the end of the log, or where it cannot be read further.
    fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<DiffRecord>, ToolError> {
        let stopped_at = match self.walk.step()? {
            Step::Record(record) => {
                buffer.clear();
                buffer.extend_from_slice(record.bytes);
                self.log.end = record.physical_offset + record.size() as u64;
                return Ok(Some(DiffRecord::of(&record)));
            }
            Step::End => return Ok(None),
            Step::Damage { at, .. } | Step::MissingFiles { at, .. } => at,
        };
        // Zeros up to the end of all files are what nobody has written yet.
        let is_end = self.walk.end_of_data(stopped_at, &mut |_| Ok(()))? == stopped_at
            && self.walk.file_end(stopped_at)?.is_some();
        self.log.damaged_at = (!is_end).then_some(stopped_at);
        Ok(None)
    }

    /// Counts what it has from `found` on.
    fn count(
        &mut self,
        common_end: PhysicalOffset,
        found: Option<DiffRecord>,
        watch: Watch<'_>,
    ) -> Result<(), ToolError> {
        let (mut buffer, total) = (Vec::new(), self.walk.end_of_files().get());
        let mut next = found.clone();
        self.log.first_own = found;
        while next.is_some() {
            self.log.own_records += 1;
            tell(watch, self.log.end.get(), total)?;
            next = self.next(&mut buffer)?;
        }
        self.log.own_bytes = self.log.end.saturating_sub(common_end);
        Ok(())
    }
}

/// Compares the logs of two stores, record by record.
///
/// # Errors
/// A folder cannot be read; the caller stopped it. Damage is in the report.
pub fn diff<D: Disk>(
    first: &StoreReader<D>,
    second: &StoreReader<D>,
    watch: Watch<'_>,
) -> Result<LogDiff, ToolError> {
    let (mut first, mut second) = (Side::new(first)?, Side::new(second)?);
    let common_start = first.walk.start().max(second.walk.start());
    first.go_to(common_start);
    second.go_to(common_start);
    let total = first.walk.end_of_files().min(second.walk.end_of_files()).get();
    let (mut common_end, mut last_common) = (common_start, None);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let (own, others) = loop {
        tell(watch, common_end.get(), total)?;
        let found = (first.next(&mut one)?, second.next(&mut other)?);
        match found {
            (Some(record), Some(same)) if record == same && one == other => {
                common_end = first.log.end;
                last_common = Some(record);
            }
            differing => break differing,
        }
    };
    let is_apart = last_common.is_none() && (own.is_none() || others.is_none());
    let relation = match (&own, &others) {
        (Some(_), Some(_)) => Relation::Diverged,
        _ if is_apart && first.log.start != second.log.start => Relation::Apart,
        (None, None) => Relation::Equal,
        (None, Some(_)) => Relation::FirstIsBeginning,
        (Some(_), None) => Relation::SecondIsBeginning,
    };
    first.count(common_end, own, watch)?;
    second.count(common_end, others, watch)?;
    Ok(LogDiff { relation, common_start, common_end, last_common, first: first.log, second: second.log })
}
