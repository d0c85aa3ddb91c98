//! Requests about users and policies, and the copy of them for a slave.
//!
//! # Source
//! docs/reference/protocol.md 6.3.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_auth::{Action, Actions, Guard, Permit, administer};
use rocketpy_model::{property, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::header::{HeaderError, key};
use rocketpy_protocol::record::RecordView;
use rocketpy_remoting::{Reply, Response};

use crate::blocking::aside;
use crate::call::{Answer, Call, answer_later, without_body};
use crate::desk::Desk;
use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::slave::{VERSION, version_text};
use crate::table::client::Member;

/// A question about users or policies (codes 3004, 3005, 3009 and 3010).
pub(super) fn ask(Call { desk, request, connection }: Call<'_>) -> Answer {
    let guard = guard(desk)?;
    let by = guard.caller_of(request);
    Ok(administer(guard.accounts(), request, by, connection.is_private())?.into())
}

/// A change of users or policies (codes 3001 to 3003 and 3006 to 3008). Slaves copy it.
pub(super) fn change(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let guard = desk.ground.check_master(OfMaster::Change).and_then(|()| guard(desk));
    let guard = match guard {
        Ok(guard) => guard,
        Err(refusal) => return reply.send(refusal.response()),
    };
    // A copy: the body is a part of the whole block that was read from the connection.
    let request = Command { body: Bytes::copy_from_slice(&request.body), ..request.clone() };
    let (owner, is_private) = (desk.clone(), reply.connection().is_private());
    answer_later(desk.ground.tasks(), reply, async move {
        let by = guard.caller_of(&request);
        let answer = aside(move || administer(guard.accounts(), &request, by, is_private)).await?;
        owner.acks.tables_at_slaves().have_change().await?;
        Ok(answer.into())
    });
}

/// COPY_ACCOUNTS: all users and policies, encrypted; nothing where the slave has this version.
pub(super) fn copy(Call { desk, request, connection }: Call<'_>) -> Answer {
    let guard = guard(desk)?;
    let config = desk.ground.config();
    let Some(credentials) = &config.auth.credentials else { return Err(Refusal::UsersOff) };
    let nonce = request.ext.get(key::NONCE).filter(|nonce| !nonce.is_empty());
    let nonce = nonce.ok_or(HeaderError::Missing { field: key::NONCE })?;
    let snapshot = guard.accounts().snapshot();
    let version = version_text(snapshot.version());
    let mut answer = Response::success();
    if request.ext.get(VERSION) != Some(&version) {
        answer.command.body = snapshot.seal(&credentials.secret_key, nonce.as_bytes())?.into();
        guard.note(connection.peer(), request, "admitted, the answer has all users for a slave");
    }
    answer.command.ext.push(VERSION, &version);
    Ok(answer)
}

/// The denial of a request that has waited: its user may have lost its rights since. `None` while users are off.
pub(super) fn refusal_after_wait(desk: &Desk, request: &Command, reply: &Reply) -> Option<Response> {
    let config = desk.ground.config();
    config.auth.guard.as_ref()?.refusal_after_wait(reply.connection().peer(), request)
}

/// Checks the topic of a record that a request names by its place in the log.
pub(super) struct RecordCheck {
    guard: Arc<Guard>,
    from: SocketAddr,
    /// Without its body.
    request: Command,
}

impl RecordCheck {
    /// `None` while users are off.
    pub(super) fn of(Call { desk, request, connection }: Call<'_>) -> Option<Self> {
        let guard = desk.ground.config().auth.guard.clone()?;
        Some(Self { guard, from: connection.peer(), request: without_body(request.clone()) })
    }

    /// The denial, unless the user may do one of these with the topic of the record at an offset.
    pub(super) fn refusal(&self, offset: i64, record: &[u8], actions: &[Action]) -> Option<Response> {
        let Ok(record) = RecordView::parse(record) else {
            return Some(Refusal::NoMessageAt { offset }.response());
        };
        self.guard.refusal_of_topic(self.from, &self.request, topic_of(&record), Actions::of(actions))
    }

    /// Whether a member of a group may read the record: its user may have lost its rights since its heartbeat.
    pub(super) fn permits(&self, member: &Member, group: &str, record: &[u8]) -> bool {
        RecordView::parse(record).is_ok_and(|record| {
            let messages =
                Permit { topic: topic_of(&record), group: Some(group), actions: Actions::of(&[Action::Sub]) };
            let (user, from) = (member.user.as_deref(), member.connection.peer());
            self.guard.still_permits(self.request.code, user, from, messages)
        })
    }
}

/// The topic of a record. Of a half message or one that waits for its time, the topic that it is for.
fn topic_of<'a>(record: &'a RecordView<'_>) -> &'a str {
    let real = record.property(property::REAL_TOPIC).filter(|_| system::is_system_topic(record.topic));
    real.unwrap_or(record.topic)
}

/// # Errors
/// Users are off.
fn guard(desk: &Arc<Desk>) -> Result<Arc<Guard>, Refusal> {
    desk.ground.config().auth.guard.clone().ok_or(Refusal::UsersOff)
}

#[cfg(test)]
mod tests {
    use rocketpy_auth::{Accounts, Rules};
    use rocketpy_protocol::code::{request, response};

    use super::*;

    #[test]
    fn record_that_cannot_be_parsed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let accounts = Accounts::open(folder.path().join("users.json")).unwrap();
        let guard = Guard::new(accounts, Rules::default(), None);
        let request = Command::bare_request(request::VIEW_MESSAGE_BY_ID);
        let check = RecordCheck { guard, from: "10.0.0.1:1".parse().unwrap(), request };
        let refused = check.refusal(7, b"not a record", &[Action::Sub]).unwrap();
        assert_eq!(refused.command.code, response::SYSTEM_ERROR);
        assert!(refused.command.remark.unwrap().contains("offset 7"));
    }
}
