//! Users, policies, and the check of every request against them: Apache's access control 2.0, closed where Apache's is open.
//!
//! [`Accounts`] holds users and policies, in memory and in a file. [`needs()`] says what a request needs: every request code has an entry, and
//! one without does not compile. [`Guard`] checks a request: signature, proof against replays, policies; [`Audit`] writes what it denied.
//!
//! # Source
//! docs/reference/protocol.md 6, docs/decisions/users-and-policies.md.

#![warn(missing_docs)] // others build on every public item of this crate

mod accounts;
mod administer;
mod audit;
mod content;
mod error;
mod file;
mod guard;
mod migration;
mod needs;
mod offline;
mod policy;
mod replay;
mod request_body;
mod rulebook;
mod rules;
mod snapshot;
mod user;

pub use accounts::{Accounts, Caller, FirstUser, MAX_USERS};
pub use administer::{AdministerError, administer};
pub use audit::{Audit, AuditConfig, Audited};
pub use error::AccountsError;
pub use file::UsersLock;
pub use guard::{Guard, GuardFigures, Permit};
pub use migration::{Migrated, MigrationError, is_plain_acl, migrate};
pub use needs::{Need, Needs, NeedsError, Target, needs};
pub use offline::{PutOffline, put_offline};
pub use policy::{
    Action, Actions, Decision, MAX_POLICIES, MAX_SOURCE_IPS, Policy, PolicyType, Resource, ResourceType,
    policies_read_back,
};
pub use request_body::BodyError;
pub use rules::{Rules, RulesError};
pub use snapshot::{SealError, Snapshot};
pub use user::{SECRET_MAX_BYTES, Secrets, User, UserStatus, UserType};
