//! The figures of all brokers.

use std::collections::BTreeMap;

use rocketpy_protocol::body::KvTable;

use super::gather::Place;
use super::{Admin, BrokerDescription};
use crate::api::Api;
use crate::error::ClientError;
use crate::wire;

/// Figures of one broker, or the error of a broker that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerFigures {
    pub broker: BrokerDescription,
    /// 0 is the master.
    pub broker_id: u64,
    /// By Apache's names, as text.
    pub figures: Result<BTreeMap<String, String>, ClientError>,
    /// When its last answer arrived at this client (milliseconds since 1970); `None` without one.
    pub answered_at_ms: Option<i64>,
}

impl Admin {
    /// The figures of every broker, requested at the same time; sorted by name and id.
    ///
    /// # Errors
    /// Those of reaching a name server.
    pub async fn all_figures(&self) -> Result<Vec<BrokerFigures>, ClientError> {
        let brokers = self.cluster().await?.brokers;
        let of_one = |broker: BrokerDescription| {
            let ids: Vec<_> = broker.addresses.keys().copied().collect();
            ids.into_iter().map(move |broker_id| (broker.clone(), broker_id))
        };
        let all: Vec<_> = brokers.into_iter().flat_map(of_one).collect();
        let place = |(broker, broker_id): &(BrokerDescription, u64)| Place {
            broker_name: broker.broker_name.clone(),
            address: broker.addresses[broker_id].clone(),
        };
        let places: Vec<_> = all.iter().map(place).collect();
        let outcomes =
            self.ask_each(&places, |api, place| async move { api.figures_at(&place.address).await }).await?;
        let row = |((broker, broker_id), (figures, answered_at_ms))| BrokerFigures {
            broker,
            broker_id,
            figures,
            answered_at_ms,
        };
        Ok(all.into_iter().zip(outcomes).map(row).collect())
    }
}

impl Api {
    pub(super) async fn figures_at(&self, address: &str) -> Result<BTreeMap<String, String>, ClientError> {
        const OPERATION: &str = "figures query";
        let answer = self.call_ok(address, OPERATION, wire::runtime_info()).await?;
        Ok(wire::json::<KvTable>(OPERATION, address, &answer.body)?.table)
    }
}
