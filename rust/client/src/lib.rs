//! Producers, consumers and administration: the engine under the SDK.
//!
//! Everything is asynchronous and runs on the tokio runtime whose handle the caller gives to [`Client::new`].
//! A thread outside the runtime waits with `client.runtime().block_on(...)`.
//!
//! From the ground up: `wire` makes requests, `api` sends them over the connections of an instance and keeps its routes,
//! `instance` keeps memberships and heartbeats, `registry` finds the instance of a [`Client`], and producers, consumers and
//! administration work through the client.
#![allow(missing_docs, reason = "a name that says it all needs no comment")]

mod admin;
mod api;
mod broker_requests;
mod checks;
mod client;
mod close_once;
mod config;
mod consumer;
mod created_topics;
mod damage;
mod error;
mod identity;
mod instance;
mod latency;
mod load;
mod log_throttle;
mod members;
mod names;
mod namespace;
mod new_connections;
mod offsets;
mod outcome;
mod per_process;
mod producer;
mod query;
mod receipt;
mod registry;
mod replies;
mod route;
mod send_error;
mod trace;
mod traffic;
mod wire;

pub use admin::{
    Admin, Answers, BrokerDescription, BrokerFigures, ClusterDescription, Connection, CountRate,
    FoundMessage, GroupAtBroker, GroupConfigs, GroupDescription, GroupLag, GroupMember, GroupPosition,
    GroupProgress, GroupSettings, GroupSummary, LagRow, MissingBroker, OffsetTarget, ProducerGroup,
    QueueDelay, QueueStats, RunningMember, TopicBroker, TopicConfigs, TopicDescription, TopicSpec,
    TopicTotals, TrafficRate, UnusedOffsets,
};
pub use checks::{TransactionCheck, TransactionChecks, TransactionEnd};
pub use client::Client;
pub use config::{
    Allocation, Allocations, Allocator, Backoff, Balance, ClientConfig, ConsumerConfig, NearestRoom,
    ProducerConfig, Program, PushConfig, PushTopic, Rooms, Selector, SendOptions, Start, Subscription,
    Wanted,
};
pub use consumer::{
    BrokerContact, ConsumerState, ConsumerStats, Fate, OffsetMove, Position, PullConsumer, PulledBatch,
    PulledMessage, PulledPart, PushConsumer, PushStats, QueueChange, QueueProgress, RangeReader, Reason,
    RecordSpan, Trouble, Verdict, Work,
};
pub use error::{ClientError, ErrorClass, ErrorMeaning, Grant};
pub use latency::LatencyStats;
pub use load::{LoadOptions, LoadReport, LoadTarget, SendLoad};
pub use namespace::Namespace;
pub use producer::{
    Failure, HalfMessage, Outcome, OutcomeSink, Outcomes, PendingSend, Producer, ProducerStats, SentMany,
    UnreadFailures, check_tag, unsupported_feature,
};
pub use query::{MessageQuery, QueryKind};
pub use receipt::{Receipt, SendStatus};
pub use replies::ReceivedReply;
pub use rocketpy_remoting::{Bell, ClientTls, ClientTlsFiles, Credentials, TlsError, Trust, read_here};
pub use send_error::SendError;
pub use trace::{
    ConsumeResult, TraceRecord, TracedBegin, TracedEnd, TracedKind, TracedRecall, TracedSend,
    TracedTransaction,
};
pub use traffic::Traffic;
pub use wire::{Leftover, WantedRole};
