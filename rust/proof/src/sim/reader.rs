//! A consumer group as the simulator sees it.

use std::collections::BTreeMap;

use crate::history::{Group, QueueName};

pub(super) struct Reader {
    pub name: &'static str,
    /// `None` reads everything.
    pub tag: Option<&'static str>,
    /// Its positions in this life of the broker; those that are missing come from the table.
    pub positions: BTreeMap<QueueName, u64>,
    /// Positions of a member that outlived the last end of the broker.
    pub outlived: BTreeMap<QueueName, u64>,
}

impl Reader {
    /// `None` for a tag reads everything.
    pub(super) fn new(tag: Option<&'static str>) -> Self {
        let (positions, outlived) = Default::default();
        Self { name: tag.unwrap_or("all"), tag, positions, outlived }
    }

    pub(super) fn group(&self) -> Group {
        Group {
            name: self.name.to_owned(),
            tags: self.tag.into_iter().map(str::to_owned).collect(),
            ..Group::default()
        }
    }
}
