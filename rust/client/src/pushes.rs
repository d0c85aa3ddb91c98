//! Requests that brokers send to this client.

use std::sync::{Arc, Weak};

use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_remoting::{Connection, Handler, Reply, Response};
use tracing::{debug, warn};

use crate::instance::Instance;

/// Takes the brokers' requests for an instance that may be gone.
///
/// # Source
/// docs/reference/client.md 15, docs/reference/protocol.md 2.4.
#[doc(alias = "ClientRemotingProcessor")]
pub(crate) struct Pushes {
    instance: Weak<Instance>,
}

impl Pushes {
    pub(crate) fn new(instance: &Arc<Instance>) -> Self {
        Self { instance: Arc::downgrade(instance) }
    }
}

impl Handler for Pushes {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        match request.code {
            request::NOTIFY_CONSUMER_IDS_CHANGED => {
                let group = request.ext.get("consumerGroup").unwrap_or_default();
                debug!(group, peer = %connection.peer(), "members of a group changed");
                if let Some(instance) = self.instance.upgrade() {
                    instance.members.rebalance(group);
                }
                // The broker sends it one-way; one that does not gets its answer.
                reply.send(Response::success());
            }
            code => {
                if !reply.is_oneway() {
                    reply.send(Response::not_supported(code));
                    return;
                }
                warn!(code, peer = %connection.peer(), "broker asked for what this client does not do, ignored");
                drop(reply);
            }
        }
    }

    fn connected(&self, connection: &Arc<Connection>) {
        if let Some(instance) = self.instance.upgrade() {
            instance.connected(connection.peer());
        }
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        debug!(peer = %connection.peer(), "connection ended");
    }
}
