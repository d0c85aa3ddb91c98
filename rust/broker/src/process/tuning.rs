//! Requests that tune how the broker works: cold reads, read-ahead, timers, replication.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4.

use rocketpy_protocol::body::SetMessageRequestModeRequestBody;
use rocketpy_protocol::header::{Header, ResetMasterFlushOffsetHeader};
use rocketpy_remoting::{Reply, Response};
use tracing::info;

use crate::blocking::on_disk;
use crate::call::{Answer, Call, answer_later, body, success_json};
use crate::refusal::Refusal;

pub(super) const NO_POP: &str = "POP consumption is not supported, use a push, pull or lite pull consumer";

/// The field of SET_COMMITLOG_READ_MODE.
const READ_AHEAD_MODE: &str = "READ_AHEAD_MODE";
/// The field of SWITCH_TIMER_ENGINE.
const ENGINE_TYPE: &str = "E_T";

/// UPDATE_COLD_DATA_FLOW_CTR_CONFIG: lines of `GROUP=BYTES`, all or none.
pub(super) fn limit_cold_reads(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let text = std::str::from_utf8(&request.body).map_err(|_| Refusal::NotText);
    match text.and_then(|text| desk.reads.of_groups.set_limits(text)) {
        Err(refusal) => reply.send(refusal.response()),
        Ok(written) => answer_later(desk.ground.tasks(), reply, async move {
            on_disk(written).await?;
            info!("limits of cold reads changed");
            Ok(Response::success())
        }),
    }
}

/// REMOVE_COLD_DATA_FLOW_CTR_CONFIG: the body is the name of a group.
pub(super) fn unlimit_cold_reads(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let group = std::str::from_utf8(&request.body).map_err(|_| Refusal::NotText);
    match group.and_then(|group| desk.reads.of_groups.remove_limit(group.trim())) {
        Err(refusal) => reply.send(refusal.response()),
        Ok(written) => answer_later(desk.ground.tasks(), reply, async move {
            on_disk(written).await?;
            Ok(Response::success())
        }),
    }
}

/// GET_COLD_DATA_FLOW_CTR_INFO.
pub(super) fn cold_reads(Call { desk, .. }: Call<'_>) -> Answer {
    Ok(success_json(&desk.reads.of_groups.info()))
}

/// SET_COMMITLOG_READ_MODE. The kernel reads ahead in the log as it sees fit; another mode is not supported.
pub(super) fn set_read_mode(Call { request, .. }: Call<'_>) -> Answer {
    match request.ext.get(READ_AHEAD_MODE) {
        Some("0") => Ok(success("set commitlog readahead mode success, mode: 0")),
        Some("1") => Err(Refusal::RandomReads),
        other => {
            let value = other.unwrap_or_default().to_owned();
            Err(Refusal::Value { field: READ_AHEAD_MODE, wanted: "0 (normal)", value })
        }
    }
}

/// SWITCH_TIMER_ENGINE. There is one, the wheel in a file.
pub(super) fn switch_timers(Call { request, .. }: Call<'_>) -> Answer {
    match request.ext.get(ENGINE_TYPE) {
        Some("F") => Ok(success("switch timer engine success")),
        other => {
            let value = other.unwrap_or_default().to_owned();
            Err(Refusal::Value { field: ENGINE_TYPE, wanted: "F (the time wheel in a file)", value })
        }
    }
}

/// RESET_MASTER_FLUSH_OFFSET. A slave's figure in GET_BROKER_HA_STATUS, until it looks for its master again; a master has none.
pub(super) fn reset_master_flushed(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = ResetMasterFlushOffsetHeader::read(&request.ext)?;
    desk.role_changes.replication().set_master_flushed(header.master_flush_offset);
    Ok(Response::success())
}

/// SET_MESSAGE_REQUEST_MODE. Groups pull here: that mode changes nothing, and POP is not supported.
pub(super) fn set_request_mode(Call { desk, request, .. }: Call<'_>) -> Answer {
    let wanted: SetMessageRequestModeRequestBody = body(request)?;
    let SetMessageRequestModeRequestBody { topic, consumer_group: group, mode, .. } = wanted;
    if desk.ground.topics().get(&topic).is_none() {
        return Err(Refusal::NoTopic { topic });
    }
    if desk.ground.groups().get(&group).is_none() {
        return Err(Refusal::NoGroup { group });
    }
    match mode.as_str() {
        "PULL" => Ok(Response::success()),
        "POP" => Err(Refusal::NotThereYet { code: request.code, why: NO_POP }),
        _ => Err(Refusal::Value { field: "mode", wanted: "PULL", value: mode }),
    }
}

fn success(remark: &str) -> Response {
    let mut response = Response::success();
    response.command.remark = Some(remark.to_owned());
    response
}
