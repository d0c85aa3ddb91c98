//! Hashes of tags and parts of message ids, as Arrow columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use pyo3::prelude::*;
use rocketpy_scan as scan;

use crate::arrow::{ArrowBatch, arrow_failed, imported_array};
use crate::error;

/// The hashes of the tags, as the column `value`.
#[pyfunction]
pub(crate) fn tag_hashes(py: Python<'_>, tags: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
    let tags = texts(tags)?;
    column(Arc::new(py.detach(|| scan::tag_hashes(&tags))))
}

/// The parts of the offset message ids, as the column `value`.
#[pyfunction]
pub(crate) fn offset_message_id_parts(py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
    let ids = texts(ids)?;
    column(Arc::new(py.detach(|| scan::offset_message_id_parts(&ids)).map_err(arrow_failed)?))
}

/// The parts of the unique keys, as the column `value`. `month_starts` are in microseconds since 1970.
#[pyfunction]
pub(crate) fn unique_key_parts(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    near: &Bound<'_, PyAny>,
    month_starts: Vec<i64>,
) -> PyResult<ArrowBatch> {
    let (keys, near) = (texts(keys)?, imported_array(near)?);
    let Some(near) = near.as_primitive_opt::<TimestampMicrosecondType>() else {
        return Err(error::invalid(format!("times are in microseconds, not {}", near.data_type())));
    };
    if near.len() != keys.len() {
        let text = format!("{} message ids need as many times, given: {}", keys.len(), near.len());
        return Err(error::invalid(text));
    }
    let parts = py.detach(|| scan::unique_key_parts(&keys, near, &month_starts));
    column(Arc::new(parts.map_err(arrow_failed)?))
}

fn texts(given: &Bound<'_, PyAny>) -> PyResult<StringArray> {
    let array = imported_array(given)?;
    let texts = array.as_string_opt::<i32>().cloned();
    texts.ok_or_else(|| error::invalid(format!("tags and message ids are text, not {}", array.data_type())))
}

fn column(values: ArrayRef) -> PyResult<ArrowBatch> {
    Ok(ArrowBatch::new(RecordBatch::try_from_iter([("value", values)]).map_err(arrow_failed)?))
}
