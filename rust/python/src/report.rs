//! Reports of the store's tools, as the dataclasses of `rocketpy.store.reports`.
//!
//! A serializer, so that a report's fields are named only where the report is defined: a struct becomes the dataclass of
//! its name, and each field an argument of that name. Lists and tuples become tuples, maps become dicts. A field
//! `..._at_ms` is a time in milliseconds since 1970; it becomes a `datetime` and loses the unit in its name.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde::Serialize;
use serde::ser::{
    self, Error as _, Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, Serializer,
};

use crate::error;
use crate::received::instant;

/// Module of the dataclasses.
const MODULE: &str = "rocketpy.store.reports";
/// End of the name of a field that is a time.
const TIME: &str = "_at_ms";

/// Makes the dataclass of a report.
///
/// # Errors
/// `RocketPyError` for a path that is not UTF-8; what the dataclass raises.
pub(crate) fn to_python<'py, T: Serialize>(py: Python<'py>, report: &T) -> PyResult<Bound<'py, PyAny>> {
    report.serialize(ToDataclass { py }).map_err(|Failure(error)| error)
}

/// A Python error, as serde wants it.
#[derive(Debug)]
struct Failure(PyErr);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failure {}

impl ser::Error for Failure {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(error::internal(format!("a report cannot become a Python object: {message}")))
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

type Made<'py> = Result<Bound<'py, PyAny>, Failure>;
/// A shape that no report has.
type Absent<'py> = Impossible<Bound<'py, PyAny>, Failure>;

/// Makes one Python object.
#[derive(Clone, Copy)]
struct ToDataclass<'py> {
    py: Python<'py>,
}

impl<'py> ToDataclass<'py> {
    fn object<T: IntoPyObject<'py>>(self, value: T) -> Made<'py> {
        Ok(value.into_bound_py_any(self.py)?)
    }
}

/// Methods for values that are Python values as they are.
macro_rules! plain {
    ($($method:ident($value:ty)),+ $(,)?) => {
        $(fn $method(self, value: $value) -> Made<'py> {
            self.object(value)
        })+
    };
}

/// Methods for shapes that no report has.
macro_rules! absent {
    ($($method:ident($($argument:ty),*) -> $made:ty),+ $(,)?) => {
        $(fn $method(self, $(_: $argument),*) -> Result<$made, Failure> {
            Err(Failure::custom(stringify!($method)))
        })+
    };
}

impl<'py> Serializer for ToDataclass<'py> {
    type Ok = Bound<'py, PyAny>;
    type Error = Failure;
    type SerializeSeq = Items<'py>;
    type SerializeTuple = Items<'py>;
    type SerializeTupleStruct = Absent<'py>;
    type SerializeTupleVariant = Absent<'py>;
    type SerializeMap = Map<'py>;
    type SerializeStruct = Dataclass<'py>;
    type SerializeStructVariant = Absent<'py>;

    plain!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_char(char),
        serialize_str(&str),
    );

    absent!(
        serialize_bytes(&[u8]) -> Self::Ok,
        serialize_unit_struct(&'static str) -> Self::Ok,
        serialize_tuple_struct(&'static str, usize) -> Absent<'py>,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Absent<'py>,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Absent<'py>,
    );

    fn serialize_none(self) -> Made<'py> {
        self.object(self.py.None())
    }

    fn serialize_unit(self) -> Made<'py> {
        self.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Made<'py> {
        value.serialize(self)
    }

    /// The name of a member of an enum.
    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Made<'py> {
        self.object(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Made<'py> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: &T,
    ) -> Made<'py> {
        Err(Failure::custom(name))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'py>, Failure> {
        Ok(Items { to: self, items: Vec::new() })
    }

    fn serialize_tuple(self, _: usize) -> Result<Items<'py>, Failure> {
        self.serialize_seq(None)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Map<'py>, Failure> {
        Ok(Map { to: self, items: PyDict::new(self.py), key: None })
    }

    fn serialize_struct(self, class: &'static str, _: usize) -> Result<Dataclass<'py>, Failure> {
        Ok(Dataclass { to: self, class, arguments: PyDict::new(self.py) })
    }
}

/// A tuple while its items come in.
struct Items<'py> {
    to: ToDataclass<'py>,
    items: Vec<Bound<'py, PyAny>>,
}

impl<'py> SerializeSeq for Items<'py> {
    type Ok = Bound<'py, PyAny>;
    type Error = Failure;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failure> {
        self.items.push(value.serialize(self.to)?);
        Ok(())
    }

    fn end(self) -> Made<'py> {
        Ok(PyTuple::new(self.to.py, self.items)?.into_any())
    }
}

impl<'py> SerializeTuple for Items<'py> {
    type Ok = Bound<'py, PyAny>;
    type Error = Failure;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failure> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Made<'py> {
        SerializeSeq::end(self)
    }
}

/// A dict while its items come in.
struct Map<'py> {
    to: ToDataclass<'py>,
    items: Bound<'py, PyDict>,
    /// The key whose value comes next.
    key: Option<Bound<'py, PyAny>>,
}

impl<'py> SerializeMap for Map<'py> {
    type Ok = Bound<'py, PyAny>;
    type Error = Failure;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Failure> {
        self.key = Some(key.serialize(self.to)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failure> {
        let value = value.serialize(self.to)?;
        Ok(self.items.set_item(self.key.take(), value)?)
    }

    fn end(self) -> Made<'py> {
        Ok(self.items.into_any())
    }
}

/// A dataclass while its arguments come in.
struct Dataclass<'py> {
    to: ToDataclass<'py>,
    class: &'static str,
    arguments: Bound<'py, PyDict>,
}

impl<'py> SerializeStruct for Dataclass<'py> {
    type Ok = Bound<'py, PyAny>;
    type Error = Failure;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Failure> {
        let value = value.serialize(self.to)?;
        if !name.ends_with(TIME) {
            return Ok(self.arguments.set_item(name, value)?);
        }
        let time = value.extract::<Option<i64>>()?.map(instant);
        Ok(self.arguments.set_item(name.trim_end_matches("_ms"), time)?)
    }

    fn end(self) -> Made<'py> {
        Ok(self.to.py.import(MODULE)?.getattr(self.class)?.call((), Some(&self.arguments))?)
    }
}
