//! Which brokers a consumer can reach. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::ClientError;

/// A broker that a consumer reads from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerContact {
    pub broker_name: Arc<str>,
    /// Why and since when it cannot be reached; `None` while it answers.
    pub trouble: Option<Trouble>,
}

/// Why and since when a broker cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// When the first call failed, in milliseconds since 1970.
    pub since_ms: i64,
    /// The failure of the latest call.
    pub last: ClientError,
}

/// What changed with the outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing that the user has to know.
    Unchanged,
    /// The last broker that answered no longer does.
    Lost,
    /// A broker answers again.
    Found,
}

/// The outcomes of a consumer's latest calls to its brokers.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    brokers: BTreeMap<Arc<str>, Option<Trouble>>,
    silence: Option<Silence>,
}

/// A time in which no broker answers.
#[derive(Debug)]
struct Silence {
    since: Instant,
    /// When the user was last told.
    told: Option<Instant>,
}

impl Contacts {
    /// Takes the outcome of a call to a broker. Errors that say nothing about the connection count as an answer, those of a missing
    /// route as neither.
    pub(crate) fn note(&mut self, broker_name: &Arc<str>, error: Option<&ClientError>, now_ms: i64) -> Reach {
        let last = match error {
            None => None,
            Some(error) => match is_unreachable(error) {
                Some(true) => Some(error.clone()),
                Some(false) => None,
                None => return Reach::Unchanged,
            },
        };
        let known = self.brokers.entry(broker_name.clone()).or_default();
        *known = last
            .map(|last| Trouble { since_ms: known.as_ref().map_or(now_ms, |known| known.since_ms), last });
        self.change()
    }

    /// Whether no broker was called yet.
    pub(crate) fn knows_none(&self) -> bool {
        self.brokers.is_empty()
    }

    /// Forgets brokers that no route names any more.
    pub(crate) fn retain(&mut self, broker_names: &BTreeSet<Arc<str>>) -> Reach {
        self.brokers.retain(|name, _| broker_names.contains(name));
        self.change()
    }

    fn change(&mut self) -> Reach {
        let is_silent = !self.brokers.is_empty() && self.brokers.values().all(Option::is_some);
        let reach = match (is_silent, &self.silence) {
            (true, None) => {
                self.silence = Some(Silence { since: Instant::now(), told: None });
                Reach::Lost
            }
            (false, Some(_)) => {
                self.silence = None;
                Reach::Found
            }
            _ => Reach::Unchanged,
        };
        assert!(self.silence.is_some() == is_silent, "a silence lasts as long as no broker answers");
        reach
    }

    /// When to tell the user that no broker answers: after each `patience` of silence.
    pub(crate) fn tell_at(&self, patience: Option<Duration>) -> Option<Instant> {
        let silence = self.silence.as_ref()?;
        Some(silence.told.unwrap_or(silence.since) + patience?)
    }

    /// The error for a silence whose time to be told has come.
    pub(crate) fn tell_if_due(&mut self, patience: Option<Duration>) -> Option<ClientError> {
        self.tell_at(patience).filter(|at| *at <= Instant::now()).and_then(|_| self.tell())
    }

    /// The error for a silence, which is told now.
    pub(crate) fn tell(&mut self) -> Option<ClientError> {
        let now = Instant::now();
        let silence = self.silence.as_mut()?;
        silence.told = Some(now);
        let troubles = self.brokers.iter().filter_map(|(name, trouble)| Some((name, trouble.as_ref()?)));
        let last = troubles.clone().map(|(_, trouble)| &trouble.last).next_back()?;
        Some(ClientError::Unreachable {
            brokers: troubles.map(|(name, _)| &**name).collect::<Vec<_>>().join(", "),
            silence_ms: u64::try_from((now - silence.since).as_millis()).unwrap_or(u64::MAX),
            last: Arc::new(last.clone()),
        })
    }

    /// Every broker that was called, sorted by name.
    pub(crate) fn brokers(&self) -> Vec<BrokerContact> {
        let contact = |(name, trouble): (&Arc<str>, &Option<Trouble>)| BrokerContact {
            broker_name: name.clone(),
            trouble: trouble.clone(),
        };
        self.brokers.iter().map(contact).collect()
    }
}

/// Whether an error says that its server cannot be reached; `None` when no server was asked.
fn is_unreachable(error: &ClientError) -> Option<bool> {
    match error {
        ClientError::Connect { .. } | ClientError::ConnectionLost { .. } | ClientError::Timeout { .. } => {
            Some(true)
        }
        ClientError::NoRoute { .. }
        | ClientError::NoBrokers { .. }
        | ClientError::NoQueue { .. }
        | ClientError::BrokerNotFound { .. }
        | ClientError::Congested { .. }
        | ClientError::Closed { .. } => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> ClientError {
        ClientError::Connect { address: "a:1".to_owned(), reason: "refused".to_owned() }
    }

    #[test]
    fn a_silence_begins_with_the_last_broker_and_is_told_after_each_patience() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut contacts = Contacts::default();
        assert_eq!(contacts.note(&a, None, 1), Reach::Unchanged);
        assert_eq!(contacts.note(&b, Some(&refused()), 2), Reach::Unchanged, "another one answers");
        assert_eq!(contacts.tell(), None);
        assert_eq!(contacts.note(&a, Some(&refused()), 3), Reach::Lost);
        assert_eq!(contacts.note(&a, Some(&refused()), 4), Reach::Unchanged);
        assert_eq!(contacts.brokers()[0].trouble.as_ref().unwrap().since_ms, 3);
        let patience = Duration::from_secs(60);
        assert_eq!(contacts.tell_at(None), None);
        let began = contacts.tell_at(Some(Duration::ZERO)).unwrap();
        assert_eq!(contacts.tell_at(Some(patience)), Some(began + patience));
        let error = contacts.tell().unwrap();
        assert!(matches!(&error, ClientError::Unreachable { brokers, .. } if brokers == "a, b"));
        let told = contacts.silence.as_ref().unwrap().told.unwrap();
        assert_eq!(contacts.tell_at(Some(patience)), Some(told + patience), "again after as long");
        assert_eq!(contacts.note(&b, None, 5), Reach::Found);
        assert_eq!((contacts.tell_at(Some(patience)), contacts.tell()), (None, None));
    }

    #[test]
    fn only_failures_to_reach_a_broker_count() {
        let a: Arc<str> = "a".into();
        let mut contacts = Contacts::default();
        let no_route = ClientError::NoRoute { topic: "t".to_owned() };
        assert_eq!(contacts.note(&a, Some(&refused()), 1), Reach::Lost);
        assert_eq!(contacts.note(&a, Some(&no_route), 2), Reach::Unchanged, "it was not asked");
        let answer = ClientError::BadAnswer {
            operation: "pull",
            address: "a:1".to_owned(),
            reason: "?".to_owned(),
            may_have_been_applied: false,
        };
        assert_eq!(contacts.note(&a, Some(&answer), 3), Reach::Found);
        contacts.note(&a, Some(&refused()), 4);
        assert_eq!(contacts.retain(&BTreeSet::new()), Reach::Found, "no route names it any more");
    }
}
