//! What one client shares: connections, routes, membership, timers.

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_env::random_u64;
use rocketpy_model::MessageQueue;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::response;
use rocketpy_remoting as remoting;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, info, warn};

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::identity::{self, UniqueIds};
use crate::members::Members;
use crate::names::NameServers;
use crate::pushes::Pushes;
use crate::route::{Routes, TopicRoute};
use crate::{outcome, wire};

/// How long the end of a group waits for a broker.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(1);

/// Shared by all that one [`Client`](crate::Client) made.
pub(crate) struct Instance {
    pub(crate) config: ClientConfig,
    pub(crate) client_id: String,
    pub(crate) runtime: Handle,
    pub(crate) members: Members,
    pub(crate) ids: UniqueIds,
    process_id: u32,
    remoting: remoting::Client,
    names: NameServers,
    routes: Routes,
    /// Asks for a heartbeat to the brokers newly connected to.
    beat: Arc<Notify>,
    /// Held while brokers are told of the groups, so that no heartbeat brings back a group that has just left.
    telling: tokio::sync::Mutex<()>,
    /// Peers whose connection came about since the last round.
    fresh: Mutex<HashSet<SocketAddr>>,
    /// Brokers that know no LITE_PULL_MESSAGE: Apache's before 5.0.
    without_lite_pull: Mutex<HashSet<String>>,
    closed: AtomicBool,
    timers: Mutex<Option<AbortHandle>>,
}

impl Instance {
    /// Makes the instance and starts its timers on `runtime`.
    pub(crate) fn start(config: ClientConfig, runtime: Handle) -> Result<Arc<Self>, ClientError> {
        let names = NameServers::parse(&config.name_servers, random_u64())?;
        let local = identity::local_address(names.first());
        let remoting = remoting::Client::new(remoting::ClientConfig {
            serialize: rocketpy_protocol::SerializeType::Binary,
            connect_timeout: config.connect_timeout,
            ..remoting::ClientConfig::default()
        });
        let instance = Arc::new(Self {
            client_id: identity::client_id(&config, local),
            config,
            runtime,
            members: Members::default(),
            ids: UniqueIds::new(local),
            process_id: std::process::id(),
            remoting,
            names,
            routes: Routes::default(),
            beat: Arc::default(),
            telling: tokio::sync::Mutex::default(),
            fresh: Mutex::default(),
            without_lite_pull: Mutex::default(),
            closed: AtomicBool::new(false),
            timers: Mutex::new(None),
        });
        instance.remoting.set_request_handler(Arc::new(Pushes::new(&instance)));
        let timers = Timers::of(&instance.config);
        let task =
            instance.runtime.spawn(run_timers(Arc::downgrade(&instance), instance.beat.clone(), timers));
        *instance.timers.lock() = Some(task.abort_handle());
        debug!(client_id = instance.client_id, "client started");
        Ok(instance)
    }

    /// Refuses a forked child and a closed client.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        self.check_process()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(ClientError::Closed { what: "client" });
        }
        Ok(())
    }

    pub(crate) fn check_process(&self) -> Result<(), ClientError> {
        let current = std::process::id();
        if current != self.process_id {
            return Err(ClientError::Forked { created_by: self.process_id, current });
        }
        Ok(())
    }

    /// Sends a request to a broker or name server and returns its answer, whatever its code.
    pub(crate) async fn call(
        &self,
        address: &str,
        operation: &'static str,
        request: Command,
        timeout: Duration,
    ) -> Result<Command, ClientError> {
        let result = self.remoting.call(address, request, timeout).await;
        result.map_err(|error| outcome::of_call_error(operation, error))
    }

    /// As [`call`](Self::call), where only SUCCESS will do.
    pub(crate) async fn call_ok(
        &self,
        address: &str,
        operation: &'static str,
        request: Command,
    ) -> Result<Command, ClientError> {
        let answer = self.call(address, operation, request, self.config.api_timeout).await?;
        outcome::success(operation, address, answer)
    }

    /// Pulls for a member of a group: with LITE_PULL_MESSAGE, or, at a broker that does not know it, with PULL_MESSAGE, which
    /// takes the subscription from the request as well.
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
        if !self.without_lite_pull.lock().contains(address) {
            let answer = self.call(address, operation, wire::lite_pull(pull), timeout).await?;
            if answer.code != response::REQUEST_CODE_NOT_SUPPORTED {
                return Ok(answer);
            }
            info!(address, "the broker knows no LITE_PULL_MESSAGE, it gets PULL_MESSAGE from now on");
            self.without_lite_pull.lock().insert(address.to_owned());
        }
        self.call(address, operation, wire::pull(pull), timeout).await
    }

    /// Sends a request that is not answered.
    pub(crate) async fn call_oneway(
        &self,
        address: &str,
        operation: &'static str,
        request: Command,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let result = self.remoting.call_oneway(address, request, timeout).await;
        result.map_err(|error| outcome::of_call_error(operation, error))
    }

    /// Asks one name server after the other until one answers, with whatever code.
    pub(crate) async fn ask_names(
        &self,
        operation: &'static str,
        request: &Command,
    ) -> Result<(String, Command), ClientError> {
        let mut last = ClientError::NoNameServer;
        for (index, address) in self.names.in_turn() {
            match self.call(address, operation, request.clone(), self.config.api_timeout).await {
                Ok(answer) => {
                    self.names.stay_with(index);
                    return Ok((address.to_owned(), answer));
                }
                Err(error) => {
                    warn!(address, operation, %error, "name server did not answer");
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Every name server.
    pub(crate) fn name_servers(&self) -> &[String] {
        self.names.all()
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
        Ok(Some(TopicRoute::of(topic, &data)))
    }

    /// The route of a topic that exists.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`], and those of reaching a name server.
    pub(crate) async fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(route) = self.routes.get(topic).filter(|route| !route.from_template) {
            return Ok(route);
        }
        let _one_at_a_time = self.routes.fetching().await;
        if let Some(route) = self.routes.get(topic).filter(|route| !route.from_template) {
            return Ok(route);
        }
        match self.fetch_route(topic).await? {
            Some(route) => Ok(self.learn(route)),
            None => Err(ClientError::NoRoute { topic: topic.to_owned() }),
        }
    }

    /// The route to publish by: of the topic, or, while no broker has it, that of the template topic.
    pub(crate) async fn publish_route(
        &self,
        topic: &str,
        default_queues: u32,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(route) = self.routes.get(topic).filter(|route| route.may_publish()) {
            return Ok(route);
        }
        let _one_at_a_time = self.routes.fetching().await;
        if let Some(route) = self.routes.get(topic).filter(|route| route.may_publish()) {
            return Ok(route);
        }
        self.fetch_publish_route(topic, default_queues).await
    }

    async fn fetch_publish_route(
        &self,
        topic: &str,
        default_queues: u32,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(route) = self.fetch_route(topic).await? {
            return Ok(self.learn(route));
        }
        let template = self.fetch_route(rocketpy_model::system::TEMPLATE_TOPIC).await?;
        match template.map(|template| template.into_template_for(topic, default_queues)) {
            Some(route) if !route.publish.is_empty() => {
                debug!(topic, "topic has no route, the brokers may create it");
                Ok(self.learn(route))
            }
            _ => Err(ClientError::NoRoute { topic: topic.to_owned() }),
        }
    }

    /// Asks for the route again after `seen` did not serve, unless someone else has done so meanwhile.
    pub(crate) async fn refresh_publish_route(
        &self,
        seen: &Arc<TopicRoute>,
        default_queues: u32,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        let _one_at_a_time = self.routes.fetching().await;
        if let Some(current) = self.routes.get(&seen.topic)
            && !Arc::ptr_eq(&current, seen)
        {
            return Ok(current);
        }
        self.fetch_publish_route(&seen.topic, default_queues).await
    }

    /// Asks for the route of a topic again, whatever is known of it.
    pub(crate) async fn refresh_route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        let _one_at_a_time = self.routes.fetching().await;
        match self.fetch_route(topic).await? {
            Some(route) => Ok(self.learn(route)),
            None => Err(ClientError::NoRoute { topic: topic.to_owned() }),
        }
    }

    /// Address of the master of a queue's broker; a route that does not know it is asked for again once.
    pub(crate) async fn master_of(&self, queue: &MessageQueue) -> Result<String, ClientError> {
        let route = self.route(&queue.topic).await?;
        if let Some(address) = route.master(&queue.broker_name) {
            return Ok(address.to_owned());
        }
        let route = self.refresh_route(&queue.topic).await?;
        let found = route.master(&queue.broker_name).or_else(|| route.any_address(&queue.broker_name));
        found.map(str::to_owned).ok_or_else(|| broker_not_found(queue))
    }

    /// Forgets a topic's route, as after its deletion.
    pub(crate) fn forget_route(&self, topic: &str) {
        self.routes.remove(topic);
    }

    /// Tells brokers about this client's groups: all known ones, masters only without a consumer.
    #[doc(alias = "sendHeartbeatToAllBroker")]
    pub(crate) async fn heartbeat(&self) {
        self.heartbeat_to(self.routes.broker_addresses(self.members.has_consumers())).await;
    }

    async fn heartbeat_to(&self, addresses: BTreeSet<String>) {
        let _turn = self.telling.lock().await;
        let Some(data) = self.members.heartbeat(&self.client_id) else { return };
        let request = wire::heartbeat(&data);
        let mut calls = JoinSet::new();
        for address in addresses {
            let (remoting, request, timeout) =
                (self.remoting.clone(), request.clone(), self.config.api_timeout);
            calls.spawn(async move {
                let result = remoting.call(&address, request, timeout).await;
                let result = result.map_err(|error| outcome::of_call_error("heartbeat", error));
                if let Err(error) = result.and_then(|answer| outcome::success("heartbeat", &address, answer))
                {
                    warn!(address, %error, "heartbeat failed");
                }
            });
        }
        calls.join_all().await;
    }

    /// Takes a route into the table; brokers that are connected already may become known by it.
    fn learn(&self, route: TopicRoute) -> Arc<TopicRoute> {
        let route = self.routes.put(route);
        if !self.fresh.lock().is_empty() {
            self.beat.notify_one();
        }
        route
    }

    /// A connection to `peer` came about: if it is a broker, it does not know this client yet.
    pub(crate) fn connected(&self, peer: SocketAddr) {
        self.fresh.lock().insert(peer);
        self.beat.notify_one();
    }

    async fn greet_fresh_brokers(&self) {
        let mut addresses = self.routes.broker_addresses(self.members.has_consumers());
        if addresses.is_empty() {
            return; // the first route is on its way: whoever is connected may turn out to be a broker
        }
        let fresh = std::mem::take(&mut *self.fresh.lock());
        addresses
            .retain(|address| address.parse().map_or(true, |address: SocketAddr| fresh.contains(&address)));
        if addresses.is_empty() {
            return;
        }
        self.heartbeat_to(addresses).await;
        self.members.brokers_connected();
    }

    /// Tells the brokers that a group's member is gone. Errors are of no consequence: the brokers notice by themselves.
    pub(crate) async fn unregister(&self, request: Command) {
        // A broker that does not answer a heartbeat must not hold the end up for long.
        let _turn = tokio::time::timeout(UNREGISTER_TIMEOUT, self.telling.lock()).await;
        let mut calls = JoinSet::new();
        for address in self.routes.broker_addresses(true) {
            let (remoting, request) = (self.remoting.clone(), request.clone());
            let timeout = self.config.api_timeout.min(UNREGISTER_TIMEOUT);
            calls.spawn(async move {
                if let Err(error) = remoting.call(&address, request, timeout).await {
                    debug!(address, %error, "unregistering failed");
                }
            });
        }
        calls.join_all().await;
    }

    /// Closes what is still open. Idempotent.
    pub(crate) async fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.stop_timers();
        for request in self.members.leave_all(&self.client_id) {
            self.unregister(request).await;
        }
        self.remoting.close();
        info!(client_id = self.client_id, "client closed");
    }

    fn stop_timers(&self) {
        if let Some(timers) = self.timers.lock().take() {
            timers.abort();
        }
    }

    async fn refresh_routes(&self) {
        for topic in self.routes.begin_round() {
            let _one_at_a_time = self.routes.fetching().await;
            match self.fetch_route(&topic).await {
                Ok(Some(route)) => drop(self.learn(route)),
                Ok(None) => debug!(%topic, "no name server knows the topic, keeping what is known of it"),
                Err(error) => warn!(%topic, %error, "route refresh failed"),
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // A forked child: the parent's threads hold its locks, the connections are the parent's.
            std::mem::forget(self.remoting.clone());
            return;
        }
        self.stop_timers();
        self.remoting.close();
    }
}

pub(crate) fn broker_not_found(queue: &MessageQueue) -> ClientError {
    ClientError::BrokerNotFound { broker_name: queue.broker_name.to_string() }
}

struct Timers {
    refresh: Duration,
    heartbeat: Duration,
}

impl Timers {
    fn of(config: &ClientConfig) -> Self {
        let least = Duration::from_millis(10);
        Self {
            refresh: config.route_refresh_interval.max(least),
            heartbeat: config.heartbeat_interval.max(least),
        }
    }
}

/// Refreshes routes and sends heartbeats until the instance is gone.
async fn run_timers(instance: Weak<Instance>, beat: Arc<Notify>, timers: Timers) {
    let mut refresh = tokio::time::interval(timers.refresh);
    let mut heartbeat = tokio::time::interval(timers.heartbeat);
    refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick of an interval comes at once; nothing is known yet.
    refresh.tick().await;
    heartbeat.tick().await;
    loop {
        tokio::select! {
            _ = refresh.tick() => {
                if let Some(instance) = instance.upgrade() {
                    // A name server that does not answer must not hold heartbeats up.
                    instance.runtime.clone().spawn(async move { instance.refresh_routes().await });
                }
            }
            _ = heartbeat.tick() => {
                if let Some(instance) = instance.upgrade() {
                    instance.heartbeat().await;
                }
            }
            () = beat.notified() => {
                if let Some(instance) = instance.upgrade() {
                    instance.greet_fresh_brokers().await;
                }
            }
        }
    }
}
