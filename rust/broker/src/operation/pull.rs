//! Pull: a reader takes messages of a queue.
//!
//! A pull is answered in steps, between which whoever serves it waits for the disk or for messages: [`Pulls::group`], [`Pulls::check`],
//! [`Pulls::place`], [`Pulls::read_in_memory`] or [`Pulls::read`], [`Pulls::outcome`].
//!
//! # Source
//! docs/reference/protocol.md 2.3.3 and 5, docs/reference/store-format.md 11.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_filter::MessageFilter;
use rocketpy_model::{GroupConfig, QueueOffset, TopicConfig, perm, system};
use rocketpy_store::{Fetch, FetchStatus, ReadLimits, StoreError};
use tracing::{debug, info};

use super::offset::{readable, reader};
use super::which_broker::{Next, PullStatus, Sources};
use crate::expression::Filters;
use crate::ground::Ground;
use crate::held_request::QueueKey;
use crate::members::Members;
use crate::metrics::{Got, Metric};
use crate::refusal::{Refusal, check_group_of_clients, check_offset_of_clients};
use crate::role::OfMaster;
use crate::slave::MasterAddress;
use crate::table::group::FoundGroup;
use crate::table::group_commit::Written;
use crate::table::offset::{Place, PullAt, Pulling, Readable};

/// Bytes of one answer when the request states no limit: Apache's limit for messages in memory.
const DEFAULT_MAX_BYTES: usize = 256 * 1024;
/// Why a reader is sent to the offset of its group, or to the first message.
const CREATED_AGAIN: &str = "the topic was created again, or the store is another one";
/// Maximum hold time, even if the request asks for more.
const MAX_HOLD: Duration = Duration::from_secs(600);

/// A pull, as a reader asks for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PullRequest<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) offset: i64,
    pub(crate) max_messages: i32,
    /// `None`: the broker says.
    pub(crate) max_bytes: Option<usize>,
    pub(crate) filter: AskedFilter<'a>,
    /// The offset that the pull commits.
    pub(crate) commit: Option<i64>,
    /// Whether it comes from a lite consumer.
    pub(crate) is_lite: bool,
}

/// Which messages a reader wants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AskedFilter<'a> {
    /// Subscription of the group, of this version or a later one.
    OfGroup {
        version: i64,
    },
    Own {
        expression_type: Option<&'a str>,
        expression: &'a str,
    },
    /// Messages that a filter class of the reader accepts.
    Class,
}

/// A pull that passed its checks.
#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) queue: QueueKey,
    /// The creation number of the queue.
    creation: u64,
    pub(crate) offset: i64,
    pub(crate) filter: Arc<MessageFilter>,
    pub(crate) group: Arc<str>,
    pub(crate) limits: ReadLimits,
    pub(crate) topic_sys_flag: i32,
    pub(crate) group_sys_flag: i32,
    pub(crate) sources: Sources,
    /// Whether it comes from a lite consumer.
    pub(crate) is_lite: bool,
    /// Its user, while users are on: quotas charge it, and it must still have its rights when the wait ends.
    pub(crate) user: Option<Box<str>>,
}

impl Pull {
    /// Whether the queue holds a message at its offset or later.
    pub(crate) fn is_before(&self, max_offset: QueueOffset) -> bool {
        max_offset.to_wire() > self.offset
    }

    /// Bytes of memory behind the struct. A filter counts for each pull, though several pulls may share one.
    pub(crate) fn held_bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.len());
        self.queue.topic.len() + self.group.len() + user + self.filter.heap_bytes()
    }
}

/// Where a reader continues.
#[derive(Debug)]
pub(crate) enum Placed {
    /// At the offset that it asked for, once the group's offset is written.
    Here(Option<Written>),
    /// Elsewhere; why, and what the queue holds.
    Elsewhere { next: Next, readable: Readable, why: &'static str },
}

/// How a pull was read, and how long it may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// `None`: it is answered, whatever there is.
    pub(crate) hold: Option<Duration>,
    /// When the request was read; `None` of one that was held.
    pub(crate) since: Option<Instant>,
    pub(crate) from_disk: bool,
}

/// What becomes of a pull that has read.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// There is nothing to answer, and time to wait.
    Held(Duration),
    Answered {
        next: Next,
        fetch: Fetch,
    },
}

/// Serves pulls.
#[derive(Debug)]
pub(crate) struct Pulls {
    ground: Arc<Ground>,
    members: Arc<Members>,
    /// The master of a slave.
    master: Arc<MasterAddress>,
    filters: Filters,
}

impl Pulls {
    pub(crate) fn new(ground: Arc<Ground>, members: Arc<Members>, master: Arc<MasterAddress>) -> Self {
        Self { ground, members, master, filters: Filters::default() }
    }

    /// The filter of an expression.
    ///
    /// # Errors
    /// It is too long, of a type that is not served, or broken.
    pub(crate) fn filter(
        &self,
        expression_type: Option<&str>,
        expression: &str,
    ) -> Result<Arc<MessageFilter>, Refusal> {
        self.ground.check_filter(expression)?;
        self.filters.parsed(expression_type, expression)
    }

    /// The group of the reader. One that is made meanwhile has to be written before the pull continues.
    ///
    /// # Errors
    /// The broker does not serve such pulls, the filter is too long, the group or its offset is the broker's own, or there is no group.
    pub(crate) fn group(&self, request: &PullRequest<'_>) -> Result<FoundGroup, Refusal> {
        self.check_permission()?;
        let config = self.ground.config();
        if request.is_lite && !config.lite_pull {
            return Err(Refusal::LitePullOff { broker: config.broker_name.clone() });
        }
        // The length of the filter first: a group may have to be made, and the request waits for it.
        if let AskedFilter::Own { expression, .. } = request.filter {
            self.ground.check_filter(expression)?;
        }
        match request.commit {
            Some(_) => check_offset_of_clients(request.group, request.topic)?,
            None => check_group_of_clients(request.group)?,
        }
        self.ground.group(request.group)
    }

    /// The pull, if the group may have it.
    ///
    /// # Errors
    /// It may not, or there is no such topic, queue or subscription.
    pub(crate) fn check(&self, request: &PullRequest<'_>, group: &GroupConfig) -> Result<Pull, Refusal> {
        self.check_group(group)?;
        let (topic, queue_id) = self.check_topic(&group.name, request.topic, i64::from(request.queue_id))?;
        let filter = self.filter_of(request)?;
        Ok(Pull {
            queue: QueueKey { topic: topic.name.as_str().into(), queue_id },
            creation: self.ground.creations().of(&topic.name, queue_id).number,
            offset: request.offset,
            filter,
            group: group.name.as_str().into(),
            limits: self.limits(request),
            topic_sys_flag: topic.sys_flag,
            group_sys_flag: group.sys_flag,
            sources: Sources::of(group),
            is_lite: request.is_lite,
            user: None,
        })
    }

    /// Where a pull continues that was held: the queue may be another one by now.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(crate) fn place_again(&self, pull: &Pull) -> Result<Placed, Refusal> {
        self.check_permission()?;
        if let Some(group) = self.ground.groups().get(&pull.group) {
            self.check_group(&group)?;
        }
        let QueueKey { topic, queue_id } = &pull.queue;
        self.check_topic(&pull.group, topic, i64::from(*queue_id))?;
        if self.ground.creations().of(topic, *queue_id).number == pull.creation {
            return Ok(Placed::Here(None));
        }
        let readable = readable(self.ground.store(), topic, *queue_id);
        let to = self.members.offsets().get(&pull.group, topic, *queue_id).unwrap_or(readable.min);
        Ok(self.elsewhere(pull, to, readable, CREATED_AGAIN))
    }

    fn elsewhere(&self, pull: &Pull, to: i64, readable: Readable, why: &'static str) -> Placed {
        let next = Next::moved(&self.ground, pull.sources, pull.offset, to);
        note_move(pull, &next, why);
        Placed::Elsewhere { next, readable, why }
    }

    /// Has the group store an offset for the queue, where it must have one: the offset that the pull commits, the one that is stored, or the
    /// place where a group of push consumers begins. Without it a kill would let the group begin at the end again, behind messages that it
    /// was handed out and had not committed.
    ///
    /// # Errors
    /// The table has no room.
    pub(crate) fn place(
        &self,
        pull: &Pull,
        connection_id: u64,
        commit: Option<i64>,
    ) -> Result<Placed, Refusal> {
        let QueueKey { topic, queue_id } = &pull.queue;
        let place = Place { group: &pull.group, topic, queue_id: *queue_id };
        let (offset, readable) = (pull.offset, readable(self.ground.store(), topic, *queue_id));
        let reader = reader((&self.ground, &self.members), connection_id, place, offset, readable);
        let at = PullAt { place, offset, commit, readable, reader };
        let begins = || !system::is_broker_topic(topic) && self.members.clients().is_pushed_to(&pull.group);
        let (to, why) = match self.members.offsets().pull(&at, begins)? {
            (Pulling::Reads { refused }, written) => {
                if let Some(error) = refused {
                    debug!(group = &*pull.group, %error, "commit of a pull refused");
                }
                return Ok(Placed::Here(written));
            }
            (Pulling::Moved { to }, _) => (to, "the last start of the broker cut the queue"),
            (Pulling::Reset { to }, _) => (to, "the offset of the group was reset"),
            (Pulling::Foreign { to }, _) => (to, CREATED_AGAIN),
        };
        Ok(self.elsewhere(pull, to, readable, why))
    }

    /// How long a pull is held that asks for this.
    pub(crate) fn hold_time(&self, asked: Duration) -> Duration {
        let (asked, config) = (asked.min(MAX_HOLD), self.ground.config());
        if config.long_polling { asked } else { asked.min(config.short_polling) }
    }

    /// Reads the queue; `None` where that waits for the disk.
    ///
    /// # Errors
    /// An entry or a record cannot be read.
    pub(crate) fn read_in_memory(&self, pull: &Pull) -> Result<Option<Fetch>, StoreError> {
        let QueueKey { topic, queue_id } = &pull.queue;
        self.ground.store().get_in_memory(topic, *queue_id, pull.offset, &pull.limits, &pull.filter)
    }

    /// Reads the queue. Blocks.
    ///
    /// # Errors
    /// As [`Self::read_in_memory`].
    pub(crate) fn read(&self, pull: &Pull) -> Result<Fetch, StoreError> {
        let QueueKey { topic, queue_id } = &pull.queue;
        self.ground.store().get(topic, *queue_id, pull.offset, &pull.limits, &pull.filter)
    }

    /// What becomes of a pull that has read. An answer is counted.
    pub(crate) fn outcome(&self, pull: &Pull, fetch: Fetch, reading: Reading) -> Outcome {
        let (count, most) = (fetch.count, pull.limits.max_messages);
        assert!(count <= most, "a pull returns at most the requested number of messages: {count} of {most}");
        let (next, offset) = (fetch.next_offset.to_wire(), pull.offset);
        assert!(
            count == 0 || offset < next,
            "a pull continues after the messages that it returns: {offset}, {next}"
        );
        let status = status_of(fetch.status, pull.offset);
        let next = Next::after(&self.ground, &self.master, pull.sources, status, pull.offset, &fetch);
        if let Some(patience) = reading.hold.filter(|patience| !patience.is_zero())
            && next.status == PullStatus::NotFound
        {
            return Outcome::Held(patience);
        }
        let QueueKey { topic, queue_id } = &pull.queue;
        self.count(pull, &fetch, reading);
        let place = Place { group: &pull.group, topic, queue_id: *queue_id };
        self.members.offsets().pulled(place, next.offset);
        note_move(pull, &next, name_of(fetch.status));
        Outcome::Answered { next, fetch }
    }

    fn count(&self, pull: &Pull, fetch: &Fetch, Reading { since, from_disk, .. }: Reading) {
        let (metrics, messages, bytes) = (self.ground.metrics(), u64::from(fetch.count), fetch.size_bytes);
        metrics.pulled(messages);
        if messages == 0 {
            return;
        }
        if from_disk {
            metrics.add(Metric::DiskMessagesOut, messages);
            metrics.add(Metric::DiskBytesOut, bytes);
        }
        let (group, QueueKey { topic, queue_id }) = (&*pull.group, &pull.queue);
        metrics.got().count(Got { group, topic, queue_id: *queue_id, messages, bytes, from_disk, since });
    }

    /// Whether the group may read at all.
    fn check_group(&self, group: &GroupConfig) -> Result<(), Refusal> {
        if !group.consume_enable {
            return Err(Refusal::GroupDisabled { group: group.name.clone() });
        }
        if !group.consume_broadcast_enable && self.members.clients().is_broadcasting(&group.name) {
            return Err(Refusal::BroadcastDisabled { group: group.name.clone() });
        }
        Ok(())
    }

    /// The topic and its queue, if the group may read them.
    fn check_topic(
        &self,
        group: &str,
        topic: &str,
        queue_id: i64,
    ) -> Result<(Arc<TopicConfig>, u32), Refusal> {
        let Some(topic) = self.ground.topics().get(topic) else {
            return Err(Refusal::NoTopic { topic: topic.to_owned() });
        };
        let queue_id = check_readable(&topic, queue_id)?;
        if self.ground.groups().is_read_forbidden(group, &topic.name) {
            return Err(Refusal::ReadForbidden { group: group.to_owned(), topic: topic.name.clone() });
        }
        Ok((topic, queue_id))
    }

    /// Whether this broker may be read.
    fn check_permission(&self) -> Result<(), Refusal> {
        self.ground.check_log()?;
        if !self.ground.config().slave_read {
            self.ground.check_master(OfMaster::Pull)?;
        }
        let permission = self.ground.permission();
        if permission & perm::READ == 0 {
            let broker = self.ground.config().broker_name.clone();
            return Err(Refusal::BrokerNotReadable { broker, permission });
        }
        Ok(())
    }

    fn limits(&self, request: &PullRequest<'_>) -> ReadLimits {
        let config = &self.ground.config();
        let asked = request.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
        let messages =
            usize::try_from(request.max_messages).unwrap_or(0).clamp(1, config.max_transfer_messages);
        ReadLimits {
            max_messages: u32::try_from(messages).unwrap_or(u32::MAX),
            max_bytes: asked.min(config.max_transfer_bytes) as u64,
            copies: false,
        }
    }

    fn filter_of(&self, request: &PullRequest<'_>) -> Result<Arc<MessageFilter>, Refusal> {
        let asked = match request.filter {
            AskedFilter::Class => {
                return Err(Refusal::ClassFilter { topic: request.topic.to_owned() });
            }
            AskedFilter::Own { expression_type, expression } => {
                return self.filter(expression_type, expression);
            }
            AskedFilter::OfGroup { version } => version,
        };
        let named = || (request.group.to_owned(), request.topic.to_owned());
        let Some(subscription) = self.members.clients().for_pull(request.group, request.topic) else {
            return Err(Refusal::NoConsumers { group: request.group.to_owned() });
        };
        let Some(subscription) = subscription else {
            let (group, topic) = named();
            return Err(Refusal::NoSubscription { group, topic });
        };
        let stored = subscription.data.sub_version;
        if stored < asked {
            let (group, topic) = named();
            return Err(Refusal::OldSubscription { group, topic, stored, asked });
        }
        match &subscription.filter {
            Some(filter) => Ok(filter.clone()),
            // The heartbeat was taken, for the sake of the client's other subscriptions: the pull says what is wrong with this one.
            None => {
                let data = &subscription.data;
                self.filter(data.expression_type.as_deref(), &data.sub_string)
            }
        }
    }
}

/// Says in the log that a reader continues at another offset.
fn note_move(pull: &Pull, next: &Next, why: &str) {
    if next.status == PullStatus::Moved {
        let QueueKey { topic, queue_id } = &pull.queue;
        let (group, topic) = (&*pull.group, &**topic);
        info!(
            group,
            topic,
            queue_id,
            old_offset = pull.offset,
            new_offset = next.offset,
            why,
            "reader moved to another offset"
        );
    }
}

/// Apache's name of how a read ended.
pub(crate) fn name_of(status: FetchStatus) -> &'static str {
    match status {
        FetchStatus::Found => "FOUND",
        FetchStatus::NoMatchedMessage => "NO_MATCHED_MESSAGE",
        FetchStatus::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
        FetchStatus::OffsetTooSmall => "OFFSET_TOO_SMALL",
        FetchStatus::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
        FetchStatus::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
        FetchStatus::OffsetFoundNull => "OFFSET_FOUND_NULL",
        FetchStatus::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
    }
}

/// The queue, if it may be read.
fn check_readable(topic: &TopicConfig, queue_id: i64) -> Result<u32, Refusal> {
    if !topic.perm.is_readable() {
        return Err(Refusal::TopicNotReadable { topic: topic.name.clone(), perm: topic.perm.bits() });
    }
    u32::try_from(queue_id).ok().filter(|queue| *queue < topic.read_queues).ok_or_else(|| {
        let queue_id = i32::try_from(queue_id).unwrap_or(i32::MAX);
        Refusal::QueueId { topic: topic.name.clone(), queue_id, queues: topic.read_queues }
    })
}

/// # Source
/// docs/reference/protocol.md 5.3.
fn status_of(status: FetchStatus, offset: i64) -> PullStatus {
    match status {
        FetchStatus::Found => PullStatus::Found,
        FetchStatus::NoMatchedMessage | FetchStatus::MessageWasRemoving => PullStatus::RetryNow,
        FetchStatus::NoMessageInQueue if offset == 0 => PullStatus::NotFound,
        FetchStatus::OffsetOverflowOne | FetchStatus::OffsetFoundNull => PullStatus::NotFound,
        FetchStatus::NoMessageInQueue | FetchStatus::OffsetTooSmall | FetchStatus::OffsetOverflowBadly => {
            PullStatus::Moved
        }
    }
}
