//! What the answer to a put waits for.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::failpoint::{self, Point};
use rocketpy_model::PhysicalOffset;
use rocketpy_remoting::{Reply, Response};

use crate::registration::Announced;
use crate::shared::Shared;

/// Longest an answer waits for the name servers to know a new topic: a route query right after the answer finds it.
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);

/// What must have happened before an answer may leave: every mark that is set. Without one it leaves at once.
#[derive(Debug, Default)]
pub(crate) struct AckCondition {
    /// The flush has reached this physical offset, the end of the record.
    pub(crate) flushed: Option<PhysicalOffset>,
    /// The name servers know the topic that the request made or changed.
    pub(crate) announced: Option<Announced>,
}

/// Sends the answer once its condition is met. The only place that reads a condition.
///
/// Answers that wait for the flush leave together, when one flush has covered their records ([`crate::held_send`]). When no
/// flush does in time, the answer becomes FLUSH_DISK_TIMEOUT. An announcement that no name server takes in time is not waited
/// for any longer.
pub(crate) fn acknowledge(
    shared: &Arc<Shared>,
    mut condition: AckCondition,
    reply: Reply,
    response: Response,
) {
    if let Some(announced) = condition.announced.take() {
        if let Some(end) = condition.flushed {
            shared.store.request_flush(end);
        }
        let owner = shared.clone();
        return shared.tasks.spawn(async move {
            if let Some(registrar) = owner.registrar() {
                registrar.taken(&announced, ANNOUNCE_WAIT).await;
            }
            acknowledge(&owner, condition, reply, response);
        });
    }
    let Some(end) = condition.flushed else {
        failpoint::reach(Point::BeforeAcknowledge);
        return reply.send(response);
    };
    shared.held_sends.hold(end, shared.config.sync_flush_timeout, reply, response);
    shared.store.request_flush(end);
    // The flush may have passed the record before its answer was held.
    shared.held_sends.flushed(shared.store.flushed_offset());
}
