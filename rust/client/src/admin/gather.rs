//! Reads at several brokers at the same time: a broker that does not answer leaves the others known.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_env::now_ms;
use tokio::task::JoinSet;

use super::Admin;
use crate::api::Api;
use crate::error::ClientError;

/// Maximum number of concurrent requests of one read to one broker.
const CALLS_AT_ONCE: usize = 16;

/// A broker that did not answer a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingBroker {
    pub broker_name: String,
    pub address: String,
    pub error: ClientError,
    /// When its last answer arrived at this client (milliseconds since 1970); `None` without one.
    pub answered_at_ms: Option<i64>,
}

/// Answers of several brokers, and the brokers that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers<T> {
    pub found: Vec<T>,
    pub missing: Vec<MissingBroker>,
}

impl<T> Answers<T> {
    /// The answers of all brokers.
    ///
    /// # Errors
    /// That of the first broker that did not answer.
    pub fn complete(self) -> Result<Vec<T>, ClientError> {
        check_complete(&self.missing)?;
        Ok(self.found)
    }

    pub(super) fn map<R>(self, change: impl FnOnce(Vec<T>) -> Vec<R>) -> Answers<R> {
        Answers { found: change(self.found), missing: self.missing }
    }
}

/// Refuses answers that are not those of all brokers.
pub(super) fn check_complete(missing: &[MissingBroker]) -> Result<(), ClientError> {
    missing.first().map_or(Ok(()), |broker| Err(broker.error.clone()))
}

/// A broker to request something from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) broker_name: String,
    pub(super) address: String,
}

/// When each broker last answered, by address (milliseconds since 1970).
#[derive(Debug, Clone, Default)]
pub(super) struct LastAnswers(Arc<Mutex<HashMap<String, i64>>>);

impl LastAnswers {
    /// Notes an answer, and returns its time.
    fn note(&self, address: &str) -> i64 {
        let at_ms = now_ms();
        self.0.lock().insert(address.to_owned(), at_ms);
        at_ms
    }

    fn of(&self, address: &str) -> Option<i64> {
        self.0.lock().get(address).copied()
    }
}

impl Admin {
    /// One broker of each name: the master, or a slave without one.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`]; those of reaching a name server.
    pub(super) async fn readable(&self) -> Result<Vec<Place>, ClientError> {
        self.client.check()?;
        let brokers = self.client.api().known_brokers().await?.broker_addr_table;
        let place = |(broker_name, broker): (String, rocketpy_protocol::body::BrokerData)| {
            let address = broker.master_address().or_else(|| broker.any_address())?.to_owned();
            Some(Place { broker_name, address })
        };
        Ok(brokers.into_iter().filter_map(place).collect())
    }

    /// Requests something from brokers at the same time; returns the outcome of each, in their order, with the time of its last answer.
    pub(super) async fn ask_each<T, F>(
        &self,
        places: &[Place],
        ask: impl Fn(Api, Place) -> F,
    ) -> Result<Vec<(Result<T, ClientError>, Option<i64>)>, ClientError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
    {
        self.client.check()?;
        let mut asked = JoinSet::new();
        for (index, place) in places.iter().enumerate() {
            let call = ask(self.client.api().clone(), place.clone());
            asked.spawn_on(async move { (index, call.await) }, self.client.runtime());
        }
        let mut outcomes = BTreeMap::new();
        while let Some(ended) = asked.join_next().await {
            let (index, outcome) = ended.map_err(|_| ClientError::Closed { what: "client" })?;
            let address = &places[index].address;
            let answered_at_ms = match outcome {
                Ok(_) => Some(self.answered.note(address)),
                Err(_) => self.answered.of(address),
            };
            outcomes.insert(index, (outcome, answered_at_ms));
        }
        assert_eq!(outcomes.len(), places.len(), "each broker has one outcome");
        Ok(outcomes.into_values().collect())
    }

    /// As [`Self::ask_each`], with the brokers that did not answer apart.
    ///
    /// # Errors
    /// That of the first broker, if none answered.
    pub(super) async fn gather<T, F>(
        &self,
        places: &[Place],
        ask: impl Fn(Api, Place) -> F,
    ) -> Result<Answers<T>, ClientError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
    {
        let outcomes = self.ask_each(places, ask).await?;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (Place { broker_name, address }, (outcome, answered_at_ms)) in
            places.iter().cloned().zip(outcomes)
        {
            match outcome {
                Ok(answer) => found.push(answer),
                Err(error) => missing.push(MissingBroker { broker_name, address, error, answered_at_ms }),
            }
        }
        assert_eq!(found.len() + missing.len(), places.len(), "each broker answered or is missing");
        if found.is_empty() {
            check_complete(&missing)?;
        }
        Ok(Answers { found, missing })
    }
}

/// Makes a call for each item, [`CALLS_AT_ONCE`] at a time; returns the results in the order of the items.
///
/// # Errors
/// The first failure, which ends the other calls.
pub(super) async fn each<I, T, F>(
    items: impl IntoIterator<Item = I>,
    call: impl Fn(I) -> F,
) -> Result<Vec<T>, ClientError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ClientError>> + Send + 'static,
{
    let mut items = items.into_iter().enumerate();
    let (mut running, mut results) = (JoinSet::new(), BTreeMap::new());
    loop {
        while running.len() < CALLS_AT_ONCE
            && let Some((index, item)) = items.next()
        {
            let call = call(item);
            running.spawn(async move { (index, call.await) });
        }
        assert!(running.len() <= CALLS_AT_ONCE, "a read sends a broker {CALLS_AT_ONCE} requests at a time");
        let Some(ended) = running.join_next().await else { return Ok(results.into_values().collect()) };
        let (index, result) = ended.map_err(|_| ClientError::Closed { what: "client" })?;
        let before = results.insert(index, result?);
        assert!(before.is_none(), "each item has one result: {index}");
    }
}
