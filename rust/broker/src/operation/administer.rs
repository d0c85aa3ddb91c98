//! Administration of a broker: its configuration, the state of its replication, offsets of groups that differ, and half messages that
//! were given up.
//!
//! # Source
//! docs/reference/protocol.md 2.6.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use rocketpy_ha::{Epoch, Epochs};
use rocketpy_model::{PhysicalOffset, property, system};
use rocketpy_protocol::body::RefusedSlave;
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::{RecordView, records};
use rocketpy_protocol::settings::ConfigChange;
use rocketpy_store::Store;

use crate::BrokerConfig;
use crate::blocking::on_disk;
use crate::disk_read::{DiskReads, look_up_aside};
use crate::ground::{ConfigChanged, Ground};
use crate::ha::{Peers, Slave};
use crate::members::Members;
use crate::put::{Intake, StoredAgain};
use crate::refusal::Refusal;
use crate::role::Role;
use crate::table::topic::TopicChange;

/// Maximum part of the log that is read to count the records that a slave is missing.
const COUNTED_BYTES: usize = 4 << 20;

/// Topic template of a changed configuration, which is not stored yet.
#[derive(Debug)]
#[must_use]
pub(crate) struct NewTemplate(Arc<BrokerConfig>);

/// Changes live values. Returns a note for the operator, and the topic template if it changed: [`store_template`] stores it.
///
/// # Errors
/// As [`Ground::change_config`].
pub(crate) fn change_config(
    ground: &Ground,
    intake: &Intake,
    change: &ConfigChange,
) -> Result<(Option<String>, Option<NewTemplate>), Refusal> {
    let ConfigChanged { before, after, note } = ground.change_config(change)?;
    if before.broker_permission != after.broker_permission {
        intake.register_again();
    }
    let template = |config: &BrokerConfig| (config.topics.auto_create, config.default_topic_queues);
    // A slave takes its topics from its master.
    let is_template_new = template(&before) != template(&after) && ground.role().is_master();
    Ok((note, is_template_new.then_some(NewTemplate(after))))
}

/// Stores the topic template of a changed configuration and announces it to the name servers.
///
/// # Errors
/// The table of topics cannot be written.
pub(crate) async fn store_template(
    ground: &Ground,
    intake: &Intake,
    NewTemplate(config): NewTemplate,
) -> Result<(), Refusal> {
    let changed = ground.topics().set_template(&config)?;
    let topics = changed.values;
    on_disk(changed.written).await?;
    intake.announce(&TopicChange { topics });
    Ok(())
}

/// State of the replication of a broker.
#[derive(Debug)]
pub(crate) struct ReplicationStatus {
    pub(crate) is_master: bool,
    /// End of the log.
    pub(crate) end: PhysicalOffset,
    /// Number of connected slaves that are near the end, also of those that have not reported yet.
    pub(crate) near_slaves: usize,
    /// Slaves that have reported. Other connections may not be slaves.
    pub(crate) slaves: Vec<SlaveStatus>,
    pub(crate) refused_slaves: Vec<RefusedSlave>,
    pub(crate) epochs: Vec<Epoch>,
    /// Why this broker does not follow its master.
    pub(crate) not_followed: Option<String>,
    /// Whether this master becomes a slave of the broker that asks.
    pub(crate) gives_way: bool,
}

/// A slave, as its master knows it.
#[derive(Debug)]
pub(crate) struct SlaveStatus {
    pub(crate) address: SocketAddr,
    pub(crate) broker_id: Option<u64>,
    pub(crate) acknowledged: PhysicalOffset,
    /// Next byte to send.
    pub(crate) next: PhysicalOffset,
    pub(crate) lag_bytes: u64,
    /// `None` if the records cannot be read.
    pub(crate) lag: Option<Lag>,
    pub(crate) is_near: bool,
    pub(crate) bytes_per_second: u64,
}

/// Records that a slave is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) records: i64,
    /// Age of the first of them.
    pub(crate) age_ms: i64,
}

/// Replication as a master or a slave knows it. `of_asker`: epochs of the broker that asks, if it sent them.
pub(crate) fn replication_status(
    ground: &Ground,
    peers: &Peers,
    of_asker: Option<&Epochs>,
) -> ReplicationStatus {
    let (store, slaves) = (ground.store(), peers.slaves().all());
    let end = store.max_physical_offset();
    let is_near = |slave: &Arc<Slave>| peers.slaves().is_near(slave, end);
    let status = |slave: &Arc<Slave>| {
        let acknowledged = slave.acknowledged();
        SlaveStatus {
            address: slave.peer,
            broker_id: slave.broker_id(),
            acknowledged,
            next: slave.next(),
            lag_bytes: end.saturating_sub(acknowledged),
            lag: lag(store, acknowledged, end),
            is_near: is_near(slave),
            bytes_per_second: slave.bytes_per_second(),
        }
    };
    let past = peers.past();
    let gives_way = |epochs| past.is_some_and(|past| past.gives_way_to(epochs, end == PhysicalOffset::ZERO));
    ReplicationStatus {
        is_master: ground.role().get() == Role::Master,
        end,
        near_slaves: slaves.iter().filter(|slave| is_near(slave)).count(),
        slaves: slaves.iter().filter(|slave| slave.has_reported()).map(status).collect(),
        refused_slaves: peers.slaves().refused(),
        epochs: past.map(|past| past.epochs().list().to_vec()).unwrap_or_default(),
        not_followed: peers.not_followed().lock().clone(),
        gives_way: ground.role().is_master() && of_asker.is_some_and(gives_way),
    }
}

/// Lag of a slave. Above [`COUNTED_BYTES`] the number of records is an estimate from the first ones. `None` if they cannot be read, or
/// the slave has not reported.
fn lag(store: &Store, acknowledged: PhysicalOffset, end: PhysicalOffset) -> Option<Lag> {
    if acknowledged >= end {
        return Some(Lag { records: 0, age_ms: 0 });
    }
    let bytes = store.log_slice(acknowledged, COUNTED_BYTES).ok()??;
    let mut found = records(&bytes).map_while(Result::ok).peekable();
    let first_ms = found.peek()?.stored_at_ms;
    let (count, size) = found.fold((0, 0), |(count, size), record| (count + 1, size + record.size() as u64));
    let count = (end - acknowledged).max(size) * count / size.max(1);
    Some(Lag { records: count as i64, age_ms: (store.now_ms() - first_ms).max(0) })
}

/// Lowest offset of the groups of a topic, compared with that of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LowestOffset {
    /// No lower offset is known of the compared group.
    OfGroups(i64),
    /// The compared group has a lower offset.
    OfCompared,
}

/// Lowest offset of any group by queue of a topic, without the groups `left_out`. Queues without an offset are absent.
pub(crate) fn lowest_offsets<'a>(
    ground: &Ground,
    members: &Members,
    topic: &str,
    left_out: impl IntoIterator<Item = &'a str>,
    compared: Option<&str>,
) -> BTreeMap<u32, LowestOffset> {
    let mut groups = BTreeSet::from_iter(members.offsets().groups_of(topic));
    for group in left_out {
        groups.remove(group);
    }
    let queues = ground.topics().get(topic).map_or(0, |topic| topic.queues());
    let of_queue = |queue_id| {
        let offset_of = |group: &str| members.offsets().get(group, topic, queue_id);
        let lowest = groups.iter().filter_map(|group| offset_of(group)).min()?;
        let is_lower = compared.and_then(offset_of).is_some_and(|offset| offset < lowest);
        Some((queue_id, if is_lower { LowestOffset::OfCompared } else { LowestOffset::OfGroups(lowest) }))
    };
    (0..queues).filter_map(of_queue).collect()
}

/// Stores a half message again that was given up after too many check-backs. Its check-backs start at 0.
///
/// `reader_id` tells the disk reads of one asker from those of others.
///
/// # Errors
/// No such message is at the offset of `msg_id`, or the message cannot be stored.
pub(crate) async fn resume_check(
    intake: &Intake,
    look_ups: &DiskReads,
    reader_id: u64,
    msg_id: &str,
) -> Result<(), Refusal> {
    let wanted = "the offset message id of a half message that was given up";
    let bad = || Refusal::Value { field: "msgId", wanted, value: msg_id.to_owned() };
    let place: OffsetMessageId = msg_id.parse().map_err(|_| bad())?;
    let (store, at) = (intake.store().clone(), place.physical_offset);
    let bytes = look_up_aside(look_ups, reader_id, move || store.record_at(at)).await??;
    let missing = || Refusal::NoMessageAt { offset: at.to_wire() };
    let bytes = bytes.ok_or_else(missing)?;
    let record = RecordView::parse(&bytes).map_err(|_| missing())?;
    let is_half = record.property(property::REAL_TOPIC).is_some();
    if !is_half || record.topic != system::TRANSACTION_CHECK_MAX_TIME_TOPIC {
        return Err(bad());
    }
    let again = StoredAgain::of(&record)
        .to(system::HALF_TOPIC, 0)
        .without_property(property::TRANSACTION_CHECK_TIMES);
    drop(again.put(intake).await?);
    Ok(())
}
