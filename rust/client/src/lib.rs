//! Producers, consumers and administration: the engine under the SDK.
//!
//! Everything is asynchronous and runs on the tokio runtime whose handle the caller gives to [`Client::new`].
//! A thread outside the runtime waits with `client.runtime().block_on(...)`.
//!
//! From the ground up: `wire` makes requests, `api` sends them over the connections of an instance and keeps its routes,
//! `instance` keeps memberships and heartbeats, `registry` finds the instance of a [`Client`], and producers, consumers and
//! administration work through the client.

mod admin;
mod api;
mod arrivals;
mod checks;
mod client;
mod config;
mod consumer;
mod damage;
mod ending;
mod error;
mod identity;
mod instance;
mod lasting;
mod load;
mod members;
mod names;
mod namespace;
mod offsets;
mod outcome;
mod producer;
mod pushes;
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
    Admin, BrokerDescription, ClusterDescription, Connection, FoundMessage, GroupDescription, GroupLag,
    GroupMember, GroupSummary, LagRow, OffsetTarget, QueueStats, TopicBroker, TopicDescription, TopicSpec,
};
pub use checks::{TransactionCheck, TransactionChecks};
pub use client::Client;
pub use config::{ClientConfig, ConsumerConfig, ProducerConfig, Start, Subscription, Wanted};
pub use consumer::{
    Allocation, Allocations, Allocator, Balance, BrokerContact, ConsumerState, ConsumerStats, Fate,
    NearestRoom, OffsetMove, Position, PullConsumer, PulledBatch, PulledMessage, PulledPart, PushConfig,
    PushConsumer, PushCounts, PushTopic, QueueChange, QueueProgress, RangeReader, RecordSpan, Rooms, Trouble,
    Verdict, Work,
};
pub use error::ClientError;
pub use load::{LoadOptions, LoadReport, LoadTarget, SendLoad};
pub use namespace::Namespace;
pub use producer::{
    Backoff, HalfMessage, LatencyStats, Outcome, OutcomeSink, Outcomes, PendingSend, Producer, ProducerStats,
    Selector, SendOptions, SentMany, TransactionEnd, check_tag, unsupported_feature,
};
pub use query::{MessageQuery, QueryKind};
pub use receipt::{Receipt, SendStatus};
pub use replies::ReceivedReply;
pub use rocketpy_remoting::{Bell, read_here};
pub use send_error::SendError;
pub use trace::{
    ConsumeResult, TraceRecord, TracedBegin, TracedEnd, TracedKind, TracedRecall, TracedSend,
    TracedTransaction,
};
pub use traffic::Traffic;
