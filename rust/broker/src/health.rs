//! Whether a broker is ready for clients, and whether it makes progress.
//!
//! The checks take no lock that a send waits for, and never wait themselves: they answer under full load.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_model::perm;
use rocketpy_store::AppendError;

use crate::desk::Desk;
use crate::role::OwnLog;

/// Log that a ready slave may be behind its master.
const MAX_REPLICA_LAG_BYTES: u64 = 64 << 20;
/// Time without progress after which a part of the broker counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{check}: {cause}")]
pub struct FailedCheck {
    /// Name of the check.
    pub check: &'static str,
    /// What it found.
    pub cause: String,
}

fn failed(check: &'static str, cause: impl Into<String>) -> FailedCheck {
    FailedCheck { check, cause: cause.into() }
}

/// Whether clients should use the broker.
///
/// # Errors
/// All checks that failed.
pub(crate) fn ready(desk: &Desk) -> Result<(), Vec<FailedCheck>> {
    let checks = [stopping(desk), draining(desk), store(desk), name_servers(desk), replication(desk)];
    let failed: Vec<_> = checks.into_iter().flatten().collect();
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

/// Whether the broker makes progress. `accept_silence` is the time since it last looked for new connections.
///
/// # Errors
/// All checks that failed: a restart may help.
pub(crate) fn alive(desk: &Desk, accept_silence: Duration) -> Result<(), Vec<FailedCheck>> {
    let stuck = |check, silence: Duration| {
        let cause = || format!("no progress for {} s", silence.as_secs());
        (silence > STUCK_AFTER).then(|| failed(check, cause()))
    };
    let store = desk.ground.store();
    // After a failed flush the thread has ended: `ready` says so, and reads are still served.
    let flush = if store.poisoned().is_some() { Duration::ZERO } else { store.flush_silence() };
    let failed: Vec<_> =
        [stuck("accept loop", accept_silence), stuck("flush thread", flush)].into_iter().flatten().collect();
    if failed.is_empty() || desk.watched.is_stopping.load(Ordering::Acquire) { Ok(()) } else { Err(failed) }
}

fn stopping(desk: &Desk) -> Option<FailedCheck> {
    desk.watched.is_stopping.load(Ordering::Acquire).then(|| failed("stopping", "the broker stops"))
}

fn draining(desk: &Desk) -> Option<FailedCheck> {
    let permission = desk.ground.config().broker_permission;
    let cause = || format!("brokerPermission is {permission}, clients cannot write");
    (permission & perm::WRITE == 0).then(|| failed("draining", cause()))
}

/// A store is open and recovered before there is a broker.
fn store(desk: &Desk) -> Option<FailedCheck> {
    let store = desk.ground.store();
    match (store.poisoned(), store.refusal()) {
        (Some(poisoned), _) => Some(failed("store", poisoned.to_string())),
        (None, Some(full @ (AppendError::DiskNearlyFull { .. } | AppendError::DiskFull { .. }))) => {
            Some(failed("disk", full.to_string()))
        }
        (None, Some(refusal)) => Some(failed("store", refusal.to_string())),
        (None, None) => None,
    }
}

fn name_servers(desk: &Desk) -> Option<FailedCheck> {
    let registrar = desk.watched.registrar.as_ref()?;
    (!registrar.is_known()).then(|| failed("name servers", "no name server has registered the broker"))
}

fn replication(desk: &Desk) -> Option<FailedCheck> {
    let role = desk.ground.role();
    if role.is_master() {
        return None;
    }
    let check = "replication";
    if role.log() == OwnLog::Diverged {
        return Some(failed(check, "the log of this slave has diverged from its master's"));
    }
    if !desk.role_changes.replication().is_following() {
        let why = desk.peers.not_followed().lock().clone();
        return Some(failed(check, why.unwrap_or_else(|| "not connected to the master".to_owned())));
    }
    let end = desk.role_changes.metadata().missing_end()?;
    let lag_bytes = end.saturating_sub(desk.ground.store().max_physical_offset());
    let cause = || format!("{lag_bytes} bytes behind the master, more than {MAX_REPLICA_LAG_BYTES}");
    (lag_bytes > MAX_REPLICA_LAG_BYTES).then(|| failed(check, cause()))
}

#[cfg(test)]
mod tests {
    use rocketpy_model::TopicConfig;

    use super::*;
    use crate::testing::{TestBroker, add_topic, with_small_files};

    #[tokio::test]
    async fn broker_that_accepts_nothing_is_not_alive_unless_it_stops() {
        let broker = TestBroker::open(|_| {});
        assert_eq!((ready(&broker), alive(&broker, Duration::from_secs(29))), (Ok(()), Ok(())));
        let stuck = alive(&broker, Duration::from_secs(31)).unwrap_err();
        assert_eq!(stuck[0].to_string(), "accept loop: no progress for 31 s");
        broker.watched.is_stopping.store(true, Ordering::Release);
        assert!(alive(&broker, Duration::from_secs(31)).is_ok());
        assert_eq!(ready(&broker).unwrap_err()[0].check, "stopping");
    }

    #[tokio::test]
    async fn broker_with_a_poisoned_store_is_alive_and_not_ready() {
        let broker = TestBroker::open(with_small_files);
        add_topic(&broker, TopicConfig::new("filler", 1)).await;
        broker.fill();
        broker.fill(); // into the next file
        broker.poison();
        assert_eq!(ready(&broker).unwrap_err()[0].check, "store");
        assert!(alive(&broker, Duration::ZERO).is_ok(), "reads are served");
    }

    #[tokio::test]
    async fn slave_without_a_master_is_not_ready() {
        let broker = TestBroker::open(|config| config.broker_id = 1);
        let failed = ready(&broker).unwrap_err();
        assert_eq!(failed[0].to_string(), "replication: not connected to the master");
    }
}
