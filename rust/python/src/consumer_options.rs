//! The options of a consumer.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBool;
use rocketpy_client::ConsumerConfig;

use crate::balance::BalanceArgument;
use crate::duration::Seconds;
use crate::options::Options;
use crate::start::StartArgument;
use crate::trace;

/// Interval of automatic commits when they are only switched on.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// The settings that the options of a consumer give.
pub(crate) fn config(options: &mut Options<'_>) -> PyResult<ConsumerConfig> {
    let mut config = shared(options)?;
    if let Some(AutoCommit(interval)) = options.take("auto_commit")? {
        config.auto_commit = interval;
    }
    options.set_bool("retry_topic", &mut config.retry_topic)?;
    Ok(config)
}

/// Those that push consumers have too.
pub(crate) fn shared(options: &mut Options<'_>) -> PyResult<ConsumerConfig> {
    let mut config = ConsumerConfig::default();
    if let Some(StartArgument(start)) = options.take("start")? {
        config.start = start;
    }
    if let Some(timeout) = options.take::<Option<Seconds>>("unreachable_timeout")? {
        config.unreachable_timeout = timeout.map(|Seconds(timeout)| timeout);
    }
    if let Some(BalanceArgument(balance)) = options.take("balance")? {
        config.balance = balance;
    }
    for callback in ["on_assigned", "on_revoked"] {
        // Python calls them.
        config.tell_changes |= options.take::<Option<Py<PyAny>>>(callback)?.flatten().is_some();
    }
    options.set_int("prefetch_messages", &mut config.prefetch_messages)?;
    options.set_int("prefetch_bytes", &mut config.prefetch_bytes)?;
    options.set_int("prefetch_total_bytes", &mut config.prefetch_total_bytes)?;
    options.set_int("pull_messages", &mut config.pull_messages)?;
    options.set_int("pull_bytes", &mut config.pull_bytes)?;
    options.set_duration("handover_timeout", &mut config.handover_timeout)?;
    options.set_duration("suspend", &mut config.suspend)?;
    options.set_duration("pull_timeout", &mut config.pull_timeout)?;
    options.set_bool("allow_missing_topic", &mut config.allow_missing_topic)?;
    options.set_bool("allow_other_subscriptions", &mut config.allow_other_subscriptions)?;
    options.set_bool("allow_idle", &mut config.allow_idle)?;
    config.trace_topic = trace::topic(options)?;
    config.max_body_bytes =
        options.take_plain::<Option<usize>>("max_body_bytes", "an int or None")?.flatten();
    Ok(config)
}

/// When to commit automatically: an interval, True for the default interval, False or None for never.
struct AutoCommit(Option<Duration>);

impl<'py> FromPyObject<'_, 'py> for AutoCommit {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_none() {
            return Ok(Self(None));
        }
        if let Ok(switch) = value.cast::<PyBool>() {
            return Ok(Self(switch.is_true().then_some(COMMIT_INTERVAL)));
        }
        value.extract().map(|Seconds(interval)| Self(Some(interval)))
    }
}
