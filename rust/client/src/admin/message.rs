//! Messages by key and by id.

use std::collections::HashSet;

use bytes::Bytes;
use rocketpy_env::{local_month_ms, now_ms};
use rocketpy_model::{MessageQueue, name, property};
use rocketpy_protocol::code::response;
use rocketpy_protocol::message_id::{OffsetMessageId, UniqueKey};
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{RecordView, records};

use super::Admin;
use super::gather::{Answers, check_complete};
use crate::api::Api;
use crate::error::ClientError;
use crate::query::{MessageQuery, QueryKind};
use crate::{damage, outcome, wire};

const OPERATION: &str = "message query";
/// How much earlier than its id says a message may have been stored, because clocks differ.
const CLOCKS_DIFFER_MS: i64 = 1000;

/// A stored message that a look-up found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMessage {
    /// The queue that holds the message.
    pub queue: MessageQueue,
    /// The stored record; parse it with [`RecordView`].
    pub record: Bytes,
    /// When the broker stored it (milliseconds since 1970).
    pub stored_at_ms: i64,
}

impl Admin {
    /// The messages of a topic with a key, the oldest first. Asks every broker of the topic.
    ///
    /// # Errors
    /// As [`Self::known_messages`]; that of the first broker that does not answer.
    #[doc(alias = "queryMessage")]
    pub async fn query_messages(
        &self,
        topic: &str,
        key: &str,
        query: &MessageQuery,
    ) -> Result<Vec<FoundMessage>, ClientError> {
        self.known_messages(topic, key, query).await?.complete()
    }

    /// As [`Self::query_messages`], of the brokers that answer.
    ///
    /// # Errors
    /// [`ClientError::InvalidTopic`], [`ClientError::NoRoute`]; those of reaching a name server; that of the first broker, if none answers.
    pub async fn known_messages(
        &self,
        topic: &str,
        key: &str,
        query: &MessageQuery,
    ) -> Result<Answers<FoundMessage>, ClientError> {
        name::check_topic(topic).map_err(|error| ClientError::InvalidTopic {
            topic: topic.to_owned(),
            reason: error.to_string(),
        })?;
        self.client.check()?;
        let places = self.places_of(topic).await?;
        let answers = self.gather(&places, |api, place| {
            let (query, topic, key) = (*query, topic.to_owned(), key.to_owned());
            async move { api.query(&place.address, &place.broker_name, &topic, &key, &query).await }
        });
        Ok(answers.await?.map(|found| {
            let mut found: Vec<FoundMessage> = found.into_iter().flatten().collect();
            found.sort_by(|a, b| (a.stored_at_ms, &a.queue).cmp(&(b.stored_at_ms, &b.queue)));
            let too_many = found.len().saturating_sub(query.max_messages as usize);
            found.drain(..too_many);
            found
        }))
    }

    /// The message with a unique key, which is the `msg_id` of its receipt. If it was sent again after a timeout, the first one.
    ///
    /// Searches first from the time in the key, which is relative to a month, then all times. A message at a broker that answers is enough.
    ///
    /// # Errors
    /// Those of [`Admin::query_messages`].
    #[doc(alias = "queryMsgByUniqueKey")]
    pub async fn message_by_unique_key(
        &self,
        topic: &str,
        unique_key: &str,
    ) -> Result<Option<FoundMessage>, ClientError> {
        let begin_ms = sent_at_ms(unique_key, now_ms()).map_or(0, |at_ms| at_ms - CLOCKS_DIFFER_MS);
        let mut query = MessageQuery { kind: QueryKind::UniqueKey, begin_ms, ..MessageQuery::default() };
        let mut answers = self.known_messages(topic, unique_key, &query).await?;
        if answers.found.is_empty() && begin_ms > 0 {
            check_complete(&answers.missing)?;
            query.begin_ms = 0;
            answers = self.known_messages(topic, unique_key, &query).await?;
        }
        if answers.found.is_empty() {
            check_complete(&answers.missing)?;
        }
        Ok(answers.found.into_iter().next())
    }

    /// The message of a topic by id: a unique key, or an offset message id of one of the topic's brokers.
    ///
    /// # Errors
    /// Those of [`Admin::query_messages`].
    #[doc(alias = "queryMsgById")]
    pub async fn message(&self, topic: &str, id: &str) -> Result<Option<FoundMessage>, ClientError> {
        if let Some(found) = self.message_by_unique_key(topic, id).await? {
            return Ok(Some(found));
        }
        let Ok(offset_id) = id.parse::<OffsetMessageId>() else { return Ok(None) };
        let address = offset_id.host.to_string();
        let route = self.fetch(topic).await?;
        let brokers: HashSet<_> =
            route.brokers.iter().flat_map(|broker| broker.broker_addrs.values()).collect();
        if !brokers.contains(&address) {
            return Ok(None); // An id must not make the client connect to any address in it.
        }
        let broker_name = route
            .brokers
            .iter()
            .find(|broker| broker.broker_addrs.values().any(|other| *other == address))
            .map_or("", |broker| &broker.broker_name);
        match self.view_message(id).await {
            Ok(record) => Ok(Some(found(broker_name, record)).filter(|found| *found.queue.topic == *topic)),
            Err(ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A record that was checked to be one.
fn found(broker_name: &str, record: Bytes) -> FoundMessage {
    let view = RecordView::parse(&record).expect("the record was parsed before");
    let queue = MessageQueue::new(view.topic, broker_name, view.queue_id);
    let stored_at_ms = view.stored_at_ms;
    FoundMessage { queue, record, stored_at_ms }
}

impl Api {
    /// Asks one broker.
    async fn query(
        &self,
        address: &str,
        broker_name: &str,
        topic: &str,
        key: &str,
        query: &MessageQuery,
    ) -> Result<Vec<FoundMessage>, ClientError> {
        let request = wire::query_messages(topic, key, query);
        let answer = self.call(address, OPERATION, request, self.timeout()).await?;
        if answer.code == response::QUERY_NOT_FOUND {
            return Ok(Vec::new());
        }
        let answer = outcome::success(OPERATION, address, answer)?;
        let mut all = Vec::new();
        for view in records(&answer.body) {
            let view = view.map_err(|error| outcome::bad_answer(OPERATION, address, error))?;
            if is_wanted(&view, topic, key, query) {
                damage::check(&view, broker_name)?;
                all.push(found(broker_name, answer.body.slice_ref(view.bytes)));
            }
        }
        Ok(all)
    }
}

/// Whether a record is wanted: some brokers also return records of other keys with the same hash.
fn is_wanted(view: &RecordView<'_>, topic: &str, key: &str, query: &MessageQuery) -> bool {
    let value = |name| properties_text::get_lossy(view.properties, name).unwrap_or_default();
    let has_key = match query.kind {
        QueryKind::Key => property::split_keys(&value(property::KEYS)).any(|item| item == key),
        QueryKind::UniqueKey => value(property::UNIQUE_KEY) == key,
        QueryKind::Tag => value(property::TAGS) == key,
    };
    has_key && view.topic == topic && (query.begin_ms..=query.end_ms).contains(&view.stored_at_ms)
}

/// When a unique key was made, in the latest month possible. `None` for a text that is not a unique key.
fn sent_at_ms(unique_key: &str, now_ms: i64) -> Option<i64> {
    let key: UniqueKey = unique_key.parse().ok()?;
    let month = local_month_ms(now_ms);
    let at_ms = month.start + i64::from(key.month_ms);
    Some(if at_ms <= now_ms {
        at_ms
    } else {
        local_month_ms(month.start - 1).start + i64::from(key.month_ms)
    })
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::message_id::UniqueKeys;

    use super::*;

    #[test]
    fn a_unique_key_says_when_it_was_made_in_this_month_or_the_last() {
        let month = local_month_ms(1_700_000_000_000);
        let keys = UniqueKeys::new("10.0.0.1".parse().unwrap(), 1, 2);
        for (made, now) in [
            (month.start + 5000, month.start + 6000),
            (month.start, month.start),
            (month.end - 1, month.end + 10_000),
        ] {
            let key = keys.next(made, local_month_ms(made).start).to_string();
            assert_eq!(sent_at_ms(&key, now), Some(made), "{made} at {now}");
        }
        assert_eq!(sent_at_ms("order-1", month.start), None);
    }
}
