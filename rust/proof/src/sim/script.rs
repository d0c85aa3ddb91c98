//! The calls that a run makes, step by step.

use std::net::SocketAddr;

use rocketpy_env::sim::SimDisk;
use rocketpy_filter::MessageFilter;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::record::records;
use rocketpy_store::{AppendError, Fetch, FlushMode, KeyKind, NewRecord, ReadLimits, Store, StoreError};

use super::message::{Message, delivery, key_of};
use super::run::Run;
use crate::checker::Rule;
use crate::history::{Call, Delivery, Event, LogRange, Look, QueueName, Reply};

/// Most messages of one read.
const MOST: ReadLimits = ReadLimits { max_messages: 1000, max_bytes: 1 << 20, copies: true };

pub(super) fn born_host() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 50_000))
}

impl Run {
    /// Takes steps until all are done, the store is poisoned, or something is wrong.
    pub(super) fn script(&mut self, store: &Store<SimDisk>, steps: u32) {
        for _ in 0..steps {
            self.step(store);
            if self.is_broken() || (store.poisoned().is_some() && self.rng.u8(0..4) == 0) {
                return;
            }
        }
    }

    fn step(&mut self, store: &Store<SimDisk>) {
        if self.plan.tables && self.rng.u8(0..12) == 0 {
            self.change_table();
        }
        match self.rng.u8(0..113) {
            0..=54 => self.append(store),
            55..=62 => self.append_batch(store),
            63..=72 => drop(store.step_flush()),
            73..=81 => self.dispatch(store),
            82 => self.write(store),
            83..=87 => {
                if store.step_checkpoint().is_ok() {
                    self.known.marked_to = store.flushed_offset().get();
                }
            }
            88..=91 => store.step_allocate(),
            100..=103 => self.persist_offsets(),
            dice @ 104.. => self.remove_something(store, dice - 104),
            _ => {
                let reader = self.rng.usize(0..self.readers.len());
                let queue = self.some_queue();
                self.read(store, reader, &queue);
            }
        }
        self.journal.lock().push(Event::Flushed { end: store.flushed_offset().get() });
    }

    pub(super) fn some_queue(&mut self) -> QueueName {
        let topic = format!("topic{}", self.rng.u32(0..self.plan.topics));
        QueueName { topic, queue_id: self.rng.u32(0..self.plan.queues) }
    }

    fn next_message(&mut self, queue: &QueueName) -> (Message, u64) {
        self.last_message += 1;
        let size = self.rng.usize(8..=self.plan.body_max);
        let message = Message::new(self.last_message, queue.clone(), size);
        let op = self.journal.lock().invoke(Call::Send(message.call(self.plan.record_check)));
        self.in_flight.push(op);
        (message, op)
    }

    pub(super) fn append(&mut self, store: &Store<SimDisk>) {
        let queue = self.some_queue();
        let (message, op) = self.next_message(&queue);
        let record = new_record(&queue, &message.body, &message.properties);
        let appended = store.append(&record);
        self.in_flight.clear();
        match appended {
            Ok(appended) => {
                let log = LogRange { start: appended.physical_offset.get(), end: appended.end.get() };
                self.stored(op, &queue, appended.queue_offset.get(), log, log.end);
                if self.rng.u8(0..8) == 0 && self.plan.flush == FlushMode::Sync {
                    store.request_flush(appended.end); // no thread acts on it: the next flush step does
                }
            }
            Err(error) => self.refused(&[op], &error),
        }
    }

    fn append_batch(&mut self, store: &Store<SimDisk>) {
        let queue = self.some_queue();
        let count = self.rng.usize(1..=4);
        let (messages, ops): (Vec<_>, Vec<_>) = (0..count).map(|_| self.next_message(&queue)).unzip();
        let mut body = Vec::new();
        for message in &messages {
            let item = BatchItem { flag: 0, body: &message.body, properties: &message.properties };
            if item.encode(&mut body).is_err() {
                self.wrong(Rule::Alive, "a small message does not fit into a batch");
            }
        }
        let appended = store.append_batch(&new_record(&queue, &body, b""));
        self.in_flight.clear();
        match appended {
            Ok(appended) => {
                let starts: Vec<u64> = appended.physical_offsets.iter().map(|offset| offset.get()).collect();
                let ends = starts[1..].iter().copied().chain([appended.end.get()]);
                for (index, (&start, end)) in starts.iter().zip(ends).enumerate() {
                    let offset = appended.first_queue_offset.get() + index as u64;
                    self.stored(ops[index], &queue, offset, LogRange { start, end }, appended.end.get());
                }
            }
            Err(error) => self.refused(&ops, &error),
        }
    }

    /// A send got its place: it is acknowledged now, or once the log is durable before `end`.
    fn stored(&mut self, op: u64, queue: &QueueName, offset: u64, log: LogRange, end: u64) {
        if !self.may_refuse_for_space().1 {
            self.wrong(Rule::Alive, "an append is accepted although the disk is nearly full");
        }
        let reply = Reply::Sent { queue: queue.clone(), offset, log: Some(log) };
        match self.plan.flush {
            FlushMode::Sync => self.journal.lock().wait(op, end, reply),
            FlushMode::Async => self.journal.lock().ok(op, reply),
        }
    }

    fn refused(&mut self, ops: &[u64], error: &AppendError) {
        let is_of_disk = matches!(
            error,
            AppendError::DiskFull { .. }
                | AppendError::NoFile { .. }
                | AppendError::Poisoned { .. }
                | AppendError::QueueNotWriteable { .. }
        );
        let is_for_space =
            matches!(error, AppendError::DiskNearlyFull { .. }) && self.may_refuse_for_space().0;
        if !(is_for_space || is_of_disk && self.has_faults()) {
            self.wrong(Rule::Alive, format!("an append is refused on a sound disk: {error}"));
        }
        for &op in ops {
            self.journal.lock().push(Event::Fail { op, reason: error.to_string() });
        }
    }

    fn dispatch(&mut self, store: &Store<SimDisk>) {
        if let Err(error) = store.step_dispatch()
            && !self.has_faults()
        {
            self.wrong(Rule::Alive, format!("dispatch fails on a sound disk: {error}"));
        }
    }

    fn write(&mut self, store: &Store<SimDisk>) {
        if let Err(error) = store.step_write()
            && !self.has_faults()
        {
            self.wrong(Rule::Alive, format!("queues cannot be written on a sound disk: {error}"));
        }
    }

    /// A group reads from a queue, and may commit.
    fn read(&mut self, store: &Store<SimDisk>, reader: usize, queue: &QueueName) {
        let (name, tag) = (self.readers[reader].name, self.readers[reader].tag);
        let position = self.pulls_at(store, reader, queue);
        let max_messages = self.rng.u32(1..20);
        let max_bytes = 1 << self.rng.u32(8..20);
        let limits = ReadLimits { max_messages, max_bytes, copies: max_messages.is_multiple_of(2) };
        let filter = tag.map_or(MessageFilter::All, MessageFilter::tag_codes);
        let call = Call::Receive { group: name.to_owned(), member: 0 };
        let op = self.journal.lock().invoke(call);
        self.in_flight.push(op);
        let fetch = store.get(&queue.topic, queue.queue_id, position as i64, &limits, &filter);
        self.in_flight.clear();
        let deliveries = fetch.map_err(|error| self.failed_read(&error)).ok().map(|fetch| {
            let deliveries = self.deliveries(&fetch);
            self.readers[reader].positions.insert(queue.clone(), fetch.next_offset.get());
            deliveries
        });
        let mut journal = self.journal.lock();
        let Some(deliveries) = deliveries else {
            journal.push(Event::Fail { op, reason: "the read failed".to_owned() });
            return;
        };
        journal.push(Event::Ok { op, reply: Reply::Received { at_ms: 0, deliveries } });
        drop(journal);
        if self.rng.bool() {
            self.commit(store, reader, queue);
        }
    }

    fn failed_read(&mut self, error: &StoreError) {
        if !matches!(error, StoreError::Env(_)) || !self.has_faults() {
            self.wrong(Rule::R6, format!("a queue cannot be read: {error}"));
        }
    }

    fn deliveries(&mut self, fetch: &Fetch) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for record in fetch.records.iter().flat_map(|bytes| records(bytes)) {
            match record {
                Ok(view) => deliveries.push(delivery(&view, self.plan.record_check)),
                Err(error) => self.wrong(Rule::C3, format!("a read returns what is not a record: {error}")),
            }
        }
        if deliveries.len() as u32 != fetch.count {
            self.wrong(
                Rule::C3,
                format!("a read returns {} records and counts {}", deliveries.len(), fetch.count),
            );
        }
        deliveries
    }

    /// Reads everything that is there.
    pub(super) fn audit(&mut self, store: &Store<SimDisk>) {
        let op = self.journal.lock().invoke(Call::Audit);
        let (mut all, mut ends) = (Vec::new(), Vec::new());
        for summary in store.queues() {
            let (mut next, end) = (summary.bounds.min.get(), summary.bounds.max.get());
            ends.push((QueueName { topic: summary.topic.to_string(), queue_id: summary.queue_id }, end));
            while next < end {
                match store.get(&summary.topic, summary.queue_id, next as i64, &MOST, &MessageFilter::All) {
                    Ok(fetch) if fetch.next_offset.get() > next => {
                        all.extend(self.deliveries(&fetch));
                        next = fetch.next_offset.get();
                    }
                    other => {
                        let text = format!(
                            "{}-{} cannot be read at {next}: {other:?}",
                            summary.topic, summary.queue_id
                        );
                        self.wrong(Rule::R6, text);
                        break;
                    }
                }
            }
        }
        if let Some(last) = all.iter().filter_map(|delivery| delivery.log).max_by_key(|log| log.start) {
            let record = store.record_at(PhysicalOffset(last.start));
            if record.ok().flatten().is_none_or(|record| record.len() as u64 != last.end - last.start) {
                self.wrong(Rule::C14, format!("no record is found at {}", last.start));
            }
        }
        let mut journal = self.journal.lock();
        journal.push(Event::Ok { op, reply: Reply::Audited { deliveries: all, ends } });
    }

    /// Looks up some keys. The index holds all that is dispatched.
    pub(super) fn look_up(&mut self, store: &Store<SimDisk>) {
        if self.plan.index.is_none() || !self.plan.record_check {
            return;
        }
        for _ in 0..2 {
            let topic = self.some_queue().topic;
            let key = key_of(self.rng.u64(0..=self.last_message));
            let by = Look::Key { topic: topic.clone(), key: key.clone() };
            let op = self.journal.lock().invoke(Call::Find { by });
            let found = store.query_by_key(&topic, &key, KeyKind::Any, &MOST, 0, i64::MAX);
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    return self.wrong(Rule::C14, format!("no look-up of {key} in {topic}: {error}"));
                }
            };
            let views = found.records.iter().flat_map(|bytes| records(bytes)).flatten();
            let messages = views.map(|view| delivery(&view, false).message).collect();
            self.journal.lock().push(Event::Ok { op, reply: Reply::Found { messages } });
        }
    }

    /// Lets every group read to the end.
    pub(super) fn drain(&mut self, store: &Store<SimDisk>) {
        if let Err(error) = store.step_flush() {
            self.wrong(Rule::C15, format!("the last flush fails on a sound disk: {error}"));
        }
        while store.step_dispatch().is_ok_and(|worked| worked) {}
        self.look_up(store);
        for reader in 0..self.readers.len() {
            for summary in store.queues() {
                let queue = QueueName { topic: summary.topic.to_string(), queue_id: summary.queue_id };
                let end = summary.bounds.max.get();
                for _ in 0..=end {
                    let position = self.readers[reader].positions.get(&queue).copied().unwrap_or(0);
                    if position >= end || self.is_broken() {
                        break;
                    }
                    self.read(store, reader, &queue);
                }
            }
        }
    }
}

fn new_record<'a>(queue: &'a QueueName, body: &'a [u8], properties: &'a [u8]) -> NewRecord<'a> {
    NewRecord {
        topic: &queue.topic,
        queue_id: queue.queue_id,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: born_host(),
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body,
        properties,
        may_have_crc: true,
    }
}
