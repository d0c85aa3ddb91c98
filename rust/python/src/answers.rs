//! Answers of several brokers, as `rocketpy.admin.answers.Answers`.

use std::collections::BTreeMap;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use rocketpy_client::{
    Answers, BrokerFigures as Figures, ClientError, GroupProgress as Progress, MissingBroker as Missing,
    RunningMember as Running, TopicTotals as Totals,
};
use rocketpy_model::QueueOffset;
use rocketpy_model::printable::printable;
use rocketpy_protocol::body::running_property as name;
use serde::Serialize;

use crate::named;
use crate::rows::{BrokerInfo, Queue, QueueInfo};

/// Class of the list.
const CLASS: (&str, &str) = ("rocketpy.admin.answers", "Answers");

/// Leaves answers of some brokers only if the caller wants them.
///
/// # Errors
/// That of the first broker that did not answer.
pub(crate) fn allowed<T>(answers: Answers<T>, partial: bool) -> Result<Answers<T>, ClientError> {
    if partial { Ok(answers) } else { Ok(Answers { found: answers.complete()?, missing: Vec::new() }) }
}

/// The list with its rows, and the brokers that did not answer.
pub(crate) fn list<T>(
    py: Python<'_>,
    answers: Answers<T>,
    row: impl FnMut(T) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let rows = answers.found.into_iter().map(row).collect::<PyResult<Vec<_>>>()?;
    let missing = named::list(py, answers.missing.iter().map(MissingBroker::from))?;
    let class = py.import(CLASS.0)?.getattr(CLASS.1)?;
    class.call1((rows, missing))?.into_py_any(py)
}

/// As [`list`], of rows that become dataclasses.
pub(crate) fn list_of<T, R: Serialize>(
    py: Python<'_>,
    answers: Answers<T>,
    row: impl Fn(T) -> R,
) -> PyResult<Py<PyAny>> {
    list(py, answers, |one| named::to_python(py, &row(one)).map(Bound::unbind))
}

/// The text of an error, which may quote a server.
fn text(error: &ClientError) -> String {
    printable(&error.to_string()).into_owned()
}

#[derive(Serialize)]
pub(crate) struct MissingBroker {
    broker_name: String,
    address: String,
    error: String,
    answered_at_ms: Option<i64>,
}

impl From<&Missing> for MissingBroker {
    fn from(missing: &Missing) -> Self {
        let Missing { broker_name, address, error, answered_at_ms } = missing.clone();
        Self { broker_name, address, error: text(&error), answered_at_ms }
    }
}

#[derive(Serialize)]
pub(crate) struct BrokerFigures {
    broker: BrokerInfo,
    broker_id: u64,
    figures: BTreeMap<String, String>,
    error: Option<String>,
    answered_at_ms: Option<i64>,
}

impl From<Figures> for BrokerFigures {
    fn from(row: Figures) -> Self {
        let Figures { broker, broker_id, figures, answered_at_ms } = row;
        let error = figures.as_ref().err().map(text);
        let figures = figures.unwrap_or_default();
        Self { broker: broker.into(), broker_id, figures, error, answered_at_ms }
    }
}

#[derive(Serialize)]
pub(crate) struct GroupProgress {
    name: String,
    members: Vec<String>,
    topics: Vec<String>,
    lag: u64,
    retries: u64,
    dead_letters: u64,
    error: Option<String>,
}

impl From<Progress> for GroupProgress {
    fn from(group: Progress) -> Self {
        let Progress { name, members, topics, lag, retries, dead_letters, error } = group;
        let (members, topics) = (members.into_iter().collect(), topics.into_iter().collect());
        Self { name, members, topics, lag, retries, dead_letters, error: error.as_ref().map(text) }
    }
}

#[derive(Serialize)]
pub(crate) struct TopicTotals {
    name: String,
    queues: Vec<QueueInfo>,
    put_rate: f64,
    error: Option<String>,
}

impl From<Totals> for TopicTotals {
    fn from(topic: Totals) -> Self {
        let Totals { name, queues, put_rate, error } = topic;
        let queues = queues.into_iter().map(QueueInfo::from).collect();
        Self { name, queues, put_rate, error: error.as_ref().map(text) }
    }
}

#[derive(Serialize)]
pub(crate) struct ConsumerRunningInfo {
    client_id: String,
    address: String,
    language: String,
    version: i32,
    client_version: Option<String>,
    started_at_ms: Option<i64>,
    subscriptions: BTreeMap<String, String>,
    queues: Vec<MemberQueue>,
    properties: BTreeMap<String, String>,
    jstack: Option<String>,
    error: Option<String>,
}

#[derive(Serialize)]
struct MemberQueue {
    queue: Queue,
    next_offset: i64,
    lag: Option<u64>,
    waiting: i32,
    last_consumed_at_ms: Option<i64>,
    last_pulled_at_ms: Option<i64>,
}

impl From<Running> for ConsumerRunningInfo {
    fn from(row: Running) -> Self {
        let Running { member, info, ends } = row;
        let error = info.as_ref().err().map(text);
        let info = info.unwrap_or_default();
        let told = info.subscription_set.into_iter().map(|one| (one.topic, one.sub_string)).collect();
        let time = |at_ms: i64| Some(at_ms).filter(|at_ms| *at_ms > 0);
        let queue =
            |(queue, of_queue): (rocketpy_model::MessageQueue, rocketpy_protocol::body::ProcessQueueInfo)| {
                let next = QueueOffset(u64::try_from(of_queue.commit_offset).unwrap_or(0));
                MemberQueue {
                    lag: ends.get(&queue).map(|end| end.get().saturating_sub(next.get())),
                    queue: Queue(queue),
                    next_offset: of_queue.commit_offset,
                    waiting: of_queue.cached_msg_count,
                    last_consumed_at_ms: time(of_queue.last_consumed_at_ms),
                    last_pulled_at_ms: time(of_queue.last_pulled_at_ms),
                }
            };
        Self {
            client_id: member.client_id,
            address: member.address,
            language: member.language,
            version: member.version,
            client_version: info.properties.get(name::CLIENT_VERSION).cloned(),
            started_at_ms: info
                .properties
                .get(name::CONSUMER_START_TIMESTAMP)
                .and_then(|text| text.parse().ok())
                .and_then(time),
            subscriptions: if error.is_none() { told } else { member.subscriptions.unwrap_or_default() },
            queues: info.mq_table.into_iter().map(queue).collect(),
            properties: info.properties,
            jstack: info.jstack,
            error,
        }
    }
}
