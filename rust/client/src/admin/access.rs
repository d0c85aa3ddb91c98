//! Users and policies of one server: a broker, or a name server of RocketPy.

use rocketpy_protocol::body::{AclInfo, UserInfo};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    AclRequestHeader, DeleteAclRequestHeader, ListAclsRequestHeader, ListUsersRequestHeader,
    UserRequestHeader,
};
use rocketpy_protocol::{Command, json};

use super::Admin;
use crate::error::{ACCESS_CHANGE, ACCESS_QUERY, ClientError};
use crate::wire;

/// First part of the subject of a user's policies.
const USER: &str = "User:";

impl Admin {
    /// The users of a server, without their secrets.
    ///
    /// # Errors
    /// Those of reaching the server; that of one that does not know the request, as Apache's name servers.
    #[doc(alias = "listUser")]
    pub async fn users(&self, server: &str) -> Result<Vec<UserInfo>, ClientError> {
        let header = ListUsersRequestHeader { filter: Some("") };
        let users: Vec<UserInfo> =
            self.access_answer(server, Command::request(request::AUTH_LIST_USER, &header)).await?;
        let open = |user| UserInfo { password: None, new_password: None, ..user };
        Ok(users.into_iter().map(open).collect())
    }

    /// Creates a user at a server.
    ///
    /// # Errors
    /// [`ClientError::Refused`] where the user exists; those of [`Self::users`].
    #[doc(alias = "createUser")]
    pub async fn create_user(&self, server: &str, name: &str, user: &UserInfo) -> Result<(), ClientError> {
        self.change_user(server, request::AUTH_CREATE_USER, name, user).await
    }

    /// Changes what `user` has of a user at a server.
    ///
    /// # Errors
    /// [`ClientError::Refused`] where there is no such user; those of [`Self::users`].
    #[doc(alias = "updateUser")]
    pub async fn update_user(&self, server: &str, name: &str, user: &UserInfo) -> Result<(), ClientError> {
        self.change_user(server, request::AUTH_UPDATE_USER, name, user).await
    }

    /// Deletes a user and its policies from a server. One that does not exist is no error.
    ///
    /// # Errors
    /// Those of [`Self::users`].
    #[doc(alias = "deleteUser")]
    pub async fn delete_user(&self, server: &str, name: &str) -> Result<(), ClientError> {
        let header = UserRequestHeader { username: name };
        self.change_access(server, Command::request(request::AUTH_DELETE_USER, &header)).await
    }

    /// The policies of all users of a server.
    ///
    /// # Errors
    /// Those of [`Self::users`].
    #[doc(alias = "listAcl")]
    pub async fn policies(&self, server: &str) -> Result<Vec<AclInfo>, ClientError> {
        let header = ListAclsRequestHeader { subject_filter: Some(""), resource_filter: Some("") };
        self.access_answer(server, Command::request(request::AUTH_LIST_ACL, &header)).await
    }

    /// Adds entries to the policies of a user, or replaces those of the same type and resource.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an unknown user or an invalid entry; the errors of [`Self::users`].
    #[doc(alias = "updateAcl")]
    pub async fn put_policies(&self, server: &str, user: &str, acl: AclInfo) -> Result<(), ClientError> {
        let subject = format!("{USER}{user}");
        let header = AclRequestHeader { subject: &subject };
        let body = AclInfo { subject: Some(subject.clone()), ..acl };
        let request = Command::request(request::AUTH_UPDATE_ACL, &header).with_body(json::to_vec(&body));
        self.change_access(server, request).await
    }

    /// Removes the entry of a type and resource from the policies of a user; without a resource all of them.
    ///
    /// # Errors
    /// [`ClientError::Refused`] where the user has no policies; those of [`Self::users`].
    #[doc(alias = "deleteAcl")]
    pub async fn delete_policies(
        &self,
        server: &str,
        user: &str,
        policy_type: Option<&str>,
        resource: Option<&str>,
    ) -> Result<(), ClientError> {
        let subject = format!("{USER}{user}");
        let header = DeleteAclRequestHeader { subject: &subject, policy_type, resource };
        self.change_access(server, Command::request(request::AUTH_DELETE_ACL, &header)).await
    }

    async fn change_user(
        &self,
        server: &str,
        code: i32,
        name: &str,
        user: &UserInfo,
    ) -> Result<(), ClientError> {
        let body = UserInfo { username: Some(name.to_owned()), ..user.clone() };
        let request = Command::request(code, &UserRequestHeader { username: name });
        self.change_access(server, request.with_body(json::to_vec(&body))).await
    }

    async fn change_access(&self, server: &str, request: Command) -> Result<(), ClientError> {
        let address = &self.address_of(server, false).await?;
        self.client.api().call_ok(address, ACCESS_CHANGE, request).await.map(drop)
    }

    /// The list in an answer; an empty body is an empty one.
    async fn access_answer<T: serde::de::DeserializeOwned>(
        &self,
        server: &str,
        request: Command,
    ) -> Result<Vec<T>, ClientError> {
        let address = &self.address_of(server, false).await?;
        let answer = self.client.api().call_ok(address, ACCESS_QUERY, request).await?;
        if answer.body.is_empty() {
            return Ok(Vec::new());
        }
        wire::json(ACCESS_QUERY, address, &answer.body)
    }
}
