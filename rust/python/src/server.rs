//! Servers inside the Python process.

use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use rocketpy_server::{Addresses, Process, Role, ServerConfig, ServerError, Sources};

use crate::duration::Seconds;
use crate::error::{self, raise};
use crate::process::Owned;
use crate::wait::run;

/// Limit of the stop of a server whose caller is gone.
const ABANDONED: Duration = Duration::from_secs(10);

/// A name server, a broker or both, with threads of their own.
#[pyclass(name = "Server", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyServer {
    running: Owned<Running>,
}

struct Running {
    addresses: Addresses,
    /// Where its clients find it: its own name server, or those that the broker registers at.
    name_servers: Vec<String>,
    warning: Option<&'static str>,
    /// Taken by the thread that stops it.
    process: Mutex<Option<Process>>,
}

#[pymethods]
impl PyServer {
    /// Starts and returns once everything accepts.
    #[new]
    fn new(
        py: Python<'_>,
        kind: &str,
        config: Option<PathBuf>,
        settings: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let role = match kind {
            "standalone" => Role::Standalone,
            "broker" => Role::Broker,
            "name_server" => Role::NameServer,
            _ => {
                return Err(error::invalid(format!(
                    "a server is standalone, broker or name_server, not {kind}"
                )));
            }
        };
        let sources = Sources { file: config, environment: Sources::environment_of_process(), settings };
        let config = ServerConfig::load(&sources).map_err(raise)?;
        let given = config.broker.name_servers.clone();
        let abandoned = |started: Result<Process, ServerError>| {
            if let Ok(process) = started {
                let _ = process.stop(ABANDONED); // the caller is gone; the failure is logged
            }
        };
        let process =
            run(py, "rocketpy-start", move || Process::start(role, config), abandoned)?.map_err(raise)?;
        let addresses = process.addresses().clone();
        let name_servers = addresses.name_server.clone().map_or(given, |own| vec![own]);
        let warning = process.warning();
        let running = Running { addresses, name_servers, warning, process: Mutex::new(Some(process)) };
        Ok(Self { running: Owned::new(running) })
    }

    #[getter]
    fn name_server(&self) -> PyResult<Option<&str>> {
        Ok(self.running.get()?.addresses.name_server.as_deref())
    }

    #[getter]
    fn broker(&self) -> PyResult<Option<&str>> {
        Ok(self.running.get()?.addresses.broker.as_deref())
    }

    #[getter]
    fn metrics(&self) -> PyResult<Option<&str>> {
        Ok(self.running.get()?.addresses.metrics.as_deref())
    }

    #[getter]
    fn warning(&self) -> PyResult<Option<&'static str>> {
        Ok(self.running.get()?.warning)
    }

    #[getter]
    fn name_servers(&self) -> PyResult<Vec<String>> {
        Ok(self.running.get()?.name_servers.clone())
    }

    /// Raises the failure after which the broker stopped itself, such as a failed disk; once.
    fn check(&self) -> PyResult<()> {
        let failure = self.running.get()?.process.lock().as_ref().and_then(Process::take_failure);
        failure.map_or(Ok(()), |failure| Err(raise(failure)))
    }

    /// Stops in order, or raises when `timeout` is too short; a second call does nothing. After Ctrl-C the stop continues in
    /// the background.
    fn stop(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        let Some(process) = self.running.get()?.process.lock().take() else { return Ok(()) };
        let stop = move || process.stop(timeout.0);
        run(py, "rocketpy-stop", stop, drop)?.map_err(raise)
    }
}
