//! Distributes the messages of one `send_many` over the queues.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use rocketpy_model::{Message, MessageQueue};

use super::select::{self, Selection};
use crate::route::TopicRoute;

/// Messages without a key go to one queue in runs of at least this length, so that even a few of them share a request.
const LEAST_RUN: usize = 128;

/// The messages of one queue, in their order.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) queue: MessageQueue,
    /// They must go to this queue.
    pub(crate) bound: bool,
    /// Indices of the messages.
    pub(crate) indices: Vec<u32>,
}

/// How messages choose their queues.
pub(crate) struct Choice<'a> {
    /// Their queues: one for all, or one for each.
    pub(crate) queues: Option<&'a [MessageQueue]>,
    pub(crate) order_key: Option<&'a str>,
    pub(crate) selection: &'a Selection,
    pub(crate) batch_messages: usize,
}

/// The groups of one topic while messages are distributed.
struct TopicGroups<'a> {
    route: &'a TopicRoute,
    /// Group of each queue: first for messages bound to it, then for others.
    of_queue: Vec<[Option<usize>; 2]>,
    /// Queue of the current run of messages without a key, and how many more it takes.
    run: (usize, usize),
    run_length: usize,
}

/// Groups messages by queue. Each route must have a queue to publish to.
pub(crate) fn by_queue<M: Borrow<Message>>(
    messages: &[M],
    routes: &HashMap<String, Arc<TopicRoute>>,
    choice: &Choice<'_>,
) -> Vec<Group> {
    let groups = match choice.queues {
        Some(queues) => by_given_queue(messages.len(), queues),
        None => by_choice(messages, routes, choice),
    };
    let grouped: usize = groups.iter().map(|group| group.indices.len()).sum();
    assert!(grouped == messages.len(), "each message goes to one queue");
    groups
}

fn by_choice<M: Borrow<Message>>(
    messages: &[M],
    routes: &HashMap<String, Arc<TopicRoute>>,
    choice: &Choice<'_>,
) -> Vec<Group> {
    let mut topics: Vec<TopicGroups<'_>> = routes
        .values()
        .map(|route| {
            let queues = route.publish.len();
            assert!(queues > 0, "a route that messages are sent by has a queue: {}", route.topic);
            let run_length =
                messages.len().div_ceil(queues).clamp(LEAST_RUN, choice.batch_messages.max(LEAST_RUN));
            TopicGroups { route, of_queue: vec![[None; 2]; queues], run: (0, 0), run_length }
        })
        .collect();
    let (mut groups, mut current) = (Vec::new(), 0);
    for (index, message) in messages.iter().enumerate() {
        let message = message.borrow();
        if *topics[current].route.topic != *message.topic {
            let of_topic = |topic: &TopicGroups<'_>| *topic.route.topic == *message.topic;
            current = topics.iter().position(of_topic).expect("every topic's route was fetched before");
        }
        let group = topics[current].group_of(message, choice, &mut groups);
        groups[group].indices.push(index as u32);
    }
    groups
}

fn by_given_queue(messages: usize, queues: &[MessageQueue]) -> Vec<Group> {
    if let [queue] = queues {
        return vec![Group { queue: queue.clone(), bound: true, indices: (0..messages as u32).collect() }];
    }
    let (mut groups, mut of_queue) = (Vec::new(), HashMap::new());
    for (index, queue) in queues.iter().enumerate() {
        let group = *of_queue.entry(queue).or_insert_with(|| {
            groups.push(Group { queue: queue.clone(), bound: true, indices: Vec::new() });
            groups.len() - 1
        });
        groups[group].indices.push(index as u32);
    }
    groups
}

impl TopicGroups<'_> {
    fn group_of(&mut self, message: &Message, choice: &Choice<'_>, groups: &mut Vec<Group>) -> usize {
        let count = self.route.publish.len();
        let (queue, bound) = match choice.order_key.or_else(|| message.order_key()) {
            Some(key) => (select::by_key(key, count), true),
            None => (self.next_of_run(choice.selection), false),
        };
        let slot = &mut self.of_queue[queue][usize::from(!bound)];
        *slot.get_or_insert_with(|| {
            groups.push(Group { queue: self.route.publish[queue].clone(), bound, indices: Vec::new() });
            groups.len() - 1
        })
    }

    fn next_of_run(&mut self, selection: &Selection) -> usize {
        let (queue, left) = &mut self.run;
        if *left == 0 {
            let picked = selection.pick(&self.route.topic, &self.route.publish, |_| true);
            *queue = picked.expect("the route has queues");
            *left = self.run_length;
        }
        *left -= 1;
        *queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Selector;
    use crate::route::tests::route;

    fn routes(queues: u32) -> HashMap<String, Arc<TopicRoute>> {
        [("t".to_owned(), Arc::new(route("t", queues))), ("u".to_owned(), Arc::new(route("u", queues)))]
            .into()
    }

    fn keyed(key: &str) -> Message {
        let mut message = Message::new("t", "b");
        message.set_order_key(key).unwrap();
        message
    }

    fn choice(selection: &Selection) -> Choice<'_> {
        Choice { queues: None, order_key: None, selection, batch_messages: 1024 }
    }

    #[test]
    fn messages_with_one_key_stay_together_in_order() {
        let selection = Selection::starting_at(Selector::RoundRobin, 0);
        let messages: Vec<Message> = (0..100).map(|number| keyed(&format!("key-{}", number % 10))).collect();
        let groups = by_queue(&messages, &routes(4), &choice(&selection));
        assert!(groups.len() <= 4 && groups.iter().all(|group| group.bound));
        let mut queue_of_key = HashMap::new();
        for group in &groups {
            assert!(group.indices.is_sorted());
            for index in &group.indices {
                let known = queue_of_key.entry(index % 10).or_insert(group.queue.queue_id);
                assert_eq!(*known, group.queue.queue_id, "one key, one queue");
            }
        }
        assert_eq!(groups.iter().map(|group| group.indices.len()).sum::<usize>(), 100);
    }

    #[test]
    fn a_few_messages_without_a_key_share_one_queue_and_many_are_spread() {
        let selection = Selection::starting_at(Selector::RoundRobin, 0);
        let few: Vec<Message> = vec![Message::new("t", "b"); 100];
        assert_eq!(by_queue(&few, &routes(4), &choice(&selection)).len(), 1);
        let many: Vec<Message> = vec![Message::new("t", "b"); 10_000];
        let groups = by_queue(&many, &routes(4), &choice(&selection));
        assert_eq!(groups.len(), 4);
        assert!(groups.iter().all(|group| !group.bound && (1500..3500).contains(&group.indices.len())));
    }

    #[test]
    fn topics_do_not_mix() {
        let selection = Selection::starting_at(Selector::RoundRobin, 0);
        let messages: Vec<Message> =
            (0..10).map(|n| Message::new(if n % 2 == 0 { "t" } else { "u" }, "b")).collect();
        let groups = by_queue(&messages, &routes(1), &choice(&selection));
        assert_eq!(groups.len(), 2);
        for group in groups {
            let parity = u32::from(&*group.queue.topic == "u");
            assert!(group.indices.iter().all(|index| index % 2 == parity));
        }
    }

    #[test]
    fn a_given_queue_takes_all() {
        let selection = Selection::starting_at(Selector::RoundRobin, 0);
        let queue = MessageQueue::new("t", "b", 3);
        let choice = Choice { queues: Some(std::slice::from_ref(&queue)), ..choice(&selection) };
        let groups = by_queue(&[keyed("a"), keyed("b")], &routes(4), &choice);
        assert_eq!((groups.len(), groups[0].bound, groups[0].indices.as_slice()), (1, true, &[0, 1][..]));
    }

    #[test]
    fn each_message_may_have_a_queue_of_its_own() {
        let selection = Selection::starting_at(Selector::RoundRobin, 0);
        let queues = [1, 0, 1].map(|id| MessageQueue::new("t", "b", id));
        let choice = Choice { queues: Some(&queues), ..choice(&selection) };
        let groups = by_queue(&[keyed("a"), keyed("a"), keyed("b")], &routes(4), &choice);
        let found: Vec<_> = groups
            .iter()
            .map(|group| (group.queue.queue_id, group.bound, group.indices.as_slice()))
            .collect();
        assert_eq!(found, [(1, true, &[0, 2][..]), (0, true, &[1][..])]);
    }
}
