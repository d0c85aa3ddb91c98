//! Users and policies, as tools manage them.

header! {
    /// Names a user (codes 3001 to 3004).
    UserRequestHeader<'a> {
        username: &'a str = "username",
    }
}

header! {
    /// Asks for users (code 3005).
    ListUsersRequestHeader<'a> {
        /// Part of the name; absent or empty: all.
        filter: Option<&'a str> = "filter",
    }
}

header! {
    /// Names whose policies are meant (codes 3006, 3007 and 3009).
    AclRequestHeader<'a> {
        /// `User:` and the name.
        subject: &'a str = "subject",
    }
}

header! {
    /// Deletes policies of a user (code 3008).
    DeleteAclRequestHeader<'a> {
        /// `User:` and the name.
        subject: &'a str = "subject",
        /// `Custom` or `Default`; absent or empty: `Custom`.
        policy_type: Option<&'a str> = "policyType",
        /// Absent or empty: all policies of both types.
        resource: Option<&'a str> = "resource",
    }
}

header! {
    /// Asks for the policies of users (code 3010).
    ListAclsRequestHeader<'a> {
        /// Part of the subject; absent or empty: all.
        subject_filter: Option<&'a str> = "subjectFilter",
        /// Part of the resource; absent or empty: all.
        resource_filter: Option<&'a str> = "resourceFilter",
    }
}
