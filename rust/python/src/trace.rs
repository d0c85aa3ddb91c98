//! Message traces.

use pyo3::prelude::*;
use rocketpy_client::{ConsumeResult, TraceRecord, TracedKind};
use rocketpy_model::system;

use crate::error;
use crate::options::Options;

/// The topic of traces that the options ask for.
pub(crate) fn topic(options: &mut Options<'_>) -> PyResult<Option<String>> {
    let (trace, topic) = (options.take_bool("trace")?, options.take_text("trace_topic")?);
    match (trace, topic) {
        (Some(false), Some(topic)) => Err(error::invalid(format!(
            "trace=False and trace_topic={topic:?} contradict each other: leave one of them out"
        ))),
        (Some(true), None) => Ok(Some(system::TRACE_TOPIC.to_owned())),
        (_, topic) => Ok(topic),
    }
}

/// A record of a trace message; what it does not have is None. A dict in Python.
#[derive(Default, IntoPyObject)]
pub(crate) struct Traced {
    step: &'static str,
    msg_id: String,
    at_ms: Option<i64>,
    region: Option<String>,
    group: Option<String>,
    topic: Option<String>,
    tag: Option<String>,
    keys: Option<String>,
    store_host: Option<String>,
    body_bytes: Option<i64>,
    cost_ms: Option<i64>,
    kind: Option<&'static str>,
    offset_msg_id: Option<String>,
    success: Option<bool>,
    client_host: Option<String>,
    request_id: Option<String>,
    retries: Option<i64>,
    result: Option<&'static str>,
    transaction_id: Option<String>,
    state: Option<String>,
    from_check: Option<bool>,
}

/// The records of one trace message. Those that cannot be read are left out.
#[pyfunction]
pub(crate) fn trace_records(body: &[u8]) -> Vec<Traced> {
    TraceRecord::read_all(&String::from_utf8_lossy(body)).map(traced).collect()
}

fn traced(record: TraceRecord<'_>) -> Traced {
    let text = |text: &str| Some(text.to_owned());
    let own = |text: Option<&str>| text.map(str::to_owned);
    let all = Traced { msg_id: record.msg_id().to_owned(), ..Traced::default() };
    match record {
        TraceRecord::Sent(sent) => Traced {
            step: "sent",
            at_ms: Some(sent.at_ms),
            region: text(sent.region),
            group: text(sent.group),
            topic: text(sent.topic),
            tag: own(sent.tag),
            keys: own(sent.keys),
            store_host: text(sent.store_host),
            body_bytes: Some(sent.body_bytes),
            cost_ms: Some(sent.cost_ms),
            kind: sent.kind.map(TracedKind::as_str),
            offset_msg_id: own(sent.offset_msg_id),
            success: Some(sent.success),
            client_host: own(sent.client_host),
            ..all
        },
        TraceRecord::Began(began) => Traced {
            step: "began",
            at_ms: Some(began.at_ms),
            region: text(began.region),
            group: text(began.group),
            request_id: text(began.request_id),
            retries: Some(began.retries),
            keys: own(began.keys),
            ..all
        },
        TraceRecord::Ended(ended) => Traced {
            step: "ended",
            at_ms: ended.at_ms,
            group: own(ended.group),
            request_id: text(ended.request_id),
            cost_ms: Some(ended.cost_ms),
            success: Some(ended.success),
            keys: own(ended.keys),
            result: ended.result.map(ConsumeResult::as_str),
            ..all
        },
        TraceRecord::TransactionEnded(end) => Traced {
            step: "transaction",
            at_ms: Some(end.at_ms),
            region: text(end.region),
            group: text(end.group),
            topic: text(end.topic),
            tag: own(end.tag),
            keys: own(end.keys),
            store_host: text(end.store_host),
            transaction_id: own(end.transaction_id),
            state: text(end.state),
            from_check: Some(end.from_check),
            ..all
        },
        TraceRecord::Recalled(recall) => Traced {
            step: "recalled",
            at_ms: Some(recall.at_ms),
            region: text(recall.region),
            group: text(recall.group),
            topic: text(recall.topic),
            success: Some(recall.success),
            ..all
        },
    }
}
