//! Bodies of JSON as typed columns.

mod column;
mod number;
mod time;
mod type_name;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields};
use column::{Column, Wrong};
use jiter::Jiter;

use crate::ScanError;
use crate::vectors::Spans;

/// Fields that all items of lists and maps in a body may have together, also those that are not there: `[{},{}]` is short, and makes
/// a null for each field of both items. Never fewer than the body has bytes: what is written out fits.
const BODY_FIELDS: usize = 1 << 20;
/// The same for all bodies of a batch: about 1 GiB of nulls in 64-bit columns.
const BATCH_FIELDS: usize = 1 << 27;

/// Decodes one JSON object per body.
///
/// | column | JSON |
/// |---|---|
/// | boolean | `true` and `false` |
/// | integers | numbers without fraction and exponent |
/// | floats | numbers, `NaN`, `Infinity`, `-Infinity` |
/// | decimal | numbers and texts of numbers that it holds exactly |
/// | date | texts as `2024-01-02`, numbers of days since 1970, of the years 0001 to 9999 |
/// | timestamp | texts as `2024-01-02T03:04:05.123456Z`, of the same years; without a zone they are UTC |
/// | text, binary | texts |
/// | list | lists |
/// | struct, map with texts as keys | objects |
///
/// A null body, and the body `null`, is null. Names that no field has are skipped; a field whose name is not there is null. All else is
/// an error of its row: a value of another kind or out of the type's range, a name of a field or in a map twice, a null where the field
/// is required, text that is not UTF-8, what is not JSON, nesting of more than 200 levels in what is skipped, more fields in the items of
/// its lists and maps than it has bytes and than 2^20.
///
/// Returns the objects, and what is wrong with each body that does not decode, whose object is null.
///
/// # Errors
/// [`ScanError::JsonType`] for a field of a type that is not in the table, [`ScanError::JsonFields`] for more fields in the items of all
/// bodies than these have bytes and than 2^27.
pub fn decode_json(bodies: &BinaryArray, fields: &Fields) -> Result<(StructArray, StringArray), ScanError> {
    decode_within(bodies, fields, BODY_FIELDS, BATCH_FIELDS)
}

fn decode_within(
    bodies: &BinaryArray,
    fields: &Fields,
    body_fields: usize,
    batch_fields: usize,
) -> Result<(StructArray, StringArray), ScanError> {
    let field = Field::new("", DataType::Struct(fields.clone()), true);
    let mut objects = Column::new(&Arc::new(field), bodies.len())?;
    let mut errors = Spans::with_capacity(bodies.len(), 0);
    let mut unescaped = Vec::new();
    let (mut bytes, mut fields_of_items) = (0, 0);
    for (row, body) in bodies.iter().enumerate() {
        let Some(body) = body else {
            objects.push_null();
            errors.push_null();
            continue;
        };
        let mut json = Jiter::with_tape(body, unescaped).with_allow_inf_nan();
        let room = body_fields.max(body.len());
        match decode(&mut objects, &mut json, room) {
            Ok(rest) => {
                errors.push_null();
                bytes += body.len();
                fields_of_items += room - rest;
                let limit = batch_fields.max(bytes);
                if fields_of_items > limit {
                    return Err(ScanError::JsonFields { limit });
                }
            }
            Err(wrong) => {
                objects.truncate(row);
                objects.push_null();
                errors.push_display(wrong);
            }
        }
        unescaped = json.into_tape();
    }
    Ok((objects.finish()?.as_struct().clone(), errors.into_text()?.as_string().clone()))
}

/// Appends an object, and returns how much of the room for fields of items is left.
fn decode(objects: &mut Column, json: &mut Jiter<'_>, mut room: usize) -> Result<usize, Wrong> {
    let peek = json.peek()?;
    objects.push(json, peek, &mut room)?;
    json.finish()?;
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of structs of ten fields each, one of them a struct itself; `by_name` is a map of the same.
    fn fields() -> Fields {
        let nullable = |name: String| Field::new(name, DataType::Int32, true);
        let inner: Fields = (0..4).map(|number| nullable(format!("b{number}"))).collect();
        let outer = (0..5).map(|number| nullable(format!("a{number}")));
        let item: Fields = outer.chain([Field::new_struct("inner", inner, true)]).collect();
        let list = Field::new_list("items", Field::new_struct("item", item.clone(), true), true);
        let key = Field::new("key", DataType::Utf8, false);
        let entries = Field::new_struct("entries", vec![key, Field::new_struct("value", item, true)], false);
        vec![list, Field::new("by_name", DataType::Map(Arc::new(entries), false), true)].into()
    }

    fn decode_each(bodies: &[&str]) -> Result<Vec<bool>, ScanError> {
        let bodies = BinaryArray::from_iter_values(bodies);
        let (objects, errors) = decode_within(&bodies, &fields(), 30, 60)?;
        assert!(errors.iter().flatten().all(|error| error.ends_with("too many fields together")));
        Ok((0..objects.len()).map(|row| objects.is_valid(row)).collect())
    }

    const THREE: &str = r#"{"items":[{},null,{}]}"#;

    #[test]
    fn the_items_of_a_body_have_a_bounded_number_of_fields() {
        let four = r#"{"items":[{},null,{},{}]}"#;
        assert_eq!(decode_each(&[THREE, four, THREE]).unwrap(), [true, false, true]);
        assert_eq!(decode_each(&[&format!("{four}{}", " ".repeat(40))]).unwrap(), [true], "as many as bytes");
        let both = [
            r#"{"by_name":{"a":{},"b":{}},"items":[{},{}]}"#, // 43 bytes and 40 fields
            r#"{"by_name":{"a":{},"b":{}},"items":[{},{},{}]}"#, // 46 and 50
        ];
        assert_eq!(decode_each(&both).unwrap(), [true, false]);
    }

    #[test]
    fn the_items_of_a_batch_have_a_bounded_number_of_fields() {
        assert_eq!(decode_each(&[THREE; 2]).unwrap(), [true; 2]);
        let error = decode_each(&[THREE; 3]).unwrap_err();
        assert!(matches!(error, ScanError::JsonFields { limit: 66 }), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("maxRecordsPerBatch")) && !error.retryable());
    }
}
