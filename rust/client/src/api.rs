//! The calls of a client to name servers and brokers, and the routes that it learned.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_model::{MessageQueue, system};
use rocketpy_protocol::body::{ClusterInfo, TopicList};
use rocketpy_protocol::code::response;
use rocketpy_protocol::{Command, Language};
use rocketpy_remoting as remoting;
use tracing::{debug, info, warn};

use crate::created_topics::CreatedTopics;
use crate::error::{ClientError, denial};
use crate::log_throttle::LogThrottle;
use crate::names::NameServers;
use crate::new_connections::NewConnections;
use crate::route::{Routes, TopicRoute};
use crate::{created_topics, outcome, wire};

/// The connections and routes of an instance, and the timeout of one client's calls.
///
/// Clones share everything but the timeout.
#[derive(Clone)]
#[doc(alias = "MQClientAPIImpl")]
pub(crate) struct Api {
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    remoting: remoting::Client,
    names: NameServers,
    routes: Routes,
    arrivals: Arc<NewConnections>,
    /// Brokers that do not know LITE_PULL_MESSAGE: Apache's before 5.0.
    without_lite_pull: Mutex<HashSet<String>>,
    /// What the log says of sends that are tried again.
    retries: Mutex<LogThrottle>,
    created: CreatedTopics,
    /// The language that requests name.
    language: Language,
    /// The user that signs requests.
    user: Option<String>,
}

impl Api {
    pub(crate) fn new(
        remoting: remoting::Client,
        names: NameServers,
        arrivals: Arc<NewConnections>,
        timeout: Duration,
        (language, user): (Language, Option<String>),
    ) -> Self {
        let (routes, without_lite_pull) = (Routes::default(), Mutex::default());
        let (retries, created) = (Mutex::default(), CreatedTopics::default());
        let shared =
            Shared { remoting, names, routes, arrivals, without_lite_pull, retries, created, language, user };
        Self { shared: Arc::new(shared), timeout }
    }

    /// Notes that a send is tried again. True when that is to be reported: the first, then one a minute.
    pub(crate) fn sends_again(&self) -> bool {
        self.shared.retries.lock().failed(Instant::now())
    }

    /// The same connections and routes with another timeout.
    pub(crate) fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// Time for a route, heartbeat, membership or administration call.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request to a broker or name server and returns its answer, whatever its code.
    pub(crate) async fn call(
        &self,
        address: &str,
        operation: &'static str,
        mut request: Command,
        timeout: Duration,
    ) -> Result<Command, ClientError> {
        request.language = self.shared.language;
        let result = self.shared.remoting.call(address, request, timeout).await;
        let mut answer = result.map_err(|error| outcome::of_call_error(operation, error))?;
        if answer.code == response::NO_PERMISSION
            && let (Some(remark), Some(user)) = (&mut answer.remark, &self.shared.user)
        {
            denial::name_user(remark, user);
        }
        Ok(answer)
    }

    /// As [`call`](Self::call) within [`timeout`](Self::timeout); an answer without SUCCESS is an error.
    pub(crate) async fn call_ok(
        &self,
        address: &str,
        operation: &'static str,
        request: Command,
    ) -> Result<Command, ClientError> {
        let answer = self.call(address, operation, request, self.timeout).await?;
        outcome::success(operation, address, answer)
    }

    /// Pulls for a member of a group: with LITE_PULL_MESSAGE, or with PULL_MESSAGE at a broker that does not know the former.
    /// Both requests carry the subscription.
    ///
    /// # Source
    /// docs/reference/protocol.md 2.3.3.
    pub(crate) async fn pull(
        &self,
        address: &str,
        operation: &'static str,
        pull: &wire::Pull<'_>,
        timeout: Duration,
    ) -> Result<Command, ClientError> {
        let without_lite_pull = &self.shared.without_lite_pull;
        if !without_lite_pull.lock().contains(address) {
            let answer = self.call(address, operation, wire::lite_pull(pull), timeout).await?;
            if answer.code != response::REQUEST_CODE_NOT_SUPPORTED {
                return Ok(answer);
            }
            info!(address, "LITE_PULL_MESSAGE not supported by the broker, using PULL_MESSAGE");
            without_lite_pull.lock().insert(address.to_owned());
        }
        self.call(address, operation, wire::pull(pull), timeout).await
    }

    /// Sends a request that is not answered.
    pub(crate) async fn call_oneway(
        &self,
        address: &str,
        operation: &'static str,
        mut request: Command,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        request.language = self.shared.language;
        let result = self.shared.remoting.call_oneway(address, request, timeout).await;
        result.map_err(|error| outcome::of_call_error(operation, error))
    }

    /// Asks one name server after the other until one answers, whatever the code of its answer.
    pub(crate) async fn ask_names(
        &self,
        operation: &'static str,
        request: &Command,
    ) -> Result<(String, Command), ClientError> {
        let mut last = ClientError::NoNameServer;
        for (index, address) in self.shared.names.in_turn() {
            match self.call(address, operation, request.clone(), self.timeout).await {
                Ok(answer) => {
                    if self.shared.names.answered(index) {
                        warn!(address, "name server reachable again");
                    }
                    return Ok((address.to_owned(), answer));
                }
                Err(error) => {
                    if self.shared.names.failed(index) {
                        warn!(address, operation, %error, "name server did not answer");
                    }
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Every name server.
    pub(crate) fn name_servers(&self) -> &[String] {
        self.shared.names.all()
    }

    /// Whether a route query that failed with `error` may succeed once servers are back, without a change by the user. A name server
    /// that never answered probably has another address.
    pub(crate) fn may_recover(&self, topic: &str, error: &ClientError) -> bool {
        match error {
            ClientError::Connect { .. }
            | ClientError::ConnectionLost { .. }
            | ClientError::Congested { .. }
            | ClientError::Timeout { .. } => self.shared.names.have_answered(),
            ClientError::NoBrokers { .. } => self.shared.routes.knew_brokers(),
            ClientError::NoQueue { .. } => {
                self.shared.routes.get(topic).is_some_and(|route| route.lacks_masters())
            }
            ClientError::BrokerNotFound { broker_name } => self.shared.routes.knew_broker(broker_name),
            ClientError::Refused { code, .. } => outcome::is_passing(*code),
            _ => false,
        }
    }

    /// Asks the name servers for the route of a topic. `None`: no broker has the topic.
    pub(crate) async fn fetch_route(&self, topic: &str) -> Result<Option<TopicRoute>, ClientError> {
        const OPERATION: &str = "route query";
        let (address, answer) = self.ask_names(OPERATION, &wire::route(topic)).await?;
        if answer.code == response::TOPIC_NOT_EXIST {
            return Ok(None);
        }
        let answer = outcome::success(OPERATION, &address, answer)?;
        let data = wire::json(OPERATION, &address, &answer.body)?;
        let route = TopicRoute::of(topic, &data);
        route.map(Some).map_err(|error| outcome::bad_answer(OPERATION, &address, error))
    }

    /// Names of all topics.
    pub(crate) async fn topic_names(&self) -> Result<Vec<String>, ClientError> {
        const OPERATION: &str = "topic list query";
        let (address, answer) = self.ask_names(OPERATION, &wire::topic_list()).await?;
        let answer = outcome::success(OPERATION, &address, answer)?;
        Ok(wire::json::<TopicList>(OPERATION, &address, &answer.body)?.topic_list)
    }

    /// The brokers that the name servers know.
    pub(crate) async fn cluster_info(&self) -> Result<ClusterInfo, ClientError> {
        Ok(self.ask_for_cluster().await?.1)
    }

    /// The brokers that one name server knows.
    pub(crate) async fn cluster_info_at(&self, address: &str) -> Result<ClusterInfo, ClientError> {
        const OPERATION: &str = "cluster query";
        let answer = self.call_ok(address, OPERATION, wire::cluster_info()).await?;
        wire::json(OPERATION, address, &answer.body)
    }

    /// What a name server knows, and its address.
    async fn ask_for_cluster(&self) -> Result<(String, ClusterInfo), ClientError> {
        const OPERATION: &str = "cluster query";
        let (address, answer) = self.ask_names(OPERATION, &wire::cluster_info()).await?;
        let answer = outcome::success(OPERATION, &address, answer)?;
        let info = wire::json(OPERATION, &address, &answer.body)?;
        Ok((address, info))
    }

    /// Like [`cluster_info`](Self::cluster_info), and never empty.
    ///
    /// # Errors
    /// [`ClientError::NoBrokers`], and those of reaching a name server.
    pub(crate) async fn known_brokers(&self) -> Result<ClusterInfo, ClientError> {
        let (name_server, info) = self.ask_for_cluster().await?;
        if info.broker_addr_table.is_empty() {
            return Err(ClientError::NoBrokers { name_server });
        }
        Ok(info)
    }

    /// The error for a topic without a route: creating the topic helps only where there is a broker.
    pub(crate) async fn no_route(&self, topic: &str) -> ClientError {
        match self.known_brokers().await {
            Err(error @ ClientError::NoBrokers { .. }) => error,
            _ => ClientError::NoRoute { topic: topic.to_owned() },
        }
    }

    /// The route of a topic that exists.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`], [`ClientError::NoBrokers`], and those of reaching a name server.
    pub(crate) async fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        let routes = &self.shared.routes;
        if let Some(route) = routes.get(topic).filter(|route| !route.from_template) {
            return Ok(route);
        }
        let _one_at_a_time = routes.fetching().await;
        if let Some(route) = routes.get(topic).filter(|route| !route.from_template) {
            return Ok(route);
        }
        self.fetch_and_learn(topic).await
    }

    /// The route to publish by: of the topic, or, while no broker has it, that of the template topic.
    pub(crate) async fn publish_route(
        &self,
        topic: &str,
        default_queues: u32,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(route) = self.known_publish_route(topic) {
            return Ok(route);
        }
        let _one_at_a_time = self.shared.routes.fetching().await;
        if let Some(route) = self.known_publish_route(topic) {
            return Ok(route);
        }
        self.fetch_publish_route(topic, default_queues).await
    }

    /// The route to publish by, if it was fetched before.
    pub(crate) fn known_publish_route(&self, topic: &str) -> Option<Arc<TopicRoute>> {
        self.shared.routes.get(topic).filter(|route| route.may_publish())
    }

    async fn fetch_publish_route(
        &self,
        topic: &str,
        default_queues: u32,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(route) = self.fetch_route(topic).await? {
            return Ok(self.learn(route));
        }
        // A user without rights on the template topic cannot have its topics created by a send.
        let template = match self.fetch_route(system::TEMPLATE_TOPIC).await {
            Err(error) if error.is_denial() => None,
            template => template?,
        };
        match template.map(|template| template.into_template_for(topic, default_queues)) {
            Some(route) if !route.publish.is_empty() => {
                if self.shared.created.note(topic) {
                    // In a task: other route queries wait for this one.
                    let (api, topic) = (self.clone(), topic.to_owned());
                    tokio::spawn(async move { created_topics::warn(&api, &topic, default_queues).await });
                }
                Ok(self.learn(route))
            }
            _ => Err(self.no_route(topic).await),
        }
    }

    /// Fetches the route again after `seen` failed, unless another caller has already done so.
    pub(crate) async fn refresh_publish_route(
        &self,
        seen: &Arc<TopicRoute>,
        default_queues: u32,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        let _one_at_a_time = self.shared.routes.fetching().await;
        self.fetch_unless_learned(seen, default_queues).await
    }

    /// As [`Self::refresh_publish_route`], but does nothing while another caller fetches a route: of many sends that fail at once one asks.
    pub(crate) async fn refresh_failed_route(&self, seen: &Arc<TopicRoute>, default_queues: u32) {
        let Some(_one_at_a_time) = self.shared.routes.try_fetching() else { return };
        if let Err(error) = self.fetch_unless_learned(seen, default_queues).await {
            debug!(topic = %seen.topic, %error, "route refresh after a failed send failed");
        }
    }

    async fn fetch_unless_learned(
        &self,
        seen: &Arc<TopicRoute>,
        default_queues: u32,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(current) = self.shared.routes.get(&seen.topic)
            && !Arc::ptr_eq(&current, seen)
        {
            return Ok(current);
        }
        self.fetch_publish_route(&seen.topic, default_queues).await
    }

    /// Fetches the route of a topic again, even if it is known.
    pub(crate) async fn refresh_route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        let _one_at_a_time = self.shared.routes.fetching().await;
        self.fetch_and_learn(topic).await
    }

    async fn fetch_and_learn(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        match self.fetch_route(topic).await? {
            Some(route) => Ok(self.learn(route)),
            None => Err(self.no_route(topic).await),
        }
    }

    /// Address of the master of a queue's broker; fetches the route once more when it does not name one.
    pub(crate) async fn master_of(&self, queue: &MessageQueue) -> Result<String, ClientError> {
        let route = self.route(&queue.topic).await?;
        if let Some(address) = route.master(&queue.broker_name) {
            return Ok(address.to_owned());
        }
        let route = self.refresh_route(&queue.topic).await?;
        let found = route.master(&queue.broker_name).or_else(|| route.any_address(&queue.broker_name));
        found.map(str::to_owned).ok_or_else(|| ClientError::broker_not_found(queue))
    }

    /// Forgets a topic's route, as after its deletion.
    pub(crate) fn forget_route(&self, topic: &str) {
        self.shared.routes.remove(topic);
    }

    /// Refreshes the routes that are in use.
    pub(crate) async fn refresh_routes(&self) {
        for topic in self.shared.routes.begin_round() {
            let _one_at_a_time = self.shared.routes.fetching().await;
            match self.fetch_route(&topic).await {
                Ok(Some(route)) => drop(self.learn(route)),
                Ok(None) => debug!(%topic, "topic unknown to all name servers, last route kept"),
                Err(error) => warn!(%topic, %error, "route refresh failed"),
            }
        }
    }

    fn learn(&self, route: TopicRoute) -> Arc<TopicRoute> {
        let route = self.shared.routes.put(route);
        self.shared.arrivals.route_learned();
        route
    }

    /// Addresses of all brokers of all routes; only their masters unless `slaves`.
    pub(crate) fn broker_addresses(&self, slaves: bool) -> BTreeSet<String> {
        self.shared.routes.broker_addresses(slaves)
    }

    /// Closes the connections.
    pub(crate) fn close(&self) {
        self.shared.remoting.close();
    }

    /// Closes the connections and waits for their end.
    pub(crate) async fn shutdown(&self) {
        self.shared.remoting.shutdown().await;
    }
}
