//! What is known and checked of a request after it was admitted.

use std::net::SocketAddr;
use std::sync::Arc;

use rocketpy_model::printable::beginning;
use rocketpy_protocol::{Command, signature};
use rocketpy_remoting::Response;

use super::{Denial, Guard, access_key};
use crate::Caller;
use crate::content::Account;
use crate::needs::{Need, Target, needs, target_of_group, target_of_messages};
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
            Some(account) => self.allows(account, request.code, &need, from),
            None => Err(Denial::NoUser),
        };
        allowed.err().map(|denial| self.refuse(from, request, &denial))
    }

    /// Whether the user of an admitted request may change a cluster that the request does not name. `false` leaves no line in the audit log.
    pub fn may_update_cluster(&self, from: SocketAddr, request: &Command, cluster: &str) -> bool {
        self.check_cluster(from, request, cluster).is_ok()
    }

    /// The refusal of an admitted request that changes or asks for a cluster that it does not name, as the remark of the answer.
    pub fn denial_of_cluster(&self, from: SocketAddr, request: &Command, cluster: &str) -> Option<String> {
        let denial = self.check_cluster(from, request, cluster).err()?;
        let _ = self.refuse(from, request, &denial);
        Some(denial.to_string())
    }

    fn check_cluster(&self, from: SocketAddr, request: &Command, cluster: &str) -> Result<(), Denial> {
        if !self.rules.authentication || !self.authorizes(request.code) {
            return Ok(());
        }
        let account = self.user_of(request).and_then(|name| self.accounts.account(name));
        let account = account.ok_or(Denial::NoUser)?;
        let needs =
            needs(request).map_err(|source| Denial::NoNeeds { user: account.user.name.clone(), source })?;
        let actions = needs.first().map_or(Actions::ALL, |need| need.actions);
        self.allows(&account, request.code, &Need { target: Target::Cluster(cluster.into()), actions }, from)
    }

    /// Whether a user may have messages that are sent later than its request: rights may have been taken away since. It leaves no line in the
    /// audit log. The code is that of the message that carries them; without a user its request needed none.
    pub fn still_permits(&self, code: i32, user: Option<&str>, from: SocketAddr, permit: Permit<'_>) -> bool {
        self.check_permit(code, user, from, permit).is_ok()
    }

    /// The refusal of messages that a held request has waited for, unless its user may still have them.
    pub fn refusal_of_permit(
        &self,
        code: i32,
        user: Option<&str>,
        from: SocketAddr,
        permit: Permit<'_>,
    ) -> Option<Response> {
        let denial = self.check_permit(code, user, from, permit).err()?;
        let mut request = Command::bare_request(code);
        if let Some(user) = user {
            request.ext.push(signature::ACCESS_KEY, user);
        }
        Some(self.refuse(from, &request, &denial))
    }

    /// The refusal of a request that was admitted and has waited, unless its user may still send it. Neither signature nor proof is checked
    /// again.
    pub fn refusal_after_wait(&self, from: SocketAddr, request: &Command) -> Option<Response> {
        let account = self.account_after_wait(request.code, self.user_of(request));
        let checked = account.and_then(|account| match account {
            Some(account) if !account.user.is_super() => self.authorize(&account, request, from),
            _ => Ok(()),
        });
        checked.err().map(|denial| self.refuse(from, request, &denial))
    }

    /// Whether a user that was admitted may still send requests and be sent messages; without one none was needed.
    pub fn still_admits(&self, user: Option<&str>) -> bool {
        user.is_none_or(|user| self.enabled(user).is_ok())
    }

    fn check_permit(
        &self,
        code: i32,
        user: Option<&str>,
        from: SocketAddr,
        Permit { topic, group, actions }: Permit<'_>,
    ) -> Result<(), Denial> {
        let Some(account) = self.account_after_wait(code, user)? else { return Ok(()) };
        let targets = [Some(target_of_messages(topic)), group.map(target_of_group)];
        let mut needs = targets.into_iter().flatten().map(|target| Need { target, actions });
        needs.try_for_each(|need| self.allows(&account, code, &need, from))
    }

    /// The account whose policies decide; `None` where no policy is needed.
    fn account_after_wait(&self, code: i32, user: Option<&str>) -> Result<Option<Arc<Account>>, Denial> {
        let needs_policy = self.rules.authentication && self.authorizes(code);
        let Some(user) = user else { return if needs_policy { Err(Denial::NoUser) } else { Ok(None) } };
        let account = self.enabled(user)?;
        Ok(needs_policy.then_some(account))
    }

    pub(super) fn enabled(&self, user: &str) -> Result<Arc<Account>, Denial> {
        let account = self.accounts.account(user);
        let account = account.ok_or_else(|| Denial::Unknown(beginning(user).into_owned()))?;
        match account.user.status {
            UserStatus::Enable => Ok(account),
            UserStatus::Disable => Err(Denial::Disabled(account.user.name.clone())),
        }
    }
}
