//! Errors of the client crate.

use rocketpy_client::{ClientError, ErrorMeaning, SendError};

use super::{Facts, Raise};

impl Raise for ClientError {
    fn facts(&self) -> Facts {
        let ErrorMeaning { class, code, retryable, may_have_been_applied, hint } = self.meaning();
        let hint = hint.map(Into::into);
        let facts = Facts::new(class.name(), self.to_string());
        Facts { code, retryable, may_have_been_applied, hint, ..facts }.printable() // it may quote a server or another client
    }
}

impl Raise for SendError {
    fn facts(&self) -> Facts {
        Facts { msg_id: self.msg_id.clone(), broker: self.broker.clone(), ..self.error.facts() }
    }
}
