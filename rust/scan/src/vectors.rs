//! Column buffers: plain vectors that become Arrow arrays without another copy.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BinaryArray, MapArray, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use crate::columns::map_entries_field;
use crate::spent::SpentColumn;

/// Values of varying length, end to end, with the end of each; none is null.
pub(crate) struct Values {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Values {
    pub(crate) fn with_capacity(values: usize, bytes: usize) -> Self {
        Self::within(values, bytes, &mut SpentColumn::default())
    }

    fn within(values: usize, bytes: usize, spent: &mut SpentColumn) -> Self {
        let mut ends = spent.vector(values + 1);
        ends.push(0);
        Self { ends, bytes: spent.vector(bytes) }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.close();
    }

    #[inline]
    fn close(&mut self) {
        // A batch is closed near 1 MiB and one body is at most 64 MiB: an end always fits, as `finish` checks.
        self.ends.push(self.bytes.len() as i32);
    }

    /// Appends a value `times` times.
    fn push_times(&mut self, value: &[u8], times: usize) {
        let start = self.bytes.len();
        let end = start + value.len() * times;
        self.bytes.reserve(end - start);
        if times > 0 {
            self.bytes.extend_from_slice(value);
        }
        while self.bytes.len() < end {
            let more = (self.bytes.len() - start).min(end - self.bytes.len());
            self.bytes.extend_from_within(start..start + more);
        }
        // As for `close`: the last end is checked by `finish`, and those before it are smaller.
        self.ends.extend((1..=times).map(|count| (start + value.len() * count) as i32));
    }

    /// Appends all values of another.
    #[inline]
    fn push_all(&mut self, other: &Self) {
        let start = self.bytes.len() as i32;
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends[1..].iter().map(|end| start + end));
    }

    pub(crate) const fn len(&self) -> usize {
        self.ends.len() - 1
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.ends[index] as usize..self.ends[index + 1] as usize]
    }

    pub(crate) fn truncate(&mut self, values: usize) {
        self.ends.truncate(values + 1);
        self.bytes.truncate(self.ends[values] as usize);
    }

    /// # Panics
    /// When there are 2 GiB or more, which no batch limit lets come together.
    pub(crate) fn finish(self) -> (OffsetBuffer<i32>, Buffer) {
        assert!(i32::try_from(self.bytes.len()).is_ok(), "a batch holds less than 2 GiB");
        (OffsetBuffer::new(ScalarBuffer::from(self.ends)), Buffer::from_vec(self.bytes))
    }

    /// Text that is not UTF-8 (a foreign producer's) becomes text with replacement characters.
    pub(crate) fn into_text(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let (ends, bytes) = self.finish();
        match StringArray::try_new(ends.clone(), bytes.clone(), nulls.clone()) {
            Ok(array) => Ok(Arc::new(array)),
            Err(_) => lossy_text(&ends, bytes.as_slice(), nulls),
        }
    }
}

fn lossy_text(
    ends: &OffsetBuffer<i32>,
    bytes: &[u8],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let mut clean = Values::with_capacity(ends.len(), bytes.len());
    for pair in ends.windows(2) {
        clean.push(String::from_utf8_lossy(&bytes[pair[0] as usize..pair[1] as usize]).as_bytes());
    }
    let (ends, bytes) = clean.finish();
    Ok(Arc::new(StringArray::try_new(ends, bytes, nulls)?))
}

/// Values of varying length, some of them null.
pub(crate) struct Spans {
    values: Values,
    nulls: NullBufferBuilder,
}

impl Default for Spans {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl Spans {
    pub(crate) fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self::within(rows, bytes, &mut SpentColumn::default())
    }

    /// Takes room for `rows` values of `bytes` together, in the memory of a spent column if that will do.
    pub(crate) fn within(rows: usize, bytes: usize, spent: &mut SpentColumn) -> Self {
        Self { values: Values::within(rows, bytes, spent), nulls: NullBufferBuilder::new(rows) }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) {
        self.values.push(value);
        self.nulls.append_non_null();
    }

    #[inline]
    pub(crate) fn push_option(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.push(value),
            None => self.push_null(),
        }
    }

    /// Appends what the value writes, without a string of its own.
    pub(crate) fn push_display(&mut self, value: impl std::fmt::Display) {
        use std::io::Write;
        let written = write!(self.values.bytes, "{value}");
        debug_assert!(written.is_ok(), "a vector takes every write");
        self.values.close();
        self.nulls.append_non_null();
    }

    pub(crate) fn push_null(&mut self) {
        self.values.close();
        self.nulls.append_null();
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.values.bytes.len()
    }

    pub(crate) fn into_binary(mut self) -> Result<ArrayRef, ArrowError> {
        let (ends, bytes) = self.values.finish();
        Ok(Arc::new(BinaryArray::try_new(ends, bytes, self.nulls.finish())?))
    }

    pub(crate) fn into_text(mut self) -> Result<ArrayRef, ArrowError> {
        self.values.into_text(self.nulls.finish())
    }
}

/// Values of which many in a row are the same: counted first, written when another one comes.
#[derive(Default)]
pub(crate) struct Repeats {
    spans: Spans,
    value: Option<Vec<u8>>,
    times: usize,
}

impl Repeats {
    pub(crate) fn new(spans: Spans) -> Self {
        Self { spans, value: None, times: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        if self.times == 0 || self.value.as_deref() != value {
            self.write();
            self.value = value.map(<[u8]>::to_vec);
        }
        self.times += 1;
    }

    fn write(&mut self) {
        let times = std::mem::take(&mut self.times);
        match &self.value {
            Some(value) => {
                self.spans.values.push_times(value, times);
                self.spans.nulls.append_n_non_nulls(times);
            }
            None => {
                self.spans.values.push_times(b"", times);
                self.spans.nulls.append_n_nulls(times);
            }
        }
    }

    pub(crate) fn into_text(mut self) -> Result<ArrayRef, ArrowError> {
        self.write();
        self.spans.into_text()
    }
}

/// Names of properties, in the order of a row that has none twice.
pub(crate) struct Names(Values);

impl Default for Names {
    fn default() -> Self {
        Self(Values::with_capacity(0, 0))
    }
}

impl Names {
    pub(crate) fn push(&mut self, name: &[u8]) {
        self.0.push(name);
    }

    pub(crate) fn clear(&mut self) {
        self.0.truncate(0);
    }
}

/// Property maps: keys and values of all rows, and where each row ends.
pub(crate) struct Maps {
    ends: Vec<i32>,
    keys: Values,
    values: Values,
}

impl Maps {
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self::within(rows, &mut SpentColumn::default())
    }

    /// Takes room for `rows` rows, in the memory of a spent column if that will do.
    pub(crate) fn within(rows: usize, spent: &mut SpentColumn) -> Self {
        let mut ends = spent.vector(rows + 1);
        ends.push(0);
        let (entries, bytes) = (rows * 8, rows * 64);
        let keys = Values::within(entries, bytes, spent);
        Self { ends, keys, values: Values::within(entries, bytes * 2, spent) }
    }

    #[inline]
    pub(crate) fn push_entry(&mut self, key: &[u8], value: &[u8]) {
        self.keys.push(key);
        self.values.push(value);
    }

    /// Appends the value of an entry whose key comes with [`push_keys`](Self::push_keys).
    #[inline]
    pub(crate) fn push_value(&mut self, value: &[u8]) {
        self.values.push(value);
    }

    /// Appends the keys of the values since the row began.
    #[inline]
    pub(crate) fn push_keys(&mut self, names: &Names) {
        self.keys.push_all(&names.0);
    }

    /// Whether the row under way has the key.
    pub(crate) fn row_has(&self, key: &[u8]) -> bool {
        (self.row_start()..self.keys.len()).any(|index| self.keys.get(index) == key)
    }

    /// Takes the row under way back.
    pub(crate) fn drop_row(&mut self) {
        let start = self.row_start();
        self.keys.truncate(start);
        self.values.truncate(start);
    }

    pub(crate) fn close_row(&mut self) {
        self.ends.push(self.keys.len() as i32);
    }

    fn row_start(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.keys.bytes.len() + self.values.bytes.len()
    }

    pub(crate) fn into_array(self) -> Result<ArrayRef, ArrowError> {
        let field = map_entries_field();
        let DataType::Struct(fields) = field.data_type() else {
            return Err(ArrowError::SchemaError("map entries must be a struct".to_owned()));
        };
        let columns: Vec<ArrayRef> = vec![self.keys.into_text(None)?, self.values.into_text(None)?];
        let entries = StructArray::try_new(fields.clone(), columns, None)?;
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        Ok(Arc::new(MapArray::try_new(field, ends, entries, None, false)?))
    }
}

pub(crate) fn int32(values: Vec<i32>) -> ArrayRef {
    primitive::<Int32Type>(values)
}

pub(crate) fn int64(values: Vec<i64>) -> ArrayRef {
    primitive::<Int64Type>(values)
}

/// Times in microseconds since 1970 UTC, some of them null.
pub(crate) struct Times {
    microseconds: Vec<i64>,
    nulls: NullBufferBuilder,
}

impl Default for Times {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Times {
    /// Takes an empty vector, with its room.
    pub(crate) fn new(microseconds: Vec<i64>) -> Self {
        let nulls = NullBufferBuilder::new(microseconds.capacity());
        Self { microseconds, nulls }
    }

    #[inline]
    pub(crate) fn push(&mut self, microseconds: Option<i64>) {
        self.microseconds.push(microseconds.unwrap_or(0));
        self.nulls.append(microseconds.is_some());
    }

    pub(crate) fn finish(mut self) -> ArrayRef {
        let values = ScalarBuffer::from(self.microseconds);
        let array = PrimitiveArray::<TimestampMicrosecondType>::new(values, self.nulls.finish());
        Arc::new(array.with_timezone("UTC"))
    }
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), None))
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;

    use super::*;

    #[test]
    fn text_that_is_not_utf8_is_kept_with_replacement_characters_and_its_neighbours_are_untouched() {
        let mut spans = Spans::with_capacity(3, 16);
        spans.push("grün".as_bytes());
        spans.push(b"a\xffb");
        spans.push_null();
        let array = spans.into_text().unwrap();
        let array = array.as_string::<i32>();
        assert_eq!(array.value(0), "grün");
        assert_eq!(array.value(1), "a\u{fffd}b");
        assert!(array.is_null(2));
    }

    #[test]
    fn text_cut_inside_a_character_across_two_values_does_not_pass_as_valid() {
        let mut spans = Spans::with_capacity(2, 16);
        spans.push(b"\xc3");
        spans.push(b"\xbc");
        let array = spans.into_text().unwrap();
        let array = array.as_string::<i32>();
        assert_eq!((array.value(0), array.value(1)), ("\u{fffd}", "\u{fffd}"));
    }

    #[test]
    fn runs_of_the_same_value_and_of_nulls_are_written_out_in_full() {
        let mut repeats = Repeats::default();
        let values = [Some("ab"), Some("ab"), Some("ab"), None, None, Some(""), Some("c"), Some("ab")];
        values.iter().for_each(|value| repeats.push(value.map(str::as_bytes)));
        let array = repeats.into_text().unwrap();
        assert_eq!(array.as_string::<i32>().iter().collect::<Vec<_>>(), values);
        assert_eq!(Repeats::default().into_text().unwrap().len(), 0);
    }

    #[test]
    fn a_row_without_properties_is_an_empty_map_not_a_null() {
        let mut maps = Maps::with_capacity(2);
        maps.push_entry(b"a", b"1");
        maps.close_row();
        maps.close_row();
        let array = maps.into_array().unwrap();
        let map = array.as_any().downcast_ref::<MapArray>().unwrap();
        assert_eq!((map.value_length(0), map.value_length(1)), (1, 0));
        assert_eq!(map.null_count(), 0);
    }
}
