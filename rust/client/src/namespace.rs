//! Namespaces: names of topics and groups that several tenants of a cluster use without meeting.
//!
//! # Source
//! docs/reference/client.md 2.6 (v1 namespaces).

use std::borrow::Cow;
use std::sync::Arc;

use rocketpy_model::{Message, MessageQueue, name, property, system};

use crate::config::SendOptions;
use crate::error::ClientError;

/// Between a namespace and a name.
const SEPARATOR: char = '%';

/// The namespace of a client. On the wire, topics and groups have the namespace in front of their names; the user sees them without.
#[derive(Debug, Clone, Default)]
#[doc(alias = "NamespaceUtil")]
pub struct Namespace {
    name: Option<Arc<str>>,
}

impl Namespace {
    /// Checks a name; a blank one is none.
    ///
    /// # Errors
    /// [`ClientError::InvalidConfig`].
    pub fn new(name: Option<&str>) -> Result<Self, ClientError> {
        let Some(name) = name.map(str::trim).filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let invalid = |reason| Err(ClientError::InvalidConfig { field: "namespace", reason });
        if name.contains(SEPARATOR) {
            return invalid(format!("it must not contain {SEPARATOR}: {name}"));
        }
        match name::check_topic(name) {
            Ok(()) => Ok(Self { name: Some(name.into()) }),
            Err(error) => invalid(error.to_string()),
        }
    }

    /// Whether names are sent as they are.
    pub fn is_none(&self) -> bool {
        self.name.is_none()
    }

    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The name of a topic or group on the wire. Names of the system, and those that have the namespace already, stay as they are; the
    /// namespace of a retry or dead-letter topic is that of its group.
    pub fn wrap<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let Some(namespace) = self.name() else { return name.into() };
        let (kind, bare) = split(name);
        if bare.is_empty() || self.without(bare).is_some() || is_of_system(bare) {
            return name.into();
        }
        format!("{kind}{namespace}{SEPARATOR}{bare}").into()
    }

    /// The name of a topic or group as its user knows it.
    pub fn strip<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.is_none() {
            return name.into();
        }
        let (kind, wrapped) = split(name);
        match self.without(wrapped) {
            None => name.into(),
            Some(bare) if kind.is_empty() => bare.into(),
            Some(bare) => format!("{kind}{bare}").into(),
        }
    }

    fn without<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.name()?)?.strip_prefix(SEPARATOR)
    }

    /// A queue as brokers know it.
    pub fn wrap_queue<'a>(&self, queue: &'a MessageQueue) -> Cow<'a, MessageQueue> {
        with_topic(queue, self.wrap(&queue.topic))
    }

    /// A queue as its user knows it.
    pub fn strip_queue<'a>(&self, queue: &'a MessageQueue) -> Cow<'a, MessageQueue> {
        with_topic(queue, self.strip(&queue.topic))
    }

    /// Queues as brokers know them.
    pub(crate) fn wrap_queues(&self, queues: &mut [MessageQueue]) {
        for queue in queues {
            if let Cow::Owned(wrapped) = self.wrap_queue(queue) {
                *queue = wrapped;
            }
        }
    }

    /// Queues as their user knows them.
    pub(crate) fn strip_queues(&self, queues: &mut [MessageQueue]) {
        for queue in queues {
            if let Cow::Owned(stripped) = self.strip_queue(queue) {
                *queue = stripped;
            }
        }
    }

    /// A message as it is sent.
    pub(crate) fn wrap_message<'a>(&self, message: &'a Message) -> Cow<'a, Message> {
        let Some(namespace) = self.name() else { return Cow::Borrowed(message) };
        let mut wrapped = message.clone();
        wrapped.topic = self.wrap(&message.topic).into_owned();
        let set = wrapped.properties.set(property::INSTANCE_ID, namespace);
        set.expect("the name of a namespace is a legal value");
        Cow::Owned(wrapped)
    }

    /// The options of a send as it is sent.
    pub(crate) fn wrap_options(&self, mut options: SendOptions) -> SendOptions {
        self.wrap_queues(options.queue.as_mut_slice());
        options
    }
}

/// `%RETRY%` or `%DLQ%` or nothing, and what follows.
fn split(name: &str) -> (&'static str, &str) {
    for kind in [system::RETRY_PREFIX, system::DLQ_PREFIX] {
        if let Some(rest) = name.strip_prefix(kind) {
            return (kind, rest);
        }
    }
    ("", name)
}

fn is_of_system(name: &str) -> bool {
    system::is_system_topic(name) || name.starts_with(system::SYSTEM_GROUP_PREFIX)
}

fn with_topic<'a>(queue: &'a MessageQueue, topic: Cow<'_, str>) -> Cow<'a, MessageQueue> {
    match topic {
        Cow::Borrowed(topic) if topic.len() == queue.topic.len() => Cow::Borrowed(queue),
        topic => Cow::Owned(MessageQueue { topic: (&*topic).into(), ..queue.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_wrapped_once_and_stripped_again() {
        let namespace = Namespace::new(Some("ns")).unwrap();
        for (bare, wrapped) in [
            ("orders", "ns%orders"),
            ("%RETRY%group", "%RETRY%ns%group"),
            ("%DLQ%group", "%DLQ%ns%group"),
            ("nsx", "ns%nsx"),
        ] {
            assert_eq!(namespace.wrap(bare), wrapped);
            assert_eq!(namespace.wrap(wrapped), wrapped, "it has the namespace already");
            assert_eq!(namespace.strip(wrapped), bare);
            assert_eq!(namespace.strip(bare), bare);
        }
        for name in ["", "TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS"] {
            assert_eq!(namespace.wrap(name), name);
        }
        assert_eq!(namespace.strip("other%orders"), "other%orders");
    }

    #[test]
    fn without_a_namespace_names_stay() {
        let none = Namespace::new(Some("  ")).unwrap();
        assert!(none.is_none());
        let queue = MessageQueue::new("ns%orders", "b", 1);
        assert_eq!((none.wrap("orders"), none.strip("ns%orders")), ("orders".into(), "ns%orders".into()));
        assert!(matches!(none.strip_queue(&queue), Cow::Borrowed(_)));
        assert!(matches!(none.wrap_message(&Message::new("t", "b")), Cow::Borrowed(_)));
    }

    #[test]
    fn a_message_says_its_namespace_and_a_queue_has_it_in_its_topic() {
        let namespace = Namespace::new(Some("ns")).unwrap();
        let message = namespace.wrap_message(&Message::new("orders", "b")).into_owned();
        assert_eq!((&*message.topic, message.properties.get("INSTANCE_ID")), ("ns%orders", Some("ns")));
        let queue = MessageQueue::new("orders", "b", 1);
        let wrapped = namespace.wrap_queue(&queue).into_owned();
        assert_eq!(wrapped, MessageQueue::new("ns%orders", "b", 1));
        assert_eq!(namespace.strip_queue(&wrapped).into_owned(), queue);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["a%b", "a b", "a/b"] {
            let error = Namespace::new(Some(name)).unwrap_err();
            assert!(matches!(error, ClientError::InvalidConfig { field: "namespace", .. }), "{name}");
        }
    }
}
