//! The ring of the consistent hash, as Apache's Java client makes it.

use std::collections::BTreeMap;

use md5::{Digest, Md5};
use rocketpy_model::MessageQueue;

/// The members of a group on a ring of hashes, each several times.
///
/// # Source
/// docs/reference/client.md 8.4, vectors in 8.5.
#[doc(alias = "ConsistentHashRouter")]
pub(super) struct Ring<'m> {
    /// The member at each point.
    points: BTreeMap<u32, &'m str>,
}

impl<'m> Ring<'m> {
    /// Puts each member on the ring `virtual_nodes` times. Where two meet, the later one stays.
    pub(super) fn new(members: &'m [String], virtual_nodes: u32) -> Self {
        let nodes = members.iter().flat_map(|member| (0..virtual_nodes).map(move |node| (member, node)));
        Self { points: nodes.map(|(member, node)| (hash(&format!("{member}-{node}")), &**member)).collect() }
    }

    /// The member at the first point from the queue's hash on; behind the last point comes the first.
    pub(super) fn owner(&self, queue: &MessageQueue) -> Option<&'m str> {
        let from = self.points.range(hash(&key(queue))..).next();
        from.or_else(|| self.points.first_key_value()).map(|(_, member)| *member)
    }
}

/// The text of a queue in Java.
fn key(MessageQueue { topic, broker_name, queue_id }: &MessageQueue) -> String {
    format!("MessageQueue [topic={topic}, brokerName={broker_name}, queueId={queue_id}]")
}

/// The first four bytes of the MD5 digest.
fn hash(text: &str) -> u32 {
    let digest = Md5::digest(text.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_points_and_owners_are_those_of_the_specification() {
        let members = ["10.0.0.1@100#1", "10.0.0.2@200#2", "10.0.0.3@300#3"].map(str::to_owned);
        let ring = Ring::new(&members, 10);
        assert_eq!((hash("10.0.0.1@100#1-0"), ring.points.len()), (2_104_484_402, 30));
        let expected = [
            (1_987_926_524, 2_104_484_402, 1),
            (4_291_349_817, 179_750_448, 1),
            (853_506_239, 1_138_399_300, 1),
            (3_652_785_994, 3_732_559_909, 3),
            (3_819_253_357, 3_833_158_895, 3),
            (3_264_541_832, 3_436_248_059, 2),
            (2_650_622_136, 2_663_216_367, 1),
            (4_171_190_878, 179_750_448, 1),
        ];
        for (queue_id, (hashed, point, owner)) in (0..).zip(expected) {
            let queue = MessageQueue::new("TopicTest", "broker-a", queue_id);
            let member = &*members[owner - 1];
            assert_eq!(hash(&key(&queue)), hashed, "queue {queue_id}");
            assert_eq!((ring.points.get(&point), ring.owner(&queue)), (Some(&member), Some(member)));
        }
    }

    #[test]
    fn a_queue_on_a_point_belongs_to_it() {
        let queue = MessageQueue::new("t", "b", 0);
        let ring = Ring { points: [(hash(&key(&queue)), "a"), (u32::MAX, "b")].into() };
        assert_eq!(ring.owner(&queue), Some("a"));
        assert_eq!(Ring::new(&[], 10).owner(&queue), None);
    }
}
