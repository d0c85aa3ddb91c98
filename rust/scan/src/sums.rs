//! Messages counted and added up by group, without their columns.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use rocketpy_model::property;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::RecordView;

use crate::rows::microseconds;
use crate::{Column, ScanError};

/// What messages can be grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Topic the message was sent to.
    Topic,
    /// Broker that holds the queue.
    BrokerName,
    /// Queue of the topic.
    QueueId,
    Tag,
    /// Each key: a message counts for all of its keys, and as null without any.
    Key,
    /// Key that orders messages.
    OrderKey,
    /// Topic that a message which was sent again came from.
    OriginTopic,
    /// Address of the producer.
    BornHost,
    /// Address that the broker announced.
    StoreHost,
    /// How often the message was sent back.
    ReconsumeTimes,
    /// Bytes of the record, rounded up to a power of two.
    Size,
    /// Minute in which it was stored; null for a store time that not every reader can represent.
    Minute,
    /// Hour in which it was stored.
    Hour,
    /// Day on which it was stored, in UTC.
    Day,
}

impl Group {
    const ALL: [Self; 14] = [
        Self::Topic,
        Self::BrokerName,
        Self::QueueId,
        Self::Tag,
        Self::Key,
        Self::OrderKey,
        Self::OriginTopic,
        Self::BornHost,
        Self::StoreHost,
        Self::ReconsumeTimes,
        Self::Size,
        Self::Minute,
        Self::Hour,
        Self::Day,
    ];

    /// Name of its column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topic => Column::Topic.name(),
            Self::BrokerName => Column::BrokerName.name(),
            Self::QueueId => Column::QueueId.name(),
            Self::Tag => Column::Tag.name(),
            Self::Key => "key",
            Self::OrderKey => "order_key",
            Self::OriginTopic => "origin_topic",
            Self::BornHost => Column::BornHost.name(),
            Self::StoreHost => Column::StoreHost.name(),
            Self::ReconsumeTimes => Column::ReconsumeTimes.name(),
            Self::Size => "size",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Finds groups by their names.
    ///
    /// # Errors
    /// [`ScanError::UnknownGroup`] names the first unknown one.
    pub fn parse<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Vec<Self>, ScanError> {
        let find = |name: S| {
            let found = Self::ALL.into_iter().find(|group| group.name() == name.as_ref());
            found.ok_or_else(|| ScanError::UnknownGroup { group: name.as_ref().to_owned() })
        };
        names.into_iter().map(find).collect()
    }

    fn data_type(self) -> DataType {
        match self {
            Self::QueueId | Self::ReconsumeTimes => DataType::Int32,
            Self::Size => DataType::Int64,
            Self::Minute | Self::Hour | Self::Day => timestamp(),
            _ => DataType::Utf8,
        }
    }

    /// Appends the group of a record to the key of its sums.
    fn encode(
        self,
        record: &RecordView<'_>,
        broker_name: Option<&str>,
        key: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        let property = |name| properties_text::get_bytes(record.properties, name);
        match self {
            Self::Topic => encode_text(Some(record.topic.as_bytes()), out),
            Self::BrokerName => encode_text(broker_name.map(str::as_bytes), out),
            Self::Tag => encode_text(property(property::TAGS), out),
            Self::Key => encode_text(key.map(str::as_bytes), out),
            Self::OrderKey => encode_text(property(property::SHARDING_KEY), out),
            Self::OriginTopic => encode_text(property(property::ORIGIN_TOPIC), out),
            Self::BornHost => encode_display(record.born_host, out),
            Self::StoreHost => encode_display(record.store_host, out),
            Self::QueueId => encode_number(record.queue_id.cast_signed().into(), out),
            Self::ReconsumeTimes => encode_number(record.reconsume_times.into(), out),
            Self::Size => encode_number(record.size().next_power_of_two() as i64, out),
            Self::Minute => encode_time(start_of(60, record), out),
            Self::Hour => encode_time(start_of(3600, record), out),
            Self::Day => encode_time(start_of(86_400, record), out),
        }
    }
}

/// Start of the period in which the record was stored, in microseconds since 1970.
fn start_of(seconds: i64, record: &RecordView<'_>) -> Option<i64> {
    microseconds(record.stored_at_ms).map(|at| at - at.rem_euclid(seconds * 1_000_000))
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Length of a text that is null.
const NO_TEXT: u32 = u32::MAX;
/// Number of a time that is null.
const NO_TIME: i64 = i64::MIN;

fn encode_number(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_ne_bytes());
}

fn encode_time(time: Option<i64>, out: &mut Vec<u8>) {
    encode_number(time.unwrap_or(NO_TIME), out);
}

fn encode_text(text: Option<&[u8]>, out: &mut Vec<u8>) {
    // A text of a record is shorter than 32 KiB.
    let length = text.map_or(NO_TEXT, |text| text.len() as u32);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(text.unwrap_or_default());
}

fn encode_display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; size_of::<u32>()]); // for the length
    let written = write!(out, "{value}");
    debug_assert!(written.is_ok(), "a vector takes every write");
    let length = (out.len() - start - size_of::<u32>()) as u32;
    out[start..start + size_of::<u32>()].copy_from_slice(&length.to_ne_bytes());
}

/// The sums of one group.
#[derive(Clone, Copy)]
struct Sum {
    messages: i64,
    bytes: i64,
    largest_bytes: i64,
    /// Without times that not every reader can represent.
    first_stored_at: Option<i64>,
    last_stored_at: Option<i64>,
}

impl Sum {
    fn of(record: &RecordView<'_>) -> Self {
        let (bytes, stored_at) = (record.size() as i64, microseconds(record.stored_at_ms));
        Self {
            messages: 1,
            bytes,
            largest_bytes: bytes,
            first_stored_at: stored_at,
            last_stored_at: stored_at,
        }
    }

    fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
        self.first_stored_at = [self.first_stored_at, other.first_stored_at].into_iter().flatten().min();
        self.last_stored_at = self.last_stored_at.max(other.last_stored_at);
    }
}

/// Adds messages up by one or more choices of groups.
///
/// A batch has the columns `grouping` (the place of the choice), every group that one of the choices has (null in the others), `messages`,
/// `bytes` (of the records in the log), `largest_bytes`, `first_stored_at` and `last_stored_at`. A group may come in several batches.
pub struct Sums {
    groupings: Vec<Vec<Group>>,
    /// The groups of all choices, each once.
    groups: Vec<Group>,
    schema: SchemaRef,
    most_messages: usize,
    messages: usize,
    /// By the place of the choice and its groups, as [`Group::encode`] writes them.
    sums: HashMap<Box<[u8]>, Sum, ahash::RandomState>,
    /// Bytes of all keys in `sums`.
    key_bytes: usize,
    /// Memory for the key of a record.
    key: Vec<u8>,
}

impl Sums {
    /// Groups after which a batch is full: a topic may have as many keys as messages.
    pub const MOST_GROUPS: usize = 1 << 16;
    /// Bytes of the texts of groups after which a batch is full: a key may be as long as a message's properties.
    pub const MOST_BYTES: usize = 64 << 20;

    /// Adds up by each of `groupings`; a repeated group counts once. A batch is full after `most_messages`, [`MOST_GROUPS`](Self::MOST_GROUPS) or
    /// [`MOST_BYTES`](Self::MOST_BYTES).
    #[must_use]
    pub fn new(groupings: Vec<Vec<Group>>, most_messages: usize) -> Self {
        let groupings: Vec<_> = groupings.into_iter().map(each_once).collect();
        let groups = each_once(groupings.iter().flatten().copied());
        let measures = ["messages", "bytes", "largest_bytes"].map(|name| (name, DataType::Int64));
        let times = ["first_stored_at", "last_stored_at"].map(|name| (name, timestamp()));
        let fields = std::iter::once(("grouping", DataType::Int32))
            .chain(groups.iter().map(|group| (group.name(), group.data_type())))
            .chain(measures)
            .chain(times)
            .map(|(name, data_type)| Field::new(name, data_type, true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let sums = HashMap::default();
        Self { groupings, groups, schema, most_messages, messages: 0, sums, key_bytes: 0, key: Vec::new() }
    }

    /// Schema of every batch.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// True when nothing was added since the last batch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// True when the batch should be finished before another message is added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.messages >= self.most_messages
            || self.sums.len() >= Self::MOST_GROUPS
            || self.key_bytes >= Self::MOST_BYTES
    }

    /// Adds a message.
    pub fn push(&mut self, record: &RecordView<'_>, broker_name: Option<&str>) {
        let Self { groupings, sums, key_bytes, key: scratch, .. } = self;
        let one = Sum::of(record);
        for (number, groups) in groupings.iter().enumerate() {
            let mut add = |key: Option<&str>| {
                scratch.clear();
                encode_number(number as i64, scratch);
                groups.iter().for_each(|group| group.encode(record, broker_name, key, scratch));
                match sums.get_mut(scratch.as_slice()) {
                    Some(sum) => sum.add(&one),
                    None => {
                        *key_bytes += scratch.len();
                        sums.insert(scratch.as_slice().into(), one);
                    }
                }
            };
            if groups.contains(&Group::Key) {
                let keys = properties_text::get_bytes(record.properties, property::KEYS).unwrap_or_default();
                let keys = String::from_utf8_lossy(keys);
                let mut keys = property::split_keys(&keys);
                add(keys.next());
                keys.for_each(|key| add(Some(key)));
            } else {
                add(None);
            }
        }
        self.messages += 1;
    }

    /// Closes the sums so far into a batch and starts over.
    ///
    /// # Errors
    /// [`ScanError::Arrow`], which would be a fault of this type itself.
    pub fn finish(&mut self) -> Result<RecordBatch, ScanError> {
        (self.messages, self.key_bytes) = (0, 0);
        let rows = self.sums.len();
        let mut numbers = Int32Builder::with_capacity(rows);
        let mut columns: Vec<Values> = self.groups.iter().map(|group| Values::new(*group, rows)).collect();
        let mut counts = [(); 3].map(|()| Int64Builder::with_capacity(rows));
        let mut times = [(); 2].map(|()| times_builder(rows));
        for (key, sum) in self.sums.drain() {
            let mut rest = &key[..];
            let number = take_number(&mut rest);
            numbers.append_value(number as i32);
            let mut is_set = vec![false; self.groups.len()];
            for group in &self.groupings[number as usize] {
                let place =
                    self.groups.iter().position(|other| other == group).expect("made of the groupings");
                columns[place].decode(&mut rest);
                is_set[place] = true;
            }
            let others = columns.iter_mut().zip(is_set).filter(|(_, is_set)| !is_set);
            others.for_each(|(column, _)| column.push_null());
            for (column, value) in counts.iter_mut().zip([sum.messages, sum.bytes, sum.largest_bytes]) {
                column.append_value(value);
            }
            for (column, value) in times.iter_mut().zip([sum.first_stored_at, sum.last_stored_at]) {
                column.append_option(value);
            }
        }
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(numbers.finish())];
        arrays.extend(columns.into_iter().map(Values::finish));
        arrays.extend(counts.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        arrays.extend(times.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        Ok(RecordBatch::try_new(self.schema(), arrays)?)
    }
}

fn each_once(groups: impl IntoIterator<Item = Group>) -> Vec<Group> {
    let mut once = Vec::new();
    for group in groups {
        if !once.contains(&group) {
            once.push(group);
        }
    }
    once
}

fn times_builder(rows: usize) -> TimestampMicrosecondBuilder {
    TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(timestamp())
}

fn take_bytes<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_first_chunk().expect("as it was encoded");
    *rest = tail;
    *head
}

fn take_number(rest: &mut &[u8]) -> i64 {
    i64::from_ne_bytes(take_bytes(rest))
}

/// The column of a group.
enum Values {
    Text(StringBuilder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Time(TimestampMicrosecondBuilder),
}

impl Values {
    fn new(group: Group, rows: usize) -> Self {
        match group.data_type() {
            DataType::Int32 => Self::Int32(Int32Builder::with_capacity(rows)),
            DataType::Int64 => Self::Int64(Int64Builder::with_capacity(rows)),
            DataType::Utf8 => Self::Text(StringBuilder::with_capacity(rows, rows * 16)),
            _ => Self::Time(times_builder(rows)),
        }
    }

    /// Appends the group at the start of an encoded key, and goes behind it.
    fn decode(&mut self, rest: &mut &[u8]) {
        match self {
            Self::Text(values) => match u32::from_ne_bytes(take_bytes(rest)) {
                NO_TEXT => values.append_null(),
                length => {
                    let (text, tail) = rest.split_at(length as usize);
                    values.append_value(String::from_utf8_lossy(text));
                    *rest = tail;
                }
            },
            Self::Int32(values) => values.append_value(take_number(rest) as i32),
            Self::Int64(values) => values.append_value(take_number(rest)),
            Self::Time(values) => {
                values.append_option(Some(take_number(rest)).filter(|time| *time != NO_TIME));
            }
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::Text(values) => values.append_null(),
            Self::Int32(values) => values.append_null(),
            Self::Int64(values) => values.append_null(),
            Self::Time(values) => values.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Text(mut values) => Arc::new(values.finish()),
            Self::Int32(mut values) => Arc::new(values.finish()),
            Self::Int64(mut values) => Arc::new(values.finish()),
            Self::Time(mut values) => Arc::new(values.finish()),
        }
    }
}
