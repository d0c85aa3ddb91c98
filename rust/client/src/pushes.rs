//! Requests that brokers send to this client.

use std::sync::Arc;

use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_remoting::{Connection, Handler, Reply, Response};
use tracing::{debug, warn};

use crate::arrivals::Arrivals;
use crate::members::Members;

/// Handles the brokers' requests to an instance.
///
/// # Source
/// docs/reference/client.md 15, docs/reference/protocol.md 2.4.
#[doc(alias = "ClientRemotingProcessor")]
pub(crate) struct Pushes {
    members: Arc<Members>,
    arrivals: Arc<Arrivals>,
}

impl Pushes {
    pub(crate) fn new(members: Arc<Members>, arrivals: Arc<Arrivals>) -> Self {
        Self { members, arrivals }
    }
}

impl Handler for Pushes {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        match request.code {
            request::NOTIFY_CONSUMER_IDS_CHANGED => {
                let group = request.ext.get("consumerGroup").unwrap_or_default();
                debug!(group, peer = %connection.peer(), "members of a group changed");
                self.members.rebalance(group);
                // Brokers send it one-way; one that waits for an answer gets it.
                reply.send(Response::success());
            }
            code if reply.is_oneway() => {
                warn!(code, peer = %connection.peer(), "broker sent a request that this client does not know, ignored");
                drop(reply);
            }
            code => reply.send(Response::not_supported(code)),
        }
    }

    fn connected(&self, connection: &Arc<Connection>) {
        self.arrivals.connected(connection.peer());
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        debug!(peer = %connection.peer(), "connection ended");
    }
}
