//! Dependencies of a put.

use std::sync::Arc;

use arc_swap::Guard;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::Store;

use super::due::UnreadablePages;
use super::properties::broker_suffix;
use crate::ground::Ground;
use crate::ha::Slaves;
use crate::members::Members;
use crate::registration::{Announced, Registrar};
use crate::table::topic::TopicChange;
use crate::timer::pending::PendingRecords;
use crate::{BrokerConfig, FlushMode};

/// The way of messages into the store, and of those that wait back out of it.
#[derive(Debug)]
pub(crate) struct Intake<D: Disk = RealDisk> {
    ground: Arc<Ground<D>>,
    members: Arc<Members<D>>,
    slaves: Arc<Slaves>,
    /// Recalls that are stored and not in the wheel of timers yet.
    recalls: Arc<PendingRecords>,
    registrar: Option<Arc<Registrar>>,
    unreadable: UnreadablePages,
    /// The properties that every message gets, as text.
    property_suffix: Vec<u8>,
    /// Whether sends are answered after the flush.
    is_sync_flush: bool,
}

impl<D: Disk> Intake<D> {
    pub(crate) fn new(
        ground: Arc<Ground<D>>,
        members: Arc<Members<D>>,
        slaves: Arc<Slaves>,
        recalls: Arc<PendingRecords>,
        registrar: Option<Arc<Registrar>>,
    ) -> Self {
        let config = ground.config();
        let property_suffix = broker_suffix(&config.region_id, config.trace_on, &config.cluster_name);
        let is_sync_flush = config.store.flush == FlushMode::Sync;
        drop(config);
        let unreadable = UnreadablePages::default();
        Self { ground, members, slaves, recalls, registrar, unreadable, property_suffix, is_sync_flush }
    }

    pub(crate) fn ground(&self) -> &Arc<Ground<D>> {
        &self.ground
    }

    pub(crate) fn store(&self) -> &Arc<Store<D>> {
        self.ground.store()
    }

    /// The configuration as it is now.
    pub(crate) fn config(&self) -> Guard<Arc<BrokerConfig>> {
        self.ground.config()
    }

    pub(crate) fn members(&self) -> &Arc<Members<D>> {
        &self.members
    }

    pub(crate) fn slaves(&self) -> &Slaves {
        &self.slaves
    }

    pub(crate) fn recalls(&self) -> &Arc<PendingRecords> {
        &self.recalls
    }

    /// Where the records of messages that wait cannot be read.
    pub(crate) fn unreadable(&self) -> &UnreadablePages {
        &self.unreadable
    }

    pub(super) fn property_suffix(&self) -> &[u8] {
        &self.property_suffix
    }

    /// Whether sends are answered after the flush.
    pub(crate) fn is_sync_flush(&self) -> bool {
        self.is_sync_flush
    }

    /// Registers all topics again: the permission of clients has changed.
    pub(crate) fn register_again(&self) {
        if let Some(registrar) = &self.registrar {
            if self.ground.role().is_master() {
                self.ground.topics().move_version(); // a name server ignores a version that it knows; a slave has its master's
            }
            registrar.register_again();
        }
    }

    /// Tells the name servers about changed topics; `None` where the broker has no name server.
    pub(crate) fn announce(&self, change: &TopicChange) -> Option<Announced> {
        self.registrar.as_ref().map(|registrar| registrar.announce(change))
    }
}
