//! The numbers that name requests and answers, and what is true of each of them.

#[doc(alias = "RequestCode")]
pub mod request;
#[doc(alias = "ResponseCode")]
pub mod response;

/// What a server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// It is served.
    Served {
        /// Whether the answer waits until consume queues and index cover the log as it is when the request comes.
        after_dispatch: AfterDispatch,
    },
    /// It is answered REQUEST_CODE_NOT_SUPPORTED.
    Refused {
        /// The reason, or the way out, as the remark of the answer states it.
        why: &'static str,
    },
}

/// Whether an answer waits for dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDispatch {
    /// The answer does not come from consume queues or index.
    No,
    /// Whoever got an acknowledgement before finds the message.
    Yes,
    /// The answer waits, but not for a request that says this.
    Unless(&'static str),
}

/// Makes a server's table of requests from rows `NAME | NAME => route;`: `CODES`, each code that has a row, and `route_of`, which
/// leads from a code to its route by one `match`.
///
/// A code that is entered twice does not compile.
#[macro_export]
macro_rules! request_table {
    ($route:ty: $($($name:ident)|+ => $how:expr;)+) => {
        /// Every code of this table.
        pub(crate) const CODES: &[i32] = &[$($($crate::code::request::$name,)+)+];

        const _: () = $crate::code::assert_each_once(CODES);

        /// The route of a request, or `None` when this table has no such code.
        pub(crate) fn route_of(code: i32) -> Option<&'static $route> {
            match code {
                $($($crate::code::request::$name)|+ => Some(const { &$how }),)+
                _ => None,
            }
        }
    };
}

/// Stops the compiler when a code is in a table twice.
///
/// # Panics
/// A code is there twice.
pub const fn assert_each_once(codes: &[i32]) {
    let mut at = 0;
    while at < codes.len() {
        let mut other = at + 1;
        while other < codes.len() {
            assert!(codes[at] != codes[other], "a request code is in the table twice");
            other += 1;
        }
        at += 1;
    }
}

/// Stops the compiler when a code of the protocol is missing from a table that has to have all.
///
/// # Panics
/// One is missing.
pub const fn assert_complete(codes: &[i32]) {
    let mut row = 0;
    while row < request::ALL.len() {
        let mut at = 0;
        while at < codes.len() && codes[at] != request::ALL[row].code {
            at += 1;
        }
        assert!(at < codes.len(), "a request code is missing from the table");
        row += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_leads_back_to_its_row() {
        assert_eq!(request::name_of(request::SEND_MESSAGE_V2), Some("SEND_MESSAGE_V2"));
        assert_eq!(request::name_of(200_050), Some("POP_MESSAGE"));
        assert_eq!(request::name_of(-1), None);
        assert_eq!(response::name_of(26), Some("SUBSCRIPTION_GROUP_NOT_EXIST"));
        for row in request::ALL {
            assert_eq!(request::of(row.code), Some(*row));
        }
    }

    #[test]
    fn the_rows_are_sorted_and_each_number_is_there_once() {
        assert!(request::ALL.is_sorted_by(|one, next| one.code < next.code));
    }

    #[test]
    fn only_a_known_question_changes_nothing() {
        assert!(!request::may_change(request::PULL_MESSAGE));
        assert!(request::may_change(request::SEND_MESSAGE));
        assert!(request::may_change(31_000), "nobody knows what it does");
    }
}
