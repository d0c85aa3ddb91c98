//! The text that a request for a change has to prove the token with. It changes with each proved request, so that no request serves twice.

use parking_lot::Mutex;
use rocketpy_env::{RealDisk, random_u64};

use crate::ha::Past;

/// The text of the next proof.
#[derive(Debug)]
pub(crate) struct Challenge(Mutex<String>);

impl Default for Challenge {
    fn default() -> Self {
        Self(Mutex::new(random_text()))
    }
}

impl Challenge {
    /// The text that the next request has to prove.
    pub(crate) fn text(&self) -> String {
        self.0.lock().clone()
    }

    /// Whether a request proves that its sender knows the token of `past`. Without a token nothing is proved.
    pub(crate) fn is_proved(&self, past: &Past<RealDisk>, parts: &[&[u8]], proof: Option<&str>) -> bool {
        let mut text = self.0.lock();
        let parts = [&[text.as_bytes()][..], parts].concat();
        let is_proved = past.has_token() && past.is_proved(&parts, proof);
        if is_proved {
            *text = random_text();
        }
        is_proved
    }
}

/// A text that nobody can guess.
pub(crate) fn random_text() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBroker;

    #[tokio::test]
    async fn a_proof_serves_once() {
        let broker = TestBroker::open(|_| {});
        let past = Past::of_token(&broker, "secret");
        let challenge = Challenge::default();
        let proof = past.prove(&[challenge.text().as_bytes(), b"leave"]);
        assert!(!challenge.is_proved(&past, &[b"promote"], proof.as_deref()));
        assert!(challenge.is_proved(&past, &[b"leave"], proof.as_deref()));
        assert!(!challenge.is_proved(&past, &[b"leave"], proof.as_deref()));
    }
}
