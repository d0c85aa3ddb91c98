//! The broker's own state, as tools read it.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4.

use std::time::{Duration, Instant};

use rocketpy_ha::{Epoch, Epochs};
use rocketpy_protocol::body::{
    EpochInfo, HaClientRuntimeInfo, HaConnectionInfo, HaRuntimeInfo, KvTable, TimerMetrics, TimingCount,
};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{
    ChangeBrokerRoleHeader, CopyLogHeader, ExchangeHaInfoHeader, GetBrokerConfigResponseHeader, Header,
};
use rocketpy_protocol::json;
use rocketpy_protocol::settings::{self, ConfigChange, ConfigEntries};
use rocketpy_remoting::{Reply, Response};
use rocketpy_store::Store;
use tracing::info;

use super::runtime_info;
use crate::advertised::Advertised;
use crate::blocking::aside;
use crate::call::{
    Answer, Call, answer_from_header, answer_later, response as respond, success_json, success_with,
};
use crate::desk::Endpoints;
use crate::figures::{Figures, Gauges};
use crate::ground::Ground;
use crate::ha::{CHALLENGE, EPOCHS, Followed, NONCE, PROOF, STATUS, give_back};
use crate::operation::administer::{self, ReplicationStatus, SlaveStatus};
use crate::refusal::Refusal;
use crate::role_change::{self, WantedRole};
use crate::slave::Finished;
use crate::table::topic::TopicTable;
use crate::timer::Timers;
use crate::{Endpoint, health};

/// Maximum time for a copy of the master's tables that the master asks for. It waits no longer itself, unless its `slaveTimeout` is longer.
const COPY_TIMEOUT: Duration = Duration::from_secs(3);

/// GET_BROKER_CONFIG: Java properties text, or JSON with the layer of each value.
pub(super) fn config(Call { desk, request, .. }: Call<'_>) -> Answer {
    let (ground, endpoints): (&Ground, &Endpoints) = (&desk.ground, &desk.endpoints);
    let config = ground.config();
    let Advertised { host, port, .. } = &endpoints.advertised;
    let endpoint = Endpoint {
        listen_ip: config.listen.ip(),
        port: *port,
        advertised_host: host,
        broker_id: ground.role().get().broker_id(),
    };
    let body = if ConfigEntries::are_asked_for(request)? {
        config.text.entries(&config, &endpoint).to_body()
    } else {
        settings::lines(config.text.lines(&config, &endpoint)).into_bytes()
    };
    let version = String::from_utf8_lossy(&json::to_vec(&ground.topics().version())).into_owned();
    let command = respond(response::SUCCESS)
        .with_header(&GetBrokerConfigResponseHeader { version: &version })
        .with_body(body);
    Ok(command.into())
}

/// UPDATE_BROKER_CONFIG: Java properties text. The changed values are live values, which later starts use too.
pub(super) fn update_config(Call { desk, request, connection }: Call<'_>, reply: Reply) {
    let change = match ConfigChange::read(request) {
        Ok(change) => change,
        Err(error) => return reply.send(Refusal::from(error).response()),
    };
    let (peer, owner) = (connection.peer(), desk.clone());
    answer_later(desk.ground.tasks(), reply, async move {
        let (changed_in, is_dry_run) = (owner.clone(), change.is_dry_run);
        let change = move || administer::change_config(&changed_in.ground, &changed_in.intake, &change);
        let (note, template) = aside(change).await?;
        if !is_dry_run {
            info!(%peer, "live configuration changed");
        }
        if let Some(template) = template {
            administer::store_template(&owner.ground, &owner.intake, template).await?;
        }
        let mut response = Response::success();
        response.command.remark = note;
        Ok(response)
    });
}

/// GET_BROKER_RUNTIME_INFO. Keys of RocketPy say whether the broker is ready for clients and makes progress, and which checks fail.
pub(super) fn runtime_info(Call { desk, .. }: Call<'_>) -> Answer {
    let (held_pulls, timers_waiting) = (desk.held.count_for_messages() as u64, desk.timers.waiting());
    let figures = Figures::of(&desk.ground, Gauges { held_pulls, timers_waiting }, Instant::now());
    let mut table = runtime_info::render(&figures);
    runtime_info::add_waiting(&mut table, desk);
    runtime_info::add_times(&mut table, desk.ground.metrics());
    // The request has come: the broker accepts.
    let alive = health::alive(desk, Duration::ZERO);
    for (key, cause, checked) in [("ready", "notReady", health::ready(desk)), ("alive", "notAlive", alive)] {
        table.insert(key.to_owned(), checked.is_ok().to_string());
        if let Err(failed) = checked {
            let lines: Vec<String> = failed.iter().map(ToString::to_string).collect();
            table.insert(cause.to_owned(), lines.join("\n"));
        }
    }
    Ok(success_json(&KvTable { table }))
}

/// GET_TIMER_METRICS: the topics that messages wait for.
pub(super) fn timer_metrics(topics: &TopicTable, timers: &Timers) -> Answer {
    let data_version = timers.counts_version();
    let (_, topics) = topics.all();
    let waiting = |name: String| {
        let (count, time_stamp) = timers.waiting_for(&name)?;
        Some((name, TimingCount { count, time_stamp }))
    };
    let timing_count = topics.keys().filter_map(|name| waiting(name.to_string())).collect();
    Ok(success_json(&TimerMetrics { data_version, timing_count }))
}

/// GET_TIMER_CHECK_POINT.
pub(super) fn timer_checkpoint(timers: &Timers) -> Answer {
    Ok(Response::success().with_body(timers.checkpoint().encode().to_vec().into()))
}

/// GET_BROKER_HA_STATUS. Where there is a token, an answer to a request that asks for it proves that this broker knows it.
pub(super) fn ha_status(Call { desk, request, .. }: Call<'_>) -> Answer {
    let of_asker = request.ext.get(EPOCHS).and_then(Epochs::from_json);
    let status = administer::replication_status(&desk.ground, &desk.peers, of_asker.as_ref());
    let followed = desk.role_changes.replication().followed();
    let mut answer = success_json(&ha_body(status, followed));
    if let (Some(nonce), Some(past)) = (request.ext.get(NONCE), desk.peers.past()) {
        let proof = past.prove(&[STATUS, nonce.as_bytes(), &answer.command.body]);
        proof.into_iter().for_each(|proof| answer.command.ext.push(PROOF, &proof));
    }
    if let Some(challenge) = desk.role_changes.challenge() {
        answer.command.ext.push(CHALLENGE, &challenge);
    }
    Ok(answer)
}

fn ha_body(status: ReplicationStatus, followed: Option<Followed>) -> HaRuntimeInfo {
    let max_offset = status.end.to_wire();
    let of_slave = |followed: Followed| HaClientRuntimeInfo {
        is_activated: followed.is_active,
        last_read_timestamp: followed.read_at_ms,
        last_write_timestamp: followed.reported_at_ms,
        master_addr: followed.master.unwrap_or_default(),
        master_flush_offset: followed.master_flushed,
        max_offset,
        transferred_byte_in_second: followed.bytes_per_second as i64,
    };
    let slave = |slave: SlaveStatus| HaConnectionInfo {
        addr: slave.address.to_string(),
        slave_ack_offset: slave.acknowledged.to_wire(),
        diff: slave.lag_bytes as i64,
        in_sync: slave.is_near,
        transferred_byte_in_second: slave.bytes_per_second as i64,
        transfer_from_where: slave.next.to_wire(),
        broker_id: slave.broker_id,
        lag_records: slave.lag.map(|lag| lag.records),
        lag_ms: slave.lag.map(|lag| lag.age_ms),
    };
    let epoch = |Epoch { id, start, after_loss }| EpochInfo {
        id: format!("{id:016x}"),
        start: start.to_wire(),
        after_loss,
    };
    HaRuntimeInfo {
        master: status.is_master,
        master_commit_log_max_offset: status.end.to_wire(),
        in_sync_slave_nums: status.near_slaves as i32,
        ha_connection_info: status.slaves.into_iter().map(slave).collect(),
        refused_slaves: status.refused_slaves,
        ha_client_runtime_info: followed.map(of_slave),
        epochs: status.epochs.into_iter().map(epoch).collect(),
        not_followed: status.not_followed,
        gives_way: status.gives_way,
    }
}

/// LEAVE_MASTER: another slave becomes the master. Before the answer, which is that of GET_BROKER_HA_STATUS, this one stops to count for the
/// master of before: that may only stand still, and would continue to acknowledge with it what the new one does not have.
pub(super) fn leave_master(call: Call<'_>) -> Answer {
    call.desk.role_changes.leave_master(call.request.ext.get(PROOF))?;
    info!(peer = %call.connection.peer(), "detached from previous master: another slave is being promoted");
    ha_status(call)
}

/// COPY_TABLES: the master has changed topics, groups or offsets. Answered once this slave has copied the tables of its master, and its log
/// has reached the end that the master's had.
pub(super) fn copy_tables(call: Call<'_>, reply: Reply) {
    answer_from_header(call, reply, |desk, request| async move {
        if desk.ground.config().name_servers.is_empty() {
            // Such a slave copies the log alone. Its master does not wait for it, as for an older version.
            let why = "a slave without name servers does not know where its master answers requests";
            return Err(Refusal::NotThereYet { code: request.code, why });
        }
        let metadata = desk.role_changes.metadata();
        match metadata.finish(COPY_TIMEOUT).await {
            Finished::All | Finished::WithoutStrangeOffsets => Ok(Response::success()),
            Finished::Not => Err(Refusal::TablesNotCopied),
        }
    });
}

/// CHANGE_BROKER_ROLE: makes a slave the master, or a master a slave, if it may. The answer says that it begins.
pub(super) fn change_role(Call { desk, request, connection }: Call<'_>, reply: Reply) {
    let header = ChangeBrokerRoleHeader::read(&request.ext).map_err(Refusal::from);
    let wanted = header.and_then(|header| {
        let role = role_change::role(header.role)?;
        let wanted = WantedRole { role, broker_id: header.broker_id, is_forced: header.force == Some(true) };
        let ends = [connection.peer(), connection.local()].map(|addr| addr.ip().to_canonical());
        desk.role_changes.check_command(ends.into(), &wanted, request.ext.get(PROOF))?;
        Ok(wanted)
    });
    let changes = desk.role_changes.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        changes.change(wanted?).await?;
        Ok(Response::success())
    });
}

/// COPY_LOG: bytes after the end of a master's log that is a beginning of this slave's.
pub(super) fn copy_log(Call { desk, request, .. }: Call<'_>) -> Answer {
    let CopyLogHeader { greeting } = CopyLogHeader::read(&request.ext)?;
    let given = give_back(&desk.ground, &desk.peers, greeting, request.ext.get(PROOF))?;
    let mut response = Response::success();
    if let Some(proof) = given.proof {
        response.command.ext.push(PROOF, &proof);
    }
    response.command.ext.push(EPOCHS, &given.epochs);
    response.command.body = given.bytes;
    Ok(response)
}

/// EXCHANGE_BROKER_HA_INFO: where slaves connect, and where the log begins. What the asker says of itself is not used.
pub(super) fn ha_info(store: &Store, endpoints: &Endpoints) -> Answer {
    let (slaves, own) = (&endpoints.slaves, endpoints.advertised.address());
    Ok(success_with(&ExchangeHaInfoHeader {
        master_ha_address: slaves.as_deref(),
        master_flush_offset: Some(store.flushed_offset().to_wire()),
        master_address: Some(&own),
        log_start: slaves.is_some().then(|| store.min_physical_offset().to_wire()),
    }))
}
