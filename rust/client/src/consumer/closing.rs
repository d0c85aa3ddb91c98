//! What a closed consumer leaves to be done.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::info;

use super::member::Member;
use super::push::orderly;
use super::state::CommitScope;
use crate::error::ClientError;
use crate::members::Role;

impl Member {
    /// What a closed consumer leaves to be done.
    pub(super) async fn end(self: &Arc<Self>) -> Result<(), ClientError> {
        let committed = if self.config.auto_commit.is_some() || self.commits.asked.load(Ordering::Acquire) {
            self.commit(CommitScope::Settled).await
        } else {
            self.after_commits().await;
            Ok(())
        };
        let locked = self.state.lock().locked_queues();
        orderly::unlock(self, locked).await;
        // They stay where they are: to drop them with this future would abort them.
        while poll_fn(|context| self.handovers.tasks.lock().poll_join_next(context)).await.is_some() {}
        if let Some(offsets) = &self.commits.local {
            offsets.close();
        }
        if let Some(trace) = &self.trace {
            trace.tracer.close().await;
        }
        if self.config.balance.is_of_members() {
            self.client.leave(Role::Consumer, &self.group).await;
        }
        info!(group = %self.group, "consumer closed");
        committed
    }
}
