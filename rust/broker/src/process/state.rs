//! The broker's own state, as tools read it.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4.

use std::fmt::Write;
use std::time::Instant;

use rocketpy_protocol::body::{KvTable, TimerMetrics, TimingCount};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::GetBrokerConfigResponseHeader;
use rocketpy_protocol::json;
use rocketpy_remoting::Response;

use super::runtime_info;
use crate::Endpoint;
use crate::call::{Answer, response as respond, success_json};
use crate::figures::Figures;
use crate::shared::Shared;

/// GET_BROKER_CONFIG: Java properties text.
pub(super) fn config(shared: &Shared) -> Answer {
    let mut text = String::new();
    let (host, port) = match shared.advertised() {
        Some(advertised) => (advertised.host.as_str(), advertised.port),
        None => ("", shared.config.listen.port()),
    };
    let endpoint = Endpoint {
        listen_ip: shared.config.listen.ip(),
        port,
        advertised_host: host,
        broker_id: shared.role.get().broker_id(),
    };
    for (key, value) in shared.config.describe.lines(&endpoint) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{key}={value}");
    }
    let version = String::from_utf8_lossy(&json::to_vec(&shared.topics.version())).into_owned();
    let command = respond(response::SUCCESS)
        .with_header(&GetBrokerConfigResponseHeader { version: &version })
        .with_body(text.into_bytes());
    Ok(command.into())
}

/// GET_BROKER_RUNTIME_INFO.
pub(super) fn runtime_info(shared: &Shared) -> Answer {
    let figures = Figures::of(shared, Instant::now());
    Ok(success_json(&KvTable { table: runtime_info::render(&figures) }))
}

/// GET_TIMER_METRICS: the topics that messages wait for.
pub(super) fn timer_metrics(shared: &Shared) -> Answer {
    let data_version = shared.timers.counts_version();
    let (_, topics) = shared.topics.all();
    let waiting = |name: String| {
        let (count, time_stamp) = shared.timers.waiting_for(&name)?;
        Some((name, TimingCount { count, time_stamp }))
    };
    let timing_count = topics.keys().filter_map(|name| waiting(name.to_string())).collect();
    Ok(success_json(&TimerMetrics { data_version, timing_count }))
}

/// GET_TIMER_CHECK_POINT.
pub(super) fn timer_checkpoint(shared: &Shared) -> Answer {
    Ok(Response::success().with_body(shared.timers.checkpoint().encode().to_vec().into()))
}
