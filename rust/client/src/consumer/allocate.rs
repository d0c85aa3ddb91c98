//! Which queues of a topic belong to which member of a group.

use rocketpy_model::MessageQueue;

/// The queues of member `me`: one contiguous run. When the queues do not divide evenly, the first members get one more.
///
/// Every member computes this by itself, so both lists must be sorted the same way everywhere: queues by topic, broker and
/// number, client ids by UTF-16 code unit. A member that is not in the list gets nothing.
///
/// # Source
/// docs/reference/client.md 8.4 (AVG), worked examples in 8.5.
#[doc(alias = "AllocateMessageQueueAveragely")]
pub(crate) fn average<'q>(queues: &'q [MessageQueue], members: &[String], me: &str) -> &'q [MessageQueue] {
    let Some(index) = members.iter().position(|member| member == me) else {
        return &[];
    };
    let (share, rest) = (queues.len() / members.len(), queues.len() % members.len());
    let start = index * share + index.min(rest);
    let size = share + usize::from(index < rest);
    &queues[start..start + size]
}

/// Sorts client ids as Java does: by UTF-16 code unit.
pub(crate) fn sort_members(members: &mut Vec<String>) {
    members.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    members.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: u32) -> Vec<MessageQueue> {
        (0..count).map(|id| MessageQueue::new("t", "b", id)).collect()
    }

    fn shares(count: u32, members: usize) -> Vec<Vec<u32>> {
        let queues = queues(count);
        let members: Vec<String> = (0..members).map(|member| format!("c{member}")).collect();
        let share = |me: &String| average(&queues, &members, me).iter().map(|queue| queue.queue_id).collect();
        members.iter().map(share).collect()
    }

    #[test]
    fn shares_are_those_of_the_specification() {
        assert_eq!(shares(8, 3), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        assert_eq!(shares(10, 4), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7], vec![8, 9]]);
        assert_eq!(shares(4, 3), [vec![0, 1], vec![2], vec![3]]);
        assert_eq!(shares(7, 2), [vec![0, 1, 2, 3], vec![4, 5, 6]]);
        assert_eq!(shares(3, 4), [vec![0], vec![1], vec![2], vec![]]);
        assert_eq!(shares(1, 3), [vec![0], vec![], vec![]]);
    }

    /// The formula as the reference writes it, for comparison.
    fn literal(n: usize, m: usize, i: usize) -> (usize, usize) {
        let r = n % m;
        let size = if n <= m {
            1
        } else if r > 0 && i < r {
            n / m + 1
        } else {
            n / m
        };
        let start = if r > 0 && i < r { i * size } else { i * size + r };
        (start.min(n), size.min(n.saturating_sub(start)))
    }

    #[test]
    fn every_share_equals_the_literal_formula_and_each_queue_is_given_once() {
        for n in 0..40 {
            for m in 1..20 {
                let shares = shares(n, m);
                for (i, share) in shares.iter().enumerate() {
                    let (start, size) = literal(n as usize, m, i);
                    let expected: Vec<u32> = (start as u32..(start + size) as u32).collect();
                    assert_eq!(*share, expected, "{n} queues, {m} members, member {i}");
                }
                assert_eq!(shares.concat(), (0..n).collect::<Vec<_>>(), "{n} queues, {m} members");
            }
        }
    }

    #[test]
    fn a_stranger_gets_nothing() {
        assert!(average(&queues(4), &["a".to_owned()], "b").is_empty());
        assert!(average(&queues(4), &[], "b").is_empty());
    }

    #[test]
    fn members_sort_by_code_unit() {
        let mut members: Vec<String> =
            ["\u{ff5e}", "\u{1f600}", "b", "B", "a", "a"].map(str::to_owned).to_vec();
        sort_members(&mut members);
        assert_eq!(members, ["B", "a", "b", "\u{1f600}", "\u{ff5e}"], "surrogates sort before U+FF5E");
    }
}
