//! Leads requests to their functions.

use std::sync::Arc;

use rocketpy_protocol::Command;
use rocketpy_protocol::code::request::who_answers;
use rocketpy_remoting::{Connection, Handler, Reply, Response};
use tracing::debug;

use crate::error::Refusal;
use crate::processor::{Answer, Call, Processor};
use crate::request::{Route, route_of};

impl Handler for Processor {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        let call = Call { connection, request: &request };
        let answer = match route_of(request.code) {
            Some(Route::Served(function)) => function(self, call),
            Some(Route::AnsweredLater(function)) => return function(self, call, reply),
            None => Err(Refusal::NotSupported { code: request.code, why: who_answers(request.code) }),
        };
        answer_with(reply, request.code, answer);
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        self.connection_closed(connection.id());
    }
}

/// Sends the answer, or the refusal.
pub(crate) fn answer_with(reply: Reply, code: i32, answer: Answer) {
    match answer {
        Ok(answer) => reply.send(answer),
        Err(refusal) => {
            debug!(peer = %reply.connection().peer(), code, %refusal, "request refused");
            reply.send(Response::status(refusal.code(), refusal.to_string()));
        }
    }
}
