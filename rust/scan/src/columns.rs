//! The columns a scan can give, in the one order that all doors share.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::ScanError;

/// One column of a scan.
///
/// The first twelve are given when nothing else is asked for; the others only by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Column {
    /// Topic the message was sent to.
    Topic,
    /// Queue of the topic.
    QueueId,
    /// Entry in the queue.
    QueueOffset,
    /// Broker that holds the queue; null when a store folder is read without naming it.
    BrokerName,
    /// Tag, null without one.
    #[doc(alias = "TAGS")]
    Tag,
    /// Keys as sent, separated by spaces; null without any.
    #[doc(alias = "KEYS")]
    Keys,
    /// Body as the producer gave it: decompressed.
    Body,
    /// Every property but the store's own record checksum.
    Properties,
    /// Producer's clock when the message was made; null for a number that not every reader can represent.
    #[doc(alias = "bornTimestamp")]
    BornAt,
    /// Broker's clock when the message was stored; null as for [`BornAt`](Self::BornAt).
    #[doc(alias = "storeTimestamp")]
    StoredAt,
    /// Unique key that the producer gave the message.
    #[doc(alias = "UNIQ_KEY")]
    MsgId,
    /// How often the message was sent back by a consumer.
    ReconsumeTimes,
    /// First byte of the record in the commit log.
    PhysicalOffset,
    /// Message id by place: store host and physical offset in hexadecimal.
    OffsetMsgId,
    /// Address of the producer.
    BornHost,
    /// Address that the broker announced when it stored the message.
    StoreHost,
    /// The producer's free flag.
    Flag,
    /// Bits of the record (compression, transaction, address kinds).
    SysFlag,
    /// CRC-31 of the body as stored.
    BodyCrc,
    /// Physical offset of the half message of a committed transaction.
    PreparedTransactionOffset,
    /// Length of the whole record in the log.
    SizeBytes,
    /// The number of [`BornAt`](Self::BornAt) as stored, in milliseconds since 1970.
    BornAtMs,
    /// The number of [`StoredAt`](Self::StoredAt) as stored, in milliseconds since 1970.
    StoredAtMs,
}

impl Column {
    /// Every column, in the order of a full schema.
    pub const ALL: [Self; 23] = [
        Self::Topic,
        Self::QueueId,
        Self::QueueOffset,
        Self::BrokerName,
        Self::Tag,
        Self::Keys,
        Self::Body,
        Self::Properties,
        Self::BornAt,
        Self::StoredAt,
        Self::MsgId,
        Self::ReconsumeTimes,
        Self::PhysicalOffset,
        Self::OffsetMsgId,
        Self::BornHost,
        Self::StoreHost,
        Self::Flag,
        Self::SysFlag,
        Self::BodyCrc,
        Self::PreparedTransactionOffset,
        Self::SizeBytes,
        Self::BornAtMs,
        Self::StoredAtMs,
    ];

    const DEFAULT_COUNT: usize = 12;

    /// Name of the column in every schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::QueueId => "queue_id",
            Self::QueueOffset => "queue_offset",
            Self::BrokerName => "broker_name",
            Self::Tag => "tag",
            Self::Keys => "keys",
            Self::Body => "body",
            Self::Properties => "properties",
            Self::BornAt => "born_at",
            Self::StoredAt => "stored_at",
            Self::MsgId => "msg_id",
            Self::ReconsumeTimes => "reconsume_times",
            Self::PhysicalOffset => "physical_offset",
            Self::OffsetMsgId => "offset_msg_id",
            Self::BornHost => "born_host",
            Self::StoreHost => "store_host",
            Self::Flag => "flag",
            Self::SysFlag => "sys_flag",
            Self::BodyCrc => "body_crc",
            Self::PreparedTransactionOffset => "prepared_transaction_offset",
            Self::SizeBytes => "size_bytes",
            Self::BornAtMs => "born_at_ms",
            Self::StoredAtMs => "stored_at_ms",
        }
    }

    /// Finds a column by its name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Arrow type, one that Spark's Python data source takes as it is.
    ///
    /// # Source
    /// Spark compares with its own Arrow schema for equality: plain (not large, not view) binary and text,
    /// timestamps in microseconds with the zone written `UTC`, map entries named `key` and `value`.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self {
            Self::Topic
            | Self::BrokerName
            | Self::Tag
            | Self::Keys
            | Self::MsgId
            | Self::OffsetMsgId
            | Self::BornHost
            | Self::StoreHost => DataType::Utf8,
            Self::QueueId
            | Self::ReconsumeTimes
            | Self::Flag
            | Self::SysFlag
            | Self::BodyCrc
            | Self::SizeBytes => DataType::Int32,
            Self::QueueOffset
            | Self::PhysicalOffset
            | Self::PreparedTransactionOffset
            | Self::BornAtMs
            | Self::StoredAtMs => DataType::Int64,
            Self::Body => DataType::Binary,
            Self::BornAt | Self::StoredAt => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Properties => DataType::Map(map_entries_field(), false),
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Field of the entries of the property map: `entries: struct<key: string not null, value: string>`.
pub(crate) fn map_entries_field() -> Arc<Field> {
    let key = Field::new("key", DataType::Utf8, false);
    let value = Field::new("value", DataType::Utf8, true);
    Arc::new(Field::new("entries", DataType::Struct(vec![key, value].into()), false))
}

/// Which columns a scan gives, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    order: Vec<Column>,
    mask: u32,
}

impl Default for Columns {
    fn default() -> Self {
        Self::of(&Column::ALL[..Column::DEFAULT_COUNT])
    }
}

impl Columns {
    /// Takes the given columns in the given order; a repeated one counts once.
    #[must_use]
    pub fn of(columns: &[Column]) -> Self {
        let mut taken = Self { order: Vec::with_capacity(columns.len()), mask: 0 };
        for &column in columns {
            if !taken.has(column) {
                taken.mask |= column.bit();
                taken.order.push(column);
            }
        }
        taken
    }

    /// Every column there is.
    #[must_use]
    pub fn all() -> Self {
        Self::of(&Column::ALL)
    }

    /// Takes columns by name, in the given order.
    ///
    /// # Errors
    /// [`ScanError::UnknownColumn`] names the first unknown one and lists those that exist.
    pub fn parse<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, ScanError> {
        let mut columns = Vec::new();
        for name in names {
            let name = name.as_ref();
            let unknown = || ScanError::UnknownColumn { column: name.to_owned() };
            columns.push(Column::from_name(name).ok_or_else(unknown)?);
        }
        Ok(Self::of(&columns))
    }

    /// True when the column is wanted.
    #[must_use]
    pub const fn has(&self, column: Column) -> bool {
        self.mask & column.bit() != 0
    }

    /// The wanted columns in order.
    #[must_use]
    pub fn order(&self) -> &[Column] {
        &self.order
    }

    /// Arrow schema of the batches, every column nullable.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let fields: Vec<Field> =
            self.order.iter().map(|column| Field::new(column.name(), column.data_type(), true)).collect();
        Arc::new(Schema::new(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_found_by_its_own_name() {
        for column in Column::ALL {
            assert_eq!(Column::from_name(column.name()), Some(column));
        }
        assert_eq!(Column::from_name("queueId"), None);
    }

    #[test]
    fn parse_keeps_the_order_asked_for_and_counts_a_repeated_column_once() {
        let columns = Columns::parse(["tag", "topic", "tag"]).unwrap();
        assert_eq!(columns.order(), [Column::Tag, Column::Topic]);
        assert!(columns.has(Column::Topic) && !columns.has(Column::Body));
    }

    #[test]
    fn an_unknown_column_is_named_with_those_that_exist() {
        let error = Columns::parse(["topic", "boddy"]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("boddy"), "{text}");
        assert!(error.hint().is_some_and(|hint| hint.contains("body")));
    }

    #[test]
    fn the_default_schema_is_the_twelve_columns_of_the_design() {
        let schema = Columns::default().schema();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let expected = "topic queue_id queue_offset broker_name tag keys body properties born_at stored_at msg_id \
                        reconsume_times";
        assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>());
        assert!(schema.fields().iter().all(|field| field.is_nullable()));
    }
}
