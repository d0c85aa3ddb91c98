//! Quotas of a broker.

use rocketpy_protocol::body::{Quota, QuotaList};

use super::Admin;
use crate::error::ClientError;
use crate::wire;

impl Admin {
    /// The quotas of the broker at an address, with their use.
    ///
    /// # Errors
    /// Those of reaching the broker; that of one that does not know the request.
    pub async fn quotas(&self, address: &str) -> Result<QuotaList, ClientError> {
        const OPERATION: &str = "quota query";
        let address = &self.address_of(address, false).await?;
        let answer = self.client.api().call_ok(address, OPERATION, wire::quotas()).await?;
        wire::json(OPERATION, address, &answer.body)
    }

    /// Sets a quota at the broker at an address; it replaces the one of its scope and name.
    ///
    /// # Errors
    /// [`ClientError::Refused`]; those of [`Self::quotas`]. The call may be repeated.
    pub async fn set_quota(&self, address: &str, quota: &Quota) -> Result<(), ClientError> {
        let address = &self.address_of(address, false).await?;
        self.client.api().call_ok(address, "quota change", wire::set_quota(quota)).await.map(drop)
    }

    /// Removes a quota from the broker at an address.
    ///
    /// # Errors
    /// [`ClientError::Refused`] where it has no such quota; those of [`Self::quotas`].
    pub async fn remove_quota(&self, address: &str, scope: &str, name: &str) -> Result<(), ClientError> {
        let address = &self.address_of(address, false).await?;
        let request = wire::remove_quota(scope, name);
        self.client.api().call_ok(address, "quota removal", request).await.map(drop)
    }
}
