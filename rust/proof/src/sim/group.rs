//! Consumer groups, and the broker's own table of their offsets.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_broker::{BrokerError, OffsetTable};
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
        match self.open_offsets(store) {
            Ok(offsets) => {
                self.offsets = Some(offsets);
                self.set_topic_age(store)
            }
            Err(BrokerError::Env(_)) if self.has_faults() => false,
            Err(error) => {
                self.wrong(Rule::R9, format!("the offsets of groups cannot be opened: {error}"));
                false
            }
        }
    }

    fn open_offsets(&self, store: &Store<SimDisk>) -> Result<OffsetTable<SimDisk>, BrokerError> {
        let root = Path::new(ROOT);
        self.disk.create_dir_all(&root.join("config"))?;
        let offsets = OffsetTable::open(self.disk.clone(), root)?;
        offsets.clamp(|topic, queue_id| store.queue_bounds(topic, queue_id).max.get() as i64)?;
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

    /// Checks where the groups continue after a start.
    pub(super) fn position_readers(&mut self) {
        let Some(offsets) = &self.offsets else { return };
        let mut journal = self.journal.lock();
        let queues: Vec<_> = self.plan.queue_names().collect();
        for reader in &mut self.readers {
            for queue in &queues {
                let Some(offset) = offsets.get(reader.name, &queue.topic, queue.queue_id) else { continue };
                let offset = offset as u64;
                reader.positions.entry(queue.clone()).or_insert(offset);
                journal.push(Event::Positioned {
                    group: reader.name.to_owned(),
                    queue: queue.clone(),
                    offset,
                });
            }
        }
    }

    /// A group commits its offset in a queue.
    pub(super) fn commit(&mut self, reader: usize, queue: &QueueName) {
        let Some(offsets) = &self.offsets else { return };
        let Reader { name, positions, .. } = &self.readers[reader];
        let (group, offset) = (name.to_string(), positions[queue]);
        let mut journal = self.journal.lock();
        let op = journal.invoke(Call::Commit { group, queue: queue.clone(), offset });
        offsets.commit(name, &queue.topic, queue.queue_id, offset as i64);
        journal.push(Event::Ok { op, reply: Reply::Committed });
    }

    /// Persists the offsets, as a broker does every few seconds and when it stops.
    pub(super) fn persist_offsets(&mut self) {
        let persisted = self.offsets.as_ref().map_or(Ok(()), OffsetTable::persist);
        if let Err(error) = persisted
            && !self.has_faults()
        {
            self.wrong(Rule::R9, format!("offsets cannot be written on a sound disk: {error}"));
        }
    }
}
