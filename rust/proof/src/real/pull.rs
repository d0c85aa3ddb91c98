//! Pulls in the protocol itself, for what the client does not have: an SQL filter, a single message.

use std::time::Duration;

use rocketpy_model::{MessageQueue, sys_flag};
use rocketpy_protocol::Command;
use rocketpy_protocol::body::SubscriptionData;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{Header, PullMessageRequestHeader, PullMessageResponseHeader};
use rocketpy_protocol::record::records;
use rocketpy_remoting as remoting;

use super::message;
use crate::history::Delivery;

pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
const MOST_BYTES: i32 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Pull<'a> {
    pub group: &'a str,
    pub queue: &'a MessageQueue,
    pub offset: i64,
    pub most: i32,
    /// An SQL expression; everything without one.
    pub sql: Option<&'a str>,
}

/// What a pull brought.
#[derive(Debug)]
pub(super) struct Pulled {
    pub deliveries: Vec<Delivery>,
    /// Where the next pull begins.
    pub next: i64,
    /// There is nothing behind.
    pub is_end: bool,
}

impl Pull<'_> {
    /// Pulls without a wait; `None` when that is not answered.
    pub(super) async fn from(&self, caller: &remoting::Client, broker: &str) -> Option<Pulled> {
        let kind = if self.sql.is_some() { SubscriptionData::SQL92 } else { SubscriptionData::TAG };
        let header = PullMessageRequestHeader {
            consumer_group: self.group,
            topic: &self.queue.topic,
            queue_id: self.queue.queue_id.cast_signed(),
            queue_offset: self.offset,
            max_msg_nums: self.most,
            sys_flag: sys_flag::pull::SUBSCRIPTION,
            commit_offset: 0,
            suspend_timeout_millis: 0,
            subscription: Some(self.sql.unwrap_or("*")),
            sub_version: 0,
            expression_type: Some(kind),
            max_msg_bytes: Some(MOST_BYTES),
            request_source: None,
            proxy_froward_client_id: None,
            broker_name: Some(&self.queue.broker_name),
        };
        let command = Command::request(request::PULL_MESSAGE, &header);
        let answer = caller.call(broker, command, ANSWERED_WITHIN).await.ok()?;
        let header = PullMessageResponseHeader::read(&answer.ext).ok()?;
        let deliveries = match answer.code {
            response::SUCCESS => {
                records(&answer.body).flatten().map(|view| message::delivery(&view)).collect()
            }
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED => {
                Vec::new()
            }
            _ => return None,
        };
        let next = header.next_begin_offset;
        Some(Pulled { deliveries, next, is_end: next >= header.max_offset })
    }
}
