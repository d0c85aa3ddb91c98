//! Shares by where brokers and members are.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::MessageQueue;

use crate::config::{NearestRoom, NoShare, Rooms};

impl NearestRoom {
    /// # Source
    /// docs/reference/client.md 8.4 (MACHINE_ROOM_NEARBY), example in 8.5.
    pub(super) fn share(
        &self,
        queues: &[MessageQueue],
        members: &[String],
        me: &str,
    ) -> Result<Vec<MessageQueue>, NoShare> {
        let mut by_room: BTreeMap<&str, Vec<MessageQueue>> = BTreeMap::new();
        for queue in queues {
            let room = room_of("broker", &self.brokers, &queue.broker_name)?;
            by_room.entry(room).or_default().push(queue.clone());
        }
        let mut members_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for member in members {
            members_of.entry(room_of("client", &self.clients, member)?).or_default().push(member.clone());
        }
        let mine = room_of("client", &self.clients, me)?;
        let mut share = Vec::new();
        for (room, queues) in by_room {
            match members_of.get(room) {
                Some(near) if room == mine => share.extend(self.inner.of_members(&queues, near, me)?),
                Some(_) => {}
                None => share.extend(self.inner.of_members(&queues, members, me)?),
            }
        }
        Ok(share)
    }
}

fn room_of<'r>(what: &'static str, rooms: &'r Rooms, name: &str) -> Result<&'r str, NoShare> {
    let known = rooms.iter().filter(|(beginning, _)| name.starts_with(*beginning));
    let (_, room) = known
        .max_by_key(|(beginning, _)| beginning.len())
        .ok_or_else(|| NoShare::NoRoom { what, name: name.to_owned() })?;
    Ok(room)
}

/// The share of the queues whose broker is in one of these rooms: the part of its name before `@`.
///
/// # Source
/// docs/reference/client.md 8.4 (MACHINE_ROOM).
#[doc(alias = "AllocateMessageQueueByMachineRoom")]
pub(super) fn in_rooms(
    rooms: &BTreeSet<String>,
    queues: &[MessageQueue],
    count: usize,
    index: usize,
) -> Vec<MessageQueue> {
    assert!(index < count, "a member that gets a share is one of the members");
    let kept: Vec<_> = queues.iter().filter(|queue| is_in(rooms, &queue.broker_name)).collect();
    let (share, rest) = (kept.len() / count, kept.len() % count);
    let run = kept.iter().skip(share * index).take(share);
    let last = (index < rest).then(|| &kept[index + share * count]);
    run.chain(last).map(|queue| (*queue).clone()).collect()
}

/// Java's `split` drops empty texts at the end.
fn is_in(rooms: &BTreeSet<String>, broker_name: &str) -> bool {
    let mut parts = broker_name.trim_end_matches('@').split('@');
    matches!((parts.next(), parts.next(), parts.next()), (Some(room), Some(_), None) if rooms.contains(room))
}
