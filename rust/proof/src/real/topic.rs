//! Topics of a pair.

use std::time::{Duration, Instant};

use rocketpy_client::{Admin, ClientError, TopicSpec};
use rocketpy_protocol::code::response;

/// How long a slave may take until it copies what its master changes.
const COPIES_WITHIN: Duration = Duration::from_secs(40);
const REPEAT_INTERVAL: Duration = Duration::from_millis(20);

/// Creates a topic. A master refuses it by name while its slave copies nothing; whoever wants it repeats the request.
///
/// # Errors
/// Another refusal; or the slave does not follow in time.
pub(super) async fn create(admin: &Admin, spec: &TopicSpec) -> Result<(), ClientError> {
    let began = Instant::now();
    loop {
        match admin.create_topic(spec).await {
            Err(error)
                if error.code() == Some(response::FLUSH_SLAVE_TIMEOUT) && began.elapsed() < COPIES_WITHIN =>
            {
                tokio::time::sleep(REPEAT_INTERVAL).await;
            }
            created => return created,
        }
    }
}
