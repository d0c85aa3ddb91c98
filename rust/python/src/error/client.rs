//! Errors of the client crate.

use rocketpy_client::{ClientError, ErrorMeaning, SendError};
use rocketpy_model::printable::printable;

use super::{Facts, Raise};

impl Raise for ClientError {
    fn facts(&self) -> Facts {
        let ErrorMeaning { class, code, retryable, may_have_been_applied, hint } = self.meaning();
        let hint = hint.map(Into::into);
        // It may quote a server or another client.
        let text = printable(&self.to_string()).into_owned();
        Facts { code, retryable, may_have_been_applied, hint, ..Facts::new(class.name(), text) }
    }
}

impl Raise for SendError {
    fn facts(&self) -> Facts {
        Facts { msg_id: self.msg_id.clone(), broker: self.broker.clone(), ..self.error.facts() }
    }
}
