//! The instances that the clients of a process share.
//!
//! Decision: docs/decisions/shared-connections.md.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_env::random_u64;
use rocketpy_remoting::{ClientTls, Credentials};
use tokio::runtime::{Handle, Id};

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::identity::Identity;
use crate::instance::Instance;
use crate::names::NameServers;
use crate::per_process::PerProcess;

/// The instances of one process that are shared.
static INSTANCES: PerProcess<Mutex<HashMap<Key, Entry>>> = PerProcess::new();

/// Clients with equal keys share an instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    client_id: String,
    /// Sorted: their order does not matter.
    name_servers: Vec<String>,
    /// The connections of an instance end with its runtime.
    runtime: Id,
}

struct Entry {
    instance: Weak<Instance>,
    settings: Settings,
    /// Clients that are open.
    clients: usize,
}

/// The settings of the instance itself, in which its clients must agree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    connect_timeout: Duration,
    route_refresh_interval: Duration,
    heartbeat_interval: Duration,
    tls: Option<Arc<ClientTls>>,
    credentials: Option<Credentials>,
}

/// A client's share of an instance.
pub(crate) struct Share {
    pub(crate) instance: Arc<Instance>,
    /// `None` when no other client can share it.
    key: Option<Key>,
    given_back: AtomicBool,
}

impl Share {
    /// Finds the instance for a client, or starts one.
    ///
    /// # Source
    /// docs/reference/client.md 1.4; what differs is in the decision.
    ///
    /// # Errors
    /// [`ClientError::NoNameServer`], [`ClientError::InvalidAddress`]; [`ClientError::InvalidConfig`] when the instance exists with
    /// other settings, or for a name with control characters.
    pub(crate) fn of(config: &ClientConfig, runtime: Handle) -> Result<Self, ClientError> {
        config.check()?;
        let names = NameServers::parse(&config.name_servers, random_u64())?;
        let identity = Identity::of(config, names.first());
        if config.instance_name.is_none() {
            let instance = Instance::start(&identity, names, config, runtime);
            return Ok(Self::new(instance, None));
        }
        let key = Key::of(&identity, &names, &runtime);
        let settings = Settings::of(config);
        let mut entries = INSTANCES.get().lock();
        if let Some(entry) = entries.get_mut(&key)
            && let Some(instance) = entry.instance.upgrade()
        {
            entry.settings.check(&settings, &key.client_id)?;
            assert!(entry.clients > 0, "an instance that can be shared has a client: {}", key.client_id);
            entry.clients += 1;
            // The last client may be closing and have stopped them.
            instance.start_timers();
            return Ok(Self::new(instance, Some(key)));
        }
        let instance = Instance::start(&identity, names, config, runtime);
        let entry = Entry { instance: Arc::downgrade(&instance), settings, clients: 1 };
        let before = entries.insert(key.clone(), entry);
        let is_gone = before.is_none_or(|before| before.instance.strong_count() == 0);
        assert!(is_gone, "an instance is replaced once it is gone: {}", key.client_id);
        Ok(Self::new(instance, Some(key)))
    }

    fn new(instance: Arc<Instance>, key: Option<Key>) -> Self {
        Self { instance, key, given_back: AtomicBool::new(false) }
    }

    /// Stops the instance's timers when no other client shares it, so that a heartbeat that waits for a dead broker does not delay
    /// the close. A client that comes meanwhile starts them again.
    pub(crate) fn stop_timers_if_last(&self) {
        let Some(key) = &self.key else { return self.instance.stop_timers() };
        let entries = INSTANCES.get().lock();
        if entries.get(key).is_none_or(|entry| entry.clients == 1) {
            self.instance.stop_timers();
        }
    }

    /// Gives the share back. True when it was the last one: the caller then stops the instance. A second call does nothing.
    pub(crate) fn give_back(&self) -> bool {
        if self.given_back.swap(true, Ordering::AcqRel) {
            return false;
        }
        let Some(key) = &self.key else { return true };
        let mut entries = INSTANCES.get().lock();
        let Some(entry) = entries.get_mut(key) else { return true };
        assert!(entry.clients > 0, "an instance counts each of its clients until it gives its share back");
        entry.clients -= 1;
        if entry.clients > 0 {
            return false;
        }
        entries.remove(key);
        true
    }
}

impl Key {
    fn of(identity: &Identity, names: &NameServers, runtime: &Handle) -> Self {
        let mut name_servers = names.all().to_vec();
        name_servers.sort();
        Self { client_id: identity.client_id.clone(), name_servers, runtime: runtime.id() }
    }
}

impl Settings {
    fn of(config: &ClientConfig) -> Self {
        Self {
            connect_timeout: config.connect_timeout,
            route_refresh_interval: config.route_refresh_interval,
            heartbeat_interval: config.heartbeat_interval,
            tls: config.tls.clone(),
            credentials: config.credentials.clone(),
        }
    }

    fn check(&self, other: &Self, client_id: &str) -> Result<(), ClientError> {
        let fields = [
            ("connect_timeout", self.connect_timeout, other.connect_timeout),
            ("route_refresh_interval", self.route_refresh_interval, other.route_refresh_interval),
            ("heartbeat_interval", self.heartbeat_interval, other.heartbeat_interval),
        ];
        let hidden = [("tls", self.tls != other.tls), ("credentials", self.credentials != other.credentials)];
        if let Some((field, _)) = hidden.into_iter().find(|(_, differs)| *differs) {
            let reason = format!("clients that share the instance {client_id} must agree");
            return Err(ClientError::InvalidConfig { field, reason });
        }
        match fields.into_iter().find(|(_, shared, own)| shared != own) {
            None => Ok(()),
            Some((field, shared, _)) => {
                let reason = format!("clients that share the instance {client_id} must agree: {shared:?}");
                Err(ClientError::InvalidConfig { field, reason })
            }
        }
    }
}
