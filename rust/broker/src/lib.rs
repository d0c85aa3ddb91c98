//! The broker: request processing, topics, groups, offsets and held pulls.
//!
//! A request is handled on the task of its connection: decoded once, checked, done, answered. Five kinds of answers wait: sends
//! under SYNC_FLUSH for the flush that covers them, pulls for a message, questions about the newest messages for dispatch, pulls of
//! what is not in memory for the disk (`cold_read`), and what changes a table of `config` for its file
//! (`table::group_commit`). None of them waits on a thread that serves connections.
//!
//! `broker` builds the parts in one order: `ground`, `members`, `put::Intake`, what waits, replication, and the `desk` of the processors
//! (docs/decisions/broker-parts.md). A processor decodes a request, calls an operation, and encodes its answer.
//!
//! The inner doors: `operation` for what clients and operators ask for, `put` for a message to store, `held_request` for a request that waits, `service` for background work, `tasks`
//! for work that a request leaves behind, `figures` for whoever shows what the broker does, `role` for what it is among its
//! brokers, `slave` for what it takes over from a master.

mod advertised;
mod blocking;
mod broker;
mod call;
mod challenge;
mod clock_steps;
mod cold_read;
mod config;
mod config_file;
mod delay;
mod desk;
mod disk_read;
mod error;
mod exposition;
mod expression;
mod figures;
mod ground;
mod ha;
mod health;
mod held_request;
mod held_send;
mod held_state;
mod lost;
mod members;
mod metrics;
mod nonce;
mod operation;
mod parts;
mod process;
mod put;
mod quota;
mod refusal;
mod registration;
mod role;
mod role_change;
mod role_order;
mod service;
mod shares;
mod slave;
#[cfg(feature = "sim")]
mod stepped;
mod sync;
mod table;
mod tables_at_slaves;
mod tasks;
#[cfg(test)]
mod testing;
mod timer;
mod topic_attribute;
mod transaction;
mod waiting;

pub use broker::{Broker, outward_ip};
pub use config::{
    Auth, BrokerConfig, ConfigText, DEFAULT_PORT, Endpoint, Intervals, LookUpLimits, Tls, TopicRules,
};
#[cfg(feature = "sim")]
pub use config_file::make_config_folder;
pub use error::{BrokerError, DivergedMaster};
pub use exposition::{AddSeries, MetricSink, Sample};
pub use ha::{BrokerRole, ReplicationConfig};
#[cfg(feature = "sim")]
pub use ha::{Refused, SteppedLink, SteppedReplica};
pub use health::FailedCheck;
pub use metrics::{Declared, Group, Kind, MetricsConfig, Unit, metrics_table};
pub use process::route::requests;
pub use rocketpy_protocol::settings::{
    ConfigChange, ConfigData, ConfigEntries, ConfigEntry, SettingError, TakesEffect,
};
pub use rocketpy_remoting::{
    Accepted, ClientTls, ClientTlsFiles, ClientVerification, Credentials, MemoryBudget, ServerTls,
    ServerTlsFiles, TlsError, TlsMode, Trust,
};
pub use rocketpy_store::files::lock_root;
pub use rocketpy_store::{
    BadHours, DelayLevels, DeleteHours, FlushMode, OnFailedFlush, RetentionConfig, StoreConfig, StoreError,
};
pub use role_change::cut_log;
pub use role_order::RoleOrder;
#[cfg(feature = "sim")]
pub use stepped::{NotDone, Placed, Sent, SteppedBroker};
#[cfg(feature = "sim")]
pub use table::offset::{CommitError, OffsetTable, Place, Readable, Written};
#[cfg(feature = "sim")]
pub use table::on_disk::NamedTables;
pub use topic_attribute::topic_retention;
