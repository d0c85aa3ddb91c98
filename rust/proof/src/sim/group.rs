//! Consumer groups, and the broker's own table of their offsets.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_broker::{BrokerError, OffsetTable, Place, Readable, make_config_folder};
use rocketpy_env::Disk;
use rocketpy_env::sim::SimDisk;
use rocketpy_store::Store;

use super::plan::ROOT;
use super::reader::Reader;
use super::run::Run;
use crate::checker::Rule;
use crate::history::{Call, Event, QueueName, Reply};

impl Run {
    /// Does what a broker does with its store before it serves. Returns whether it can serve.
    pub(super) fn prepare_to_serve(&mut self, store: &Store<SimDisk>) -> bool {
        let opened = self.open_offsets(store).and_then(|offsets| {
            self.offsets = Some(offsets);
            self.open_tables()
        });
        match opened {
            Ok(()) => self.set_topic_age(store),
            Err(BrokerError::Env(_)) if self.has_faults() => false,
            Err(error) => {
                self.wrong(Rule::R9, format!("the broker's tables cannot be opened: {error}"));
                false
            }
        }
    }

    fn open_offsets(&self, store: &Store<SimDisk>) -> Result<OffsetTable<SimDisk>, BrokerError> {
        let root = Path::new(ROOT);
        make_config_folder(&self.disk, root)?;
        let offsets = OffsetTable::open(self.disk.clone(), root)?;
        let max_offset = |topic: &str, queue_id| store.queue_bounds(topic, queue_id).max.get() as i64;
        offsets.clamp(max_offset, !store.recovery().clean_exit)?;
        Ok(offsets)
    }

    /// Tells the store how long the first topic keeps its messages. Returns whether that worked.
    fn set_topic_age(&mut self, store: &Store<SimDisk>) -> bool {
        let Some(topic_ms) = self.plan.retention.and_then(|rules| rules.topic_ms) else { return true };
        let ages = HashMap::from([(Arc::from("topic0"), Duration::from_millis(topic_ms))]);
        let (before_ms, before) = (self.disk.now_ms(), self.disk.monotonic());
        let set = store.set_topic_retention(ages);
        self.note_age(store, before_ms, before, set.is_ok());
        self.note_end(store);
        if let Err(error) = &set
            && !self.has_faults()
        {
            self.wrong(
                Rule::Alive,
                format!("the retention of a topic cannot be set on a sound disk: {error}"),
            );
        }
        set.is_ok()
    }

    /// Checks where the groups continue after a start, and that a kill would not take them further.
    pub(super) fn position_readers(&mut self) {
        let Some(offsets) = &self.offsets else { return };
        let on_disk = OffsetTable::open(self.disk.clone(), Path::new(ROOT)).ok();
        let mut wrongs = Vec::new();
        let mut journal = self.journal.lock();
        let queues: Vec<_> = self.plan.queue_names().collect();
        for reader in &mut self.readers {
            for queue in &queues {
                let stored =
                    |offsets: &OffsetTable<_>| offsets.get(reader.name, &queue.topic, queue.queue_id);
                let Some(offset) = stored(offsets) else { continue };
                if let Some(ahead) = on_disk.as_ref().and_then(stored).filter(|ahead| *ahead > offset) {
                    let name = reader.name;
                    let text = format!(
                        "{name} continues at {offset} of {queue}, after a kill it would continue at {ahead}"
                    );
                    wrongs.push(text);
                }
                let offset = offset as u64;
                reader.positions.entry(queue.clone()).or_insert(offset);
                journal.push(Event::Positioned {
                    group: reader.name.to_owned(),
                    queue: queue.clone(),
                    offset,
                    member: None,
                });
            }
        }
        drop(journal);
        wrongs.into_iter().for_each(|text| self.wrong(Rule::C12, text));
    }

    /// Members that outlived the end of the last broker repeat where they stand, as clients do.
    pub(super) fn repeat_commits(&mut self, store: &Store<SimDisk>) {
        let Some(offsets) = &self.offsets else { return };
        let mut wrongs = Vec::new();
        for reader in &mut self.readers {
            let name = reader.name;
            for (queue, offset) in std::mem::take(&mut reader.outlived) {
                // A first commit writes. That is for the script, which may end in it.
                if offsets.get(name, &queue.topic, queue.queue_id).is_none() {
                    continue;
                }
                let readable = readable(store, &queue);
                if offsets.commit(place(name, &queue), offset as i64, readable).is_err() {
                    continue;
                }
                if offset as i64 > readable.max {
                    let end = readable.max;
                    wrongs.push(format!(
                        "a commit of {name} at {offset} of {queue} is taken, above the end {end}"
                    ));
                }
                let mut journal = self.journal.lock();
                let op = journal.invoke(Call::Commit { group: name.to_owned(), queue, offset });
                journal.push(Event::Ok { op, reply: Reply::Committed });
            }
        }
        wrongs.into_iter().for_each(|text| self.wrong(Rule::C12, text));
    }

    /// Where a reader pulls: a start may have taken the queue back below its position.
    pub(super) fn pulls_at(&self, store: &Store<SimDisk>, reader: usize, queue: &QueueName) -> u64 {
        let Reader { name, positions, .. } = &self.readers[reader];
        let position = positions.get(queue).copied().unwrap_or(0);
        let moved = self.offsets.as_ref().and_then(|offsets| {
            offsets.reader_at(place(name, queue), position as i64, readable(store, queue))
        });
        moved.map_or(position, |to| to as u64)
    }

    /// A group commits its offset in a queue.
    pub(super) fn commit(&mut self, store: &Store<SimDisk>, reader: usize, queue: &QueueName) {
        let Some(offsets) = &self.offsets else { return };
        let Reader { name, positions, .. } = &self.readers[reader];
        let offset = positions[queue];
        let call = Call::Commit { group: name.to_string(), queue: queue.clone(), offset };
        let op = self.journal.lock().invoke(call);
        self.in_flight.push(op);
        let committed = match offsets.commit(place(name, queue), offset as i64, readable(store, queue)) {
            Ok(written) => written.map_or(Ok(()), |written| written.now().map_err(|error| error.to_string())),
            Err(error) => Err(error.to_string()),
        };
        self.in_flight.clear();
        if let Err(error) = &committed
            && !self.has_faults()
        {
            self.wrong(Rule::R9, format!("an offset is not stored on a sound disk: {error}"));
        }
        let event = match committed {
            Ok(()) => Event::Ok { op, reply: Reply::Committed },
            Err(reason) => Event::Unknown { op, reason },
        };
        self.journal.lock().push(event);
    }

    /// Persists the offsets, as a broker does every few seconds and when it stops.
    pub(super) fn persist_offsets(&mut self) {
        let Some(offsets) = &self.offsets else { return };
        let persisted = match offsets.persist() {
            Ok(written) => written.map_or(Ok(()), |written| written.now().map_err(|error| error.to_string())),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = persisted
            && !self.has_faults()
        {
            self.wrong(Rule::R9, format!("offsets cannot be written on a sound disk: {error}"));
        }
    }
}

fn place<'a>(group: &'a str, queue: &'a QueueName) -> Place<'a> {
    Place { group, topic: &queue.topic, queue_id: queue.queue_id }
}

fn readable(store: &Store<SimDisk>, queue: &QueueName) -> Readable {
    let bounds = store.queue_bounds(&queue.topic, queue.queue_id);
    Readable { min: bounds.min.get() as i64, max: bounds.max.get() as i64 }
}
