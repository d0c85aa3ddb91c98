//! Keeps this broker and its topics known to every name server.
//!
//! # Source
//! docs/reference/protocol.md 2.2.1 and 2.2.3.

mod link;

use std::sync::Arc;
use std::time::Duration;

use link::{Link, Registration};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::UnRegisterBrokerRequestHeader;
use rocketpy_remoting::{Client, Connection, Handler, Reply, Response};
use tokio::task::JoinSet;
use tracing::{error, info};

use crate::ground::Ground;
use crate::role::RoleCell;
use crate::service::Service;
use crate::table::topic::TopicChange;

/// Maximum wait for each name server's answer to the unregistration.
const UNREGISTER_TIMEOUT: Duration = Duration::from_millis(150);

/// The name servers of this broker.
///
/// Each has a service of its own ([`Self::services`]): one that is dead delays nothing at the others.
#[doc(alias = "BrokerOuterAPI")]
#[derive(Debug)]
pub(crate) struct Registrar {
    links: Vec<Arc<Link>>,
    client: Client,
    identity: Arc<Identity>,
    role: Arc<RoleCell>,
}

/// Content of every registration. The role is read each time.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) cluster_name: String,
    pub(crate) broker_name: String,
    /// `host:port` for clients.
    pub(crate) broker_addr: String,
    /// `host:port` for slaves.
    pub(crate) ha_addr: String,
    /// Proves that the brokers of this name know one token, if there is one.
    pub(crate) member_proof: Option<String>,
    pub(crate) period: Duration,
    pub(crate) timeout: Duration,
}

/// Which announcement to wait for, at each name server; `None` where nobody waits because the name server is away.
#[derive(Debug)]
pub(crate) struct Announced(Vec<Option<i64>>);

impl Registrar {
    pub(crate) fn new(
        client: Client,
        name_servers: &[String],
        identity: Identity,
        role: Arc<RoleCell>,
    ) -> Self {
        let links: Vec<Arc<Link>> = name_servers.iter().map(|address| Arc::new(Link::new(address))).collect();
        client.set_request_handler(Arc::new(Watcher(links.clone())));
        Self { links, client, identity: Arc::new(identity), role }
    }

    /// The service of each name server.
    pub(crate) fn services(&self, ground: &Arc<Ground>) -> impl Iterator<Item = Arc<dyn Service>> {
        self.links.iter().map(|link| {
            let (client, identity) = (self.client.clone(), self.identity.clone());
            let service =
                Registration::new(link.clone(), client, identity, ground.clone(), self.role.clone());
            Arc::new(service) as Arc<dyn Service>
        })
    }

    /// Tells every name server about changed topics soon, with an increment registration.
    pub(crate) fn announce(&self, change: &TopicChange) -> Announced {
        let names = || change.topics.iter().map(|topic| topic.name.clone());
        Announced(self.links.iter().map(|link| link.announce(names())).collect())
    }

    /// Has everything registered soon, or withdrawn where the log of this slave has diverged from its master's.
    pub(crate) fn register_again(&self) {
        self.links.iter().for_each(|link| link.register_again());
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

    /// Whether a name server has taken the last registration.
    pub(crate) fn is_known(&self) -> bool {
        self.links.iter().any(|link| link.progress.borrow().is_there)
    }

    /// Waits until every name server that is there has taken the announcement, or the time is up.
    ///
    /// Nobody waits again for one that let the time pass, before it has taken something.
    pub(crate) async fn taken(&self, announced: &Announced, within: Duration) {
        assert_eq!(announced.0.len(), self.links.len(), "an announcement is one for each name server");
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

    /// Tells the name servers that the broker is gone. The services have been stopped before.
    pub(crate) async fn unregister(&self) {
        for link in &self.links {
            // Whoever waits for an announcement is answered now.
            link.progress.send_modify(|progress| progress.is_there = false);
        }
        let mut unregistrations = JoinSet::new();
        for link in self.links.iter().filter(|link| link.progress.borrow().taken >= 0) {
            let (client, identity) = (self.client.clone(), self.identity.clone());
            let broker_id = id_on_the_wire(&self.role);
            unregistrations.spawn(unregister(client, link.address.clone(), identity, broker_id));
        }
        // Each ends by its own time-out.
        while let Some(ended) = unregistrations.join_next().await {
            if let Err(failure) = ended {
                error!(%failure, "unregistration failed unexpectedly");
            }
        }
    }
}

async fn unregister(client: Client, address: String, identity: Arc<Identity>, broker_id: i64) {
    let header = UnRegisterBrokerRequestHeader {
        broker_name: &identity.broker_name,
        broker_addr: &identity.broker_addr,
        cluster_name: &identity.cluster_name,
        broker_id,
    };
    let request = Command::request(request::UNREGISTER_BROKER, &header);
    if let Err(error) = client.call(&address, request, UNREGISTER_TIMEOUT).await {
        info!(name_server = address, %error, "broker not unregistered at name server");
    }
}

fn id_on_the_wire(role: &RoleCell) -> i64 {
    i64::try_from(role.get().broker_id()).unwrap_or(i64::MAX)
}

/// Notices when connections to name servers end. Name servers send a broker no requests yet.
struct Watcher(Vec<Arc<Link>>);

impl Handler for Watcher {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        reply.send(Response::not_supported(request.code));
    }

    fn disconnected(&self, _connection: &Arc<Connection>) {
        for link in &self.0 {
            link.register_again();
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use rocketpy_model::TopicConfig;
    use rocketpy_protocol::body::RegisterBrokerBody;
    use rocketpy_protocol::header::{Header, RegisterBrokerRequestHeader};
    use rocketpy_protocol::json;
    use rocketpy_remoting::{ClientConfig, Server, ServerConfig};

    use super::*;
    use crate::put::{Origin, put};
    use crate::service::Services;
    use crate::testing::{TestBroker, add_topic, message};
    use crate::{BrokerConfig, ConfigChange, ConfigText, Endpoint, SettingError};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A name server that writes down which broker id registered or unregistered.
    #[derive(Default)]
    struct Book(Mutex<Vec<(i32, i64)>>);

    impl Handler for Book {
        fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
            let broker_id = match request.code {
                request::REGISTER_BROKER => {
                    RegisterBrokerRequestHeader::read(&request.ext).unwrap().broker_id
                }
                _ => UnRegisterBrokerRequestHeader::read(&request.ext).unwrap().broker_id,
            };
            self.0.lock().push((request.code, broker_id));
            reply.send(Response::success());
        }
    }

    #[tokio::test]
    async fn the_role_is_registered_and_decides_what_clients_may_do() {
        let book = Arc::new(Book::default());
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, book.clone()).unwrap();
        let client = Client::new(ClientConfig::default());
        let names = [server.local_addr().to_string()];
        let broker = TestBroker::registering(client, &names, |config| config.broker_id = 3);
        let (services, registrar) = (Services::default(), broker.registrar());
        for service in registrar.services(&broker.ground) {
            services.start(service);
        }
        assert!(registrar.registered(PATIENCE).await);
        services.stop_all(PATIENCE).await;
        registrar.unregister().await;
        assert_eq!(book.0.lock().as_slice(), [(103, 3), (104, 3)]);
        assert_eq!(broker.ground.permission(), 4);
        assert_eq!(TestBroker::open(|_| {}).ground.permission(), 6);
    }

    /// A name server that keeps the permissions of the topic `orders` as they are registered.
    struct Routes(tokio::sync::watch::Sender<Vec<i32>>);

    impl Handler for Routes {
        fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
            let body: RegisterBrokerBody = json::from_slice(&request.body).unwrap();
            let topics = body.topic_config_serialize_wrapper;
            if let Some(topic) = topics.topic_config_table.get("orders") {
                self.0.send_modify(|perms| perms.push(topic.perm.bits()));
            }
            reply.send(Response::success());
        }
    }

    #[tokio::test]
    async fn a_broker_that_is_drained_lowers_its_routes_and_takes_messages_until_they_have_spread() {
        let perms = tokio::sync::watch::Sender::new(Vec::new());
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(Routes(perms.clone()))).unwrap();
        let names = [server.local_addr().to_string()];
        let broker = TestBroker::registering(Client::new(ClientConfig::default()), &names, |config| {
            config.text = Arc::new(Drained);
        });
        add_topic(&broker, TopicConfig::new("orders", 1)).await;
        let (services, registrar) = (Services::default(), broker.registrar());
        registrar.services(&broker.ground).for_each(|service| services.start(service));
        assert!(registrar.registered(PATIENCE).await);
        let version = broker.ground.topics().version();
        broker.ground.change_config(&ConfigChange::default()).unwrap();
        broker.intake.register_again();
        let lowered = async { drop(perms.subscribe().wait_for(|perms| perms.last() == Some(&4)).await) };
        tokio::time::timeout(PATIENCE, lowered).await.unwrap();
        assert_eq!(perms.borrow().first(), Some(&6));
        assert_ne!(
            broker.ground.topics().version(),
            version,
            "a name server ignores a version that it knows"
        );
        put(&broker.intake, Origin::Client, &message("orders", "")).unwrap();
        broker.ground.set_permission(4); // at once
        assert!(put(&broker.intake, Origin::Client, &message("orders", "")).is_err());
        services.stop_all(PATIENCE).await;
    }

    #[derive(Debug)]
    struct Drained;

    impl ConfigText for Drained {
        fn lines(&self, _config: &BrokerConfig, _endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
            Vec::new()
        }

        fn changed(
            &self,
            config: &BrokerConfig,
            _change: &ConfigChange,
        ) -> Result<BrokerConfig, SettingError> {
            Ok(BrokerConfig { broker_permission: 4, ..config.clone() })
        }
    }
}
