//! Requests: [`route`] leads from a code to its function, the other files hold the functions.

mod accounts;
mod client;
pub(crate) mod end_transaction;
mod forward;
mod group;
pub(crate) mod held;
#[cfg(test)]
mod look_up_tests;
mod message;
mod new_topic;
mod offset;
mod page;
mod pull;
pub(crate) mod quota;
pub(crate) mod recall;
mod reset;
pub(crate) mod rooms;
pub(crate) mod route;
mod runtime_info;
mod send;
pub(crate) mod send_back;
mod send_reply;
#[cfg(test)]
mod slow_disk_tests;
mod state;
mod statistics;
mod topic;
mod tuning;
mod whole;

use std::sync::Arc;

pub(crate) use client::expire;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request as code;
use rocketpy_remoting::{BadEnd, Connection, Handler, Reply};
use route::{Route, route_of};
use tracing::debug;

use crate::call::{Call, answer};
use crate::desk::Desk;
use crate::metrics::Metric;
use crate::refusal::Refusal;

/// Leads requests to their functions.
pub(crate) struct Processor(pub(crate) Arc<Desk>);

impl Handler for Processor {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        let desk = &self.0;
        if desk.ground.quotas().are_on() {
            return quota::serve_within(desk, request, reply, serve);
        }
        serve(desk, connection, request, reply);
    }

    fn connected(&self, _connection: &Arc<Connection>) {
        self.0.ground.metrics().add(Metric::Connected, 1);
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        let metrics = self.0.ground.metrics();
        metrics.add(Metric::Disconnected, 1);
        match connection.bad_end() {
            Some(BadEnd::Idle) => metrics.add(Metric::IdleDisconnected, 1),
            Some(BadEnd::Failed) => metrics.add(Metric::FailedConnections, 1),
            None => {}
        }
        self.0.held.disconnected(connection.id());
        client::disconnected(&self.0.ground, &self.0.members, &self.0.rooms, connection.id());
    }
}

/// Serves the requests that waited for quotas and pass by now, and rejects those whose time is up.
pub(crate) fn release_by_quotas(desk: &Arc<Desk>) {
    quota::release(desk, serve);
}

/// Leads a request to its function.
fn serve(desk: &Arc<Desk>, connection: &Arc<Connection>, request: Command, reply: Reply) {
    let call = Call { desk, connection, request: &request };
    match route_of(request.code) {
        Some(Route::Replies(function)) => function(call, reply),
        Some(Route::Answers { function, waits }) if waits.for_dispatch(&request) => {
            held::answer_once_dispatched(desk, *function, request, reply);
        }
        Some(Route::Answers { function, .. }) => answer(*function, desk, request, reply),
        Some(Route::Refused { why }) => refuse(call, reply, why),
        None => refuse(call, reply, code::who_answers(request.code)),
    }
}

fn refuse(call: Call<'_>, reply: Reply, why: &'static str) {
    let refusal = Refusal::NotThereYet { code: call.request.code, why };
    debug!(%refusal, peer = %call.connection.peer(), "request refused");
    reply.send(refusal.response());
}
