//! Push consumers: messages go to handlers, which Python's threads and tasks call.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rocketpy_client::{
    Client, ClientError, Namespace, PulledPart, PushConfig, PushConsumer, PushTopic, Reason, Subscription,
    Verdict, Work,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::change::PyChange;
use crate::client::connect_member;
use crate::duration::Seconds;
use crate::error::raise;
use crate::options::Options;
use crate::process::Owned;
use crate::received::{Decoding, Origin, ReceivedMessage, Shown};
use crate::tags::TagsArgument;
use crate::wait::{wait, wait_in_thread};
use crate::{consumer_options, named, rows, stats, untracked};

/// The instance name of a member that finds its offsets again after a restart, as Apache's clients name it.
const LASTING_NAME: &str = "DEFAULT";

/// A member of a consumer group whose messages go to handlers.
#[pyclass(name = "PushConsumer", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyPushConsumer {
    running: Owned<Running>,
    /// By topic, as brokers know it.
    topics: HashMap<String, Topic>,
}

/// A topic with a handler.
struct Topic {
    /// Its name as the user gave it, with the namespace or without.
    given: Arc<str>,
    decode: Option<Arc<Py<PyAny>>>,
}

/// A topic: its name, tags, SQL expression instead of them, lane, batch, and what makes values of its messages.
type TopicArgument = (String, TagsArgument, Option<String>, usize, usize, Option<Py<PyAny>>);

struct Running {
    consumer: Arc<PushConsumer>,
    client: Client,
    runtime: Handle,
    /// A stop that was begun, and that nobody waits for yet. Locked only with the interpreter lock.
    stopping: Mutex<Option<JoinHandle<Result<(), ClientError>>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let (consumer, client) = (self.consumer.clone(), self.client.clone());
        self.runtime.spawn(async move {
            // No caller is left to hear of a failure.
            let _outcome = consumer.stop(std::time::Duration::ZERO).await;
            client.close().await;
        });
    }
}

#[pymethods]
impl PyPushConsumer {
    #[new]
    #[pyo3(signature = (group, topics, name_servers, **options))]
    fn new(
        py: Python<'_>,
        group: &str,
        topics: Vec<TopicArgument>,
        name_servers: Vec<String>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut options = Options::new("PushConsumer", options);
        let config = config(&mut options)?;
        let mut named = Vec::new();
        let topic = |(topic, TagsArgument(tags), sql, lane, batch, decode): TopicArgument| {
            named.push(Topic { given: topic.as_str().into(), decode: decode.map(Arc::new) });
            let subscription = match sql {
                Some(sql) => Subscription::sql(topic, sql),
                None => Subscription::new(topic, tags),
            };
            PushTopic { subscription, lane, batch }
        };
        let topics = topics.into_iter().map(topic).collect();
        let name = config.broadcast.then_some(LASTING_NAME);
        let (client, runtime) = connect_member(py, name_servers, options, name)?;
        let joined = PushConsumer::new(&client, group, topics, config);
        let consumer = Arc::new(wait(py, &runtime, joined)?.map_err(raise)?);
        let wrap = |topic: Topic| (client.namespace().wrap(&topic.given).into_owned(), topic);
        let topics = named.into_iter().map(wrap).collect();
        Ok(Self {
            running: Owned::new(Running { consumer, client, runtime, stopping: Mutex::default() }),
            topics,
        })
    }

    #[getter]
    fn client_id(&self) -> PyResult<&str> {
        Ok(self.running.get()?.client.client_id())
    }

    /// Messages for a handler, or None when none came in time. For threads that get no signals.
    fn take(&self, py: Python<'_>, lane: usize, timeout: Seconds) -> PyResult<Option<PyWork>> {
        let running = self.running.get()?;
        let taken = wait_in_thread(py, &running.runtime, running.consumer.take(lane, timeout.0));
        let (limits, namespace) = (running.consumer.body_limits(), running.client.namespace().clone());
        Ok(taken.map_err(raise)?.map(|work| {
            let Topic { given, decode } = &self.topics[&**work.topic()];
            let (topic, decoding) = (given.clone(), Decoding::new(limits, decode.clone()));
            PyWork { topic, namespace, work: Owned::new(work), decoding }
        }))
    }

    /// What the user has to be told of queues that changed, or None when nothing changed in time. For a thread that gets no signals.
    fn next_change(&self, py: Python<'_>, timeout: Seconds) -> PyResult<Option<PyChange>> {
        let running = self.running.get()?;
        let next = wait_in_thread(py, &running.runtime, running.consumer.next_change(timeout.0));
        let namespace = running.client.namespace();
        Ok(next.map_err(raise)?.map(|change| PyChange { change, namespace: namespace.clone() }))
    }

    fn told(&self, change: &PyChange) -> PyResult<()> {
        self.running.get()?.consumer.told(&change.change);
        Ok(())
    }

    /// What became of messages.
    fn stats<'py>(&self, py: Python<'py>, failed_callbacks: u64) -> PyResult<Bound<'py, PyAny>> {
        let counted = self.running.get()?.consumer.stats();
        named::to_python(py, &stats::PushStats::new(counted, failed_callbacks))
    }

    /// Handlers of a lane that had messages for too long and have not returned.
    fn stuck(&self, lane: usize) -> PyResult<usize> {
        Ok(self.running.get()?.consumer.stuck(lane))
    }

    /// The assigned queues, and which brokers answer.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        named::to_python(py, &rows::ConsumerState::from(self.running.get()?.consumer.state()))
    }

    /// Begins what the next [`stop`](Self::stop) then waits for.
    fn begin_stop(&self, patience: Seconds) -> PyResult<()> {
        let running = self.running.get()?;
        let consumer = running.consumer.clone();
        let stopping = running.runtime.spawn(async move { consumer.stop(patience.0).await });
        *running.stopping.lock() = Some(stopping);
        Ok(())
    }

    /// Waits for handlers, commits and leaves the group.
    fn stop(&self, py: Python<'_>, patience: Seconds) -> PyResult<()> {
        let running = self.running.get()?;
        let begun = running.stopping.lock().take();
        let stopped = async {
            match begun {
                Some(stopping) => stopping.await.unwrap_or(Err(ClientError::Closed { what: "runtime" })),
                None => running.consumer.stop(patience.0).await,
            }
        };
        let stopped = wait(py, &running.runtime, stopped)?;
        wait(py, &running.runtime, running.client.close())?;
        stopped.map_err(raise)
    }
}

/// Messages of one topic that were taken for a handler. It gets one after the other, or a batch at a time; each call finishes what
/// was handed out before.
#[pyclass(name = "Work", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyWork {
    /// That of the handler.
    topic: Arc<str>,
    namespace: Namespace,
    work: Owned<Work>,
    decoding: Decoding,
}

#[pymethods]
impl PyWork {
    /// The topic that the messages were sent to, by the name that its handler has.
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Messages> {
        let this = slf.get();
        let work = this.work.get()?;
        let first = match work.tries() {
            0 => None,
            tries => Some(this.origin(work, tries)),
        };
        Ok(Messages { origin: this.origin(work, 0), first: Mutex::new(first), work: slf.unbind() })
    }

    /// The next batch; empty at the end.
    fn next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let work = self.work.get()?;
        let messages = PyList::empty(py);
        let Some(part) = work.next_batch() else { return Ok(messages) };
        let origin = self.origin(work, work.tries());
        for message in received(&part, &origin) {
            messages.append(untracked::new(py, message)?)?;
        }
        Ok(messages)
    }

    /// Reports that the handler failed with the messages of the last batch. Returns their fate, and whether they may be redelivered;
    /// None if the handler exceeded its time and lost them before. `reason`: type and text of what the handler
    /// raised. `chosen`: it only wanted the message later.
    #[pyo3(signature = (after=None, level=None, reject=false, reason=None, chosen=false))]
    fn fail(
        &self,
        after: Option<Seconds>,
        level: Option<i32>,
        reject: bool,
        reason: Option<&str>,
        chosen: bool,
    ) -> PyResult<Option<(&'static str, bool)>> {
        let verdict = match (after, level) {
            _ if reject => Verdict::Reject,
            (_, Some(level)) => Verdict::RetryAtLevel(level),
            (Some(Seconds(after)), None) => Verdict::RetryAfter(after),
            (None, None) => Verdict::Retry,
        };
        let reason = reason.map(|text| if chosen { Reason::Chosen(text) } else { Reason::Raised(text) });
        let fate = self.work.get()?.fail(verdict, reason);
        Ok(fate.map(|fate| (fate.text(), fate.is_redelivered())))
    }
}

impl PyWork {
    fn origin(&self, work: &Work, tries: u32) -> Arc<Origin> {
        let tries = i32::try_from(tries).unwrap_or(i32::MAX);
        let shown = Shown { namespace: self.namespace.clone(), origin_topic: true, tries };
        Origin::shown_as(work.queue(), self.decoding.clone(), shown)
    }
}

/// The messages of a [`PyWork`], one after the other.
#[pyclass(name = "Messages", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct Messages {
    work: Py<PyWork>,
    origin: Arc<Origin>,
    /// That of the first message, if it was tried before.
    first: Mutex<Option<Arc<Origin>>>,
}

#[pymethods]
impl Messages {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, ReceivedMessage>>> {
        let Some(record) = self.work.get().work.get()?.next() else { return Ok(None) };
        let first = self.first.lock().take();
        let message = ReceivedMessage::new(record, first.unwrap_or_else(|| self.origin.clone()));
        untracked::new(py, message).map(Some)
    }
}

fn received(part: &PulledPart, origin: &Arc<Origin>) -> impl Iterator<Item = ReceivedMessage> {
    (0..part.len()).map(move |index| ReceivedMessage::new(part.record_bytes(index), Arc::clone(origin)))
}

/// The settings that the options give.
fn config(options: &mut Options<'_>) -> PyResult<PushConfig> {
    let mut config = PushConfig { consumer: consumer_options::shared(options)?, ..PushConfig::default() };
    options.set_int("max_retries", &mut config.max_retries)?;
    options.set_bool("dead_letter_error", &mut config.dead_letter_error)?;
    options.set_duration("handler_timeout", &mut config.handler_timeout)?;
    options.set_bool("ordered", &mut config.ordered)?;
    options.set_duration("retry_pause", &mut config.retry_pause)?;
    options.set_bool("broadcast", &mut config.broadcast)?;
    config.offsets_folder = options.take("offsets_folder")?;
    Ok(config)
}
