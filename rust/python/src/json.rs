//! Decoding of JSON bodies.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use rocketpy_scan::decode_json;

use crate::arrow::{ArrowBatch, arrow_failed, imported_array, imported_type};
use crate::error::{self, raise};

/// The objects that the bodies hold, and what is wrong with those that do not decode, as the columns `value` and `error`.
#[pyfunction]
pub(crate) fn json_columns(
    py: Python<'_>,
    bodies: &Bound<'_, PyAny>,
    fields: &Bound<'_, PyAny>,
) -> PyResult<ArrowBatch> {
    let bodies = imported_array(bodies)?;
    let Some(bodies) = bodies.as_binary_opt::<i32>() else {
        return Err(error::invalid(format!("bodies are binary, not {}", bodies.data_type())));
    };
    let DataType::Struct(fields) = imported_type(fields)? else {
        return Err(error::invalid("the fields of a body are those of a struct or a schema"));
    };
    let (objects, errors) = py.detach(|| decode_json(bodies, &fields)).map_err(raise)?;
    let schema = Schema::new(vec![
        Field::new("value", objects.data_type().clone(), true),
        Field::new("error", DataType::Utf8, true),
    ]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(objects), Arc::new(errors)]);
    Ok(ArrowBatch::new(batch.map_err(arrow_failed)?))
}
