//! What is known and checked of a request after it was admitted.

use std::net::SocketAddr;

use rocketpy_protocol::Command;
use rocketpy_remoting::Response;

use super::{Denial, Guard, access_key};
use crate::Caller;
use crate::needs::{Need, target_of_group, target_of_messages};
use crate::policy::Actions;
use crate::rules::is_always_checked;
use crate::user::UserStatus;

/// Messages that a user has asked for: of a topic, in a group.
#[derive(Debug, Clone, Copy)]
pub struct Permit<'a> {
    /// The topic that they are for.
    pub topic: &'a str,
    /// The group that reads them.
    pub group: Option<&'a str>,
    /// One of these is enough.
    pub actions: Actions,
}

impl Guard {
    /// Whether users need policies for a request.
    pub(super) fn authorizes(&self, code: i32) -> bool {
        let is_listed = self.rules.authorization_whitelist.contains(&code);
        self.rules.authorization && !is_listed || is_always_checked(code)
    }

    /// The user of a request that was admitted, for quotas and changes of users. Policies need a user that was proved, whatever the list of
    /// codes without one says.
    pub fn user_of<'a>(&self, request: &'a Command) -> Option<&'a str> {
        let is_listed = self.rules.authentication_whitelist.contains(&request.code);
        let is_open = is_listed && !self.authorizes(request.code);
        access_key(request).filter(|_| self.rules.authentication && !is_open)
    }

    /// Who asks for a change of users, in a request that was admitted.
    pub fn caller_of(&self, request: &Command) -> Caller {
        if !self.rules.authentication {
            return Caller::Super;
        }
        let account = self.user_of(request).and_then(|name| self.accounts.account(name));
        match account {
            Some(account) if account.user.is_super() => Caller::Super,
            _ => Caller::Normal,
        }
    }

    /// The refusal of a request about a topic that only its record names, as of END_TRANSACTION: it names a place in the log. One of the
    /// actions is enough. `from` is the peer.
    pub fn refusal_of_topic(
        &self,
        from: SocketAddr,
        request: &Command,
        topic: &str,
        actions: Actions,
    ) -> Option<Response> {
        if !self.authorizes(request.code) {
            return None;
        }
        let target = target_of_messages(topic);
        let need = Need { target, actions };
        let account = self.user_of(request).and_then(|name| self.accounts.account(name));
        let allowed = match &account {
            Some(account) => self.allows(account, request, &need, from),
            None => Err(Denial::NoUser),
        };
        allowed.err().map(|denial| self.refuse(from, request, &denial))
    }

    /// Whether a user may have messages that go out later than its request: rights may have been taken away since. It leaves no line in the
    /// audit log. The code is that of the message that carries them; without a user its request needed none.
    pub fn still_permits(&self, code: i32, user: Option<&str>, from: SocketAddr, permit: Permit<'_>) -> bool {
        let Some(user) = user else { return !self.authorizes(code) };
        let Some(account) = self.accounts.account(user) else { return false };
        if account.user.status == UserStatus::Disable {
            return false;
        }
        let Permit { topic, group, actions } = permit;
        let targets = [Some(target_of_messages(topic)), group.map(target_of_group)];
        let mut needs = targets.into_iter().flatten().map(|target| Need { target, actions });
        !self.authorizes(code)
            || account.user.is_super()
            || needs.all(|need| self.decide(&account, &need, from.ip()).is_ok())
    }
}
