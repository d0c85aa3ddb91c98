//! Addresses of brokers that are given by name.

use super::Admin;
use crate::error::ClientError;
use crate::names::is_address;

/// Id of the master among the brokers of one name.
const MASTER_ID: u64 = 0;

impl Admin {
    /// Address of a broker that is given by address or by name. A name stands for its master, without one for its only slave; with
    /// `is_slave` for its only slave in any case.
    ///
    /// # Errors
    /// [`ClientError::InvalidAddress`], [`ClientError::BrokerNotFound`], [`ClientError::SeveralSlaves`]; those of reaching a name
    /// server.
    pub async fn address_of(&self, broker: &str, is_slave: bool) -> Result<String, ClientError> {
        self.client.check()?;
        if is_address(broker) {
            return Ok(broker.to_owned());
        }
        if broker.is_empty() || broker.contains(':') {
            return Err(ClientError::InvalidAddress { address: broker.to_owned() });
        }
        let found = self.cluster().await?.brokers.into_iter().find(|known| known.broker_name == broker);
        let Some(mut addresses) = found.map(|found| found.addresses) else {
            return Err(ClientError::BrokerNotFound { broker_name: broker.to_owned() });
        };
        let master = addresses.remove(&MASTER_ID).filter(|_| !is_slave);
        let mut slaves = addresses.into_values();
        match (master, slaves.next(), slaves.next()) {
            (Some(master), _, _) => Ok(master),
            (None, Some(slave), None) => Ok(slave),
            (None, None, _) => Err(ClientError::BrokerNotFound { broker_name: broker.to_owned() }),
            (None, Some(one), Some(other)) => {
                let all: Vec<String> = [one, other].into_iter().chain(slaves).collect();
                Err(ClientError::SeveralSlaves { broker_name: broker.to_owned(), addresses: all.join(", ") })
            }
        }
    }
}
