//! The functions that serve requests to the name server, on the state that they share.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_auth::Guard;
use rocketpy_model::name;
use rocketpy_protocol::code::response;
use rocketpy_protocol::settings::{self, ConfigChange, ConfigEntries};
use rocketpy_protocol::{Command, Header, body, header, json};
use rocketpy_remoting::{Connection, MemoryBudget, Reply};
use tracing::field::display;
use tracing::{debug, info, warn};

use crate::config::NameServerConfig;
use crate::error::{NameServerError, Refusal, head};
use crate::handler::answer_with;
use crate::kv::{Done, KvConfig, ORDER_TOPIC_CONFIG};
use crate::live_settings::LiveSettings;
use crate::route::{BrokerAddr, Caller, Queues, Registration, RouteTable};
use crate::{answer, check, registration};

/// System flag of a topic: it is of a unit.
#[doc(alias = "FLAG_UNIT")]
const UNIT: i32 = 1;
/// System flag of a topic: it has subscriptions of units.
#[doc(alias = "FLAG_UNIT_SUB")]
const UNIT_SUB: i32 = 2;

/// A request and the connection that it came by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) request: &'a Command,
}

/// What a function answers.
pub(crate) type Answer = Result<Command, Refusal>;

/// The state of a name server and the answers from it.
#[doc(alias = "DefaultRequestProcessor")]
#[doc(alias = "ClientRequestProcessor")]
#[derive(Debug)]
pub(crate) struct Processor {
    live: Arc<LiveSettings>,
    pub(crate) routes: RouteTable,
    kv: Arc<KvConfig>,
    /// The address that was bound, with its real port.
    local_addr: OnceLock<SocketAddr>,
    /// Connections whose last registration was refused, and the hash of the reason.
    refused: Mutex<HashMap<u64, u64>>,
}

impl Processor {
    /// Reads the key-value configuration.
    pub(crate) fn new(config: NameServerConfig, memory: &Arc<MemoryBudget>) -> Result<Self, NameServerError> {
        let routes = RouteTable::new(memory.of_table());
        let kv = KvConfig::open(memory.of_table(), config.kv_config_path.clone())?;
        let live = Arc::new(LiveSettings::new(config));
        let (local_addr, refused) = Default::default();
        Ok(Self { live, routes, kv, local_addr, refused })
    }

    /// Checks the requests of the port; `None`: users are off.
    pub(crate) fn guard_of_port(&self) -> Option<Arc<Guard>> {
        self.live.config.read().guard.clone()
    }

    /// Sets the address that was bound.
    pub(crate) fn listens_on(&self, local_addr: SocketAddr) {
        self.local_addr.get_or_init(|| local_addr);
    }

    /// Forgets the brokers that registered by this connection.
    pub(crate) fn connection_closed(&self, connection: u64) {
        self.routes.connection_closed(connection);
        self.refused.lock().remove(&connection);
    }

    /// Removes brokers that were silent for too long. Returns the numbers of their connections.
    pub(crate) fn remove_silent_brokers(&self, now: Instant) -> Vec<u64> {
        self.routes.remove_silent(now)
    }

    pub(crate) fn route(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::GetRouteInfoRequestHeader::read(&request.ext)?;
        let no_route = || Refusal::NoRoute { topic: header.topic.to_owned() };
        let route = self.routes.route(header.topic).ok_or_else(no_route)?;
        let order = self
            .live
            .config
            .read()
            .order_message_enabled
            .then(|| self.kv.get(ORDER_TOPIC_CONFIG, header.topic))
            .flatten();
        Ok(with_json(request, &answer::topic_route(route, order)))
    }

    pub(crate) fn register(&self, call: Call<'_>) -> Answer {
        let header = header::RegisterBrokerRequestHeader::read(&call.request.ext)?;
        let answer = self.take_registration(call, &header);
        match &answer {
            Ok(_) => drop(self.refused.lock().remove(&call.connection.id())),
            Err(refusal) if self.is_refused_anew(call.connection.id(), refusal) => {
                warn!(peer = %call.connection.peer(), %refusal, "registration refused");
            }
            Err(refusal) => debug!(peer = %call.connection.peer(), %refusal, "registration refused again"),
        }
        answer
    }

    /// Whether the last registration of the connection was not refused, or for another reason: a broker repeats its registration
    /// until it is taken.
    fn is_refused_anew(&self, connection: u64, refusal: &Refusal) -> bool {
        let mut hasher = DefaultHasher::new();
        refusal.to_string().hash(&mut hasher);
        let reason = hasher.finish();
        self.refused.lock().insert(connection, reason) != Some(reason)
    }

    fn take_registration(&self, call: Call<'_>, header: &header::RegisterBrokerRequestHeader<'_>) -> Answer {
        let Call { connection, request } = call;
        let id = check_identity(header)?;
        header.member_proof.map_or(Ok(()), |proof| check::key("memberProof", proof))?;
        let compressed = header.compressed.unwrap_or(false);
        let table = registration::read(&request.body, compressed, header.body_crc32, request.version)?;
        let registration = Registration {
            broker: broker(header.cluster_name, header.broker_addr),
            name: header.broker_name.to_owned(),
            id,
            ha_addr: header.ha_server_addr.to_owned(),
            heartbeat_timeout: header.heartbeat_timeout_millis.and_then(millis),
            acting_master: header.enable_acting_master,
            zone: header.zone_name.filter(|zone| name::check_cluster(zone).is_ok()).map(str::to_owned),
            data_version: table.data_version,
            stated_topics: table.topics.len(),
            topics: check::good_topics(table.topics, [header.broker_name, header.cluster_name]),
            filter_servers: table.filter_servers.map(check::good_filter_servers),
            from: caller(connection),
            member_proof: header.member_proof.map(str::to_owned),
        };
        self.check_owner(call, header.broker_name, header.cluster_name)?;
        let registration = self.without_foreign_topics(call, registration);
        let registered = self.routes.register(registration, Instant::now())?;
        let mut answer = success(request).with_header(&header::RegisterBrokerResponseHeader {
            ha_server_addr: registered.ha_addr.as_deref(),
            master_addr: registered.master_addr.as_deref(),
        });
        if let Some(table) = self.kv.namespace(ORDER_TOPIC_CONFIG) {
            answer.body = to_json(&body::KvTable { table });
        }
        Ok(answer)
    }

    pub(crate) fn cluster_info(&self, Call { request, .. }: Call<'_>) -> Answer {
        Ok(with_json(request, &answer::cluster_info(self.routes.cluster())))
    }

    pub(crate) fn topics(&self, Call { request, .. }: Call<'_>) -> Answer {
        Ok(topic_list(request, self.routes.topics(), None))
    }

    pub(crate) fn unit_topics(&self, Call { request, .. }: Call<'_>) -> Answer {
        Ok(topic_list(request, self.routes.topics_with_flags(|flags| flags & UNIT != 0), None))
    }

    pub(crate) fn unit_sub_topics(&self, Call { request, .. }: Call<'_>) -> Answer {
        Ok(topic_list(request, self.routes.topics_with_flags(|flags| flags & UNIT_SUB != 0), None))
    }

    pub(crate) fn unit_sub_ununit_topics(&self, Call { request, .. }: Call<'_>) -> Answer {
        let passes = |flags| flags & (UNIT | UNIT_SUB) == UNIT_SUB;
        Ok(topic_list(request, self.routes.topics_with_flags(passes), None))
    }

    pub(crate) fn system_topics(&self, Call { request, .. }: Call<'_>) -> Answer {
        let (topics, addr) = self.routes.system_topics();
        Ok(topic_list(request, topics, addr))
    }

    pub(crate) fn config(&self, Call { request, .. }: Call<'_>) -> Answer {
        let config = self.live.config.read();
        let local_addr = self.local_addr.get().copied().unwrap_or(config.listen);
        if ConfigEntries::are_asked_for(request)? {
            return Ok(success(request).with_body(config.text.entries(&config, local_addr).to_body()));
        }
        Ok(success(request).with_body(settings::lines(config.text.lines(&config, local_addr))))
    }

    pub(crate) fn update_config(&self, Call { request, connection }: Call<'_>, reply: Reply) {
        let (code, peer) = (request.code, connection.peer());
        let change = match ConfigChange::read(request) {
            Ok(change) => change,
            Err(error) => return answer_with(reply, code, Err(error.into())),
        };
        let (live, answer) = (self.live.clone(), success(request));
        // The live values are written and flushed.
        drop(tokio::task::spawn_blocking(move || {
            let changed = live.change(&change).inspect(|_| {
                if !change.is_dry_run {
                    info!(%peer, "live configuration changed");
                }
            });
            answer_with(reply, code, changed.map(|note| Command { remark: note, ..answer }));
        }));
    }

    /// Waits for the time of the next search for silent brokers, by the settings as they are then.
    pub(crate) async fn scan_is_due(&self) {
        loop {
            let interval = self.live.config.read().scan_interval.max(Duration::from_millis(1));
            tokio::select! {
                () = tokio::time::sleep(interval) => return,
                () = self.live.changed.notified() => {}
            }
        }
    }

    pub(crate) fn unregister(&self, call: Call<'_>) -> Answer {
        let Call { request, connection } = call;
        let header = header::UnRegisterBrokerRequestHeader::read(&request.ext)?;
        self.check_owner(call, header.broker_name, header.cluster_name)?;
        let broker = broker(header.cluster_name, header.broker_addr);
        let now = Instant::now();
        if let Err(taken) = self.routes.unregister(&broker, header.broker_name, caller(connection), now) {
            warn!(peer = %connection.peer(), addr = taken.addr, name = taken.name, "unregistration of another connection's broker rejected");
            return Err(taken.into());
        }
        Ok(success(request))
    }

    pub(crate) fn heartbeat(&self, call: Call<'_>) -> Answer {
        let Call { request, connection } = call;
        let header = header::BrokerHeartbeatRequestHeader::read(&request.ext)?;
        self.check_owner(call, header.broker_name, header.cluster_name)?;
        let broker = broker(header.cluster_name, header.broker_addr);
        self.routes.heartbeat(&broker, caller(connection), Instant::now());
        Ok(success(request))
    }

    pub(crate) fn query_data_version(&self, call: Call<'_>) -> Answer {
        let Call { request, connection } = call;
        let header = header::QueryDataVersionRequestHeader::read(&request.ext)?;
        self.check_owner(call, header.broker_name, header.cluster_name)?;
        let asked = json::from_slice(&request.body)?;
        let broker = broker(header.cluster_name, header.broker_addr);
        let known = self.routes.query_version(&broker, caller(connection), asked, Instant::now());
        let changed = known != Some(asked);
        let mut answer = success(request).with_header(&header::QueryDataVersionResponseHeader { changed });
        if let Some(known) = known {
            answer.body = to_json(&known);
        }
        Ok(answer)
    }

    pub(crate) fn topics_by_cluster(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::GetTopicsByClusterRequestHeader::read(&request.ext)?;
        Ok(topic_list(request, self.routes.topics_of_cluster(header.cluster), None))
    }

    pub(crate) fn broker_members(&self, call: Call<'_>) -> Answer {
        let Call { request, .. } = call;
        let header = header::GetBrokerMemberGroupRequestHeader::read(&request.ext)?;
        self.check_owner(call, header.broker_name, header.cluster_name)?;
        let broker_member_group = body::BrokerMemberGroup {
            broker_addrs: self.routes.members(header.broker_name),
            broker_name: header.broker_name.to_owned(),
            cluster: header.cluster_name.to_owned(),
        };
        Ok(with_json(request, &body::GetBrokerMemberGroupResponseBody { broker_member_group }))
    }

    pub(crate) fn wipe_write_perm(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::WipeWritePermOfBrokerRequestHeader::read(&request.ext)?;
        let wipe_topic_count = count(self.routes.wipe_write_perm(header.broker_name));
        Ok(success(request).with_header(&header::WipeWritePermOfBrokerResponseHeader { wipe_topic_count }))
    }

    pub(crate) fn add_write_perm(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::AddWritePermOfBrokerRequestHeader::read(&request.ext)?;
        let add_topic_count = count(self.routes.add_write_perm(header.broker_name));
        Ok(success(request).with_header(&header::AddWritePermOfBrokerResponseHeader { add_topic_count }))
    }

    pub(crate) fn delete_topic(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::DeleteTopicFromNamesrvRequestHeader::read(&request.ext)?;
        match header.broker_name.filter(|name| !name.is_empty()) {
            Some(broker) => self.routes.delete_topic_of(header.topic, broker),
            None => {
                self.routes.delete_topic(header.topic, header.cluster_name.filter(|name| !name.is_empty()))
            }
        }
        Ok(success(request))
    }

    pub(crate) fn register_topic(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::RegisterTopicRequestHeader::read(&request.ext)?;
        name::check_topic(header.topic)?;
        let route: body::TopicRouteData = json::from_slice(&request.body)?;
        let stated = route.queue_datas.len();
        let queues = route.queue_datas.into_iter().map(answer::queues_of).collect::<Vec<(String, Queues)>>();
        let unknown = self.routes.register_topic(header.topic, queues)?;
        if !unknown.is_empty() {
            let first = unknown.first().map(|name| display(head(name)));
            warn!(
                topic = header.topic,
                unknown = unknown.len(),
                first,
                "topic registered for unknown brokers, brokers ignored"
            );
        }
        if stated > 0 && unknown.len() == stated {
            return Err(Refusal::UnknownBrokers {
                topic: header.topic.to_owned(),
                names: unknown.join(", "),
            });
        }
        Ok(success(request))
    }

    pub(crate) fn put_kv(&self, Call { request, .. }: Call<'_>, reply: Reply) {
        match kv_entry(request) {
            Ok((namespace, key, value)) => self.kv.put(namespace, key, value, done(request, reply)),
            Err(refusal) => answer_with(reply, request.code, Err(refusal)),
        }
    }

    pub(crate) fn get_kv(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::GetKVConfigRequestHeader::read(&request.ext)?;
        let value = self.kv.get(header.namespace, header.key).ok_or_else(|| Refusal::NoKey {
            namespace: header.namespace.to_owned(),
            key: header.key.to_owned(),
        })?;
        Ok(success(request).with_header(&header::GetKVConfigResponseHeader { value: Some(&value) }))
    }

    pub(crate) fn delete_kv(&self, Call { request, .. }: Call<'_>, reply: Reply) {
        match header::DeleteKVConfigRequestHeader::read(&request.ext) {
            // A change that waits holds its texts.
            Ok(header)
                if check::key("namespace", header.namespace)
                    .and_then(|()| check::key("key", header.key))
                    .is_err() =>
            {
                answer_with(reply, request.code, Ok(success(request))); // no such key was ever put
            }
            Ok(header) => {
                self.kv.delete(header.namespace.to_owned(), header.key.to_owned(), done(request, reply));
            }
            Err(error) => answer_with(reply, request.code, Err(error.into())),
        }
    }

    pub(crate) fn kv_list(&self, Call { request, .. }: Call<'_>) -> Answer {
        let header = header::GetKVListByNamespaceRequestHeader::read(&request.ext)?;
        let nothing = || Refusal::NoNamespace { namespace: header.namespace.to_owned() };
        let table = self.kv.namespace(header.namespace).ok_or_else(nothing)?;
        Ok(with_json(request, &body::KvTable { table }))
    }
}

/// Namespace, key and value, checked.
fn kv_entry(request: &Command) -> Result<(String, String, String), Refusal> {
    let header = header::PutKVConfigRequestHeader::read(&request.ext)?;
    check::key("namespace", header.namespace)?;
    check::key("key", header.key)?;
    check::value("value", header.value)?;
    Ok((header.namespace.to_owned(), header.key.to_owned(), header.value.to_owned()))
}

/// Answers once the change is on disk.
fn done(request: &Command, reply: Reply) -> Done {
    let (code, answer) = (request.code, success(request));
    Box::new(move |result| answer_with(reply, code, result.map(|()| answer)))
}

fn success(request: &Command) -> Command {
    Command::response(request, response::SUCCESS)
}

fn with_json(request: &Command, value: &impl serde::Serialize) -> Command {
    success(request).with_body(to_json(value))
}

fn to_json(value: &impl serde::Serialize) -> Bytes {
    let mut json = json::to_vec(value);
    // Spare capacity would wait with the answer, and the budget does not count it.
    json.shrink_to_fit();
    json.into()
}

fn topic_list(request: &Command, topics: Vec<String>, addr: Option<String>) -> Command {
    with_json(request, &body::TopicList { topic_list: topics, broker_addr: addr })
}

fn caller(connection: &Connection) -> Caller {
    Caller { connection_id: connection.id(), peer: connection.peer().ip().to_canonical() }
}

fn broker(cluster: &str, addr: &str) -> BrokerAddr {
    BrokerAddr { cluster: cluster.to_owned(), addr: addr.to_owned() }
}

/// Checks who registers; returns the broker id.
fn check_identity(header: &header::RegisterBrokerRequestHeader<'_>) -> Result<u64, Refusal> {
    name::check_cluster(header.cluster_name)?;
    name::check_broker(header.broker_name)?;
    check::address("brokerAddr", header.broker_addr)?;
    if !header.ha_server_addr.is_empty() {
        check::address("haServerAddr", header.ha_server_addr)?;
    }
    u64::try_from(header.broker_id).map_err(|_| Refusal::BrokerId { id: header.broker_id })
}

/// The silence that a broker may keep by its own word. Without a sensible one the default holds.
fn millis(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}

fn count(topics: usize) -> i32 {
    i32::try_from(topics).unwrap_or(i32::MAX)
}
