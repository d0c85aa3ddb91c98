//! The messages that a reader asks for: by tags, or by SQL92 expressions.

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use rocketpy_client::Subscription;
use rocketpy_filter::{Tags, TagsError};

use crate::error::{self, Facts, Raise, raise};

/// An expression, or an iterable of tags.
pub(crate) struct TagsArgument(pub(crate) Tags);

impl<'py> FromPyObject<'_, 'py> for TagsArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let wrong =
            |given: &Bound<'py, PyAny>| error::wrong_type("tags", "\"UA || AA\" or a list of tags", given);
        if let Ok(expression) = value.cast::<PyString>() {
            return Ok(Self(expression.to_str()?.into()));
        }
        if value.is_instance_of::<PyDict>() || value.is_instance_of::<PyBytes>() {
            return Err(wrong(&value));
        }
        let tag =
            |tag: PyResult<Bound<'py, PyAny>>| tag.and_then(|tag| tag.extract().map_err(|_| wrong(&tag)));
        let tags =
            value.try_iter().map_err(|_| wrong(&value))?.map(tag).collect::<PyResult<Vec<String>>>()?;
        Ok(Self(tags.into()))
    }
}

/// The tags of a consumer: the same for all topics, or those of each topic by its name.
pub(crate) enum TopicTags {
    All(Tags),
    ByTopic(BTreeMap<String, Tags>),
}

impl<'py> FromPyObject<'_, 'py> for TopicTags {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if !value.is_instance_of::<PyDict>() {
            return value.extract().map(|TagsArgument(tags)| Self::All(tags));
        }
        let topics = value.cast::<PyDict>()?.keys();
        if let Some(wrong) = topics.iter().find(|topic| !topic.is_instance_of::<PyString>()) {
            let text = format!("a dict of tags has topics as its keys, each a str, given: {}", wrong.repr()?);
            return Err(PyTypeError::new_err(text));
        }
        let by_topic: BTreeMap<String, TagsArgument> = value.extract()?;
        Ok(Self::ByTopic(by_topic.into_iter().map(|(topic, TagsArgument(tags))| (topic, tags)).collect()))
    }
}

/// The SQL92 expressions of a consumer: the same for all topics, or those of some by their names.
pub(crate) enum TopicSql {
    All(String),
    ByTopic(BTreeMap<String, String>),
}

impl<'py> FromPyObject<'_, 'py> for TopicSql {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let by_topic = || value.extract().map(Self::ByTopic);
        value.extract().map(Self::All).or_else(|_: PyErr| by_topic()).map_err(|_: PyErr| {
            error::wrong_type("sql", "an expression such as \"a > 3\", or a dict of such by topic", &value)
        })
    }
}

/// One subscription for each topic: by its expression if it has one, else by its tags.
///
/// # Errors
/// `InvalidArgumentError` when a topic has both, when tags by topic do not name exactly the others, or an expression is for a topic that
/// is not read.
pub(crate) fn subscriptions(
    topics: Vec<String>,
    tags: Option<TopicTags>,
    sql: Option<TopicSql>,
) -> PyResult<Vec<Subscription>> {
    let both = || {
        let text = "tags and sql exclude each other for a topic; an expression names the tag as TAGS, as in TAGS = 'UA'";
        Err(error::invalid(text))
    };
    let tags = tags.unwrap_or_else(|| TopicTags::All("*".into()));
    let mut by_topic = match (sql, &tags) {
        (None, _) => BTreeMap::new(),
        (Some(TopicSql::All(_)), tags) if !tags.is_everything() => return both(),
        (Some(TopicSql::All(sql)), _) => {
            return Ok(topics.into_iter().map(|topic| Subscription::sql(topic, sql.clone())).collect());
        }
        (Some(TopicSql::ByTopic(sql)), TopicTags::ByTopic(tags))
            if sql.keys().any(|topic| tags.contains_key(topic)) =>
        {
            return both();
        }
        (Some(TopicSql::ByTopic(sql)), _) => sql,
    };
    let (mut all, mut rest) = (Vec::new(), Vec::new());
    for topic in topics {
        match by_topic.remove(&topic) {
            Some(sql) => all.push(Subscription::sql(topic, sql)),
            None => rest.push(topic),
        }
    }
    if let Some(other) = by_topic.into_keys().next() {
        return Err(error::invalid(format!("sql is given for a topic that is not read: {other}")));
    }
    all.extend(tags.subscriptions(rest)?);
    Ok(all)
}

impl TopicTags {
    /// Whether they leave nothing out of any topic.
    fn is_everything(&self) -> bool {
        matches!(self, Self::All(tags) if tags.filter().is_ok_and(|(filter, _)| filter.is_all()))
    }

    /// One subscription for each topic.
    ///
    /// # Errors
    /// `InvalidArgumentError` when tags by topic do not name exactly the topics.
    fn subscriptions(self, topics: Vec<String>) -> PyResult<Vec<Subscription>> {
        let mut by_topic = match self {
            Self::All(tags) => {
                return Ok(topics.into_iter().map(|topic| Subscription::new(topic, tags.clone())).collect());
            }
            Self::ByTopic(by_topic) => by_topic,
        };
        let subscription = |topic: String| match by_topic.remove(&topic) {
            Some(tags) => Ok(Subscription::new(topic, tags)),
            None => {
                Err(error::invalid(format!("no tags are given for the topic (\"*\" takes all): {topic}")))
            }
        };
        let subscriptions = topics.into_iter().map(subscription).collect::<PyResult<_>>()?;
        match by_topic.into_keys().next() {
            Some(other) => {
                Err(error::invalid(format!("tags are given for a topic that is not read: {other}")))
            }
            None => Ok(subscriptions),
        }
    }
}

impl Raise for TagsError {
    fn facts(&self) -> Facts {
        Facts::new("InvalidArgumentError", self.to_string()).hint(self.hint())
    }
}

/// The tags that an expression names; None when it wants every message. For readers that compare tags themselves.
#[pyfunction]
pub(crate) fn tag_names(tags: TagsArgument) -> PyResult<Option<Vec<String>>> {
    let (filter, _) = tags.0.filter().map_err(raise)?;
    Ok((!filter.is_all()).then(|| filter.names().to_vec()))
}
