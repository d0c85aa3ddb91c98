//! A client instance: one client id, its connections, memberships and heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_env::process_id;
use rocketpy_protocol::SerializeType;
use rocketpy_remoting as remoting;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{debug, error, info, warn};

use crate::api::Api;
use crate::broker_requests::BrokerRequests;
use crate::checks::Checks;
use crate::config::ClientConfig;
use crate::identity::{Identity, UniqueIds};
use crate::members::{Members, Role};
use crate::names::NameServers;
use crate::new_connections::NewConnections;
use crate::replies::Replies;
use crate::wire;

/// How long leaving a group waits for a broker.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(1);
/// Shortest period of a timer.
const MIN_PERIOD: Duration = Duration::from_millis(10);

/// What all clients of one identity share.
#[doc(alias = "MQClientInstance")]
pub(crate) struct Instance {
    pub(crate) client_id: String,
    pub(crate) runtime: Handle,
    pub(crate) members: Arc<Members>,
    pub(crate) replies: Arc<Replies>,
    pub(crate) checks: Arc<Checks>,
    pub(crate) ids: UniqueIds,
    /// With the timeout of the first client.
    pub(crate) api: Api,
    pub(crate) process_id: u32,
    arrivals: Arc<NewConnections>,
    /// Held while brokers are told of the groups, so that no heartbeat brings back a group that has just left.
    telling: tokio::sync::Mutex<()>,
    /// Whether a broker keeps transactions with a delay, as its latest answer to a heartbeat said.
    keep_delays: Arc<Mutex<BTreeMap<String, bool>>>,
    timers: Mutex<Timers>,
    route_refresh_interval: Duration,
    heartbeat_interval: Duration,
    /// Tasks that end by themselves, such as leaving a group after the last handle was dropped.
    background: Mutex<JoinSet<()>>,
}

/// The tasks that run until the instance ends.
#[derive(Default)]
struct Timers {
    tasks: JoinSet<()>,
    /// Whether the tasks were started and not aborted since.
    running: bool,
}

impl Instance {
    /// Makes the instance and starts its timers on `runtime`.
    pub(crate) fn start(
        identity: &Identity,
        names: NameServers,
        config: &ClientConfig,
        runtime: Handle,
    ) -> Arc<Self> {
        let (members, arrivals) = (Arc::<Members>::default(), Arc::<NewConnections>::default());
        let (replies, checks) = (Arc::<Replies>::default(), Arc::<Checks>::default());
        let user = config.credentials.as_ref().map(|user| user.access_key.clone());
        let remoting = remoting::Client::new(remoting::ClientConfig {
            serialize: SerializeType::Binary,
            connect_timeout: config.connect_timeout,
            hook: config.credentials.clone().map(|user| Arc::new(remoting::Signer::new(user)) as _),
            tls: config.tls.clone(),
            ..remoting::ClientConfig::default()
        });
        remoting.set_request_handler(Arc::new(BrokerRequests::new(
            members.clone(),
            replies.clone(),
            checks.clone(),
            arrivals.clone(),
            config.program.stacks,
        )));
        let instance = Arc::new(Self {
            client_id: identity.client_id.clone(),
            runtime,
            members,
            replies,
            checks,
            ids: UniqueIds::new(identity.local),
            api: Api::new(
                remoting,
                names,
                arrivals.clone(),
                config.api_timeout,
                (config.program.language, user),
            ),
            process_id: process_id(),
            arrivals,
            telling: tokio::sync::Mutex::default(),
            keep_delays: Arc::default(),
            timers: Mutex::default(),
            route_refresh_interval: config.route_refresh_interval,
            heartbeat_interval: config.heartbeat_interval,
            background: Mutex::default(),
        });
        instance.start_timers();
        debug!(client_id = instance.client_id, "client started");
        instance
    }

    /// Starts the timers unless they run.
    pub(crate) fn start_timers(self: &Arc<Self>) {
        let mut timers = self.timers.lock();
        if timers.running {
            return;
        }
        timers.running = true;
        let (me, arrivals) = (Arc::downgrade(self), self.arrivals.clone());
        timers.tasks.spawn_on(refresh_routes(me.clone(), self.route_refresh_interval), &self.runtime);
        timers.tasks.spawn_on(send_heartbeats(me, arrivals, self.heartbeat_interval), &self.runtime);
    }

    /// Aborts the timers, and with them a heartbeat that a broker does not answer.
    pub(crate) fn stop_timers(&self) {
        let mut timers = self.timers.lock();
        timers.running = false;
        timers.tasks.abort_all();
    }

    /// Starts a task that ends by itself.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background.lock();
        while let Some(ended) = background.try_join_next() {
            if ended.is_err_and(|error| error.is_panic()) {
                error!(client_id = self.client_id, "background task of the client panicked");
            }
        }
        background.spawn_on(task, &self.runtime);
    }

    /// Tells all known brokers about the groups; only masters while there is no consumer. Where a group answers questions for
    /// transactions, these are all that the name servers know: one that has sent nothing yet may have open transactions.
    #[doc(alias = "sendHeartbeatToAllBroker")]
    pub(crate) async fn heartbeat(&self) {
        let mut addresses = self.api.broker_addresses(self.members.has_consumers());
        if self.checks.are_answered() {
            match self.api.cluster_info().await {
                Ok(info) => {
                    let masters =
                        info.broker_addr_table.values().filter_map(|broker| broker.master_address());
                    addresses.extend(masters.map(str::to_owned));
                }
                Err(error) => debug!(%error, "cannot find the brokers that send transaction checks"),
            }
        }
        self.heartbeat_to(addresses, true).await;
    }

    async fn heartbeat_to(&self, addresses: BTreeSet<String>, are_all: bool) {
        const OPERATION: &str = "heartbeat";
        let _turn = self.telling.lock().await;
        let Some(data) = self.members.heartbeat(&self.client_id) else { return };
        let request = wire::heartbeat(&data);
        let mut calls = JoinSet::new();
        for address in addresses {
            let (api, request) = (self.api.clone(), request.clone());
            let keep_delays = self.keep_delays.clone();
            calls.spawn(async move {
                match api.call_ok(&address, OPERATION, request).await {
                    Ok(answer) => {
                        keep_delays.lock().insert(address.clone(), wire::keeps_delays(&answer));
                        Ok(wire::other_subscriptions(&address, &answer))
                    }
                    Err(error) => {
                        keep_delays.lock().remove(&address);
                        warn!(address, %error, "heartbeat failed");
                        Err(error)
                    }
                }
            });
        }
        let asked = calls.len();
        let (mut answers, mut denial) = (Vec::new(), None);
        for answer in self.join(calls).await {
            match answer {
                Ok(others) => answers.push(others),
                Err(error) if error.is_denial() => denial = Some(error),
                Err(_) => {}
            }
        }
        assert!(answers.len() <= asked, "a broker answers a heartbeat once: {} of {asked}", answers.len());
        let have_all_answered = are_all && asked > 0 && answers.len() == asked;
        self.members.heard_of_denial(denial, have_all_answered);
        self.members.heard_of_others(&answers.concat(), have_all_answered);
    }

    /// Whether transactions may have a delay at a broker; `None` where it did not answer the latest heartbeat.
    pub(crate) fn keeps_delays(&self, address: &str) -> Option<bool> {
        self.keep_delays.lock().get(address).copied()
    }

    /// Waits for calls. One that panics is logged and does not end the others.
    async fn join<T: 'static>(&self, mut calls: JoinSet<T>) -> Vec<T> {
        let mut results = Vec::with_capacity(calls.len());
        while let Some(ended) = calls.join_next().await {
            match ended {
                Ok(result) => results.push(result),
                Err(error) if error.is_panic() => {
                    error!(client_id = self.client_id, "call to a broker panicked");
                }
                Err(_aborted) => {}
            }
        }
        results
    }

    /// Sends a heartbeat to the brokers that were connected to since the last one.
    async fn greet_arrivals(&self) {
        let mut addresses = self.api.broker_addresses(self.members.has_consumers());
        if addresses.is_empty() {
            return; // No route yet: the first one may show that a connected peer is a broker.
        }
        let arrived = self.arrivals.take();
        addresses
            .retain(|address| address.parse().map_or(true, |address: SocketAddr| arrived.contains(&address)));
        if addresses.is_empty() {
            return;
        }
        self.heartbeat_to(addresses, false).await;
        self.members.brokers_connected();
    }

    /// Tells the brokers that this client id left groups, except those that it has joined again. Errors are only logged: the
    /// brokers notice the end of the connection.
    pub(crate) async fn unregister(&self, groups: &[(Role, String)]) {
        if groups.is_empty() {
            return;
        }
        // A broker that does not answer a heartbeat must not delay this for long.
        let _turn = tokio::time::timeout(UNREGISTER_TIMEOUT, self.telling.lock()).await;
        let addresses = self.api.broker_addresses(true);
        let mut calls = JoinSet::new();
        for (role, group) in groups.iter().filter(|(role, group)| !self.members.contains(*role, group)) {
            let request = wire::unregister(&self.client_id, *role, group);
            for address in addresses.clone() {
                let (api, request) = (self.api.clone(), request.clone());
                calls.spawn(async move {
                    let timeout = api.timeout().min(UNREGISTER_TIMEOUT);
                    if let Err(error) = api.call(&address, "unregistering", request, timeout).await {
                        debug!(address, %error, "unregistration failed");
                    }
                });
            }
        }
        self.join(calls).await;
    }

    /// Ends the timers, the connections and the background tasks, and waits for them.
    pub(crate) async fn shutdown(&self) {
        let mut timers = std::mem::take(&mut *self.timers.lock());
        timers.tasks.shutdown().await;
        self.api.shutdown().await;
        let mut background = std::mem::take(&mut *self.background.lock());
        while background.join_next().await.is_some() {}
        info!(client_id = self.client_id, "client closed");
    }

    /// As [`shutdown`](Self::shutdown), without waiting.
    pub(crate) fn stop(&self) {
        self.stop_timers();
        self.api.close();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if process_id() == self.process_id {
            self.stop();
            self.background.get_mut().detach_all();
            return;
        }
        // In a forked child the parent's threads may hold these locks for ever, and the connections are the parent's.
        std::mem::forget(self.api.clone());
        std::mem::forget(std::mem::take(self.timers.get_mut()));
        std::mem::forget(std::mem::take(self.background.get_mut()));
    }
}

/// A timer whose first tick is one period away.
async fn timer(period: Duration) -> Interval {
    let mut timer = tokio::time::interval(period.max(MIN_PERIOD));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer.tick().await;
    timer
}

/// Refreshes the routes until the instance is gone. Not part of [`send_heartbeats`]: a slow name server must not delay heartbeats.
async fn refresh_routes(instance: Weak<Instance>, period: Duration) {
    let mut timer = timer(period).await;
    loop {
        timer.tick().await;
        let Some(instance) = instance.upgrade() else { return };
        instance.api.refresh_routes().await;
    }
}

/// Sends heartbeats until the instance is gone.
async fn send_heartbeats(instance: Weak<Instance>, arrivals: Arc<NewConnections>, period: Duration) {
    let mut timer = timer(period).await;
    loop {
        tokio::select! {
            _ = timer.tick() => {
                let Some(instance) = instance.upgrade() else { return };
                instance.heartbeat().await;
            }
            () = arrivals.wait() => {
                let Some(instance) = instance.upgrade() else { return };
                instance.greet_arrivals().await;
            }
        }
    }
}
