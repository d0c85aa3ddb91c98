//! Arrow data through the PyCapsule interface, which any Python Arrow library can read.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StructArray, make_array};
use arrow_schema::{ArrowError, DataType, Schema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rocketpy_scan::{BatchLimits, Columns, Group};

use crate::error::{self, raise};
use crate::number::count;

/// Rows as Arrow columns, for libraries with the Arrow PyCapsule interface: `pyarrow.record_batch(batch)`.
#[pyclass(module = "rocketpy", frozen)]
pub(crate) struct ArrowBatch {
    batch: RecordBatch,
}

impl ArrowBatch {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

#[pymethods]
impl ArrowBatch {
    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.batch.schema())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __bool__(&self) -> bool {
        self.batch.num_rows() > 0
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.batch.schema())
    }

    /// The columns as the children of one struct array, always with its own schema: the interface requires callers that
    /// request another schema to check the result.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let columns = StructArray::from(self.batch.clone());
        let (array, _) = to_ffi(&columns.to_data()).map_err(arrow_failed)?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        Ok((schema_capsule(py, &self.batch.schema())?, array))
    }

    fn __repr__(&self) -> String {
        format!("<ArrowBatch: {} rows of {}>", self.batch.num_rows(), names(&self.batch.schema()).join(", "))
    }
}

pub(crate) fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

pub(crate) fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(arrow_failed)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

pub(crate) fn stream_capsule<'py, R>(py: Python<'py>, reader: R) -> PyResult<Bound<'py, PyCapsule>>
where
    R: RecordBatchReader + Send + 'static,
{
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
}

/// An array of any Python Arrow library; nothing is copied.
pub(crate) fn imported_array(given: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        given.call_method0("__arrow_c_array__")?.extract()?;
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: capsules of these names hold these structs, filled as the C data interface says; no Python code runs between. The array is
    // moved out, which leaves one behind that is released.
    let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    Ok(make_array(data.map_err(arrow_failed)?))
}

/// A type, or a schema as the type of its rows.
pub(crate) fn imported_type(given: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let schema: Bound<'_, PyCapsule> = given.call_method0("__arrow_c_schema__")?.extract()?;
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: as above; the struct is only read, while its capsule lives.
    DataType::try_from(unsafe { schema.as_ref() }).map_err(arrow_failed)
}

pub(crate) fn arrow_failed(error: ArrowError) -> PyErr {
    error::internal(format!("the columns could not be handed over: {error}"))
}

/// The columns of these names, or the default ones.
pub(crate) fn columns(names: Option<Vec<String>>) -> PyResult<Columns> {
    names.map_or_else(|| Ok(Columns::default()), |names| Columns::parse(names).map_err(raise))
}

/// What messages are added up by.
pub(crate) fn groupings(names: Vec<Vec<String>>) -> PyResult<Vec<Vec<Group>>> {
    names.into_iter().map(Group::parse).collect::<Result<_, _>>().map_err(raise)
}

/// The limits of a batch.
pub(crate) fn limits(rows: &Bound<'_, PyAny>, bytes: &Bound<'_, PyAny>) -> PyResult<BatchLimits> {
    Ok(BatchLimits { rows: count("batch_rows", rows)?, bytes: count("batch_bytes", bytes)? })
}
