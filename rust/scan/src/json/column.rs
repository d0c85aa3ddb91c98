//! A column that grows by JSON values, and takes those of a row back when the row does not decode.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Float32Type, Int8Type, Int16Type, Int32Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    ListArray, MapArray, NullArray, PrimitiveArray, StructArray,
};
use arrow_buffer::{NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, TimeUnit};
use jiter::{Jiter, JiterError, Peek};

use super::type_name::TypeName;
use super::{number, time};
use crate::ScanError;
use crate::vectors::Values as Texts;

/// What is wrong with a value, and where in its object it is.
pub(super) struct Wrong {
    /// Names of fields from the innermost outwards.
    path: Vec<String>,
    reason: String,
}

impl Wrong {
    fn new(reason: String) -> Self {
        Self { path: Vec::new(), reason }
    }

    fn inside(mut self, name: &str) -> Self {
        self.path.push(name.to_owned());
        self
    }
}

impl From<JiterError> for Wrong {
    fn from(error: JiterError) -> Self {
        Self::new(format!("not JSON: {}, at byte {}", error.error_type, error.index))
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (depth, name) in self.path.iter().rev().enumerate() {
            write!(f, "{}{name}", if depth == 0 { "" } else { "." })?;
        }
        write!(f, "{}{}", if self.path.is_empty() { "" } else { ": " }, self.reason)
    }
}

/// The values of one field.
pub(super) struct Column {
    field: FieldRef,
    /// Fields of a struct and of the structs in it: each has a value, or a null, for every value of the struct.
    fields_below: usize,
    nulls: NullBufferBuilder,
    values: Values,
}

/// Values by the kind of JSON that they come from; those of nulls are anything.
enum Values {
    Nothing,
    Boolean(Vec<bool>),
    /// Of every width.
    Integer(Vec<i64>),
    /// Of both precisions.
    Double(Vec<f64>),
    Decimal(Vec<i128>, u8, i8),
    Date(Vec<i32>),
    Timestamp(Vec<i64>, TimeUnit),
    Text(Texts),
    List {
        ends: Vec<i32>,
        items: Box<Column>,
    },
    Map {
        entries: FieldRef,
        /// Those of the entries.
        fields: Fields,
        ends: Vec<i32>,
        keys: Texts,
        items: Box<Column>,
    },
    Struct(Vec<Column>),
}

impl Column {
    /// An empty column.
    ///
    /// # Errors
    /// [`ScanError::JsonType`] for a type that no JSON value becomes.
    pub(super) fn new(field: &FieldRef, rows: usize) -> Result<Self, ScanError> {
        let values = match field.data_type() {
            DataType::Null => Values::Nothing,
            DataType::Boolean => Values::Boolean(Vec::with_capacity(rows)),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                Values::Integer(Vec::with_capacity(rows))
            }
            DataType::Float32 | DataType::Float64 => Values::Double(Vec::with_capacity(rows)),
            &DataType::Decimal128(precision, scale) => {
                Values::Decimal(Vec::with_capacity(rows), precision, scale)
            }
            DataType::Date32 => Values::Date(Vec::with_capacity(rows)),
            &DataType::Timestamp(unit, _) => Values::Timestamp(Vec::with_capacity(rows), unit),
            DataType::Utf8 | DataType::Binary => Values::Text(Texts::with_capacity(rows, rows * 8)),
            DataType::List(item) => {
                Values::List { ends: no_ends(rows), items: Box::new(Self::new(item, rows)?) }
            }
            DataType::Struct(fields) => {
                let columns: Result<Vec<_>, _> = fields.iter().map(|field| Self::new(field, rows)).collect();
                Values::Struct(columns?)
            }
            other => {
                let Some((entries, fields)) = map_of_texts(other) else {
                    return Err(ScanError::JsonType {
                        field: field.name().clone(),
                        data_type: TypeName(other).to_string(),
                    });
                };
                Values::Map {
                    entries: Arc::clone(entries),
                    fields: fields.clone(),
                    ends: no_ends(rows),
                    keys: Texts::with_capacity(rows, rows * 8),
                    items: Box::new(Self::new(&fields[1], rows)?),
                }
            }
        };
        let fields_below = match &values {
            Values::Struct(columns) => columns.iter().map(|column| 1 + column.fields_below).sum(),
            _ => 0,
        };
        Ok(Self { field: Arc::clone(field), fields_below, nulls: NullBufferBuilder::new(rows), values })
    }

    pub(super) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Appends the value that comes next. `room` is the number of fields that items of lists and maps may still have.
    pub(super) fn push(&mut self, json: &mut Jiter<'_>, peek: Peek, room: &mut usize) -> Result<(), Wrong> {
        let data_type = self.field.data_type();
        match (&mut self.values, peek) {
            (_, Peek::Null) => {
                json.known_null()?;
                return self.push_missing();
            }
            (Values::Boolean(values), Peek::True | Peek::False) => values.push(json.known_bool(peek)?),
            (Values::Integer(values), _) if peek.is_num() => {
                values.push(parsed(data_type, json.known_number_bytes(peek)?, |text| {
                    integer(data_type, text)
                })?);
            }
            (Values::Double(values), _) if peek.is_num() => {
                let parse = if *data_type == DataType::Float32 { number::float } else { number::double };
                values.push(parsed(data_type, json.known_number_bytes(peek)?, parse)?);
            }
            (Values::Decimal(values, precision, scale), _) if peek.is_num() || peek == Peek::String => {
                let text =
                    if peek.is_num() { json.known_number_bytes(peek)? } else { json.known_str()?.as_bytes() };
                values.push(parsed(data_type, text, |text| number::decimal(text, *precision, *scale))?);
            }
            (Values::Date(values), _) if peek.is_num() => {
                values.push(parsed(data_type, json.known_number_bytes(peek)?, |text| {
                    time::in_years(text.parse().ok()?)
                })?);
            }
            (Values::Date(values), Peek::String) => {
                values.push(parsed(data_type, json.known_str()?.as_bytes(), time::date)?);
            }
            (Values::Timestamp(values, unit), Peek::String) => {
                values.push(parsed(data_type, json.known_str()?.as_bytes(), |text| {
                    time::timestamp(text, *unit)
                })?);
            }
            (Values::Text(values), Peek::String) => values.push(json.known_str()?.as_bytes()),
            (Values::List { ends, items }, Peek::Array) => {
                let mut next = json.known_array()?;
                while let Some(peek) = next {
                    items.push_item(json, peek, room)?;
                    next = json.array_step()?;
                }
                ends.push(items.len() as i32);
            }
            (Values::Map { ends, keys, items, .. }, Peek::Object) => {
                push_entries(keys, items, json, room)?;
                ends.push(items.len() as i32);
            }
            (Values::Struct(columns), Peek::Object) => push_object(columns, self.nulls.len(), json, room)?,
            _ => {
                json.known_skip(peek)?; // what is no JSON at all says so
                return Err(Wrong::new(format!("expected {}, found {}", type_name(data_type), kind(peek))));
            }
        }
        self.nulls.append_non_null();
        Ok(())
    }

    /// Appends the value that comes next in a list or a map.
    fn push_item(&mut self, json: &mut Jiter<'_>, peek: Peek, room: &mut usize) -> Result<(), Wrong> {
        let full = || Wrong::new("the items of the body have too many fields together".to_owned());
        *room = room.checked_sub(self.fields_below).ok_or_else(full)?;
        self.push(json, peek, room)
    }

    /// Appends a null for a value that is null or not there.
    fn push_missing(&mut self) -> Result<(), Wrong> {
        if !self.field.is_nullable() {
            return Err(Wrong::new("required, but null or missing".to_owned()));
        }
        self.push_null();
        Ok(())
    }

    /// Appends a null, also to a field that is required: what holds it is null.
    pub(super) fn push_null(&mut self) {
        match &mut self.values {
            Values::Nothing => {}
            Values::Boolean(values) => values.push(false),
            Values::Integer(values) | Values::Timestamp(values, _) => values.push(0),
            Values::Double(values) => values.push(0.0),
            Values::Decimal(values, ..) => values.push(0),
            Values::Date(values) => values.push(0),
            Values::Text(values) => values.push(b""),
            Values::List { ends, items } | Values::Map { ends, items, .. } => ends.push(items.len() as i32),
            Values::Struct(columns) => columns.iter_mut().for_each(Self::push_null),
        }
        self.nulls.append_null();
    }

    /// Takes back all but the first `rows` values, and what is left of a value that failed half-way.
    pub(super) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Nothing => {}
            Values::Boolean(values) => values.truncate(rows),
            Values::Integer(values) | Values::Timestamp(values, _) => values.truncate(rows),
            Values::Double(values) => values.truncate(rows),
            Values::Decimal(values, ..) => values.truncate(rows),
            Values::Date(values) => values.truncate(rows),
            Values::Text(values) => values.truncate(rows),
            Values::List { ends, items } => {
                ends.truncate(rows + 1);
                items.truncate(ends[rows] as usize);
            }
            Values::Map { ends, keys, items, .. } => {
                ends.truncate(rows + 1);
                keys.truncate(ends[rows] as usize);
                items.truncate(ends[rows] as usize);
            }
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.truncate(rows)),
        }
        self.nulls.truncate(rows);
    }

    pub(super) fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let (data_type, rows, nulls) = (self.field.data_type(), self.nulls.len(), self.nulls.finish());
        Ok(match self.values {
            Values::Nothing => Arc::new(NullArray::new(rows)),
            Values::Boolean(values) => Arc::new(BooleanArray::new(values.into(), nulls)),
            Values::Integer(values) => match data_type {
                DataType::Int8 => narrowed::<Int8Type>(&values, nulls, |value| value as i8),
                DataType::Int16 => narrowed::<Int16Type>(&values, nulls, |value| value as i16),
                DataType::Int32 => narrowed::<Int32Type>(&values, nulls, |value| value as i32),
                _ => Arc::new(Int64Array::new(values.into(), nulls)),
            },
            Values::Double(values) => match data_type {
                DataType::Float32 => {
                    let values: ScalarBuffer<f32> = values.iter().map(|&value| value as f32).collect();
                    Arc::new(PrimitiveArray::<Float32Type>::new(values, nulls))
                }
                _ => Arc::new(Float64Array::new(values.into(), nulls)),
            },
            Values::Decimal(values, ..) => {
                Arc::new(Decimal128Array::new(values.into(), nulls).with_data_type(data_type.clone()))
            }
            Values::Date(values) => Arc::new(PrimitiveArray::<Date32Type>::new(values.into(), nulls)),
            Values::Timestamp(values, unit) => match unit {
                TimeUnit::Second => timestamps::<TimestampSecondType>(data_type, values, nulls),
                TimeUnit::Millisecond => timestamps::<TimestampMillisecondType>(data_type, values, nulls),
                TimeUnit::Microsecond => timestamps::<TimestampMicrosecondType>(data_type, values, nulls),
                TimeUnit::Nanosecond => timestamps::<TimestampNanosecondType>(data_type, values, nulls),
            },
            Values::Text(values) => match data_type {
                DataType::Binary => {
                    let (ends, bytes) = values.finish();
                    Arc::new(BinaryArray::try_new(ends, bytes, nulls)?)
                }
                _ => values.into_text(nulls)?,
            },
            Values::List { ends, items } => {
                let field = Arc::clone(&items.field);
                let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
                Arc::new(ListArray::try_new(field, ends, items.finish()?, nulls)?)
            }
            Values::Map { entries, fields, ends, keys, items } => {
                let columns = vec![keys.into_text(None)?, items.finish()?];
                let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
                let array = StructArray::try_new(fields, columns, None)?;
                Arc::new(MapArray::try_new(entries, ends, array, nulls, false)?)
            }
            Values::Struct(columns) => {
                let fields: Fields = columns.iter().map(|column| Arc::clone(&column.field)).collect();
                let arrays: Result<Vec<_>, _> = columns.into_iter().map(Self::finish).collect();
                Arc::new(StructArray::try_new_with_length(fields, arrays?, nulls, rows)?)
            }
        })
    }
}

/// Appends the fields of an object, of which the columns have `row` rows before.
fn push_object(
    columns: &mut [Column],
    row: usize,
    json: &mut Jiter<'_>,
    room: &mut usize,
) -> Result<(), Wrong> {
    // Objects mostly have their fields in the same order.
    let mut expected = 0;
    let position = |columns: &[Column], expected: usize, name: &str| {
        let is_it = |column: &Column| column.field.name() == name;
        match columns.get(expected) {
            Some(column) if is_it(column) => Some(expected),
            _ => columns.iter().position(is_it),
        }
    };
    let mut next = json.known_object()?.map(|name| position(columns, expected, name));
    while let Some(place) = next {
        let peek = json.peek()?;
        match place {
            Some(place) => {
                let column = &mut columns[place];
                if column.len() > row {
                    return Err(Wrong::new("there twice".to_owned()).inside(column.field.name()));
                }
                column.push(json, peek, room).map_err(|wrong| wrong.inside(column.field.name()))?;
                expected = place + 1;
            }
            None => json.known_skip(peek)?,
        }
        next = json.next_key()?.map(|name| position(columns, expected, name));
    }
    for column in columns.iter_mut().filter(|column| column.len() == row) {
        column.push_missing().map_err(|wrong| wrong.inside(column.field.name()))?;
    }
    Ok(())
}

/// Appends the names and values of an object to those of a map.
fn push_entries(
    keys: &mut Texts,
    items: &mut Column,
    json: &mut Jiter<'_>,
    room: &mut usize,
) -> Result<(), Wrong> {
    let first = keys.len();
    let key_at = |keys: &Texts, index| start(&String::from_utf8_lossy(keys.get(index)));
    let mut next = json.known_object()?.map(|key| keys.push(key.as_bytes()));
    while next.is_some() {
        let peek = json.peek()?;
        items.push_item(json, peek, room).map_err(|wrong| wrong.inside(&key_at(keys, keys.len() - 1)))?;
        next = json.next_key()?.map(|key| keys.push(key.as_bytes()));
    }
    let mut places: Vec<usize> = (first..keys.len()).collect();
    places.sort_unstable_by_key(|&place| keys.get(place));
    match places.windows(2).find(|pair| keys.get(pair[0]) == keys.get(pair[1])) {
        Some(pair) => Err(Wrong::new("there twice".to_owned()).inside(&key_at(keys, pair[0]))),
        None => Ok(()),
    }
}

/// The field of the entries of a map and their fields, if its keys are texts.
fn map_of_texts(data_type: &DataType) -> Option<(&FieldRef, &Fields)> {
    let DataType::Map(entries, false) = data_type else { return None };
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 && *fields[0].data_type() == DataType::Utf8 => {
            Some((entries, fields))
        }
        _ => None,
    }
}

/// The ends of no values, with room for those of `rows`.
fn no_ends(rows: usize) -> Vec<i32> {
    let mut ends = Vec::with_capacity(rows + 1);
    ends.push(0);
    ends
}

/// The value of a text, or what it does not fit.
fn parsed<T>(data_type: &DataType, text: &[u8], parse: impl Fn(&str) -> Option<T>) -> Result<T, Wrong> {
    let text = std::str::from_utf8(text).unwrap_or_default(); // a number or a checked text: always UTF-8
    parse(text).ok_or_else(|| Wrong::new(format!("not of type {}: {}", type_name(data_type), start(text))))
}

fn integer(data_type: &DataType, text: &str) -> Option<i64> {
    let value: i64 = text.parse().ok()?;
    let fits = match data_type {
        DataType::Int8 => i8::try_from(value).is_ok(),
        DataType::Int16 => i16::try_from(value).is_ok(),
        DataType::Int32 => i32::try_from(value).is_ok(),
        _ => true,
    };
    fits.then_some(value)
}

fn type_name(data_type: &DataType) -> String {
    start(&TypeName(data_type).to_string())
}

/// The first characters of a long text.
fn start(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn kind(peek: Peek) -> &'static str {
    match peek {
        Peek::True | Peek::False => "a boolean",
        Peek::String => "a text",
        Peek::Array => "a list",
        Peek::Object => "an object",
        _ => "a number",
    }
}

fn narrowed<T: ArrowPrimitiveType>(
    values: &[i64],
    nulls: Option<NullBuffer>,
    narrow: impl Fn(i64) -> T::Native,
) -> ArrayRef {
    let values: ScalarBuffer<T::Native> = values.iter().map(|&value| narrow(value)).collect();
    Arc::new(PrimitiveArray::<T>::new(values, nulls))
}

fn timestamps<T: ArrowPrimitiveType<Native = i64>>(
    data_type: &DataType,
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone()))
}
