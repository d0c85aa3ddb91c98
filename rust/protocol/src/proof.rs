//! The proof of a request: what Apache's [`crate::signature`] leaves out. It covers the request code, the time and a number,
//! and keeps fields and body apart, so that a captured request is worth nothing. RocketPy's own.
//!
//! The field [`PROOF`] is `RpProof1;TIME_MS;STREAM;COUNTER;MAC`. The MAC is HMAC-SHA256 of code, time, stream, counter, then name and value of
//! each field that is not empty, but `Signature` and the proof itself, sorted by name, then the body; texts and body come behind their lengths.
//! Apache's brokers see one more signed field.
//!
//! Apache's signature does not cover the names of fields. Whoever renames the field of a captured request, or moves its letters into a
//! neighbour or the body, gets a request with a good signature and without the field: [`is_disguised`] finds it by the letters.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{Command, signature};

/// The field that holds the proof.
pub const PROOF: &str = "RpProof";

/// Version of the format.
const VERSION: &str = "RpProof1";
/// More than the longest proof has.
const MAX_TEXT_BYTES: usize = 160;
/// Bytes of the MAC.
const MAC_BYTES: usize = 32;

/// A source of proofs: one for each client object. Its random id and a counter make every request different.
#[derive(Debug)]
pub struct ProofStream {
    id: u128,
    counter: AtomicU64,
}

impl ProofStream {
    /// A stream with 128 random bits as its id.
    #[must_use]
    pub const fn new(random: [u64; 2]) -> Self {
        Self { id: (random[0] as u128) << 64 | random[1] as u128, counter: AtomicU64::new(0) }
    }

    /// Adds access key, proof and signature to a command whose header is complete. Fields of an earlier attempt are replaced.
    ///
    /// # Units
    /// `now_ms` in milliseconds since 1970.
    pub fn sign(&self, command: &mut Command, access_key: &str, secret: &str, now_ms: i64) {
        command.ext.push(signature::ACCESS_KEY, access_key);
        let counter = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
        let mut proof = Proof { at_ms: now_ms, stream: self.id, counter, mac: [0; MAC_BYTES] };
        proof.mac = proof.mac_of(command, secret).finalize().into_bytes().into();
        command.ext.push(PROOF, &proof.text());
        let signed = signature::sign(command, secret);
        command.ext.push(signature::SIGNATURE, &signed);
    }
}

/// What the proof of a request states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// When it was made, in milliseconds since 1970.
    pub at_ms: i64,
    /// Who made it.
    pub stream: u128,
    /// Number of the request in its stream, from 1 on.
    pub counter: u64,
    mac: [u8; MAC_BYTES],
}

/// The field is not a proof. A retry does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("field RpProof must be RpProof1;TIME_MS;STREAM;COUNTER;MAC")]
pub struct MalformedProof;

impl Proof {
    /// Reads the proof of a command, if it has one. It holds only if [`Proof::is_of`] says so.
    ///
    /// # Errors
    /// The field has another format.
    pub fn read(command: &Command) -> Result<Option<Self>, MalformedProof> {
        command.ext.get(PROOF).map(|text| Self::parse(text).ok_or(MalformedProof)).transpose()
    }

    /// Whether the proof was made for this command by somebody who knows the secret.
    #[must_use]
    pub fn is_of(&self, command: &Command, secret: &str) -> bool {
        self.mac_of(command, secret).verify_slice(&self.mac).is_ok()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, ';');
        let version = parts.next()?;
        let at_ms = parts.next()?.parse().ok()?;
        let stream = parts.next().filter(|id| id.len() == 32)?;
        let stream = u128::from_str_radix(stream, 16).ok()?;
        let counter = parts.next()?.parse().ok().filter(|counter| *counter > 0)?;
        let mut mac = [0; MAC_BYTES];
        let length = STANDARD.decode_slice(parts.next()?, &mut mac).ok()?;
        (version == VERSION && length == MAC_BYTES).then_some(Self { at_ms, stream, counter, mac })
    }

    fn text(&self) -> String {
        let Self { at_ms, stream, counter, mac } = self;
        format!("{VERSION};{at_ms};{stream:032x};{counter};{}", STANDARD.encode(mac))
    }

    fn mac_of(&self, command: &Command, secret: &str) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(&command.code.to_be_bytes());
        mac.update(&self.at_ms.to_be_bytes());
        mac.update(&self.stream.to_be_bytes());
        mac.update(&self.counter.to_be_bytes());
        // The binary form of a header has no empty fields, so the receiver of one does not see them.
        let is_covered = |(name, value): &(&str, &str)| {
            !value.is_empty() && !matches!(*name, PROOF | signature::SIGNATURE)
        };
        let mut fields: smallvec::SmallVec<[(&str, &str); 24]> =
            command.ext.iter().filter(is_covered).collect();
        fields.sort_unstable();
        for text in fields.iter().flat_map(|(name, value)| [name, value]) {
            mac.update(&(text.len() as u64).to_be_bytes());
            mac.update(text.as_bytes());
        }
        mac.update(&(command.body.len() as u64).to_be_bytes());
        mac.update(&command.body);
        mac
    }
}

/// Whether the signed content of a request without a proof holds the letters of one: its signature was made together with a proof, which
/// somebody took away.
#[must_use]
pub fn is_disguised(command: &Command) -> bool {
    if command.ext.contains(PROOF) {
        return false;
    }
    let mut joined: smallvec::SmallVec<[u8; 1024]> = smallvec::SmallVec::new();
    for (_, value) in signature::signed_fields(&command.ext, command.version) {
        joined.extend_from_slice(value.as_bytes());
    }
    // A proof may begin in the fields and end in the body.
    let at_border = joined.len().saturating_sub(MAX_TEXT_BYTES);
    let head = &command.body[..command.body.len().min(MAX_TEXT_BYTES)];
    if has_proof(&joined) || has_proof(&command.body) {
        return true;
    }
    joined.drain(..at_border);
    joined.extend_from_slice(head);
    has_proof(&joined)
}

/// Whether a proof begins and ends somewhere in the bytes.
fn has_proof(bytes: &[u8]) -> bool {
    memchr::memmem::find_iter(bytes, VERSION).any(|at| is_proof_text(&bytes[at + VERSION.len()..]))
}

/// Whether the bytes begin as those of a proof do behind its version.
fn is_proof_text(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut take = |is_one: fn(&u8) -> bool, count: std::ops::RangeInclusive<usize>| {
        let found = rest.iter().take_while(|byte| is_one(byte)).count();
        let is_there = count.contains(&found);
        rest = &rest[found..];
        is_there
    };
    let is_end = |byte: &u8| *byte == b';';
    take(is_end, 1..=1)
        && take(u8::is_ascii_digit, 1..=20)
        && take(is_end, 1..=1)
        && take(u8::is_ascii_hexdigit, 32..=32)
        && take(is_end, 1..=1)
        && take(u8::is_ascii_digit, 1..=20)
        && take(is_end, 1..=1)
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::SerializeType;
    use crate::code::request;
    use crate::frame::decode_frame;

    const SECRET: &str = "secret of alice";

    fn signed(code: i32, fields: &[(&str, &str)], body: &'static str) -> Command {
        let mut command = Command::bare_request(code);
        command.ext = fields.iter().copied().collect();
        command.body = Bytes::from_static(body.as_bytes());
        ProofStream::new([1, 2]).sign(&mut command, "alice", SECRET, 1_000);
        command
    }

    fn holds(command: &Command) -> bool {
        Proof::read(command).unwrap().unwrap().is_of(command, SECRET)
    }

    #[test]
    fn proof_holds_for_its_request_and_apache_verifies_it_as_a_field() {
        let command = signed(request::DELETE_TOPIC_IN_BROKER, &[("topic", "orders")], "body");
        assert!(holds(&command) && signature::is_signed(&command, SECRET));
        assert!(!Proof::read(&command).unwrap().unwrap().is_of(&command, "another secret"));
        let proof = Proof::read(&command).unwrap().unwrap();
        assert_eq!((proof.at_ms, proof.stream, proof.counter), (1_000, (1 << 64) + 2, 1));
    }

    #[test]
    fn another_code_field_or_body_breaks_the_proof() {
        let fields = [("statsKey", "ab"), ("statsName", "cd")];
        let good = signed(request::VIEW_BROKER_STATS_DATA, &fields, "body");
        let changed = |change: fn(&mut Command)| {
            let mut command = good.clone();
            change(&mut command);
            holds(&command)
        };
        assert!(changed(|_| ()));
        assert!(!changed(|command| command.code = request::DELETE_TOPIC_IN_BROKER));
        // Apache's signature holds for the next two: it joins values without separators.
        assert!(!changed(|command| {
            command.ext.push("statsKey", "a");
            command.ext.push("statsName", "bcd");
        }));
        assert!(!changed(|command| {
            command.ext.push("statsName", "c");
            command.body = Bytes::from_static(b"dbody");
        }));
        assert!(!changed(|command| command.ext.push("another", "field")));
        assert!(!changed(|command| command.ext.remove("statsName")));
        assert!(!changed(|command| command.ext.push(signature::ACCESS_KEY, "bob")));
    }

    #[test]
    fn proof_that_is_renamed_or_moved_is_found() {
        let good = signed(request::GET_BROKER_CONFIG, &[("topic", "orders"), ("zone", "z")], "body");
        assert!(!is_disguised(&good), "the proof is where it belongs");
        let proof = good.ext.get(PROOF).unwrap();
        let rest = format!("{proof}orderszbody");
        for at in [0, 1, 5, 9, 30, 60, proof.len() - 1, proof.len()] {
            // Apache's signature holds: the content is the same.
            for (fields, body) in [
                (vec![("RpProoe", &rest[..at]), ("topic", &rest[at..rest.len() - 4])], "body".to_owned()),
                (vec![("topic", &rest[..at])], rest[at..].to_owned()),
            ] {
                let mut moved = Command::bare_request(request::GET_BROKER_CONFIG);
                moved.ext = fields.into_iter().collect();
                moved.ext.push(signature::ACCESS_KEY, "alice");
                moved.ext.push(signature::SIGNATURE, good.ext.get(signature::SIGNATURE).unwrap());
                moved.body = Bytes::from(body);
                assert!(signature::is_signed(&moved, SECRET), "{moved:?}");
                assert!(is_disguised(&moved), "{moved:?}");
            }
        }
        let mut plain = Command::bare_request(request::GET_BROKER_CONFIG);
        plain.body = Bytes::from_static(b"RpProof1;1;a text about proofs");
        signature::add(&mut plain, "alice", SECRET);
        assert!(!is_disguised(&plain));
    }

    #[test]
    fn time_stream_and_counter_are_covered() {
        let good = signed(request::GET_BROKER_CONFIG, &[], "");
        let text = good.ext.get(PROOF).unwrap().to_owned();
        for (from, to) in [(";1000;", ";1001;"), (";1;", ";2;"), ("0002;", "0003;")] {
            let mut changed = good.clone();
            changed.ext.push(PROOF, &text.replacen(from, to, 1));
            assert_ne!(changed.ext.get(PROOF), Some(&*text), "{from}");
            assert!(!holds(&changed), "{from}");
        }
    }

    #[test]
    fn second_attempt_replaces_the_fields_of_the_first() {
        let stream = ProofStream::new([7, 7]);
        let mut command = Command::bare_request(request::GET_BROKER_CONFIG);
        stream.sign(&mut command, "alice", SECRET, 1);
        let first = command.ext.get(PROOF).unwrap().to_owned();
        stream.sign(&mut command, "alice", SECRET, 2);
        assert!(holds(&command) && signature::is_signed(&command, SECRET));
        assert_ne!(command.ext.get(PROOF), Some(&*first));
        assert_eq!(command.ext.len(), 3);
    }

    #[test]
    fn proof_holds_in_the_binary_form_of_a_header_which_has_no_empty_fields() {
        let mut command = signed(request::AUTH_LIST_USER, &[("filter", ""), ("topic", "orders")], "body");
        command.serialize = SerializeType::Binary;
        let mut sent = BytesMut::new();
        command.encode(&mut sent).unwrap();
        let frame = decode_frame(&mut sent, 1 << 20).unwrap().unwrap();
        let received = Command::decode(frame).unwrap();
        assert_eq!(received.ext.get("topic"), Some("orders"));
        assert!(holds(&received));
    }

    #[test]
    fn other_formats_are_malformed() {
        for text in [
            "",
            "RpProof1",
            "RpProof2;1;00000000000000000000000000000001;1;",
            "RpProof1;1;1;1;AA==",
            "RpProof1;x;y;z;",
        ] {
            let mut command = Command::bare_request(1);
            command.ext.push(PROOF, text);
            assert_eq!(Proof::read(&command), Err(MalformedProof), "{text}");
        }
        assert_eq!(Proof::read(&Command::bare_request(1)), Ok(None));
    }
}
