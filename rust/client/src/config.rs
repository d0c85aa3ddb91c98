//! Settings of clients, producers and consumers, with defaults and bounds.

mod allocation;
mod backoff;
mod balance;
mod push;
mod selector;
mod send_options;

use std::sync::Arc;
use std::time::Duration;

use rocketpy_filter::Tags;
use rocketpy_model::printable::{is_control, printable};
use rocketpy_protocol::Language;
use rocketpy_protocol::compression::CompressionType;
use rocketpy_remoting::{ClientTls, Credentials};

pub(crate) use self::allocation::NoShare;
pub use self::allocation::{Allocation, Allocations, Allocator};
pub use self::backoff::Backoff;
pub use self::balance::{Balance, NearestRoom, Rooms};
pub use self::push::{PushConfig, PushTopic};
pub use self::selector::Selector;
pub use self::send_options::SendOptions;
use crate::error::{AUTO_COMMIT, ClientError};

/// Settings of a [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// `host:port` of each name server, at least one. A text may hold several, separated by `;` or `,`.
    pub name_servers: Vec<String>,
    /// Address shown in the client id. Default: the local address used to reach the first name server.
    pub client_ip: Option<String>,
    /// Part of the client id after `@`. Default: process id and a random number, unique in a group.
    ///
    /// Clients of one process with one name share connections, routes, heartbeats and client id, if their addresses, units, name
    /// servers and runtimes are equal. They must then agree in `connect_timeout`, `route_refresh_interval`,
    /// `heartbeat_interval`, `tls` and `credentials`, and each group can have one producer and one consumer among them.
    pub instance_name: Option<String>,
    /// Unit appended to the client id.
    pub unit_name: Option<String>,
    /// Put in front of the names of topics and groups on the wire, as `namespace%name`; the user sees names without it. Administration
    /// takes names as they are on the wire. Default: none.
    pub namespace: Option<String>,
    /// Time for a route, heartbeat, membership or administration call. Default 3 s.
    pub api_timeout: Duration,
    /// Time for one TCP connect. Default 3 s.
    pub connect_timeout: Duration,
    /// Period of the route refresh. Default 30 s.
    pub route_refresh_interval: Duration,
    /// Period of heartbeats; the broker forgets a client after 120 s. Default 30 s.
    pub heartbeat_interval: Duration,
    /// Encrypts all connections. Default `None`: they are plain.
    pub tls: Option<Arc<ClientTls>>,
    /// The user that signs every request. Default `None`: requests are not signed.
    pub credentials: Option<Credentials>,
    /// The program that the client is part of. Default: one in Rust.
    pub program: Program,
}

/// Facts about the client's program, for servers.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its language.
    pub language: Language,
    /// Writes the stacks of the program's threads as text, on request of an administrator. May block. Default: none.
    pub stacks: Option<fn() -> String>,
}

impl Default for Program {
    fn default() -> Self {
        Self { language: Language::Rust, stacks: None }
    }
}

impl ClientConfig {
    /// The defaults for the given name servers.
    pub fn new<I, S>(name_servers: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self {
            name_servers: name_servers.into_iter().map(Into::into).collect(),
            client_ip: None,
            instance_name: None,
            unit_name: None,
            namespace: None,
            api_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(3),
            route_refresh_interval: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(30),
            tls: None,
            credentials: None,
            program: Program::default(),
        }
    }
}

impl ClientConfig {
    /// Checks the parts of the client id and the name of the user, which brokers store and operators read.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let parts = [
            ("client_ip", &self.client_ip),
            ("instance_name", &self.instance_name),
            ("unit_name", &self.unit_name),
        ];
        let parts = parts.map(|(field, text)| (field, text.as_deref()));
        let user = self.credentials.as_ref().map(|given| given.access_key.as_str());
        if user.is_some_and(str::is_empty) {
            let reason = "the access key must not be empty".to_owned();
            return Err(ClientError::InvalidConfig { field: "credentials", reason });
        }
        for (field, text) in parts.into_iter().chain([("credentials", user)]) {
            if let Some(text) = text
                && text.chars().any(is_control)
            {
                let reason = format!("it must not contain control characters: {}", printable(text));
                return Err(ClientError::InvalidConfig { field, reason });
            }
        }
        Ok(())
    }
}

/// Settings of a [`Producer`](crate::Producer).
#[derive(Debug, Clone)]
pub struct ProducerConfig {
    /// Time for one send, all attempts and the pauses between them together. Default 60 s: a broker that is started again within half a
    /// minute fails no send.
    pub send_timeout: Duration,
    /// Time for one attempt while another broker can be tried, and for a one-way send. Never more than half of the time that is left. An
    /// attempt at the only broker, or of a message that may not be stored twice, has longer. Default 3 s.
    pub attempt_timeout: Duration,
    /// Further attempts after the first. Default `None`: as many as the send timeout allows while servers are away or busy, and 2 after other
    /// refusals that another broker may not share.
    pub retries: Option<u32>,
    /// Largest body, before compression. Default 4 MiB.
    pub max_message_size: usize,
    /// Single sends compress bodies of this many bytes or more. Default 4,096.
    pub compress_over: usize,
    /// How they are compressed; `None` never compresses. Default zlib, which every client reads.
    pub compression: Option<CompressionType>,
    /// Level of the compression. Default 5.
    pub compression_level: i32,
    /// Most unacknowledged messages of `submit`. Default 16,384.
    pub window_messages: usize,
    /// Most unacknowledged body bytes of `submit`; each body counts as 1 KiB at least. Default 64 MiB.
    pub window_bytes: usize,
    /// Most bytes of one wire batch. Default 512 KiB, at most `max_message_size`.
    pub batch_bytes: usize,
    /// Most messages of one wire batch. Default 1,024.
    pub batch_messages: usize,
    /// Most requests under way at a time: of one `send_many`, and of the submitted messages of one topic. Default 8.
    pub requests_in_flight: usize,
    /// How long a submitted message may wait for others to share its request. Default 0: a message waits only for requests that are
    /// under way.
    pub linger: Duration,
    /// Number of queues asked for when the broker creates the topic. Default 4.
    pub default_topic_queues: u32,
    /// Topic of message traces. Default `None`: nothing is traced.
    pub trace_topic: Option<String>,
    /// How the queue of a message is chosen. Default: round robin.
    pub selector: Selector,
    /// The pause before another attempt at the broker that failed.
    pub backoff: Backoff,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            send_timeout: Duration::from_secs(60),
            attempt_timeout: Duration::from_secs(3),
            retries: None,
            max_message_size: 4 << 20,
            compress_over: 4096,
            compression: Some(CompressionType::Zlib),
            compression_level: 5,
            window_messages: 16_384,
            window_bytes: 64 << 20,
            batch_bytes: 512 << 10,
            batch_messages: 1024,
            requests_in_flight: 8,
            linger: Duration::ZERO,
            default_topic_queues: 4,
            trace_topic: None,
            selector: Selector::RoundRobin,
            backoff: Backoff::default(),
        }
    }
}

impl ProducerConfig {
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        at_least("window_messages", self.window_messages, 1)?;
        at_least("window_bytes", self.window_bytes, 1)?;
        at_least("batch_messages", self.batch_messages, 1)?;
        at_least("batch_bytes", self.batch_bytes, 1)?;
        at_least("max_message_size", self.max_message_size, 1)?;
        at_least("requests_in_flight", self.requests_in_flight, 1)?;
        at_least("default_topic_queues", self.default_topic_queues as usize, 1)?;
        if self.attempt_timeout.is_zero() {
            let reason = "more than 0 s".to_owned();
            return Err(ClientError::InvalidConfig { field: "attempt_timeout", reason });
        }
        if !(0..=MAX_COMPRESSION_LEVEL).contains(&self.compression_level) {
            let reason = format!("from 0 to {MAX_COMPRESSION_LEVEL}, given: {}", self.compression_level);
            return Err(ClientError::InvalidConfig { field: "compression_level", reason });
        }
        self.backoff.check()?;
        at_most("default_topic_queues", self.default_topic_queues, 65_536)
    }
}

/// Where a group begins in a queue for which it has no stored offset. A stored offset always wins.
///
/// The first member that reads a queue stores where it began, even without `auto_commit`. Until the first commit, the next member of
/// the queue begins there too, so that no message that arrives in between is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ConsumeFromWhere")]
pub enum Start {
    /// The oldest stored message.
    Earliest,
    /// Messages that arrive from now on.
    Latest,
    /// The first message stored at or after this time (milliseconds since 1970).
    Timestamp(i64),
    /// Only a stored offset: a queue without one is an error.
    Stored,
}

/// One topic and the messages wanted from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The topic's name.
    pub topic: String,
    /// Which of its messages.
    pub wanted: Wanted,
}

/// Which messages of a topic a consumer wants. The broker filters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "MessageSelector")]
pub enum Wanted {
    /// The tags: an expression, or a list.
    Tags(Tags),
    /// An SQL92 expression over properties, for which Apache's brokers need `enablePropertyFilter`.
    Sql(String),
}

impl Subscription {
    /// All messages of a topic, or those with one of the tags.
    pub fn new(topic: impl Into<String>, tags: impl Into<Tags>) -> Self {
        Self { topic: topic.into(), wanted: Wanted::Tags(tags.into()) }
    }

    /// The messages for whose properties an SQL92 expression is true.
    pub fn sql(topic: impl Into<String>, expression: impl Into<String>) -> Self {
        Self { topic: topic.into(), wanted: Wanted::Sql(expression.into()) }
    }
}

/// Settings of a [`PullConsumer`](crate::PullConsumer).
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// Where to begin without a stored offset. Default: `Earliest`, so that nothing is skipped.
    pub start: Start,
    /// Most messages held ahead of `poll`, per queue. Default 16,384.
    pub prefetch_messages: usize,
    /// Most bytes held ahead of `poll`, per queue. Default 16 MiB.
    pub prefetch_bytes: usize,
    /// Most bytes held ahead of `poll`, all queues together. Default 128 MiB.
    pub prefetch_total_bytes: usize,
    /// Most messages asked for in one pull. Default 4,096, at most 65,536 (a broker may give fewer).
    pub pull_messages: u32,
    /// Most bytes asked for in one pull. Default 1 MiB, at most 8 MiB.
    pub pull_bytes: u32,
    /// How long the broker may hold a pull that finds nothing. Default 15 s.
    pub suspend: Duration,
    /// Time for one pull, longer than `suspend`. Default 30 s.
    pub pull_timeout: Duration,
    /// Commits at this interval what was handed out before the latest `poll`, or a later commit on demand. Default: off. At most
    /// one hour.
    pub auto_commit: Option<Duration>,
    /// After this long without an answer of any broker `poll` returns an error, and again after each such time; `None` never.
    /// Default 60 s.
    pub unreachable_timeout: Option<Duration>,
    /// How long a queue that goes to another member is kept for a user who works on its messages: until everything that was handed
    /// out is committed, or the next poll with automatic commits, and at most this long. The other member begins after that. Zero
    /// gives queues up at once and waits for no other member. In order, a handler that runs keeps its queue until it returns. Default 5 s,
    /// at most one hour.
    pub handover_timeout: Duration,
    /// Longest time between two rebalances. Default 20 s.
    pub rebalance_interval: Duration,
    /// Shortest time between two rebalances. Default 200 ms.
    pub rebalance_min_gap: Duration,
    /// Also reads the group's retry topic, as Apache's push consumers do. Default: off, as in its pull consumers.
    pub retry_topic: bool,
    /// How the group's members share queues. Default: `Average`.
    pub balance: Balance,
    /// Starts even if a topic has no route yet, and waits for it. Default: off, a missing topic is an error.
    pub allow_missing_topic: bool,
    /// Joins and goes on while another live member of the group subscribes to other topics or tags, as during a change of the tags
    /// of all members. Default: off. An error of joining if that member is in this process, otherwise of `poll`.
    pub allow_other_subscriptions: bool,
    /// Logs at INFO, not as a warning, that the member owns no queue because members outnumber queues: it is a standby. Default: off.
    pub allow_idle: bool,
    /// Largest decompressed body, at any compression ratio. Default `None`: 64 MiB, and above 16 MiB at most a hundred times the
    /// stored size.
    pub max_body_bytes: Option<usize>,
    /// Topic of message traces. Default `None`: nothing is traced.
    pub trace_topic: Option<String>,
    /// Tells of each change of the assignment ([`QueueChange`](crate::QueueChange)). Messages of a gained queue wait until the user was told, and a
    /// lost one is kept for that, within `handover_timeout`. Default: off.
    pub tell_changes: bool,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            start: Start::Earliest,
            prefetch_messages: 16_384,
            prefetch_bytes: 16 << 20,
            prefetch_total_bytes: 128 << 20,
            pull_messages: 4096,
            pull_bytes: 1 << 20,
            suspend: Duration::from_secs(15),
            pull_timeout: Duration::from_secs(30),
            auto_commit: None,
            unreachable_timeout: Some(Duration::from_secs(60)),
            handover_timeout: Duration::from_secs(5),
            rebalance_interval: Duration::from_secs(20),
            rebalance_min_gap: Duration::from_millis(200),
            retry_topic: false,
            balance: Balance::Average,
            allow_missing_topic: false,
            allow_other_subscriptions: false,
            allow_idle: false,
            max_body_bytes: None,
            trace_topic: None,
            tell_changes: false,
        }
    }
}

impl ConsumerConfig {
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        at_least("prefetch_messages", self.prefetch_messages, 1)?;
        at_least("prefetch_bytes", self.prefetch_bytes, 1)?;
        at_least("prefetch_total_bytes", self.prefetch_total_bytes, 1)?;
        at_least("pull_messages", self.pull_messages as usize, 1)?;
        at_least("pull_bytes", self.pull_bytes as usize, 1)?;
        at_least("max_body_bytes", self.max_body_bytes.unwrap_or(1), 1)?;
        at_most("pull_messages", self.pull_messages, 65_536)?;
        at_most("pull_bytes", self.pull_bytes, MAX_PULL_BYTES)?;
        if let Some(interval) = self.auto_commit
            && (interval.is_zero() || interval > MAX_COMMIT_INTERVAL)
        {
            let reason = format!("more than 0 s and at most {MAX_COMMIT_INTERVAL:?}, given: {interval:?}");
            return Err(ClientError::InvalidConfig { field: AUTO_COMMIT, reason });
        }
        if self.handover_timeout > MAX_HANDOVER_TIMEOUT {
            let reason = format!("at most {MAX_HANDOVER_TIMEOUT:?}, given: {:?}", self.handover_timeout);
            return Err(ClientError::InvalidConfig { field: "handover_timeout", reason });
        }
        if self.unreachable_timeout.is_some_and(|timeout| timeout.is_zero()) {
            let reason = "more than 0 s; None for never".to_owned();
            return Err(ClientError::InvalidConfig { field: "unreachable_timeout", reason });
        }
        self.balance.check()?;
        if self.pull_timeout <= self.suspend {
            let reason = format!("must be longer than suspend: {:?}", self.suspend);
            return Err(ClientError::InvalidConfig { field: "pull_timeout", reason });
        }
        Ok(())
    }
}

/// That of zstd. zlib takes a level above 9 for 9.
const MAX_COMPRESSION_LEVEL: i32 = 22;

/// Longest interval of automatic commits. More is probably a number of milliseconds.
const MAX_COMMIT_INTERVAL: Duration = Duration::from_secs(3600);

/// Longest `handover_timeout`. More is probably a number of milliseconds.
const MAX_HANDOVER_TIMEOUT: Duration = Duration::from_secs(3600);

/// Largest `pull_bytes`: the last message of an answer may exceed it, and the answer must still fit into a frame of 16 MiB.
const MAX_PULL_BYTES: u32 = 8 << 20;

fn at_most(field: &'static str, value: u32, most: u32) -> Result<(), ClientError> {
    if value > most {
        return Err(ClientError::InvalidConfig { field, reason: format!("at most {most}, given: {value}") });
    }
    Ok(())
}

fn at_least(field: &'static str, value: usize, least: usize) -> Result<(), ClientError> {
    if value < least {
        return Err(ClientError::InvalidConfig {
            field,
            reason: format!("at least {least}, given: {value}"),
        });
    }
    Ok(())
}
