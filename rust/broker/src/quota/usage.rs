//! Use of quotas: rates, and numbers of throttled and rejected requests.

use std::collections::HashMap;
use std::time::Duration;

use super::rule::Direction;

/// Use of each quota, by its id, of all its names together.
#[derive(Debug, Default)]
pub(super) struct Usage(HashMap<String, Used>);

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Used {
    rates: [Rate; 2],
    pub(super) throttled: u64,
    pub(super) rejected: u64,
}

/// Messages and bytes of the second that runs, and of the one before it.
#[derive(Debug, Default, Clone, Copy)]
struct Rate {
    second: u64,
    running: [u64; 2],
    before: [u64; 2],
}

impl Used {
    /// Messages and bytes of the last whole second.
    pub(super) fn rate(mut self, direction: Direction, now: Duration) -> [u64; 2] {
        let rate = &mut self.rates[direction as usize];
        rate.move_to(now.as_secs());
        rate.before
    }
}

impl Rate {
    fn move_to(&mut self, second: u64) {
        if second <= self.second {
            return;
        }
        let running = std::mem::take(&mut self.running);
        self.before = if second == self.second + 1 { running } else { [0; 2] };
        assert!(self.second < second, "the seconds of a rate go forward");
        self.second = second;
    }
}

impl Usage {
    pub(super) fn of(&self, id: &str) -> Used {
        self.0.get(id).copied().unwrap_or_default()
    }

    fn used(&mut self, id: &str) -> &mut Used {
        if !self.0.contains_key(id) {
            self.0.insert(id.to_owned(), Used::default());
        }
        self.0.get_mut(id).expect("it was added")
    }

    pub(super) fn throttled(&mut self, id: &str) {
        self.used(id).throttled += 1;
    }

    pub(super) fn rejected(&mut self, id: &str) {
        self.used(id).rejected += 1;
    }

    pub(super) fn took(&mut self, id: &str, direction: Direction, amounts: [u64; 2], now: Duration) {
        let rate = &mut self.used(id).rates[direction as usize];
        rate.move_to(now.as_secs());
        for (running, amount) in rate.running.iter_mut().zip(amounts) {
            *running = running.saturating_add(amount);
        }
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|id, _| is_kept(id));
    }
}
