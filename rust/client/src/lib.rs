//! Producers, consumers and administration: the engine under the SDK.
//!
//! Everything is asynchronous and runs on the tokio runtime whose handle the caller gives to [`Client::new`].
//! A thread outside the runtime waits with `client.runtime().block_on(...)`.

mod admin;
mod client;
mod config;
mod consumer;
mod error;
mod identity;
mod instance;
mod members;
mod names;
mod offsets;
mod outcome;
mod producer;
mod pushes;
mod receipt;
mod route;
mod wire;

pub use admin::{
    Admin, BrokerDescription, ClusterDescription, FoundMessage, GroupLag, GroupSummary, LagRow, MessageQuery,
    OffsetTarget, QueryKind, QueueStats, TopicBroker, TopicDescription, TopicSpec,
};
pub use client::Client;
pub use config::{ClientConfig, ConsumerConfig, ProducerConfig, Start, Subscription};
pub use consumer::{
    OffsetMove, Position, PullConsumer, PulledBatch, PulledMessage, PulledPart, RangeReader, RecordSpan,
};
pub use error::ClientError;
pub use producer::{PendingSend, Producer, SendOptions, SentMany, unsupported_feature};
pub use receipt::{Receipt, SendStatus};
