//! Requests about users and policies.
//!
//! # Source
//! docs/reference/protocol.md 6.3.

use std::sync::Arc;

use bytes::Bytes;
use rocketpy_auth::{Guard, administer};
use rocketpy_protocol::Command;
use rocketpy_remoting::Reply;

use crate::error::Refusal;
use crate::handler::answer_with;
use crate::processor::{Answer, Call, Processor};

impl Processor {
    /// A question about users or policies (codes 3004, 3005, 3009 and 3010).
    pub(crate) fn ask_accounts(&self, Call { request, connection }: Call<'_>) -> Answer {
        let guard = self.guard()?;
        Ok(administer(guard.accounts(), request, guard.caller_of(request), connection.is_private())?)
    }

    /// A change of users or policies (codes 3001 to 3003 and 3006 to 3008).
    pub(crate) fn change_accounts(&self, Call { request, .. }: Call<'_>, reply: Reply) {
        let code = request.code;
        let guard = match self.guard() {
            Ok(guard) => guard,
            Err(refusal) => return answer_with(reply, code, Err(refusal)),
        };
        // A copy: the body is a part of the whole block that was read from the connection.
        let request = Command { body: Bytes::copy_from_slice(&request.body), ..request.clone() };
        // The file is written and flushed.
        drop(tokio::task::spawn_blocking(move || {
            let (by, is_private) = (guard.caller_of(&request), reply.connection().is_private());
            let answer = administer(guard.accounts(), &request, by, is_private);
            answer_with(reply, code, answer.map_err(Refusal::from));
        }));
    }

    /// # Errors
    /// Users are off.
    fn guard(&self) -> Result<Arc<Guard>, Refusal> {
        self.guard_of_port().ok_or(Refusal::UsersOff)
    }
}
