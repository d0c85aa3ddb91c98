//! The text that a request for a change has to prove the secret with. It changes with each proved request, so that no request serves twice.

use parking_lot::Mutex;
use rocketpy_env::RealDisk;

use crate::ha::Past;
use crate::nonce::random_text;

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

    /// Whether a broker proves the secret of `past`. Without a secret nothing is proved.
    pub(crate) fn is_proved(&self, past: &Past<RealDisk>, parts: &[&[u8]], proof: Option<&str>) -> bool {
        self.accepts(parts, |parts| past.has_secret() && past.is_proved(parts, proof))
    }

    /// Whether an operator proves the token of `past`. Without a token nothing is proved.
    pub(crate) fn is_token_proved(
        &self,
        past: &Past<RealDisk>,
        parts: &[&[u8]],
        proof: Option<&str>,
    ) -> bool {
        self.accepts(parts, |parts| past.is_token_proved(parts, proof))
    }

    fn accepts(&self, parts: &[&[u8]], check: impl FnOnce(&[&[u8]]) -> bool) -> bool {
        let mut text = self.0.lock();
        let parts = [&[text.as_bytes()][..], parts].concat();
        let is_proved = check(&parts);
        if is_proved {
            *text = random_text();
        }
        is_proved
    }
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
