//! The check of every request: who sends it, whether it was sent before, whether its user may.

mod admitted;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rocketpy_env::now_ms;
use rocketpy_model::printable::beginning;
use rocketpy_protocol::code::request::{self, Effect, Party};
use rocketpy_protocol::code::response;
use rocketpy_protocol::proof::{self, Proof};
use rocketpy_protocol::{Command, signature};
use rocketpy_remoting::{Connection, RequestCheck, Response};

pub use self::admitted::Permit;
use crate::audit::{Audit, Audited};
use crate::content::Account;
use crate::needs::{Need, Needs, NeedsError, Target, needs};
use crate::policy::{Actions, Decision};
use crate::replay::{ReplayWindow, Replayed};
use crate::rules::{Rules, is_replication};
use crate::{Accounts, Caller};

/// Checks requests against users and policies. It never waits.
pub struct Guard {
    accounts: Arc<Accounts>,
    rules: Rules,
    audit: Option<Arc<Audit>>,
    window: ReplayWindow,
    denied: AtomicU64,
}

/// What a guard has done since the start, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardFigures {
    /// Users now.
    pub users: usize,
    /// Requests denied.
    pub denied: u64,
    /// Lines that the audit log left out.
    pub audit_lines_left_out: u64,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Denial {
    #[error("username cannot be null.")]
    NoUser,
    #[error("User:{0} is not found.")]
    Unknown(String),
    #[error("User:{0} is disabled.")]
    Disabled(String),
    #[error("check signature failed.")]
    Signature,
    #[error("check proof failed: field RpProof of User:{0} does not match the request (code, fields, body)")]
    Proof(String),
    #[error("request of User:{user} needs a proof (field RpProof), which clients of RocketPy add: {why}")]
    NoProof { user: String, why: &'static str },
    #[error("request of User:{user} is refused: {source}")]
    Replayed { user: String, source: Replayed },
    #[error("request of User:{0} is refused: field RpProof is malformed")]
    MalformedProof(String),
    #[error(
        "User:{user} has no permission to access {resource} from {from}, {why} (action {actions}, request {})",
        name_of(*.code)
    )]
    NotAllowed {
        user: String,
        resource: String,
        from: IpAddr,
        why: &'static str,
        actions: Actions,
        code: i32,
    },
    #[error("User:{user} has no permission: {source}")]
    NoNeeds { user: String, source: NeedsError },
}

const NO_POLICY: &str = "no matched policies.";
const DENIED: &str = "the decision is deny.";
const SUPER_ONLY: &str = "only a super user may.";

impl Guard {
    /// A guard of these users. [`Rules::check`] says whether the rules close every door.
    pub fn new(accounts: Arc<Accounts>, rules: Rules, audit: Option<Arc<Audit>>) -> Arc<Self> {
        Arc::new(Self { accounts, rules, audit, window: ReplayWindow::new(), denied: AtomicU64::new(0) })
    }

    /// The users that it checks against.
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// What it has done since the start.
    pub fn figures(&self) -> GuardFigures {
        GuardFigures {
            users: self.accounts.count(),
            denied: self.denied.load(Ordering::Relaxed),
            audit_lines_left_out: self.audit.as_ref().map_or(0, |audit| audit.not_written()),
        }
    }

    /// Checks a request that came from `from` at `now_ms`, in milliseconds since 1970.
    fn check(&self, request: &Command, from: SocketAddr, now_ms: i64) -> Result<(), Denial> {
        if !self.rules.authentication {
            return Ok(());
        }
        let account = match self.authenticate(request, now_ms) {
            Ok(account) => Some(account),
            Err(_) if self.rules.authentication_whitelist.contains(&request.code) => None,
            Err(denial) => return Err(denial),
        };
        if !self.authorizes(request.code) {
            return Ok(());
        }
        let account = account.ok_or(Denial::NoUser)?;
        if !account.user.is_super() {
            self.authorize(&account, request, from)?;
        }
        Ok(())
    }

    /// The user that sent the request, if it proves to be.
    fn authenticate(&self, request: &Command, now_ms: i64) -> Result<Arc<Account>, Denial> {
        let name = access_key(request).ok_or(Denial::NoUser)?;
        let account = self.enabled(name)?;
        let user = &account.user;
        let proof = Proof::read(request).map_err(|_| Denial::MalformedProof(user.name.clone()))?;
        let Some(proof) = proof else {
            if self.rules.require_proof || is_replication(request.code) {
                let why = if self.rules.require_proof { "authRequireProof is set" } else { "it replicates" };
                return Err(Denial::NoProof { user: user.name.clone(), why });
            }
            let is_signed = user.secrets.iter().any(|secret| signature::is_signed(request, secret));
            // Behind the signature: only who has the secret learns of it.
            let is_sound = is_signed && !proof::is_disguised(request);
            return if is_sound { Ok(account) } else { Err(Denial::Signature) };
        };
        // The proof covers all that the signature covers, and its field is in every request of a client that makes proofs.
        if !user.secrets.iter().any(|secret| proof.is_of(request, secret)) {
            // A wrong secret breaks both. Where the signature holds, the secret is right and the request is another one.
            let is_signed = user.secrets.iter().any(|secret| signature::is_signed(request, secret));
            return Err(if is_signed { Denial::Proof(user.name.clone()) } else { Denial::Signature });
        }
        let accepted = self.window.accept(user.is_super(), &user.name, &proof, now_ms);
        accepted.map_err(|source| Denial::Replayed { user: user.name.clone(), source })?;
        Ok(account)
    }

    /// Whether a user that is not a super user may do what the request needs.
    fn authorize(&self, account: &Account, request: &Command, from: SocketAddr) -> Result<(), Denial> {
        let needs: Needs<'_> =
            needs(request).map_err(|source| Denial::NoNeeds { user: account.user.name.clone(), source })?;
        needs.iter().try_for_each(|need| self.allows(account, request.code, need, from))
    }

    fn allows(&self, account: &Account, code: i32, need: &Need<'_>, from: SocketAddr) -> Result<(), Denial> {
        if account.user.is_super() {
            return Ok(());
        }
        let Err(why) = self.decide(account, need, from.ip()) else { return Ok(()) };
        Err(Denial::NotAllowed {
            user: account.user.name.clone(),
            resource: self.text_of(&need.target),
            from: from.ip().to_canonical(),
            why,
            actions: need.actions,
            code,
        })
    }

    /// # Errors
    /// Why the policies of a user that is not a super user deny it.
    fn decide(&self, account: &Account, need: &Need<'_>, from: IpAddr) -> Result<(), &'static str> {
        let Some(resource) = need.target.resource(&self.rules.cluster) else { return Err(SUPER_ONLY) };
        match account.rulebook.decide(resource, need.actions, from) {
            Some(Decision::Allow) => Ok(()),
            Some(Decision::Deny) => Err(DENIED),
            None => Err(NO_POLICY),
        }
    }

    fn text_of(&self, target: &Target<'_>) -> String {
        match (target.resource(&self.rules.cluster), target) {
            (Some((kind, name)), _) => format!("{}:{}", kind.name(), beginning(name)),
            (None, Target::OfOthers(name)) => format!("Topic:{name}"),
            (None, _) => format!("Cluster:{}", self.rules.cluster),
        }
    }

    /// Answers a denied request and writes it into the audit log.
    fn refuse(&self, from: SocketAddr, request: &Command, denial: &Denial) -> Response {
        let remark = denial.to_string();
        self.denied.fetch_add(1, Ordering::Relaxed);
        if let Some(audit) = &self.audit {
            let (resource, actions) = match denial {
                Denial::NotAllowed { resource, actions, .. } => (resource.clone(), actions.to_string()),
                _ => (String::new(), String::new()),
            };
            audit.denied(from, audited(request, resource, actions, &remark));
        }
        let code = match denial {
            // The handler of an unknown code would say the same.
            Denial::NoNeeds { source: NeedsError::NoEntry { .. }, .. } => {
                return with_reason(Response::not_supported(request.code));
            }
            Denial::Replayed { source: Replayed::TooManyStreams, .. } => response::SYSTEM_BUSY,
            _ => response::NO_PERMISSION,
        };
        with_reason(Response::status(code, remark))
    }

    /// Writes an admitted change of an administrator into the audit log, and a request that reads passwords.
    fn note_admitted(&self, from: SocketAddr, request: &Command, is_private: bool) {
        let is_change = matches!(
            request::of(request.code),
            Some(row) if row.effect == Effect::Change && row.asked_by == Party::Administrator
        );
        if is_change {
            self.note(from, request, "admitted");
        } else if is_private && self.reads_secrets(request) {
            self.note(from, request, "admitted, the answer has passwords");
        }
    }

    /// Whether a super user asks for users that are there, which a private connection answers with passwords.
    fn reads_secrets(&self, request: &Command) -> bool {
        let is_there = match request.code {
            request::AUTH_GET_USER => {
                request.ext.get("username").is_some_and(|name| self.accounts.account(name).is_some())
            }
            code => code == request::AUTH_LIST_USER,
        };
        is_there && self.caller_of(request) == Caller::Super
    }

    /// Writes an admitted request into the audit log.
    pub fn note(&self, from: SocketAddr, request: &Command, result: &str) {
        let Some(audit) = &self.audit else { return };
        let (resource, actions) = self.changed(request);
        let audited = audited(request, resource, actions, result);
        match self.caller_of(request) {
            Caller::Super => audit.admitted(from, audited),
            Caller::Normal => audit.admitted_normal(from, audited),
        }
    }

    /// What a change is about: the user, for changes of users and policies; else what it needs.
    fn changed(&self, request: &Command) -> (String, String) {
        let needs = needs(request).unwrap_or_default();
        let actions = needs.first().map_or_else(String::new, |need| need.actions.to_string());
        let subject = request.ext.get("subject").map(|subject| beginning(subject).into_owned());
        let user = || request.ext.get("username").map(|name| format!("User:{}", beginning(name)));
        let is_of_users = matches!(request.code, request::AUTH_CREATE_USER..=request::AUTH_LIST_ACL);
        let named = if is_of_users { subject.or_else(user) } else { None };
        let needed =
            || needs.iter().take(MAX_NAMED).map(|need| self.text_of(&need.target)).collect::<Vec<_>>();
        (named.unwrap_or_else(|| needed().join(",")), actions)
    }
}

/// Maximum number of resources that a line of the audit log names.
const MAX_NAMED: usize = 10;

impl RequestCheck for Guard {
    fn refusal(&self, connection: &Arc<Connection>, request: &Command) -> Option<Response> {
        let from = connection.peer();
        match self.check(request, from, now_ms()) {
            Ok(()) => {
                self.note_admitted(from, request, connection.is_private());
                None
            }
            Err(denial) => Some(self.refuse(from, request, &denial)),
        }
    }
}

/// The user that a request names. The C++ client sends an empty name without credentials.
fn access_key(request: &Command) -> Option<&str> {
    request.ext.get(signature::ACCESS_KEY).filter(|name| !name.is_empty())
}

fn name_of(code: i32) -> String {
    request::name_of(code).map_or_else(|| code.to_string(), str::to_owned)
}

fn audited(request: &Command, resource: String, action: String, result: &str) -> Audited {
    Audited {
        user: access_key(request).map(|name| beginning(name).into_owned()),
        code: request.code,
        resource,
        action,
        result: result.to_owned(),
    }
}

fn with_reason(mut response: Response) -> Response {
    response.refused_for = Some("permission");
    response
}

#[cfg(test)]
mod tests;
