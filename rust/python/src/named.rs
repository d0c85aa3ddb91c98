//! Rust structs as the dataclasses of their names.
//!
//! The fields of a report or a row are named only where it is defined: a struct becomes the dataclass of its name, and
//! each field an argument of that name. Lists and tuples become tuples, maps become dicts. A field `..._at_ms` or
//! `..._since_ms` is a time in milliseconds since 1970; it becomes a `datetime`, or None out
//! of its range, and loses the unit in its name.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};
use pythonize::{PythonizeNamedMappingType, PythonizeTypes, pythonize_custom};
use serde::Serialize;

use crate::error;
use crate::received::instant;

/// Ends of the names of fields that are times.
const TIMES: [&str; 2] = ["_at_ms", "_since_ms"];

/// The module of a class. What is not listed is a report of the store's tools.
fn module_of(class: &str) -> &'static str {
    match class {
        "MessageQueue" => "rocketpy.message",
        "BrokerInfo" | "GroupBroker" | "GroupInfo" | "GroupMember" | "ProducerConnection" | "QueueInfo"
        | "QueueLag" | "TopicBroker" | "TopicInfo" => "rocketpy.admin.cluster",
        "BrokerFigures"
        | "ConsumerRunningInfo"
        | "GroupProgress"
        | "MemberQueue"
        | "MissingBroker"
        | "TopicTotals" => "rocketpy.admin.answers",
        "ConfigValue" => "rocketpy.admin.live_config",
        "CountRate" | "GroupConfig" | "MessageConsumer" | "ProducerGroup" | "QueueDelay" | "TopicConfig"
        | "TrafficRate" => "rocketpy.admin.inventory",
        "Epoch" | "HaStatus" | "RefusedSlave" | "SlaveInfo" => "rocketpy.admin.replication",
        "Quota" | "QuotaUse" => "rocketpy.admin.quotas",
        "ConsumerStats" | "Latency" | "ProducerStats" | "PushStats" | "QueueStats" | "Traffic" => {
            "rocketpy.stats"
        }
        "BrokerContact" | "ConsumerState" | "OffsetMove" => "rocketpy.consuming.consumer",
        "AgedQueue" | "FolderUsage" | "KeptFile" | "Removal" | "RetentionPlan" => {
            "rocketpy.store.retention_plan"
        }
        "LostRange" | "QueueRange" | "StoreRange" | "StoredQueue" | "StoredTopic" => "rocketpy.store",
        "timedelta" => "datetime",
        _ => "rocketpy.store.reports",
    }
}

/// Makes the dataclass of a struct.
///
/// # Errors
/// `RocketPyError` for a path that is not UTF-8; what the dataclass raises.
pub(crate) fn to_python<'py, T: Serialize>(py: Python<'py>, value: &T) -> PyResult<Bound<'py, PyAny>> {
    pythonize_custom::<Dataclasses, T>(py, value).map_err(|failed| {
        let failed = PyErr::from(failed);
        // What serde says itself; errors of Python have a class of their own.
        if failed.get_type(py).is(py.get_type::<PyException>()) {
            return error::internal(format!("a report cannot become a Python object: {}", failed.value(py)));
        }
        failed
    })
}

/// Makes a list of the dataclasses of structs.
pub(crate) fn list<'py, T: Serialize>(
    py: Python<'py>,
    rows: impl IntoIterator<Item = T>,
) -> PyResult<Bound<'py, PyAny>> {
    let rows: Vec<_> = rows.into_iter().map(|row| to_python(py, &row)).collect::<PyResult<_>>()?;
    Ok(PyList::new(py, rows)?.into_any())
}

/// What each shape becomes.
struct Dataclasses;

impl PythonizeTypes for Dataclasses {
    type Map = PyDict;
    type NamedMap = Self;
    type List = PyTuple;
}

/// A dataclass while its arguments come in.
struct Arguments<'py> {
    class: Bound<'py, PyAny>,
    named: Bound<'py, PyDict>,
}

impl PythonizeNamedMappingType for Dataclasses {
    type Builder<'py> = Arguments<'py>;

    fn builder<'py>(py: Python<'py>, _fields: usize, class: &'static str) -> PyResult<Self::Builder<'py>> {
        let class = py.import(module_of(class))?.getattr(class)?;
        Ok(Arguments { class, named: PyDict::new(py) })
    }

    fn push_field<'py>(
        arguments: &mut Self::Builder<'py>,
        name: Bound<'py, PyString>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let text = name.to_cow()?;
        if !TIMES.iter().any(|end| text.ends_with(end)) {
            return arguments.named.set_item(&name, value);
        }
        let time = value.extract::<Option<i64>>()?.and_then(instant);
        arguments.named.set_item(text.trim_end_matches("_ms"), time)
    }

    fn finish<'py>(arguments: Self::Builder<'py>) -> PyResult<Bound<'py, PyMapping>> {
        let made = arguments.class.call((), Some(&arguments.named))?;
        // SAFETY: `PyMapping` has the layout of every object. The serializer turns it into a plain object at once and
        // uses no method of a mapping.
        Ok(unsafe { made.cast_into_unchecked() })
    }
}
