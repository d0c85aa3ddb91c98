//! The client.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rocketpy_env::process_id;
use tokio::runtime::Handle;

use crate::api::Api;
use crate::checks::Checks;
use crate::close_once::CloseOnce;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::identity::UniqueIds;
use crate::members::{Consumer, Owner, Role};
use crate::namespace::Namespace;
use crate::registry::Share;
use crate::replies::Replies;

/// Connections, routes, heartbeats and group membership of producers, consumers and administration.
///
/// Clones are one client. A client without an instance name has an instance of its own. Clients with one instance name (and the
/// same address, unit and name servers) share one: its connections, its routes, its heartbeats and its client id. An instance
/// holds each producer group and each consumer group once, so two members of one consumer group need two instances.
#[derive(Clone)]
pub struct Client {
    user: Arc<User>,
}

/// One client's share of an instance.
struct User {
    share: Share,
    /// The instance's, with this client's timeout.
    api: Api,
    namespace: Namespace,
    owner: Owner,
    closed: AtomicBool,
    ending: CloseOnce<()>,
}

impl Client {
    /// Makes a client whose tasks run on `runtime`. No connection is opened yet.
    ///
    /// # Errors
    /// [`ClientError::NoNameServer`], [`ClientError::InvalidAddress`]; [`ClientError::InvalidConfig`] when another client of this
    /// instance name has other settings, or the namespace is no name.
    pub fn new(config: ClientConfig, runtime: Handle) -> Result<Self, ClientError> {
        static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);
        let namespace = Namespace::new(config.namespace.as_deref())?;
        let share = Share::of(&config, runtime)?;
        let api = share.instance.api.with_timeout(config.api_timeout);
        let owner = Owner(NEXT_OWNER.fetch_add(1, Ordering::Relaxed));
        let (closed, ending) = (AtomicBool::new(false), CloseOnce::default());
        Ok(Self { user: Arc::new(User { share, api, namespace, owner, closed, ending }) })
    }

    /// `<ip>@<instance name>`: what other members of a group and the brokers know this client by.
    pub fn client_id(&self) -> &str {
        &self.user.share.instance.client_id
    }

    /// What stands before the names of its topics and groups on the wire.
    pub fn namespace(&self) -> &Namespace {
        &self.user.namespace
    }

    /// The runtime that this client runs on.
    pub fn runtime(&self) -> &Handle {
        &self.user.share.instance.runtime
    }

    /// Refuses to work in a forked child, where neither the runtime's threads nor the connections are the child's.
    ///
    /// Cheap; every operation does it. A binding calls it before it touches the runtime, because in the child nothing would ever
    /// answer.
    ///
    /// # Errors
    /// [`ClientError::Forked`].
    pub fn check_process(&self) -> Result<(), ClientError> {
        self.user.check_process()
    }

    /// Stops this client's consumers and unregisters its groups. The last client of an instance closes the connections. Every call
    /// waits for that.
    ///
    /// # Cancel safety
    /// It goes on if the future is dropped.
    pub async fn close(&self) {
        if self.check_process().is_err() {
            return;
        }
        let user = self.user.clone();
        let close = move || {
            user.closed.store(true, Ordering::Release);
            let groups = user.share.instance.members.remove_all(user.owner);
            for (_, group) in groups.iter().filter(|(role, _)| *role == Role::Producer) {
                user.share.instance.replies.give_up(group);
                user.share.instance.checks.end(group);
            }
            user.share.stop_timers_if_last();
            async move {
                user.share.instance.unregister(&groups).await;
                if user.share.give_back() {
                    user.share.instance.shutdown().await;
                }
            }
        };
        self.user.ending.run(self.runtime(), close).await;
    }

    /// Refuses a forked child and a closed client.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        self.check_process()?;
        if self.user.closed.load(Ordering::Acquire) {
            return Err(ClientError::Closed { what: "client" });
        }
        Ok(())
    }

    pub(crate) fn api(&self) -> &Api {
        &self.user.api
    }

    /// Makes the unique keys of messages.
    pub(crate) fn ids(&self) -> &UniqueIds {
        &self.user.share.instance.ids
    }

    /// # Errors
    /// [`ClientError::GroupInUse`].
    pub(crate) fn join_as_producer(&self, group: &str) -> Result<(), ClientError> {
        self.user.share.instance.members.add_producer(self.user.owner, group)
    }

    /// # Errors
    /// [`ClientError::GroupInUse`].
    pub(crate) fn join_as_consumer(
        &self,
        group: &str,
        consumer: Weak<dyn Consumer>,
    ) -> Result<(), ClientError> {
        self.user.share.instance.members.add_consumer(self.user.owner, group, consumer)
    }

    /// The groups that answer for transactions.
    pub(crate) fn checks(&self) -> &Arc<Checks> {
        &self.user.share.instance.checks
    }

    /// The requests that wait for replies.
    pub(crate) fn replies(&self) -> &Arc<Replies> {
        &self.user.share.instance.replies
    }

    /// Tells the known brokers of the instance's groups.
    pub(crate) async fn heartbeat(&self) {
        self.user.share.instance.heartbeat().await;
    }

    /// Tells them in the background.
    pub(crate) fn start_heartbeat(&self) {
        let client = self.clone();
        self.user.share.instance.spawn(async move { client.heartbeat().await });
    }

    /// Whether transactions may have a delay at a broker; `None` where it did not answer the latest heartbeat.
    pub(crate) fn keeps_delays(&self, address: &str) -> Option<bool> {
        self.user.share.instance.keeps_delays(address)
    }

    /// Leaves a group and tells the brokers.
    pub(crate) async fn leave(&self, role: Role, group: &str) {
        let instance = &self.user.share.instance;
        if instance.members.remove(self.user.owner, role, group) {
            instance.unregister(&[(role, group.to_owned())]).await;
        }
    }

    /// Leaves a group at once and tells the brokers in the background.
    pub(crate) fn start_leaving(&self, role: Role, group: &str) {
        let instance = &self.user.share.instance;
        if instance.members.remove(self.user.owner, role, group) {
            let (client, groups) = (self.clone(), [(role, group.to_owned())]);
            instance.spawn(async move { client.user.share.instance.unregister(&groups).await });
        }
    }
}

impl User {
    fn check_process(&self) -> Result<(), ClientError> {
        let (current, created_by) = (process_id(), self.share.instance.process_id);
        if current != created_by {
            return Err(ClientError::Forked { created_by, current });
        }
        Ok(())
    }
}

/// Without a close, the brokers notice the end of the connections.
impl Drop for User {
    fn drop(&mut self) {
        if self.check_process().is_ok() && self.share.give_back() {
            self.share.instance.stop();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("client_id", &self.client_id()).finish_non_exhaustive()
    }
}
