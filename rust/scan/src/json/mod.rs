//! Bodies of JSON as typed columns.

mod column;
mod number;
mod time;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields};
use column::{Column, Wrong};
use jiter::Jiter;

use crate::ScanError;
use crate::vectors::Spans;

/// Decodes one JSON object per body.
///
/// | column | JSON |
/// |---|---|
/// | boolean | `true` and `false` |
/// | integers | numbers without fraction and exponent |
/// | floats | numbers, `NaN`, `Infinity`, `-Infinity` |
/// | decimal | numbers and texts of numbers that it holds exactly |
/// | date | texts as `2024-01-02`, numbers of days since 1970 |
/// | timestamp | texts as `2024-01-02T03:04:05.123456Z`; without a zone they are UTC |
/// | text, binary | texts |
/// | list, struct | lists, objects |
///
/// A null body, and the body `null`, is null. Names that no field has are skipped; a field whose name is not there is null. All else is
/// an error of its row: a value of another kind or out of the type's range, a name of a field twice, a null where the field
/// is required, text that is not UTF-8, what is not JSON, nesting of more than 200 levels in what is skipped.
///
/// Returns the objects, and what is wrong with each body that does not decode, whose object is null.
///
/// # Errors
/// [`ScanError::JsonType`] for a field of a type that is not in the table.
pub fn decode_json(bodies: &BinaryArray, fields: &Fields) -> Result<(StructArray, StringArray), ScanError> {
    let field = Field::new("", DataType::Struct(fields.clone()), true);
    let mut objects = Column::new(&Arc::new(field), bodies.len())?;
    let mut errors = Spans::with_capacity(bodies.len(), 0);
    let mut unescaped = Vec::new();
    for (row, body) in bodies.iter().enumerate() {
        let Some(body) = body else {
            objects.push_null();
            errors.push_null();
            continue;
        };
        let mut json = Jiter::with_tape(body, unescaped).with_allow_inf_nan();
        match decode(&mut objects, &mut json) {
            Ok(()) => errors.push_null(),
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

fn decode(objects: &mut Column, json: &mut Jiter<'_>) -> Result<(), Wrong> {
    let peek = json.peek()?;
    objects.push(json, peek)?;
    Ok(json.finish()?)
}
