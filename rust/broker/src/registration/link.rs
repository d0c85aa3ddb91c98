//! One name server, and the service that keeps this broker registered there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::{DataVersion, perm};
use rocketpy_protocol::body::{RegisterBrokerBody, TopicConfigSerializeWrapper};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::RegisterBrokerRequestHeader;
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::Client;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Identity;
use crate::ground::Ground;
use crate::role::{Role, RoleCell};
use crate::service::{Service, Work};
use crate::table::topic::{ByName, TopicTable};

/// Maximum number of bytes of topics in one request. Name servers take frames of 16 MiB; one may be configured to take less.
const MAX_PART_BYTES: usize = 4 << 20;
/// Bytes of a topic in a registration, besides its name and attributes.
const TOPIC_BYTES: usize = 256;

/// Pause before the first retry of a name server that did not take the registration; doubles up to the period.
const FIRST_RETRY: Duration = Duration::from_millis(500);

/// One name server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: String,
    pending: Mutex<Pending>,
    wake: Notify,
    /// The next registration names all topics: a connection ended, and a name server forgets the brokers whose connections
    /// end; or the role changed.
    is_full_wanted: AtomicBool,
    pub(super) progress: watch::Sender<Progress>,
}

/// State of the registration at a name server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The last ticket that the name server has taken; −1 before the first registration.
    pub(super) taken: i64,
    /// It answered the last registration in time. Answers do not wait for one that did not.
    pub(super) is_there: bool,
}

/// Topics that changed since the last registration; at most as many as there are topics.
#[derive(Debug, Default)]
struct Pending {
    /// Counts the announcements.
    ticket: i64,
    /// Names only: the registration carries their configuration and version at the time when it is sent.
    topics: BTreeSet<String>,
    /// The version that was sent last, whether or not it arrived. A name server ignores an equal one.
    sent: Option<DataVersion>,
}

impl Link {
    pub(super) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            pending: Mutex::default(),
            wake: Notify::new(),
            is_full_wanted: AtomicBool::new(false),
            progress: watch::Sender::new(Progress { taken: -1, is_there: false }),
        }
    }

    /// Has changed topics registered soon; the ticket to wait for, when the name server is there.
    pub(super) fn announce(&self, topics: impl Iterator<Item = String>) -> Option<i64> {
        let mut pending = self.pending.lock();
        pending.topics.extend(topics);
        pending.ticket += 1;
        let ticket = pending.ticket;
        drop(pending);
        self.wake.notify_one();
        self.progress.borrow().is_there.then_some(ticket)
    }

    /// Has everything registered soon.
    pub(super) fn register_again(&self) {
        self.is_full_wanted.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(super) async fn wait_for(&self, is_reached: impl FnMut(&Progress) -> bool) {
        // The sender lives as long as the link.
        drop(self.progress.subscribe().wait_for(is_reached).await);
    }

    /// Topics to send now: changed or all, in parts that fit into a request.
    fn next(&self, topics: &TopicTable, all: bool) -> (i64, Vec<ByName>) {
        let mut pending = self.pending.lock();
        let names = std::mem::take(&mut pending.topics);
        let table = if all { topics.all().1 } else { topics.named(names) };
        (pending.ticket, parts(table))
    }

    /// The version under which the next part goes out.
    ///
    /// A name server ignores a table whose version it knows. So each part has a version of its own, as Apache's
    /// `enableSplitRegistration` has it; a later change is pending again, and goes out under a later version.
    ///
    /// A slave's version is its master's, and stays: name servers do not take topics from it.
    fn version_of(
        &self,
        part: &ByName,
        topics: &TopicTable,
        is_first_of_all: bool,
        role: Role,
    ) -> DataVersion {
        let mut pending = self.pending.lock();
        let is_new_wanted = !is_first_of_all && !part.is_empty() && role == Role::Master;
        let spent = pending.sent.filter(|_| is_new_wanted);
        let version = topics.version_after(spent);
        assert_ne!(spent, Some(version), "each part of a registration has a version of its own");
        pending.sent = Some(version);
        version
    }
}

/// Registers everything at once, then every period; in between what changes, right away.
pub(super) struct Registration {
    name: String,
    link: Arc<Link>,
    client: Client,
    identity: Arc<Identity>,
    ground: Arc<Ground>,
    role: Arc<RoleCell>,
    schedule: Mutex<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    next_full: Instant,
    /// The last full registration failed: changes wait for the next one.
    has_failed: bool,
    /// Why, for a log that says the same once.
    reason: String,
    retry: Duration,
}

impl Schedule {
    fn regular(next_full: Instant) -> Self {
        Self { next_full, has_failed: false, reason: String::new(), retry: FIRST_RETRY }
    }
}

impl Service for Registration {
    fn name(&self) -> &str {
        &self.name
    }

    fn due(&self) -> Work<'_> {
        let schedule = self.schedule.lock();
        let (next_full, has_failed) = (schedule.next_full, schedule.has_failed);
        drop(schedule);
        Box::pin(async move {
            if has_failed {
                tokio::time::sleep_until(next_full).await;
            } else {
                // Woken by a change, or time for everything.
                let _ = tokio::time::timeout_at(next_full, self.link.wake.notified()).await;
            }
        })
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            if self.role.has_diverged() {
                self.withdraw().await;
            } else if self.is_full_due() {
                self.register_all().await;
            } else {
                self.register_changed().await;
            }
        })
    }
}

impl Registration {
    pub(super) fn new(
        link: Arc<Link>,
        client: Client,
        identity: Arc<Identity>,
        ground: Arc<Ground>,
        role: Arc<RoleCell>,
    ) -> Self {
        let schedule = Schedule::regular(Instant::now());
        let name = format!("registration at {}", link.address);
        Self { name, link, client, identity, ground, role, schedule: Mutex::new(schedule) }
    }

    /// Nobody is to read what this slave has: clients do not find it.
    async fn withdraw(&self) {
        let (client, identity) = (self.client.clone(), self.identity.clone());
        super::unregister(client, self.link.address.clone(), identity, super::id_on_the_wire(&self.role))
            .await;
        self.link.progress.send_modify(|progress| progress.is_there = false);
        *self.schedule.lock() = Schedule::regular(Instant::now() + self.identity.period);
    }

    fn is_full_due(&self) -> bool {
        let is_wanted = self.link.is_full_wanted.swap(false, Ordering::AcqRel);
        let schedule = self.schedule.lock();
        is_wanted || schedule.has_failed || Instant::now() >= schedule.next_full
    }

    async fn register_all(&self) {
        let (ticket, parts) = self.link.next(self.ground.topics(), true);
        match self.register(parts, true).await {
            Ok(()) => {
                if !self.link.progress.borrow().is_there {
                    let broker = &self.identity.broker_name;
                    info!(name_server = self.link.address, broker, "registered at name server");
                }
                self.has_taken(ticket);
                *self.schedule.lock() = Schedule::regular(Instant::now() + self.identity.period);
            }
            Err(reason) => self.has_failed(reason),
        }
    }

    /// Tries again, later each time. A reason that stays the same is a warning once.
    fn has_failed(&self, reason: String) {
        let mut schedule = self.schedule.lock();
        let (retry, name_server) = (schedule.retry, &self.link.address);
        let longest = self.identity.period.max(FIRST_RETRY);
        assert!(retry <= longest, "no pause between two tries to register exceeds the period: {retry:?}");
        let retry_in_ms = retry.as_millis() as u64;
        if schedule.has_failed && schedule.reason == reason {
            debug!(name_server, reason, retry_in_ms, "name server still rejects the registration");
        } else {
            warn!(
                name_server,
                reason,
                "registration at name server failed, clients may not find this broker; check namesrvAddr and that the name server runs; \
                 retrying until it succeeds"
            );
        }
        let next_retry = (retry * 2).min(self.identity.period);
        *schedule =
            Schedule { next_full: Instant::now() + retry, has_failed: true, reason, retry: next_retry };
        drop(schedule);
        self.link.progress.send_modify(|progress| progress.is_there = false);
    }

    async fn register_changed(&self) {
        let (ticket, parts) = self.link.next(self.ground.topics(), false);
        match self.register(parts, false).await {
            Ok(()) => self.has_taken(ticket),
            Err(reason) => {
                warn!(
                    name_server = self.link.address,
                    reason, "name server did not accept the changed topics, registering all topics"
                );
                self.schedule.lock().next_full = Instant::now();
            }
        }
    }

    fn has_taken(&self, ticket: i64) {
        let taken = self.link.progress.borrow().taken;
        assert!(taken <= ticket, "announcements are taken in their order: {ticket} after {taken}");
        self.link.progress.send_replace(Progress { taken: ticket, is_there: true });
    }

    async fn register(&self, parts: Vec<ByName>, are_all: bool) -> Result<(), String> {
        for (index, part) in parts.into_iter().enumerate() {
            let version =
                self.link.version_of(&part, self.ground.topics(), are_all && index == 0, self.role.get());
            self.register_part(version, part).await?;
        }
        Ok(())
    }

    async fn register_part(&self, version: DataVersion, topic_config_table: ByName) -> Result<(), String> {
        let identity = &self.identity;
        let topic_config_table = allowed(topic_config_table, self.ground.config().broker_permission);
        let body = json::to_vec(&RegisterBrokerBody {
            filter_server_list: Vec::new(),
            topic_config_serialize_wrapper: TopicConfigSerializeWrapper {
                data_version: version,
                topic_config_table,
                ..Default::default()
            },
        });
        let header = RegisterBrokerRequestHeader {
            broker_name: &identity.broker_name,
            broker_addr: &identity.broker_addr,
            cluster_name: &identity.cluster_name,
            ha_server_addr: &identity.ha_addr,
            broker_id: super::id_on_the_wire(&self.role),
            heartbeat_timeout_millis: None,
            enable_acting_master: Some(false),
            compressed: Some(false),
            body_crc32: Some(RegisterBrokerBody::checksum(&body) as i32),
            zone_name: None,
            zone_mode: None,
            member_proof: identity.member_proof.as_deref(),
        };
        let registration = Command::request(request::REGISTER_BROKER, &header).with_body(body);
        let answer = self.client.call(&self.link.address, registration, identity.timeout).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.code != response::SUCCESS {
            return Err(format!("code {}: {}", answer.code, answer.remark.unwrap_or_default()));
        }
        Ok(())
    }
}

/// The topics as routes have them: with no more than this broker's clients may do (`brokerPermission`).
fn allowed(mut topics: ByName, permission: i32) -> ByName {
    let taken = (perm::READ | perm::WRITE) & !permission;
    if taken != 0 {
        topics.values_mut().for_each(|topic| topic.perm = topic.perm.without(taken));
    }
    topics
}

/// Cuts a table into parts that fit into a request; an empty table is one part.
fn parts(table: ByName) -> Vec<ByName> {
    let topics = table.len();
    let mut parts = vec![ByName::new()];
    let mut bytes = 0;
    for (name, topic) in table {
        let attributes: usize = topic.attributes.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
        let size = TOPIC_BYTES + 2 * name.len() + attributes;
        if bytes + size > MAX_PART_BYTES && bytes > 0 {
            parts.push(ByName::new());
            bytes = 0;
        }
        bytes += size;
        parts.last_mut().expect("there is a part").insert(name, topic);
    }
    let in_parts: usize = parts.iter().map(ByName::len).sum();
    assert_eq!(in_parts, topics, "the parts of a registration name all its topics");
    assert!(parts.len() == 1 || parts.iter().all(|part| !part.is_empty()), "no part of several is empty");
    parts
}

#[cfg(test)]
mod tests {
    use rocketpy_model::TopicConfig;

    use super::*;
    use crate::testing::TestBroker;

    #[test]
    fn a_large_table_goes_in_parts_that_fit_and_leave_nothing_out() {
        let name = |number: u32| format!("{number:0127}");
        let table: ByName =
            (0..100_000).map(|number| (name(number), TopicConfig::new(name(number), 16))).collect();
        let parts = parts(table.clone());
        assert!(parts.len() > 5);
        for part in &parts {
            let body = json::to_vec(&TopicConfigSerializeWrapper {
                topic_config_table: part.clone(),
                ..Default::default()
            });
            assert!(body.len() <= MAX_PART_BYTES, "{}", body.len());
        }
        assert_eq!(parts.into_iter().flatten().collect::<ByName>(), table);
    }

    #[tokio::test]
    async fn each_part_has_a_version_of_its_own_but_a_slaves_version_is_its_masters() {
        let broker = TestBroker::open(|_| {});
        let (link, part) = (Link::new("127.0.0.1:9876"), broker.ground.topics().all().1);
        let start = broker.ground.topics().version();
        let version = |is_first, role| link.version_of(&part, broker.ground.topics(), is_first, role);
        let slave = Role::Slave { id: 1 };
        assert_eq!(
            [version(true, slave), version(false, slave), broker.ground.topics().version()],
            [start; 3]
        );
        assert_eq!(version(true, Role::Master), start);
        assert_eq!(version(false, Role::Master).counter, start.counter + 1);
    }

    #[test]
    fn an_empty_table_is_registered_too() {
        assert_eq!(parts(ByName::new()), [ByName::new()]);
    }
}
