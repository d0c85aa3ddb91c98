//! A group that reads along, as the simulator sees it.

use std::collections::BTreeMap;

use crate::history::{Group, QueueName};

/// A group that reads along.
pub(super) struct Reader {
    pub name: &'static str,
    /// `None` reads everything.
    pub tag: Option<&'static str>,
    /// Where it is in this life of the broker; taken from the table where it is not there.
    pub positions: BTreeMap<QueueName, u64>,
}

impl Reader {
    /// `None` for a tag reads everything.
    pub(super) fn new(tag: Option<&'static str>) -> Self {
        Self { name: tag.unwrap_or("all"), tag, positions: BTreeMap::new() }
    }

    pub(super) fn group(&self) -> Group {
        Group {
            name: self.name.to_owned(),
            topics: Vec::new(),
            tags: self.tag.into_iter().map(str::to_owned).collect(),
            broadcasting: false,
            members: Vec::new(),
        }
    }
}
