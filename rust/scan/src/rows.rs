//! The rows of the batch under way: one vector per column.

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;
use rocketpy_model::in_calendar;
use rocketpy_protocol::record::RecordView;

use crate::properties::PropertyColumns;
use crate::spent::Spent;
use crate::vectors::{Repeats, Spans, Times, int32, int64};
use crate::{BatchLimits, Column, Columns};

/// One vector per column; those of columns that are not wanted stay empty.
pub(crate) struct Rows {
    count: usize,
    topic: Repeats,
    broker_name: Repeats,
    body: Spans,
    properties: PropertyColumns,
    offset_msg_id: Spans,
    born_host: Spans,
    store_host: Spans,
    queue_id: Vec<i32>,
    queue_offset: Vec<i64>,
    born_at: Times,
    stored_at: Times,
    reconsume_times: Vec<i32>,
    physical_offset: Vec<i64>,
    flag: Vec<i32>,
    sys_flag: Vec<i32>,
    body_crc: Vec<i32>,
    prepared_transaction_offset: Vec<i64>,
    size_bytes: Vec<i32>,
    born_at_ms: Vec<i64>,
    stored_at_ms: Vec<i64>,
}

/// Rows for which memory is taken at once; most batches of 1 MiB have fewer.
const FIRST_ROWS: usize = 1024;
/// Bytes of bodies for which memory is taken at once.
const FIRST_BYTES: usize = 1 << 20;

impl Rows {
    pub(crate) fn new(columns: &Columns, limits: BatchLimits) -> Self {
        Self::within(columns, limits.rows.min(FIRST_ROWS), limits.bytes.min(FIRST_BYTES), Spent::default())
    }

    /// Takes room for `rows` rows with `body_bytes` of bodies, in the memory of a spent batch as far as that will do.
    pub(crate) fn within(columns: &Columns, rows: usize, body_bytes: usize, mut spent: Spent) -> Self {
        let mut text = |column: Column, width: usize| match columns.has(column) {
            true => Spans::within(rows, width, &mut spent.take(column)),
            false => Spans::default(),
        };
        let topic = Repeats::new(text(Column::Topic, rows * 16));
        let broker_name = Repeats::new(text(Column::BrokerName, rows * 16));
        let body = text(Column::Body, body_bytes);
        let offset_msg_id = text(Column::OffsetMsgId, rows * 32);
        let born_host = text(Column::BornHost, rows * 16);
        let store_host = text(Column::StoreHost, rows * 16);
        let properties = PropertyColumns::within(columns, rows, &mut spent);
        let mut int32 = |column: Column| match columns.has(column) {
            true => spent.take(column).vector::<i32>(rows),
            false => Vec::new(),
        };
        let queue_id = int32(Column::QueueId);
        let reconsume_times = int32(Column::ReconsumeTimes);
        let flag = int32(Column::Flag);
        let sys_flag = int32(Column::SysFlag);
        let body_crc = int32(Column::BodyCrc);
        let size_bytes = int32(Column::SizeBytes);
        let mut int64 = |column: Column| match columns.has(column) {
            true => spent.take(column).vector::<i64>(rows),
            false => Vec::new(),
        };
        Self {
            count: 0,
            topic,
            broker_name,
            body,
            properties,
            offset_msg_id,
            born_host,
            store_host,
            queue_id,
            queue_offset: int64(Column::QueueOffset),
            born_at: Times::new(int64(Column::BornAt)),
            stored_at: Times::new(int64(Column::StoredAt)),
            reconsume_times,
            physical_offset: int64(Column::PhysicalOffset),
            flag,
            sys_flag,
            body_crc,
            prepared_transaction_offset: int64(Column::PreparedTransactionOffset),
            size_bytes,
            born_at_ms: int64(Column::BornAtMs),
            stored_at_ms: int64(Column::StoredAtMs),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Bytes of bodies and properties so far.
    pub(crate) fn bytes(&self) -> usize {
        self.body.bytes() + self.properties.bytes()
    }

    /// Appends a row. A wanted body is null if it is not there.
    pub(crate) fn push(
        &mut self,
        columns: &Columns,
        record: &RecordView<'_>,
        body: Option<&[u8]>,
        broker_name: Option<&str>,
    ) {
        if columns.has(Column::Body) {
            self.body.push_option(body);
        }
        self.properties.push(record.properties, record.offset_message_id());
        if columns.has(Column::Topic) {
            self.topic.push(Some(record.topic.as_bytes()));
        }
        if columns.has(Column::BrokerName) {
            self.broker_name.push(broker_name.map(str::as_bytes));
        }
        self.push_places(columns, record);
        self.push_facts(columns, record);
        self.count += 1;
    }

    /// Where and when.
    fn push_places(&mut self, columns: &Columns, record: &RecordView<'_>) {
        if columns.has(Column::QueueId) {
            self.queue_id.push(record.queue_id.cast_signed());
        }
        if columns.has(Column::QueueOffset) {
            self.queue_offset.push(record.queue_offset.to_wire());
        }
        if columns.has(Column::BornAt) {
            self.born_at.push(microseconds(record.born_at_ms));
        }
        if columns.has(Column::StoredAt) {
            self.stored_at.push(microseconds(record.stored_at_ms));
        }
        if columns.has(Column::BornAtMs) {
            self.born_at_ms.push(record.born_at_ms);
        }
        if columns.has(Column::StoredAtMs) {
            self.stored_at_ms.push(record.stored_at_ms);
        }
        if columns.has(Column::PhysicalOffset) {
            self.physical_offset.push(record.physical_offset.to_wire());
        }
        if columns.has(Column::OffsetMsgId) {
            self.offset_msg_id.push_display(record.offset_message_id());
        }
        if columns.has(Column::BornHost) {
            self.born_host.push_display(record.born_host);
        }
        if columns.has(Column::StoreHost) {
            self.store_host.push_display(record.store_host);
        }
    }

    fn push_facts(&mut self, columns: &Columns, record: &RecordView<'_>) {
        if columns.has(Column::ReconsumeTimes) {
            self.reconsume_times.push(record.reconsume_times);
        }
        if columns.has(Column::Flag) {
            self.flag.push(record.flag);
        }
        if columns.has(Column::SysFlag) {
            self.sys_flag.push(record.sys_flag);
        }
        if columns.has(Column::BodyCrc) {
            self.body_crc.push(record.body_crc.cast_signed());
        }
        if columns.has(Column::PreparedTransactionOffset) {
            self.prepared_transaction_offset.push(record.prepared_transaction_offset.to_wire());
        }
        if columns.has(Column::SizeBytes) {
            self.size_bytes.push(i32::try_from(record.size()).unwrap_or(i32::MAX));
        }
    }

    /// Hands out the finished column. Each may be taken once.
    pub(crate) fn take(&mut self, column: Column) -> Result<ArrayRef, ArrowError> {
        use std::mem::take;
        Ok(match column {
            Column::Topic => take(&mut self.topic).into_text()?,
            Column::QueueId => int32(take(&mut self.queue_id)),
            Column::QueueOffset => int64(take(&mut self.queue_offset)),
            Column::BrokerName => take(&mut self.broker_name).into_text()?,
            Column::Tag | Column::Keys | Column::MsgId | Column::Properties => {
                self.properties.take(column)?
            }
            Column::Body => take(&mut self.body).into_binary()?,
            Column::BornAt => take(&mut self.born_at).finish(),
            Column::StoredAt => take(&mut self.stored_at).finish(),
            Column::ReconsumeTimes => int32(take(&mut self.reconsume_times)),
            Column::PhysicalOffset => int64(take(&mut self.physical_offset)),
            Column::OffsetMsgId => take(&mut self.offset_msg_id).into_text()?,
            Column::BornHost => take(&mut self.born_host).into_text()?,
            Column::StoreHost => take(&mut self.store_host).into_text()?,
            Column::Flag => int32(take(&mut self.flag)),
            Column::SysFlag => int32(take(&mut self.sys_flag)),
            Column::BodyCrc => int32(take(&mut self.body_crc)),
            Column::PreparedTransactionOffset => int64(take(&mut self.prepared_transaction_offset)),
            Column::SizeBytes => int32(take(&mut self.size_bytes)),
            Column::BornAtMs => int64(take(&mut self.born_at_ms)),
            Column::StoredAtMs => int64(take(&mut self.stored_at_ms)),
        })
    }
}

/// Milliseconds as the unit of the columns; `None` for a time that not every reader can represent.
pub(crate) fn microseconds(at_ms: i64) -> Option<i64> {
    in_calendar(at_ms).map(|at_ms| at_ms * 1000)
}
