//! Queues, as the frozen dataclass `rocketpy.MessageQueue`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use rocketpy_model::{MessageQueue, QueueOffset};

use crate::convert::ToPython;
use crate::error;

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Objects made before, so that not every receipt and message makes its queue anew. Locked only with the interpreter
/// lock and never while Python code runs, so that a forked child never inherits it locked.
static OBJECTS: Mutex<Option<HashMap<MessageQueue, Py<PyAny>>>> = Mutex::new(None);

/// Forget all kept objects when there are this many.
const MAX_OBJECTS: usize = 16_384;

impl ToPython for MessageQueue {
    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known =
            OBJECTS.lock().as_ref().and_then(|objects| objects.get(self).map(|object| object.clone_ref(py)));
        if let Some(object) = known {
            return Ok(object.into_bound(py));
        }
        let class = CLASS.import(py, "rocketpy.message", "MessageQueue")?;
        let object = class.call1((&*self.topic, &*self.broker_name, self.queue_id))?;
        let forgotten = {
            let mut objects = OBJECTS.lock();
            let forgotten = objects.take_if(|objects| objects.len() >= MAX_OBJECTS);
            objects.get_or_insert_default().insert(self.clone(), object.clone().unbind());
            forgotten
        };
        drop(forgotten); // runs Python code: after the lock
        Ok(object)
    }
}

/// A queue given by Python.
pub(crate) struct QueueArgument(pub(crate) MessageQueue);

impl<'py> FromPyObject<'_, 'py> for QueueArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        if !value.is_instance(CLASS.import(py, "rocketpy.message", "MessageQueue")?.as_any())? {
            return Err(error::wrong_type("a queue", "a rocketpy.MessageQueue", &value));
        }
        let topic: String = value.getattr(intern!(py, "topic"))?.extract()?;
        let broker_name: String = value.getattr(intern!(py, "broker_name"))?.extract()?;
        let queue_id = value.getattr(intern!(py, "queue_id"))?.extract()?;
        Ok(Self(MessageQueue::new(Arc::<str>::from(topic), Arc::<str>::from(broker_name), queue_id)))
    }
}

/// Queues with an offset each.
pub(crate) fn offsets<'py>(
    py: Python<'py>,
    offsets: &[(MessageQueue, QueueOffset)],
) -> PyResult<Vec<(Bound<'py, PyAny>, u64)>> {
    offsets.iter().map(|(queue, offset)| Ok((queue.to_python(py)?, offset.get()))).collect()
}
