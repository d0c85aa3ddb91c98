use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::{DataVersion, system};
use rocketpy_protocol::body::{RegisterBrokerBody, TopicConfigSerializeWrapper};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Client, Connection, Handler, Reply, Response};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::table::topic::{ByName, TopicChange, TopicTable};

/// Pause before the first retry of a name server that did not take the registration; doubles up to the period.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// How long the end of the broker waits for the name servers to hear of it.
const UNREGISTER_TIMEOUT: Duration = Duration::from_millis(150);

/// Keeps this broker and its topics known to every name server.
///
/// Each name server has a task of its own, so that a dead one delays nothing at the others.
#[doc(alias = "BrokerOuterAPI")]
#[derive(Debug)]
pub(crate) struct Registrar {
    links: Vec<Arc<Link>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    client: Client,
    identity: Arc<Identity>,
}

/// What a registration says about the broker.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) cluster_name: String,
    pub(crate) broker_name: String,
    /// `host:port` for clients.
    pub(crate) broker_addr: String,
    /// `host:port` for slaves.
    pub(crate) ha_addr: String,
    pub(crate) period: Duration,
    pub(crate) timeout: Duration,
}

/// One name server.
#[derive(Debug)]
struct Link {
    address: String,
    pending: Mutex<Pending>,
    wake: Notify,
    /// A connection ended: a name server forgets the brokers whose connections end.
    is_lost: AtomicBool,
    progress: watch::Sender<Progress>,
}

/// How far a name server is.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// The last ticket that the name server has taken; −1 before the first registration.
    taken: i64,
    /// Took what was sent last, in good time. One that did not is not waited for.
    is_there: bool,
}

/// Topics that changed since the last registration; as many as there are topics at most.
#[derive(Debug, Default)]
struct Pending {
    /// Counts the announcements.
    ticket: i64,
    /// Names only: what is sent is the configuration at the time of the sending, with the version of that time.
    topics: BTreeSet<String>,
    /// The version that was sent last, whether or not it arrived. A name server ignores an equal one.
    sent: Option<DataVersion>,
}

/// Which announcement to wait for, at each name server; `None` where nobody waits because the name server is away.
#[derive(Debug)]
pub(crate) struct Announced(Vec<Option<i64>>);

impl Registrar {
    /// Starts a task for each name server; must be called on a runtime.
    pub(crate) fn start(
        client: Client,
        name_servers: &[String],
        identity: Identity,
        topics: &Arc<TopicTable>,
    ) -> Self {
        let identity = Arc::new(identity);
        let links: Vec<Arc<Link>> = name_servers
            .iter()
            .map(|address| {
                Arc::new(Link {
                    address: address.clone(),
                    pending: Mutex::default(),
                    wake: Notify::new(),
                    is_lost: AtomicBool::new(false),
                    progress: watch::Sender::new(Progress { taken: -1, is_there: false }),
                })
            })
            .collect();
        client.set_request_handler(Arc::new(Watcher(links.clone())));
        let keep = |link: &Arc<Link>| {
            tokio::spawn(keep_registered(link.clone(), client.clone(), identity.clone(), topics.clone()))
        };
        let tasks = Mutex::new(links.iter().map(keep).collect());
        Self { links, tasks, client, identity }
    }

    /// Tells every name server about changed topics soon, with an increment registration.
    pub(crate) fn announce(&self, change: &TopicChange) -> Announced {
        let tickets = self.links.iter().map(|link| {
            let mut pending = link.pending.lock();
            pending.topics.extend(change.topics.iter().map(|topic| topic.name.clone()));
            pending.ticket += 1;
            let ticket = pending.ticket;
            drop(pending);
            link.wake.notify_one();
            link.progress.borrow().is_there.then_some(ticket)
        });
        Announced(tickets.collect())
    }

    /// Waits until every name server has taken the first registration; false when the time is up.
    pub(crate) async fn registered(&self, within: Duration) -> bool {
        let all = async {
            for link in &self.links {
                link.wait_for(|progress| progress.taken >= 0).await;
            }
        };
        tokio::time::timeout(within, all).await.is_ok()
    }

    /// Waits until every name server that is there has taken the announcement, or the time is up.
    ///
    /// One that let the time pass is not waited for again before it has taken something.
    pub(crate) async fn taken(&self, announced: &Announced, within: Duration) {
        let waited_for =
            || self.links.iter().zip(&announced.0).filter_map(|(link, ticket)| Some((link, (*ticket)?)));
        let all = async {
            for (link, ticket) in waited_for() {
                link.wait_for(|progress| progress.taken >= ticket || !progress.is_there).await;
            }
        };
        if tokio::time::timeout(within, all).await.is_err() {
            for (link, ticket) in waited_for() {
                link.progress.send_if_modified(|progress| {
                    let is_late = progress.taken < ticket;
                    progress.is_there &= !is_late;
                    is_late
                });
            }
        }
    }

    /// Ends the tasks and tells the name servers that the broker is gone.
    pub(crate) async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.abort();
        }
        for link in &self.links {
            // Who waits for an announcement is answered now.
            link.progress.send_modify(|progress| progress.is_there = false);
        }
        let farewells = self.links.iter().filter(|link| link.progress.borrow().taken >= 0).map(|link| {
            let (client, identity, address) =
                (self.client.clone(), self.identity.clone(), link.address.clone());
            tokio::spawn(async move {
                let header = UnRegisterBrokerRequestHeader {
                    broker_name: &identity.broker_name,
                    broker_addr: &identity.broker_addr,
                    cluster_name: &identity.cluster_name,
                    broker_id: 0,
                };
                let farewell = Command::request(request::UNREGISTER_BROKER, &header);
                if let Err(error) = client.call(&address, farewell, UNREGISTER_TIMEOUT).await {
                    info!(name_server = address, %error, "name server did not take the unregistration");
                }
            })
        });
        let farewells: Vec<JoinHandle<()>> = farewells.collect();
        for farewell in farewells {
            // A farewell ends by its own time-out.
            drop(farewell.await);
        }
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().drain(..) {
            task.abort();
        }
    }
}

/// Sees the connections to name servers end. Name servers ask nothing of a broker yet.
struct Watcher(Vec<Arc<Link>>);

impl Handler for Watcher {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        reply.send(Response::not_supported(request.code));
    }

    fn disconnected(&self, _connection: &Arc<Connection>) {
        for link in &self.0 {
            link.is_lost.store(true, Ordering::Release);
            link.wake.notify_one();
        }
    }
}

impl Link {
    async fn wait_for(&self, is_reached: impl FnMut(&Progress) -> bool) {
        // The sender lives as long as the link.
        drop(self.progress.subscribe().wait_for(is_reached).await);
    }

    /// What to send now: the topics that changed, or all of them, with the version they have at this moment.
    ///
    /// A change that comes later is pending again, and then goes out under another version than this one.
    fn next(&self, topics: &TopicTable, all: bool) -> (i64, DataVersion, ByName) {
        let mut pending = self.pending.lock();
        let names = std::mem::take(&mut pending.topics);
        let spent = pending.sent.filter(|_| !names.is_empty());
        let (version, table) = topics.snapshot((!all).then_some(&names), spent);
        pending.sent = Some(version);
        (pending.ticket, version, table)
    }

    fn has_taken(&self, ticket: i64) {
        self.progress.send_replace(Progress { taken: ticket, is_there: true });
    }
}

/// Registers everything at once, then every period; what changes in between right away.
async fn keep_registered(link: Arc<Link>, client: Client, identity: Arc<Identity>, topics: Arc<TopicTable>) {
    let mut retry = FIRST_RETRY;
    loop {
        link.is_lost.store(false, Ordering::Release);
        let (ticket, version, table) = link.next(&topics, true);
        match register(&link, &client, &identity, version, table).await {
            Ok(()) => {
                if !link.progress.borrow().is_there {
                    info!(
                        name_server = link.address,
                        broker = identity.broker_name,
                        "registered at name server"
                    );
                }
                link.has_taken(ticket);
                retry = FIRST_RETRY;
            }
            Err(reason) => {
                warn!(
                    name_server = link.address,
                    reason,
                    retry_in_ms = retry.as_millis() as u64,
                    "name server did not take the registration, clients may not find this broker; \
                     check namesrvAddr and that the name server runs"
                );
                link.progress.send_modify(|progress| progress.is_there = false);
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(identity.period);
                continue;
            }
        }
        let next_full = tokio::time::Instant::now() + identity.period;
        while tokio::time::timeout_at(next_full, link.wake.notified()).await.is_ok() {
            if link.is_lost.swap(false, Ordering::AcqRel) {
                break;
            }
            let (ticket, version, changed) = link.next(&topics, false);
            if let Err(reason) = register(&link, &client, &identity, version, changed).await {
                warn!(name_server = link.address, reason, "name server did not take the changed topics");
                break;
            }
            link.has_taken(ticket);
        }
    }
}

async fn register(
    link: &Link,
    client: &Client,
    identity: &Identity,
    version: DataVersion,
    topic_config_table: ByName,
) -> Result<(), String> {
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
        broker_id: system::MASTER_ID as i64,
        heartbeat_timeout_millis: None,
        enable_acting_master: Some(false),
        compressed: Some(false),
        body_crc32: Some(RegisterBrokerBody::checksum(&body) as i32),
        zone_name: None,
        zone_mode: None,
    };
    let registration = Command::request(request::REGISTER_BROKER, &header).with_body(body);
    let answer =
        client.call(&link.address, registration, identity.timeout).await.map_err(|e| e.to_string())?;
    if answer.code != response::SUCCESS {
        return Err(format!("code {}: {}", answer.code, answer.remark.unwrap_or_default()));
    }
    Ok(())
}
