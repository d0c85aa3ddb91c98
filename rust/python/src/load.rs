//! A load of sends without Python in it, for `rocketpy bench send`.

use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use rocketpy_client::{LoadOptions, LoadReport, LoadTarget};
use rocketpy_model::MessageQueue;

use crate::duration::Seconds;
use crate::error::raise;
use crate::wait::run;
use crate::{credentials, tls};

/// Address of a broker, its name, topic, and queue id.
type Target = (String, String, String, u32);
/// Acknowledged messages; answered requests; code, remark and number of the other messages; seconds; latencies in microseconds at the percentiles asked for.
type Report = (u64, u64, Vec<(i32, String, u64)>, f64, Vec<u64>);

/// A load that runs.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct SendLoad {
    load: Mutex<rocketpy_client::SendLoad>,
}

#[pymethods]
impl SendLoad {
    #[new]
    #[pyo3(signature = (targets, *, group, size, batch, messages, connections, threads, window, rate))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        targets: Vec<Target>,
        group: String,
        size: usize,
        batch: usize,
        messages: u64,
        connections: usize,
        threads: usize,
        window: usize,
        rate: Option<f64>,
    ) -> PyResult<Self> {
        let of = |(address, broker_name, topic, queue_id): Target| {
            let (topic, broker_name) = (topic.as_str().into(), broker_name.as_str().into());
            LoadTarget { address, queue: MessageQueue { topic, broker_name, queue_id } }
        };
        let targets: Vec<_> = targets.into_iter().map(of).collect();
        let (credentials, tls) = (credentials::of_option(py, None)?, tls::of_option(None)?);
        let body_bytes = size;
        let options = LoadOptions {
            group,
            body_bytes,
            batch,
            messages,
            connections,
            threads,
            window,
            rate,
            credentials,
            tls,
        };
        let connect = move || rocketpy_client::SendLoad::start(&targets, &options);
        let load = run(py, "rocketpy-load-connect", connect, drop)?.map_err(raise)?;
        Ok(Self { load: Mutex::new(load) })
    }

    /// Messages that were answered so far.
    #[getter]
    fn answered(&self) -> u64 {
        self.load.lock().answered()
    }

    /// Waits up to `at_most` for the load to finish; `None` while it is still running.
    fn wait(&self, py: Python<'_>, at_most: Seconds, percentiles: Vec<f64>) -> PyResult<Option<Report>> {
        let ended = py.detach(|| self.load.lock().wait(at_most.0)).map_err(raise)?;
        Ok(ended.map(|report| report_of(report, &percentiles)))
    }
}

fn report_of(report: LoadReport, percentiles: &[f64]) -> Report {
    let LoadReport { sent, requests, refused, took, latency_us } = report;
    let refused = refused.into_iter().map(|((code, remark), count)| (code, remark, count)).collect();
    let latencies = percentiles.iter().map(|percentile| latency_us.value_at_percentile(*percentile));
    (sent, requests, refused, Duration::as_secs_f64(&took), latencies.collect())
}
