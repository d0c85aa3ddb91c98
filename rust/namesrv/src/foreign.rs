//! Rights on the cluster of a broker name or a topic that a request names beside another cluster.
//!
//! # Source
//! docs/security.md, name servers that clusters share.

use std::collections::BTreeMap;

use rocketpy_model::system;
use tracing::warn;

use crate::error::Refusal;
use crate::processor::{Call, Processor};
use crate::route::Registration;

impl Processor {
    /// Checks that the user of a request has the same right on the cluster that a broker name belongs to.
    ///
    /// # Errors
    /// The name belongs to another cluster than the request states, and the user has no right on that one.
    pub(crate) fn check_owner(&self, call: Call<'_>, name: &str, stated: &str) -> Result<(), Refusal> {
        let Some(guard) = self.guard_of_port() else { return Ok(()) };
        let Some(owner) = self.routes.owner(name).filter(|owner| owner != stated) else { return Ok(()) };
        match guard.denial_of_cluster(call.connection.peer(), call.request, &owner) {
            Some(denial) => Err(Refusal::OfOtherCluster { name: name.to_owned(), denial }),
            None => Ok(()),
        }
    }

    /// Leaves topics out that brokers of other clusters have, where the user of the registration has no right on those clusters: their clients
    /// would send to this broker, too.
    pub(crate) fn without_foreign_topics(&self, call: Call<'_>, mut new: Registration) -> Registration {
        let Some(guard) = self.guard_of_port() else { return new };
        let foreign = self.routes.foreign_topics(&new);
        if foreign.is_empty() {
            return new;
        }
        let mut rights = BTreeMap::new();
        let mut may = |cluster: &String| {
            let peer = call.connection.peer();
            *rights
                .entry(cluster.clone())
                .or_insert_with(|| guard.may_update_cluster(peer, call.request, cluster))
        };
        let refused: BTreeMap<_, _> = foreign
            .into_iter()
            .filter_map(|(topic, clusters)| {
                clusters.into_iter().find(|cluster| !may(cluster)).map(|of| (topic, of))
            })
            .collect();
        if refused.is_empty() {
            return new;
        }
        // Every broker registers the template of created topics.
        if let Some((topic, of)) = refused.iter().find(|(topic, _)| !system::is_system_topic(topic)) {
            warn!(
                broker = new.name,
                cluster = new.broker.cluster,
                left_out = refused.len(),
                topic,
                of,
                "topics of another cluster ignored, the user needs Update on that cluster"
            );
        }
        new.topics.retain(|topic| !refused.contains_key(&topic.name));
        new
    }
}
