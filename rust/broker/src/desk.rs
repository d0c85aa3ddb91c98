//! Dependencies of the request processors.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::advertised::Advertised;
use crate::cold_read::ColdReads;
use crate::delay::Delays;
use crate::disk_read::DiskReads;
use crate::ground::Ground;
use crate::ha::Peers;
use crate::held_request::{HeldLimits, HeldRequests};
use crate::members::Members;
use crate::metrics::RequestTimes;
use crate::operation::pull::Pulls;
use crate::parts::Parts;
use crate::process::rooms::Rooms;
use crate::put::{Acks, Intake};
use crate::registration::Registrar;
use crate::role_change::RoleChanges;
use crate::timer::Timers;
use crate::transaction::Transactions;
use crate::waiting::Waiting;

/// The parts of a broker that requests reach, and those that only requests need.
pub(crate) struct Desk {
    pub(crate) ground: Arc<Ground>,
    pub(crate) members: Arc<Members>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) acks: Arc<Acks>,
    pub(crate) delays: Arc<Delays>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) transactions: Arc<Transactions>,
    pub(crate) peers: Peers,
    pub(crate) role_changes: Arc<RoleChanges>,
    /// Pulls until a message comes, and questions about the newest messages until dispatch knows them.
    pub(crate) held: HeldRequests<Waiting>,
    pub(crate) pulls: Pulls,
    pub(crate) reads: Reads,
    pub(crate) rooms: Rooms,
    pub(crate) endpoints: Endpoints,
    pub(crate) watched: Watched,
}

/// What only metrics and health look at.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) registrar: Option<Arc<Registrar>>,
    pub(crate) request_times: Arc<RequestTimes>,
    /// Set when the broker begins to stop.
    pub(crate) is_stopping: AtomicBool,
}

/// Reads that wait for the disk.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Pulls of what is not in memory.
    pub(crate) cold_pulls: DiskReads,
    /// What groups may take by these.
    pub(crate) of_groups: Arc<ColdReads>,
    /// Requests that look a message or an offset up.
    pub(crate) look_ups: Arc<DiskReads>,
    /// Statistics, which read a record of each queue: nobody else waits for them.
    pub(crate) surveys: DiskReads,
}

/// Where this broker is reached.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    pub(crate) advertised: Advertised,
    /// Where slaves connect, as `host:port`; `None`: nowhere.
    pub(crate) slaves: Option<String>,
}

impl Desk {
    pub(crate) fn new(
        parts: &Parts,
        registrar: Option<Arc<Registrar>>,
        peers: Peers,
        role_changes: Arc<RoleChanges>,
        endpoints: Endpoints,
    ) -> Self {
        let Parts { ground, members, intake, delays, timers, transactions, slaves, look_ups, .. } = parts;
        let held_sends = [parts.held_sends.clone(), parts.held_for_slaves.clone()];
        let config = ground.config();
        let limits = HeldLimits { requests: config.max_held_pulls, bytes: config.max_held_bytes };
        let of_queue = Arc::clone(ground.store());
        let held = HeldRequests::new(limits).telling(move |queue, is_awaited| {
            of_queue.set_awaited(&queue.topic, queue.queue_id, is_awaited);
        });
        let pulls = Pulls::new(ground.clone(), members.clone(), peers.master().clone());
        Self {
            ground: ground.clone(),
            members: members.clone(),
            intake: intake.clone(),
            acks: Arc::new(Acks::new(ground.clone(), slaves.clone(), registrar.clone(), held_sends)),
            delays: delays.clone(),
            timers: timers.clone(),
            transactions: transactions.clone(),
            peers,
            role_changes,
            held,
            pulls,
            reads: Reads {
                cold_pulls: DiskReads::giving_way(),
                of_groups: parts.cold_reads.clone(),
                look_ups: look_ups.clone(),
                surveys: DiskReads::new(),
            },
            rooms: Rooms::default(),
            endpoints,
            watched: Watched { registrar, ..Watched::default() },
        }
    }
}
