//! Changes of tables at a SYNC_MASTER: its slaves have copied them before they are answered.
//!
//! # Source
//! docs/decisions/tables-at-slaves.md.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_remoting::Client;
use tokio::task::JoinSet;

use crate::ground::Ground;
use crate::ha::Slaves;
use crate::refusal::Refusal;

/// Has slaves of RocketPy copy the tables of this master. All changes that come while one round runs share the next.
#[derive(Debug)]
pub(crate) struct TablesAtSlaves {
    ground: Arc<Ground>,
    slaves: Arc<Slaves>,
    client: Client,
    /// Number of changes that wait, or have waited.
    changes: AtomicU64,
    /// Held for one round.
    last: tokio::sync::Mutex<Round>,
}

/// The last round.
#[derive(Debug, Default)]
struct Round {
    /// It began when this many changes were stored here.
    covers: u64,
    /// Why too few slaves have them.
    failure: Option<String>,
}

impl Round {
    fn outcome(&self) -> Result<(), String> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl TablesAtSlaves {
    pub(crate) fn new(ground: Arc<Ground>, slaves: Arc<Slaves>) -> Self {
        let client = ground.config().new_client();
        Self { ground, slaves, client, changes: AtomicU64::default(), last: tokio::sync::Mutex::default() }
    }

    /// Waits until as many slaves as sends wait for have copied a change that is on disk here. Ends at once where sends do not wait, where too few
    /// slaves are in sync, and where they are Apache's, which do not report their tables.
    ///
    /// # Errors
    /// Too few slaves have copied it in time. The change is stored here, and may be there.
    pub(crate) async fn have_change(&self) -> Result<(), Refusal> {
        let end = self.ground.store().max_physical_offset();
        if !self.slaves.are_waited_for() || self.slaves.are_there_for(end).is_err() {
            return Ok(());
        }
        let number = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        let within = self.ground.config().replication.slave_timeout;
        let late = || Err("they do not answer".to_owned());
        let copied = tokio::time::timeout(within, self.round_after(number, within)).await;
        copied.unwrap_or_else(|_| late()).map_err(|why| Refusal::NotAtSlaves { why })
    }

    /// The outcome of the first round that begins after this change.
    async fn round_after(&self, number: u64, within: Duration) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if last.covers < number {
            let covers = self.changes.load(Ordering::Acquire);
            let failure = self.round(within).await.err();
            *last = Round { covers, failure };
        }
        assert!(last.covers >= number, "the round began after the change");
        last.outcome()
    }

    async fn round(&self, within: Duration) -> Result<(), String> {
        let end = self.ground.store().max_physical_offset();
        let near = self.slaves.all().into_iter().filter(|slave| self.slaves.is_near(slave, end));
        let own: BTreeMap<u64, String> =
            near.filter_map(|slave| Some((slave.broker_id()?, slave.address()?.to_owned()))).collect();
        let wanted = self.slaves.needed().min(own.len());
        assert!(wanted <= own.len(), "each slave that is waited for is asked");
        let mut calls = JoinSet::new();
        for address in own.into_values() {
            let client = self.client.clone();
            calls.spawn(async move {
                let answer = client.call(&address, Command::bare_request(request::COPY_TABLES), within).await;
                match answer {
                    // An older version copies tables later, and a slave without name servers never.
                    Ok(answer)
                        if [response::SUCCESS, response::REQUEST_CODE_NOT_SUPPORTED]
                            .contains(&answer.code) =>
                    {
                        Ok(())
                    }
                    Ok(answer) => Err(format!("{address}: {}", answer.remark.unwrap_or_default())),
                    Err(error) => Err(format!("{address}: {error}")),
                }
            });
        }
        let (mut copied, mut why) = (0, String::new());
        while copied < wanted {
            match calls.join_next().await {
                Some(Ok(Ok(()))) => copied += 1,
                Some(Ok(Err(cause))) => why = cause,
                Some(Err(cause)) => why = cause.to_string(),
                None => return Err(why),
            }
        }
        Ok(())
    }
}
