//! Commits: on demand, by the clock, and again after a broker's restart.

use std::{sync::Arc, time::Duration};

use rocketpy_model::{MessageQueue, QueueOffset};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::{Shared, state::CommitScope};
use crate::error::ClientError;

impl Shared {
    /// Commits what the brokers do not have yet.
    pub(super) async fn commit(&self, scope: CommitScope) -> Result<(), ClientError> {
        let _turn = self.committing.lock().await;
        let offsets = self.state.lock().to_commit(scope);
        self.send(offsets).await
    }

    /// Commits these offsets.
    pub(super) async fn commit_all(
        &self,
        offsets: Vec<(Arc<MessageQueue>, QueueOffset)>,
    ) -> Result<(), ClientError> {
        let _turn = self.committing.lock().await;
        self.send(offsets).await
    }

    /// Sends all, notes which were acknowledged, and returns the first failure.
    async fn send(&self, offsets: Vec<(Arc<MessageQueue>, QueueOffset)>) -> Result<(), ClientError> {
        let mut calls = JoinSet::new();
        for (queue, offset) in offsets {
            let (instance, group) = (self.client.instance().clone(), self.group.clone());
            calls.spawn(async move {
                let result = instance.store_offset(&group, &queue, offset).await;
                (queue, offset, result)
            });
        }
        let mut outcome = Ok(());
        for (queue, offset, result) in calls.join_all().await {
            match result {
                Ok(()) => self.state.lock().committed(&queue, offset),
                Err(error) if outcome.is_ok() => outcome = Err(error),
                Err(error) => debug!(%queue, %error, "commit failed"),
            }
        }
        outcome
    }
}

/// Commits at every interval what the user was done with when the latest poll began.
pub(super) async fn run(shared: Arc<Shared>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = shared.commit(CommitScope::Settled).await {
            warn!(group = %shared.group, %error, "automatic commit failed");
        }
    }
}

/// Repeats the last acknowledged commits.
pub(super) async fn repeat(shared: Arc<Shared>) {
    let _turn = shared.committing.lock().await;
    let offsets = shared.state.lock().acknowledged();
    if let Err(error) = shared.send(offsets).await {
        warn!(group = %shared.group, %error, "repeating commits to a broker failed");
    }
}
