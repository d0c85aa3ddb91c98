//! How members share queues: the dataclass `rocketpy.Balance`, and the questions to a function of the user.

use parking_lot::Mutex as SyncMutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use rocketpy_client::{Allocation, Allocations, Allocator, Balance, NearestRoom};
use rocketpy_model::MessageQueue;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::convert::ToPython;
use crate::duration::Seconds;
use crate::process::Owned;
use crate::queue::QueueArgument;
use crate::wait::wait;
use crate::{error, runtime};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// A `rocketpy.Balance`, what `Balance.of` takes, or the questions to a function.
pub(crate) struct BalanceArgument(pub(crate) Balance);

impl<'py> FromPyObject<'_, 'py> for BalanceArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        if let Ok(questions) = value.cast::<PyAllocations>() {
            return Ok(Self(Balance::Asked(questions.get().allocator.clone())));
        }
        let class = CLASS.import(py, "rocketpy.consuming.balance", "Balance")?;
        let balance = class.call_method1("of", (value,))?;
        let kind: String = balance.getattr(intern!(py, "kind"))?.extract()?;
        Ok(Self(match kind.as_str() {
            "average" => Balance::Average,
            "circle" => Balance::Circle,
            "configuration" | "assigned" => {
                let queues: Vec<QueueArgument> = balance.getattr(intern!(py, "queues"))?.extract()?;
                let queues = queues.into_iter().map(|QueueArgument(queue)| queue).collect();
                if kind == "assigned" { Balance::Assigned(queues) } else { Balance::Configuration(queues) }
            }
            "machine_room" => {
                let rooms: Vec<String> = balance.getattr(intern!(py, "rooms"))?.extract()?;
                Balance::MachineRoom(rooms.into_iter().collect())
            }
            "nearest_room" => {
                let rooms = |name| balance.getattr(name)?.extract::<Vec<(String, String)>>();
                let Self(inner) = balance.getattr(intern!(py, "inner"))?.extract()?;
                Balance::NearestRoom(NearestRoom {
                    brokers: rooms(intern!(py, "brokers"))?.into_iter().collect(),
                    clients: rooms(intern!(py, "clients"))?.into_iter().collect(),
                    inner: Box::new(inner),
                })
            }
            "consistent_hash" => Balance::ConsistentHash {
                virtual_nodes: balance.getattr(intern!(py, "virtual_nodes"))?.extract()?,
            },
            _ => return Err(error::invalid(format!("no such balance: {balance}"))),
        }))
    }
}

/// The questions to a function of the user which queues a consumer reads.
#[pyclass(name = "Allocations", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyAllocations {
    allocator: Allocator,
    running: Owned<(Handle, Mutex<Allocations>)>,
}

#[pymethods]
impl PyAllocations {
    #[new]
    fn new() -> PyResult<Self> {
        let (allocator, allocations) = Allocator::new();
        Ok(Self { allocator, running: Owned::new((runtime::handle()?, Mutex::new(allocations))) })
    }

    /// The next question and whether there may be more; `(None, True)` when none came in time, `(None, False)` at the end.
    fn next(&self, py: Python<'_>, timeout: Seconds) -> PyResult<(Option<PyAllocation>, bool)> {
        let (runtime, allocations) = self.running.get()?;
        let next =
            async { tokio::time::timeout(timeout.0, async { allocations.lock().await.next().await }).await };
        Ok(match wait(py, runtime, next)? {
            Ok(Some(question)) => (Some(PyAllocation { question: SyncMutex::new(Some(question)) }), true),
            Ok(None) => (None, false),
            Err(_elapsed) => (None, true),
        })
    }

    /// Ends the questions: the consumer is closed, or was never made.
    fn end(&self) {
        self.allocator.end();
    }
}

/// A question. It is over once it was answered or refused.
#[pyclass(name = "Allocation", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyAllocation {
    question: SyncMutex<Option<Allocation>>,
}

/// Group, client id, queues of the topic and members.
type Asked<'py> = (String, String, Vec<Bound<'py, PyAny>>, Vec<String>);

#[pymethods]
impl PyAllocation {
    /// What is asked; None when nobody waits for the answer any more.
    fn asked<'py>(&self, py: Python<'py>) -> PyResult<Option<Asked<'py>>> {
        let asked = self.question.lock().as_ref().filter(|question| question.is_wanted()).map(|question| {
            let Allocation { group, client_id, queues, members, .. } = question;
            (group.to_string(), client_id.clone(), queues.clone(), members.clone())
        });
        let Some((group, client_id, queues, members)) = asked else { return Ok(None) };
        let queues = queues.iter().map(|queue| queue.to_python(py)).collect::<PyResult<_>>()?;
        Ok(Some((group, client_id, queues, members)))
    }

    /// Gives the queues that the function chose to the rebalance that waits for them.
    fn answer(&self, queues: Vec<QueueArgument>) {
        let queues: Vec<MessageQueue> = queues.into_iter().map(|QueueArgument(queue)| queue).collect();
        if let Some(question) = self.question.lock().take() {
            question.answer(queues);
        }
    }

    /// Leaves the assignment as it is. A traceback may keep this object for longer.
    fn refuse(&self) {
        self.question.lock().take();
    }
}
