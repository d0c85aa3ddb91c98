//! Checks of a message before it is sent.

use rocketpy_filter::unnameable;
use rocketpy_model::{Message, MessageQueue, Properties, name, property, system};
use rocketpy_protocol::properties_text;

use super::pack::Given;
use crate::config::SendOptions;
use crate::error::ClientError;

/// Maximum number of bytes of property text in a message, with what the producer adds: no broker stores more. A broker of RocketPy accepts
/// [`properties_text::MAX_SENT_BYTES`], and says so.
pub(crate) const MAX_PROPERTIES_BYTES: usize = properties_text::MAX_BYTES;
/// Letters of a unique key that the producer makes.
const KEY_BYTES: usize = 32;

/// Properties that ask for a feature that does not exist yet, and the feature's name.
const UNSUPPORTED: [(&str, &str); 2] =
    [(property::TRANSACTION_PREPARED, "transaction"), (property::INNER_MULTI_DISPATCH, "multi-queue")];

/// The missing feature that a property asks for; `None` for every other property. A send refuses such a message by name.
#[must_use]
pub fn unsupported_feature(name: &str, value: &str) -> Option<&'static str> {
    let (_, feature) = UNSUPPORTED.iter().find(|(unsupported, _)| *unsupported == name)?;
    asks_for_it(name, value).then_some(*feature)
}

/// Checks topic, body and properties.
///
/// # Errors
/// The error that names the violation.
///
/// # Source
/// docs/reference/client.md 4.5.
pub(crate) fn check_message(
    message: &Message,
    given: Given<'_>,
    max_message_size: usize,
) -> Result<(), ClientError> {
    check_topic(&message.topic)?;
    check_content(message, given, max_message_size)
}

/// Checks body and properties.
pub(crate) fn check_content(
    message: &Message,
    given: Given<'_>,
    max_message_size: usize,
) -> Result<(), ClientError> {
    let size_bytes = message.body.len();
    if size_bytes == 0 && !message.is_copy {
        return Err(ClientError::EmptyBody { topic: message.topic.clone() });
    }
    if size_bytes > max_message_size {
        let topic = message.topic.clone();
        return Err(ClientError::BodyTooLarge { topic, size_bytes, limit_bytes: max_message_size });
    }
    if !message.is_copy {
        message.tag().map_or(Ok(()), check_tag)?;
    }
    check_properties(message, given)
}

/// Refuses a tag that no subscription can name. Apache's client sends such a tag, and only a consumer that asks for all messages gets
/// it.
///
/// # Errors
/// [`ClientError::InvalidTag`].
///
/// # Source
/// docs/reference/client.md 7.3.
pub fn check_tag(tag: &str) -> Result<(), ClientError> {
    match unnameable(tag) {
        None => Ok(()),
        Some(reason) => Err(ClientError::InvalidTag { tag: tag.to_owned(), reason }),
    }
}

/// Checks a topic name for sending.
pub(crate) fn check_topic(topic: &str) -> Result<(), ClientError> {
    name::check_topic(topic)
        .map_err(|error| ClientError::InvalidTopic { topic: topic.to_owned(), reason: error.to_string() })?;
    if system::is_send_denied(topic) {
        return Err(ClientError::ReservedTopic { topic: topic.to_owned() });
    }
    Ok(())
}

fn check_properties(message: &Message, given: Given<'_>) -> Result<(), ClientError> {
    let mut size_bytes = added_bytes(message, given);
    for (name, value) in message.properties.iter() {
        size_bytes += property_bytes(name, value.len());
        if let Some(feature) = unsupported_feature(name, value) {
            return Err(ClientError::Unsupported { feature, property: format!("{name}={value}") });
        }
    }
    if size_bytes > MAX_PROPERTIES_BYTES {
        let topic = message.topic.clone();
        return Err(ClientError::PropertiesTooLarge { topic, size_bytes, limit_bytes: MAX_PROPERTIES_BYTES });
    }
    Ok(())
}

/// Length of the properties that the producer adds to a message.
fn added_bytes(message: &Message, given: Given<'_>) -> usize {
    let order_key = given.order_key.filter(|_| message.order_key().is_none());
    let order_key = order_key.map_or(0, |key| property_bytes(property::SHARDING_KEY, key.len()));
    match message.properties.get(property::UNIQUE_KEY) {
        Some(_) => order_key,
        None => order_key + property_bytes(property::UNIQUE_KEY, given.msg_id.map_or(KEY_BYTES, str::len)),
    }
}

/// Length of a property with its separators.
fn property_bytes(name: &str, value_bytes: usize) -> usize {
    name.len() + value_bytes + 2
}

/// Checks the options of a send.
pub(crate) fn check_options(topic: &str, options: &SendOptions) -> Result<(), ClientError> {
    if let Some(key) = &options.order_key {
        check_value(property::SHARDING_KEY, key)?;
    }
    if let Some(id) = &options.msg_id {
        check_value(property::UNIQUE_KEY, id)?;
    }
    options.queue.as_ref().map_or(Ok(()), |queue| check_queue(topic, queue))
}

/// Checks that a queue is one of the topic.
pub(crate) fn check_queue(topic: &str, queue: &MessageQueue) -> Result<(), ClientError> {
    if *queue.topic == *topic {
        return Ok(());
    }
    Err(ClientError::WrongQueue { topic: topic.to_owned(), queue_topic: queue.topic.to_string() })
}

/// Refuses one unique key for many messages.
pub(crate) fn check_no_msg_id(options: &SendOptions) -> Result<(), ClientError> {
    match options.msg_id {
        None => Ok(()),
        Some(_) => Err(ClientError::InvalidProperty {
            name: property::UNIQUE_KEY.to_owned(),
            reason: "many messages cannot share one".to_owned(),
        }),
    }
}

/// Checks a value that an option puts into the properties.
fn check_value(name: &str, value: &str) -> Result<(), ClientError> {
    Properties::new()
        .set(name, value)
        .map_err(|error| ClientError::InvalidProperty { name: name.to_owned(), reason: error.to_string() })
}

/// Refuses batches to topics that take none.
pub(crate) fn check_batch_topic(topic: &str) -> Result<(), ClientError> {
    if takes_batches(topic) {
        return Ok(());
    }
    Err(ClientError::InvalidTopic {
        topic: topic.to_owned(),
        reason: format!("the topic takes no batches: {topic:?}"),
    })
}

/// `TRAN_MSG=false` asks for nothing.
fn asks_for_it(property: &str, value: &str) -> bool {
    property != property::TRANSACTION_PREPARED || value.eq_ignore_ascii_case("true")
}

/// Whether a batch may go to the topic. Brokers refuse batches to retry topics and to topics with the longest names.
pub(crate) fn takes_batches(topic: &str) -> bool {
    !topic.starts_with(system::RETRY_PREFIX) && topic.len() <= 127
}

#[cfg(test)]
mod tests {
    use rocketpy_filter::TagFilter;

    use super::*;

    const LIMIT: usize = 100;

    fn with(name: &str, value: &str) -> Message {
        let mut message = Message::new("t", "body");
        message.properties.set(name, value).unwrap();
        message
    }

    #[test]
    fn what_is_not_there_yet_is_refused_by_name() {
        for (name, value, feature) in
            [("TRAN_MSG", "true", "transaction"), ("INNER_MULTI_DISPATCH", "%LMQ%a", "multi-queue")]
        {
            let error = check_message(&with(name, value), Given::default(), LIMIT).unwrap_err();
            assert_eq!(error, ClientError::Unsupported { feature, property: format!("{name}={value}") });
            assert!(!error.retryable());
        }
    }

    #[test]
    fn other_properties_are_no_reason_to_refuse() {
        assert_eq!(check_message(&with("DELAY", "3"), Given::default(), LIMIT), Ok(()));
        assert_eq!(check_message(&with("TIMER_DELIVER_MS", "1"), Given::default(), LIMIT), Ok(()));
        assert_eq!(check_message(&with("TRAN_MSG", "false"), Given::default(), LIMIT), Ok(()));
        assert_eq!(check_message(&with("colour", "red"), Given::default(), LIMIT), Ok(()));
    }

    #[test]
    fn a_tag_that_no_subscription_can_name_is_refused_with_the_way_out() {
        let checked = |tag| check_message(&with("TAGS", tag), Given::default(), LIMIT);
        for (tag, why) in
            [("UA||AA", "separates"), ("*", "all"), (" UA", "blanks"), ("UA\t", "blanks"), (" ", "blanks")]
        {
            let error = checked(tag).unwrap_err();
            assert!(
                matches!(&error, ClientError::InvalidTag { tag: named, .. } if named == tag),
                "{error:?}"
            );
            assert!(error.to_string().contains(why) && error.hint().is_some(), "{error}");
            let wanted = TagFilter::parse(tag);
            assert!(wanted.is_all() || !wanted.accepts_tag(Some(tag)), "an expression names it: {tag:?}");
        }
        for tag in ["UA", "UA AA", "UA|AA", "**", "U*"] {
            assert_eq!(checked(tag), Ok(()), "{tag:?}");
            assert!(TagFilter::parse(tag).accepts_tag(Some(tag)));
        }
    }

    #[test]
    fn bodies_have_a_least_and_a_greatest_size() {
        assert!(matches!(
            check_message(&Message::new("t", ""), Given::default(), LIMIT),
            Err(ClientError::EmptyBody { .. })
        ));
        assert_eq!(check_message(&Message::new("t", vec![0; LIMIT]), Given::default(), LIMIT), Ok(()));
        let error =
            check_message(&Message::new("t", vec![0; LIMIT + 1]), Given::default(), LIMIT).unwrap_err();
        assert_eq!(error, ClientError::BodyTooLarge { topic: "t".into(), size_bytes: 101, limit_bytes: 100 });
        assert_eq!(error.code(), Some(13));
    }

    #[test]
    fn only_properties_that_no_broker_stores_are_refused() {
        let refused = |message: &Message, given| check_message(message, given, LIMIT).err();
        let key_bytes = property_bytes(property::UNIQUE_KEY, KEY_BYTES);
        let most = MAX_PROPERTIES_BYTES - key_bytes - property_bytes("long", 0);
        let message = with("long", &"x".repeat(most));
        assert_eq!(refused(&message, Given::default()), None);
        let error = refused(&with("long", &"x".repeat(most + 1)), Given::default()).unwrap();
        let ClientError::PropertiesTooLarge { size_bytes, limit_bytes, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*size_bytes, *limit_bytes), (32_768, 32_767));
        let limit_of_rocketpy = properties_text::MAX_SENT_BYTES.to_string();
        assert!(error.hint().unwrap().contains(&limit_of_rocketpy), "{:?}", error.hint());
        let key = "k".repeat(KEY_BYTES + 1);
        let with_order_key = Given { order_key: Some("k"), msg_id: None };
        assert!(refused(&message, with_order_key).is_some(), "the order key counts");
        assert!(
            refused(&message, Given { order_key: None, msg_id: Some(&key) }).is_some(),
            "so does the unique key"
        );
        assert!(check_value(property::SHARDING_KEY, "a\u{1}").is_err());
        assert!(check_value(property::SHARDING_KEY, "").is_err());
        assert!(check_value(property::SHARDING_KEY, "N14228").is_ok());
    }

    #[test]
    fn a_queue_of_another_topic_is_refused() {
        let options = SendOptions { queue: Some(MessageQueue::new("u", "b", 0)), ..SendOptions::default() };
        let error = check_options("t", &options).unwrap_err();
        assert_eq!(error, ClientError::WrongQueue { topic: "t".into(), queue_topic: "u".into() });
        assert!(check_batch_topic("%RETRY%g").is_err());
    }

    #[test]
    fn names_are_checked_before_anything_is_sent() {
        for topic in ["", "a/b", "..", &"x".repeat(128)] {
            let error = check_message(&Message::new(topic, "b"), Given::default(), LIMIT).unwrap_err();
            assert!(matches!(error, ClientError::InvalidTopic { .. }), "{topic}");
        }
        for topic in ["SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC"] {
            let error = check_message(&Message::new(topic, "b"), Given::default(), LIMIT).unwrap_err();
            assert!(matches!(error, ClientError::ReservedTopic { .. }), "{topic}");
        }
    }
}
