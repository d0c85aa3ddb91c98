//! Places that clients share, so that no client takes those of the others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_remoting::CallError;

/// A bounded number of places. What a client may have of them depends on how many are free and on whether it answers.
#[derive(Debug)]
pub(crate) struct Shares {
    limit: usize,
    bounds: Bounds,
    state: Mutex<State>,
}

/// Bounds of one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Maximum number of its places.
    pub(crate) most: usize,
    /// It has no more than this part of the free places: one of `part`.
    pub(crate) part: usize,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// Clients that have places, or fewer than the others may have.
    clients: HashMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    taken: usize,
    /// Maximum number of its places: 1 after it did not answer in time, twice as many after each answer.
    window: usize,
    is_gone: bool,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All are taken.
    All,
    /// The client has as many as it may.
    OfClient { taken: usize },
}

/// A place of a client, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    shares: Arc<Shares>,
    client: u64,
    is_answered: Option<bool>,
}

impl Shares {
    pub(crate) fn new(limit: usize, bounds: Bounds) -> Arc<Self> {
        assert!(bounds.most > 0 && bounds.part > 0, "each client may have a place: {bounds:?}");
        Arc::new(Self { limit, bounds, state: Mutex::default() })
    }

    /// Takes a place for a client, by the id of its connection.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub(crate) fn take(self: &Arc<Self>, client: u64) -> Result<Place, NoPlace> {
        let mut state = self.state.lock();
        let State { taken, .. } = *state;
        assert!(taken <= self.limit, "no more places are taken than there are: {taken} of {}", self.limit);
        let free = self.limit - taken;
        if free == 0 {
            return Err(NoPlace::All);
        }
        let share = (free / self.bounds.part).max(1);
        let known = state.clients.get(&client);
        let (taken, window) = known.map_or((0, self.bounds.most), |known| (known.taken, known.window));
        let most = self.bounds.most;
        assert!((1..=most).contains(&window), "the window of a client has 1 to {most} places: {window}");
        if taken >= share.min(window) {
            return Err(NoPlace::OfClient { taken });
        }
        state.clients.entry(client).or_insert(Client { taken, window, is_gone: false }).taken += 1;
        state.taken += 1;
        let all = state.taken;
        assert!(taken < all, "the places of a client are among those that are taken: {taken} of {all}");
        Ok(Place { shares: self.clone(), client, is_answered: None })
    }

    /// The connection of a client has ended.
    pub(crate) fn forget(&self, client: u64) {
        let mut state = self.state.lock();
        match state.clients.get_mut(&client) {
            Some(known) if known.taken > 0 => known.is_gone = true,
            _ => drop(state.clients.remove(&client)),
        }
    }

    /// How many places are taken.
    pub(crate) fn taken(&self) -> usize {
        self.state.lock().taken
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

impl Place {
    /// Notes whether the client answered in time. A full window means that earlier calls have no answer yet; other failures of the
    /// connection say nothing about the client.
    pub(crate) fn note<T>(&mut self, answer: &Result<T, CallError>) {
        self.is_answered = match answer {
            Ok(_) => Some(true),
            Err(CallError::Timeout { .. } | CallError::WindowFull { .. }) => Some(false),
            Err(_) => None,
        };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        state.taken -= 1;
        let most = self.shares.bounds.most;
        let client = state.clients.get_mut(&self.client).expect("a client with a place is known");
        client.taken -= 1;
        client.window = match self.is_answered {
            None => client.window,
            Some(true) => (client.window * 2).min(most),
            Some(false) => 1,
        };
        if client.taken == 0 && (client.window == most || client.is_gone) {
            state.clients.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a call returns when its client has answered, or has not.
    fn outcome(is_answered: bool) -> Result<(), CallError> {
        let late = CallError::Timeout { addr: String::new(), code: 0, timeout_ms: 0 };
        is_answered.then_some(()).ok_or(late)
    }

    fn fill(shares: &Arc<Shares>, client: u64) -> Vec<Place> {
        std::iter::from_fn(|| shares.take(client).ok()).collect()
    }

    #[test]
    fn many_greedy_clients_leave_places_for_the_next_one() {
        let shares = Shares::new(4096, Bounds { most: 256, part: 8 });
        let mut places = fill(&shares, 0);
        assert_eq!(places.len(), 256);
        for client in 1..60 {
            let more = fill(&shares, client);
            assert!(!more.is_empty(), "{client}");
            places.extend(more);
        }
        assert!(shares.take(60).is_ok(), "{} places are taken", shares.taken());
        places.iter_mut().for_each(|place| place.note(&outcome(false)));
        places.clear();
        places.extend((0..60).flat_map(|client| fill(&shares, client)));
        assert_eq!(places.len(), 60, "one for each that did not answer");
        (0..60).for_each(|client| shares.forget(client));
        drop(places);
        assert_eq!(shares.taken(), 0);
        assert!(shares.state.lock().clients.is_empty());
    }

    #[test]
    fn a_client_that_does_not_answer_has_one_place_until_it_answers() {
        let shares = Shares::new(4096, Bounds { most: 8, part: 1 });
        let outcomes = |is_answered| {
            for mut place in fill(&shares, 1) {
                place.note(&outcome(is_answered));
            }
        };
        outcomes(false);
        assert_eq!(fill(&shares, 1).len(), 1);
        assert_eq!(fill(&shares, 2).len(), 8, "others are not affected");
        outcomes(true);
        assert_eq!(fill(&shares, 1).len(), 2);
        outcomes(true);
        assert_eq!(fill(&shares, 1).len(), 8);
        outcomes(false);
        let kept = fill(&shares, 1);
        shares.forget(1);
        drop(kept);
        assert!(shares.state.lock().clients.is_empty(), "nothing is kept of a connection that ended");
    }

    #[test]
    fn the_last_place_is_given_and_no_other() {
        let shares = Shares::new(2, Bounds { most: 8, part: 8 });
        let _places = [shares.take(1).unwrap(), shares.take(2).unwrap()];
        assert_eq!(shares.take(3).unwrap_err(), NoPlace::All);
    }
}
