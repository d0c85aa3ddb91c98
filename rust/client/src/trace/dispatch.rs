//! Sends trace records in the background, in few messages.

use std::sync::Arc;
use std::time::Instant;

use tracing::warn;

use super::tracer::{SEND_TIMEOUT, Shared, Tracer};
use crate::client::Client;
use crate::config::{ProducerConfig, Selector};
use crate::error::ClientError;
use crate::log_throttle::LogThrottle;
use crate::producer::{Given, Recorder, Selection, Sender, Target, check_send_topic, single};

/// Group of the sends; the client's own group stands in the records.
const GROUP_PREFIX: &str = "_INNER_TRACE_PRODUCER-";

/// Starts the task that sends the records of a group to a topic.
///
/// # Errors
/// [`ClientError::InvalidTopic`], [`ClientError::ReservedTopic`].
pub(crate) fn start(
    client: &Client,
    group: &Arc<str>,
    role: &'static str,
    topic: &str,
) -> Result<Arc<Tracer>, ClientError> {
    check_send_topic(topic)?;
    let config = ProducerConfig { send_timeout: SEND_TIMEOUT, retries: Some(2), ..ProducerConfig::default() };
    let sender = Sender {
        client: client.clone(),
        group: format!("{GROUP_PREFIX}{group}-{role}").into(),
        selection: Arc::new(Selection::new(Selector::default())),
        config: Arc::new(config),
        recorder: Arc::new(Recorder::new()),
        tracer: None,
    };
    let shared = Arc::new(Shared::new(group, topic));
    let task = client.runtime().spawn(run(shared.clone(), sender));
    Ok(Tracer::new(client, group, shared, task))
}

/// Sends until the tracer is closed, one message at a time.
async fn run(shared: Arc<Shared>, sender: Sender) {
    let mut failure = LogThrottle::default();
    while let Some((message, count, timeout)) = shared.next().await {
        let ids = sender.client.ids();
        let outgoing = single(&message, Given::default(), &sender.config, ids, ids.moment());
        match sender.deliver(&outgoing, Target::Any, timeout).await {
            Ok(_) if failure.worked() => {
                warn!(group = %shared.group, trace_topic = shared.topic, "trace sends recovered");
            }
            Ok(_) => {}
            Err(error) => {
                let dropped = shared.count_unsent(count);
                if failure.failed(Instant::now()) {
                    let (group, trace_topic, error) = (&shared.group, &shared.topic, error.error);
                    warn!(%group, trace_topic, %error, dropped, "cannot send traces, records dropped");
                }
            }
        }
    }
}
