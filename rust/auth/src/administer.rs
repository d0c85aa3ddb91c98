//! Requests about users and policies (codes 3001 to 3010), for a broker and a name server alike.

use rocketpy_protocol::code::{request as code, response};
use rocketpy_protocol::header::{
    AclRequestHeader, DeleteAclRequestHeader, Header, HeaderError, ListAclsRequestHeader,
    ListUsersRequestHeader, UserRequestHeader,
};
use rocketpy_protocol::{Command, json};
use serde::Serialize;

use crate::accounts::{Accounts, Caller};
use crate::{AccountsError, BodyError, request_body};

/// Why a request about users or policies is refused. The text is the remark of the answer, and holds no secret.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum AdministerError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("request body: {0}")]
    Body(#[from] BodyError),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error("request code {code} is not about users or policies")]
    Code { code: i32 },
}

impl AdministerError {
    /// The response code of the refusal.
    pub const fn code(&self) -> i32 {
        match self {
            Self::Header(_) | Self::Body(_) => response::INVALID_PARAMETER,
            Self::Accounts(error) => error.code(),
            Self::Code { .. } => response::REQUEST_CODE_NOT_SUPPORTED,
        }
    }
}

/// Serves a request that passed its checks, of a caller that the guard names. Secrets are answered to a super user on a `private` connection: encrypted, or of this machine.
/// A change blocks until it is on disk.
///
/// # Errors
/// The request is invalid, or names what does not exist; the change is not written.
///
/// # Source
/// docs/reference/protocol.md 6.3.
pub fn administer(
    accounts: &Accounts,
    request: &Command,
    by: Caller,
    is_private: bool,
) -> Result<Command, AdministerError> {
    let success = || Command::response(request, response::SUCCESS);
    match request.code {
        code::AUTH_CREATE_USER | code::AUTH_UPDATE_USER | code::AUTH_DELETE_USER => {
            let UserRequestHeader { username } = UserRequestHeader::read(&request.ext)?;
            match request.code {
                code::AUTH_CREATE_USER => {
                    accounts.create_user(username, &request_body::user(&request.body)?, by)?
                }
                code::AUTH_UPDATE_USER => {
                    accounts.update_user(username, &request_body::user(&request.body)?, by)?
                }
                _ => accounts.delete_user(username, by)?,
            }
            Ok(success())
        }
        code::AUTH_CREATE_ACL | code::AUTH_UPDATE_ACL => {
            let AclRequestHeader { subject } = AclRequestHeader::read(&request.ext)?;
            accounts.set_policies(subject, &request_body::policies(&request.body)?, by)?;
            Ok(success())
        }
        code::AUTH_DELETE_ACL => {
            let DeleteAclRequestHeader { subject, policy_type, resource } =
                DeleteAclRequestHeader::read(&request.ext)?;
            accounts.delete_policies(subject, policy_type, resource, by)?;
            Ok(success())
        }
        _ => {
            let shows_secrets = is_private && by == Caller::Super;
            let found = answer(accounts, request, shows_secrets)?;
            Ok(found.map_or_else(success, |json| success().with_body(json)))
        }
    }
}

/// The body of the answer to a question; `None` where nothing is found.
fn answer(
    accounts: &Accounts,
    request: &Command,
    shows_secrets: bool,
) -> Result<Option<Vec<u8>>, AdministerError> {
    match request.code {
        code::AUTH_GET_USER => {
            let UserRequestHeader { username } = UserRequestHeader::read(&request.ext)?;
            Ok(accounts.user(username).map(|user| json_of(&user.info(shows_secrets))))
        }
        code::AUTH_LIST_USER => {
            let header = ListUsersRequestHeader::read(&request.ext)?;
            let users = accounts.users(header.filter.unwrap_or_default());
            let users: Vec<_> = users.iter().map(|user| user.info(shows_secrets)).collect();
            Ok(Some(json_of(&users)))
        }
        code::AUTH_GET_ACL => {
            let AclRequestHeader { subject } = AclRequestHeader::read(&request.ext)?;
            Ok(accounts.policies_of(subject)?.as_ref().map(json_of))
        }
        code::AUTH_LIST_ACL => {
            let header = ListAclsRequestHeader::read(&request.ext)?;
            let subject = header.subject_filter.unwrap_or_default();
            Ok(Some(json_of(&accounts.policies(subject, header.resource_filter.unwrap_or_default()))))
        }
        code => Err(AdministerError::Code { code }),
    }
}

fn json_of<T: Serialize>(value: &T) -> Vec<u8> {
    let mut json = json::to_vec(value);
    // Spare capacity would wait with the answer, and the budget does not count it.
    json.shrink_to_fit();
    json
}
