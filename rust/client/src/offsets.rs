//! Offsets and group members, asked of brokers.

use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::Command;
use rocketpy_protocol::body::GetConsumerListByGroupResponseBody;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{
    GetEarliestMsgStoretimeResponseHeader, GetMaxOffsetResponseHeader, QueryConsumerOffsetResponseHeader,
};

use crate::api::Api;
use crate::error::ClientError;
use crate::{outcome, wire};

const STORED_OFFSET: &str = "consumer offset query";

impl Api {
    /// Sends a request to the queue's broker. A broker that cannot be reached may have moved, so its route is fetched once more.
    async fn ask_broker(
        &self,
        queue: &MessageQueue,
        operation: &'static str,
        request: Command,
    ) -> Result<(String, Command), ClientError> {
        let timeout = self.timeout();
        let address = self.master_of(queue).await?;
        match self.call(&address, operation, request.clone(), timeout).await {
            Ok(answer) => Ok((address, answer)),
            Err(error @ ClientError::Connect { .. }) => {
                let route = self.refresh_route(&queue.topic).await?;
                match route.any_address(&queue.broker_name) {
                    Some(moved) if moved != address => {
                        let answer = self.call(moved, operation, request, timeout).await?;
                        Ok((moved.to_owned(), answer))
                    }
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn ask_for_offset(
        &self,
        queue: &MessageQueue,
        operation: &'static str,
        request: Command,
    ) -> Result<QueueOffset, ClientError> {
        let (address, answer) = self.ask_broker(queue, operation, request).await?;
        let answer = outcome::success(operation, &address, answer)?;
        // The answers to all offset queries have the same field.
        let header: GetMaxOffsetResponseHeader = wire::header(operation, &address, &answer)?;
        wire::offset(operation, &address, header.offset)
    }

    /// First offset that is still stored.
    pub(crate) async fn min_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.ask_for_offset(queue, "min offset query", wire::min_offset(queue)).await
    }

    /// Offset after the last message that can be read.
    pub(crate) async fn max_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.ask_for_offset(queue, "max offset query", wire::max_offset(queue, true)).await
    }

    /// Offset that the next message will get, even while earlier ones cannot be read yet.
    pub(crate) async fn next_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.ask_for_offset(queue, "max offset query", wire::max_offset(queue, false)).await
    }

    /// First offset stored at or after a time.
    pub(crate) async fn search_offset(
        &self,
        queue: &MessageQueue,
        at_ms: i64,
    ) -> Result<QueueOffset, ClientError> {
        self.ask_for_offset(queue, "offset search", wire::search_offset(queue, at_ms)).await
    }

    /// When the oldest message was stored; `None` for an empty queue.
    pub(crate) async fn earliest_stored_at(&self, queue: &MessageQueue) -> Result<Option<i64>, ClientError> {
        const OPERATION: &str = "earliest store time query";
        let (address, answer) = self.ask_broker(queue, OPERATION, wire::earliest_stored_at(queue)).await?;
        let answer = outcome::success(OPERATION, &address, answer)?;
        let header: GetEarliestMsgStoretimeResponseHeader = wire::header(OPERATION, &address, &answer)?;
        Ok(Some(header.timestamp).filter(|timestamp| *timestamp >= 0))
    }

    /// The offset stored for a group; `None` when there is none.
    pub(crate) async fn stored_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
    ) -> Result<Option<QueueOffset>, ClientError> {
        let (address, answer) =
            self.ask_broker(queue, STORED_OFFSET, wire::query_offset(group, queue)).await?;
        stored_offset_in(&address, answer)
    }

    /// As [`Self::stored_offset`], requested from the broker at an address.
    pub(crate) async fn stored_offset_at(
        &self,
        address: &str,
        group: &str,
        queue: &MessageQueue,
    ) -> Result<Option<QueueOffset>, ClientError> {
        let request = wire::query_offset(group, queue);
        stored_offset_in(address, self.call(address, STORED_OFFSET, request, self.timeout()).await?)
    }

    /// Stores an offset for a group and waits for the answer.
    pub(crate) async fn store_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
        offset: QueueOffset,
    ) -> Result<(), ClientError> {
        self.update_offset(queue, "offset commit", wire::update_offset(group, queue, offset)).await
    }

    /// Stores the offset that a person chose for a group whose members have stopped.
    pub(crate) async fn reset_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
        offset: QueueOffset,
    ) -> Result<(), ClientError> {
        self.update_offset(queue, "offset reset", wire::reset_offset(group, queue, offset)).await
    }

    async fn update_offset(
        &self,
        queue: &MessageQueue,
        operation: &'static str,
        request: Command,
    ) -> Result<(), ClientError> {
        let (address, answer) = self.ask_broker(queue, operation, request).await?;
        outcome::success(operation, &address, answer).map(drop)
    }

    /// Client ids of a group's live members, as one broker knows them. Empty when it knows none.
    pub(crate) async fn members_at(&self, address: &str, group: &str) -> Result<Vec<String>, ClientError> {
        const OPERATION: &str = "member list query";
        let request = wire::consumer_list(group);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        if answer.code == response::SYSTEM_ERROR {
            // What brokers answer for a group without members.
            return Ok(Vec::new());
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        let body: GetConsumerListByGroupResponseBody = wire::json(OPERATION, address, &answer.body)?;
        Ok(body.consumer_id_list)
    }
}

/// The offset in an answer; `None` when none is stored.
fn stored_offset_in(address: &str, answer: Command) -> Result<Option<QueueOffset>, ClientError> {
    if answer.code == response::QUERY_NOT_FOUND {
        return Ok(None);
    }
    let answer = outcome::success(STORED_OFFSET, address, answer)?;
    let header: QueryConsumerOffsetResponseHeader = wire::header(STORED_OFFSET, address, &answer)?;
    Ok(u64::try_from(header.offset).ok().map(QueueOffset))
}
