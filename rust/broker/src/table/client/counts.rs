//! Numbers of live clients, for the metrics.

use std::collections::HashMap;
use std::sync::Arc;

use rocketpy_protocol::Language;
use rocketpy_protocol::body::ConsumeType;

use super::{ClientTable, Consumer, Member};

impl ClientTable {
    /// Live members of each consumer group.
    pub(crate) fn member_counts(&self) -> Vec<(Arc<str>, usize)> {
        let state = self.state.read();
        state.consumers.iter().map(|(name, group)| (name.as_str().into(), group.members.len())).collect()
    }

    /// Connections of producers, by language and version.
    pub(crate) fn producer_counts(&self) -> HashMap<(Language, i32), u64> {
        let mut counts = HashMap::new();
        let state = self.state.read();
        // A connection may be in several groups.
        let members: HashMap<u64, &Member> =
            state.producers.values().flatten().map(|(id, it)| (*id, it)).collect();
        for member in members.into_values() {
            *counts.entry((member.language, member.version)).or_default() += 1;
        }
        counts
    }

    /// Connections of consumers, by group, language, version and the way in which they get messages.
    pub(crate) fn consumer_counts(&self) -> HashMap<(Arc<str>, Language, i32, &'static str), u64> {
        let mut counts = HashMap::new();
        for (name, group) in &self.state.read().consumers {
            let name: Arc<str> = name.as_str().into();
            let mode = match group.consume_type {
                ConsumeType::ConsumeActively => "pull",
                ConsumeType::ConsumePop => "pop",
                ConsumeType::ConsumePassively | ConsumeType::Unknown => "push",
            };
            for Consumer { member, .. } in group.members.values() {
                *counts.entry((name.clone(), member.language, member.version, mode)).or_default() += 1;
            }
        }
        counts
    }
}
