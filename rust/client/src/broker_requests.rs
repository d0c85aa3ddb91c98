//! Requests that brokers send to this client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{ConsumerRunningInfo, GetConsumerStatusBody, ResetOffsetBody};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::GetConsumerStatusRequestHeader;
use rocketpy_protocol::{Command, Header, json};
use rocketpy_remoting::{Connection, Handler, Reply, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

use crate::checks::Checks;
use crate::members::{Consumer, Members};
use crate::new_connections::NewConnections;
use crate::replies::Replies;

/// How long an answer waits for the stacks: half of the time that brokers give a member.
const STACKS_TIMEOUT: Duration = Duration::from_secs(5);

/// Handles the brokers' requests to an instance.
///
/// # Source
/// docs/reference/client.md 15, docs/reference/protocol.md 2.4.
#[doc(alias = "ClientRemotingProcessor")]
pub(crate) struct BrokerRequests {
    members: Arc<Members>,
    replies: Arc<Replies>,
    checks: Arc<Checks>,
    arrivals: Arc<NewConnections>,
    /// Makes the text of the stacks of the program's threads.
    stacks: Option<fn() -> String>,
    /// Held while it does.
    one_at_a_time: Arc<Semaphore>,
}

impl BrokerRequests {
    pub(crate) fn new(
        members: Arc<Members>,
        replies: Arc<Replies>,
        checks: Arc<Checks>,
        arrivals: Arc<NewConnections>,
        stacks: Option<fn() -> String>,
    ) -> Self {
        Self { members, replies, checks, arrivals, stacks, one_at_a_time: Arc::new(Semaphore::new(1)) }
    }

    /// A question that nobody answers comes again.
    fn take_check(&self, peer: SocketAddr, question: &Command) {
        match self.checks.arrived(question, peer) {
            Ok(true) => {}
            Ok(false) => debug!(%peer, "transaction check ignored: no listener in this client"),
            Err(reason) => warn!(%peer, reason, "cannot decode transaction check"),
        }
    }

    /// Without an answer: brokers send it one-way.
    fn take_reset(&self, peer: SocketAddr, push: &Command) {
        let group = push.ext.get("group").unwrap_or_default();
        let body: ResetOffsetBody = match json::from_answer(&push.body) {
            Ok(body) => body,
            Err(error) => return warn!(group, %peer, %error, "cannot decode offset reset"),
        };
        let Some(consumer) = self.members.consumer(group) else {
            return warn!(group, %peer, "offset reset ignored: no member of the group in this client");
        };
        let offset = |(queue, offset)| Some((queue, QueueOffset(u64::try_from(offset).ok()?)));
        consumer.reset(body.offset_table.into_iter().filter_map(offset).collect());
    }

    /// Where the member of a group stands; no queue where there is none.
    fn status(&self, question: &Command) -> Response {
        let header = match GetConsumerStatusRequestHeader::read(&question.ext) {
            Ok(header) => header,
            Err(error) => return Response::status(response::SYSTEM_ERROR, error.to_string()),
        };
        let settled = self.members.consumer(header.group).map(|consumer| consumer.settled(header.topic));
        let offset = |(queue, offset): (MessageQueue, QueueOffset)| (queue, offset.to_wire());
        let message_queue_table = settled.unwrap_or_default().into_iter().map(offset).collect();
        let body = GetConsumerStatusBody { message_queue_table, ..GetConsumerStatusBody::default() };
        Response::success().with_body(json::to_vec(&body).into())
    }

    /// State of the member of a group, with the stacks of its program if they are requested.
    fn running_info(&self, question: &Command, reply: Reply) {
        let consumer = match self.asked(question) {
            Ok(consumer) => consumer,
            Err(reason) => return reply.send(Response::status(response::SYSTEM_ERROR, reason)),
        };
        let answer = |info: &ConsumerRunningInfo| Response::success().with_body(json::to_vec(info).into());
        let Some(stacks) = self.stacks.filter(|_| question.ext.get("jstackEnable") == Some("true")) else {
            return reply.send(answer(&consumer.running_info()));
        };
        let permit = self.one_at_a_time.clone().try_acquire_owned();
        tokio::spawn(async move {
            let text = match permit {
                Ok(permit) => stacks_within(permit, stacks).await,
                Err(_) => "stacks unknown: another request for them is under way\n".to_owned(),
            };
            reply.send(answer(&ConsumerRunningInfo { jstack: Some(text), ..consumer.running_info() }));
        });
    }

    /// The member of the group that a request names; else that there is none.
    fn asked(&self, request: &Command) -> Result<Arc<dyn Consumer>, String> {
        let group = request.ext.get("consumerGroup").unwrap_or_default();
        self.members.consumer(group).ok_or_else(|| format!("no member of group {group} is here"))
    }

    /// A reply that nobody waits for any longer is taken all the same: its sender can do nothing about it.
    fn take_reply(&self, peer: SocketAddr, push: &Command) -> Response {
        match self.replies.arrived(push, peer) {
            Ok(true) => Response::success(),
            Ok(false) => {
                debug!(%peer, "reply ignored: no waiting request");
                Response::success()
            }
            Err(reason) => {
                warn!(%peer, reason, "cannot decode reply");
                Response::status(response::SYSTEM_ERROR, reason)
            }
        }
    }
}

/// The text of the stacks; the reason where a thread that never ends keeps the program from making it.
async fn stacks_within(permit: OwnedSemaphorePermit, stacks: fn() -> String) -> String {
    let making = tokio::task::spawn_blocking(move || {
        let _held_to_the_end = permit;
        stacks()
    });
    match tokio::time::timeout(STACKS_TIMEOUT, making).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => format!("stacks unknown: {error}\n"),
        Err(_) => {
            let seconds = STACKS_TIMEOUT.as_secs();
            format!("stacks unknown: a thread has held the interpreter for {seconds} s\n")
        }
    }
}

impl Handler for BrokerRequests {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        match request.code {
            request::NOTIFY_CONSUMER_IDS_CHANGED => {
                let group = request.ext.get("consumerGroup").unwrap_or_default();
                debug!(group, peer = %connection.peer(), "members of a group changed");
                if let Some(consumer) = self.members.consumer(group) {
                    consumer.rebalance_soon();
                }
                // Brokers send it one-way; one that waits for an answer gets it.
                reply.send(Response::success());
            }
            request::CHECK_TRANSACTION_STATE => {
                self.take_check(connection.peer(), &request);
                reply.send(Response::success());
            }
            request::PUSH_REPLY_MESSAGE_TO_CLIENT => {
                reply.send(self.take_reply(connection.peer(), &request));
            }
            request::RESET_CONSUMER_CLIENT_OFFSET => {
                self.take_reset(connection.peer(), &request);
                reply.send(Response::success());
            }
            request::GET_CONSUMER_STATUS_FROM_CLIENT => reply.send(self.status(&request)),
            request::GET_CONSUMER_RUNNING_INFO => self.running_info(&request, reply),
            request::CONSUME_MESSAGE_DIRECTLY => match self.asked(&request) {
                Ok(consumer) => consumer.consume_directly(request, reply),
                Err(reason) => reply.send(Response::status(response::SYSTEM_ERROR, reason)),
            },
            code if reply.is_oneway() => {
                warn!(code, peer = %connection.peer(), "request of a broker ignored: unknown code");
                drop(reply);
            }
            code => reply.send(Response::not_supported(code)),
        }
    }

    fn connected(&self, connection: &Arc<Connection>) {
        self.arrivals.connected(connection.peer());
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        debug!(peer = %connection.peer(), "connection ended");
    }
}
