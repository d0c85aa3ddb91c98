//! Message traces.

use pyo3::prelude::*;
use rocketpy_client::{
    ConsumeResult, TraceRecord, TracedBegin, TracedEnd, TracedKind, TracedRecall, TracedSend,
    TracedTransaction,
};
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
    let traced = match record {
        TraceRecord::Sent(record) => sent(&record),
        TraceRecord::Began(record) => began(&record),
        TraceRecord::Ended(record) => ended(&record),
        TraceRecord::TransactionEnded(record) => transaction_ended(&record),
        TraceRecord::Recalled(record) => recalled(&record),
    };
    Traced { msg_id: record.msg_id().to_owned(), ..traced }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn own(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn sent(record: &TracedSend<'_>) -> Traced {
    Traced {
        step: "sent",
        at_ms: Some(record.at_ms),
        region: text(record.region),
        group: text(record.group),
        topic: text(record.topic),
        tag: own(record.tag),
        keys: own(record.keys),
        store_host: text(record.store_host),
        body_bytes: Some(record.body_bytes),
        cost_ms: Some(record.cost_ms),
        kind: record.kind.map(TracedKind::as_str),
        offset_msg_id: own(record.offset_msg_id),
        success: Some(record.success),
        client_host: own(record.client_host),
        ..Traced::default()
    }
}

fn began(record: &TracedBegin<'_>) -> Traced {
    Traced {
        step: "began",
        at_ms: Some(record.at_ms),
        region: text(record.region),
        group: text(record.group),
        request_id: text(record.request_id),
        retries: Some(record.retries),
        keys: own(record.keys),
        ..Traced::default()
    }
}

fn ended(record: &TracedEnd<'_>) -> Traced {
    Traced {
        step: "ended",
        at_ms: record.at_ms,
        group: own(record.group),
        request_id: text(record.request_id),
        cost_ms: Some(record.cost_ms),
        success: Some(record.success),
        keys: own(record.keys),
        result: record.result.map(ConsumeResult::as_str),
        ..Traced::default()
    }
}

fn transaction_ended(record: &TracedTransaction<'_>) -> Traced {
    Traced {
        step: "transaction",
        at_ms: Some(record.at_ms),
        region: text(record.region),
        group: text(record.group),
        topic: text(record.topic),
        tag: own(record.tag),
        keys: own(record.keys),
        store_host: text(record.store_host),
        transaction_id: own(record.transaction_id),
        state: text(record.state),
        from_check: Some(record.from_check),
        ..Traced::default()
    }
}

fn recalled(record: &TracedRecall<'_>) -> Traced {
    Traced {
        step: "recalled",
        at_ms: Some(record.at_ms),
        region: text(record.region),
        group: text(record.group),
        topic: text(record.topic),
        success: Some(record.success),
        ..Traced::default()
    }
}
