//! A master after a sudden end takes from its slaves what it lost, before it serves anybody.
//!
//! # Source
//! docs/durability.md, the replica; docs/decisions/epochs-of-a-log.md.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{EnvError, RealDisk};
use rocketpy_ha::{Epochs, Greeting};
use rocketpy_model::{PhysicalOffset, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::CopyLogHeader;
use rocketpy_remoting::{CallError, Client};
use rocketpy_store::{ReplicateError, Store, StoreError, whole_records};
use tokio::time::Instant;
use tracing::{info, warn};

use super::begin::brokers_of;
use super::past::Past;
use super::peers::Peers;
use super::{COPY_ASKED, COPY_GIVEN, EPOCHS, PROOF};
use crate::ground::Ground;
use crate::refusal::Refusal;
use crate::slave::end_of_log;
use crate::{BrokerConfig, BrokerError};

/// Maximum wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before slaves that do not answer are asked again, and before a store that is busy is given bytes again.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause before it is seen again whether what was taken is dispatched.
const DISPATCH_PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of bytes of the log in one answer. A message is shorter.
const MAX_BYTES: usize = 8 << 20;

/// Cause why copying from a slave ended.
#[derive(Debug, thiserror::Error)]
enum NotCopied {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0}")]
    Refused(String),
    #[error("slave does not support COPY_LOG: it is one of Apache's")]
    Apache,
    #[error("slave did not prove the secret of haTokenFile or innerClientAuthenticationCredentials")]
    NoProof,
    #[error("slave did not send its epoch list")]
    NoEpochs,
    #[error("cannot save the epochs of the slave's log: {0}")]
    File(#[from] EnvError),
    #[error("slave sent no complete record in {MAX_BYTES} bytes")]
    TooLong,
    #[error(transparent)]
    Log(#[from] StoreError),
    #[error(transparent)]
    NotTaken(#[from] ReplicateError),
}

/// After a sudden end, takes from the slaves of this master what it lost. Slaves that do not answer within `haSyncBackTimeout` are left out.
///
/// # Errors
/// A slave of Apache's has more than this master. What it took stays when the future is dropped.
pub(super) async fn take_back(
    config: &BrokerConfig,
    store: &Arc<Store>,
    past: &Past<RealDisk>,
) -> Result<(), BrokerError> {
    let within = config.replication.sync_back_timeout;
    if store.recovery().clean_exit
        || within.is_zero()
        || !past.had_slaves()
        || planted::has(Bug::NothingTakenBack)
    {
        return Ok(());
    }
    let (client, deadline) = (config.new_client(), Instant::now() + within);
    let mut asked = BTreeSet::new();
    loop {
        let mut left = slaves(&client, config, past).await;
        left.retain(|address| !asked.contains(address));
        for address in left.clone() {
            match take_from(config, store, past, &client, &address).await {
                Err(NotCopied::Call(_)) => continue,
                Err(NotCopied::Apache) => compare(store, &client, &address).await?,
                Err(cause) => warn!(address, %cause, "no records copied from this slave"),
                Ok(0) => {}
                Ok(bytes) => {
                    warn!(address, bytes, "lost end of the log restored from a slave")
                }
            }
            left.remove(&address);
            asked.insert(address);
        }
        if left.is_empty() {
            break;
        }
        if Instant::now() + PAUSE > deadline {
            warn!(
                slaves = left.into_iter().collect::<Vec<_>>().join(" "),
                "slaves did not answer within haSyncBackTimeout; a slave whose log is longer than this master's is rejected from now on"
            );
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    // The tables that are read next follow from the queues.
    while store.dispatched_offset() < store.max_physical_offset() && store.poisoned().is_none() {
        tokio::time::sleep(DISPATCH_PAUSE).await;
    }
    Ok(())
}

/// Where slaves of this master may answer.
async fn slaves(client: &Client, config: &BrokerConfig, past: &Past<RealDisk>) -> BTreeSet<String> {
    let mut found: BTreeSet<_> = past.addresses().into_values().collect();
    for name_server in &config.name_servers {
        if let Ok(brokers) = brokers_of(client, config, name_server, TIMEOUT).await {
            found.extend(
                brokers.into_iter().filter(|(id, _)| *id != system::MASTER_ID).map(|(_, address)| address),
            );
        }
    }
    found
}

/// Copies the records of a slave after the end of the log. Returns the number of bytes.
async fn take_from(
    config: &BrokerConfig,
    store: &Arc<Store>,
    past: &Past<RealDisk>,
    client: &Client,
    address: &str,
) -> Result<u64, NotCopied> {
    let (begin, file_bytes) = (store.max_physical_offset(), config.store.commit_log_file_size);
    loop {
        let greeting = past.greeting(store, "", file_bytes)?;
        let json = greeting.to_json();
        let mut asked = Command::request(request::COPY_LOG, &CopyLogHeader { greeting: &json });
        if let Some(proof) = past.prove(&[COPY_ASKED, json.as_bytes()]) {
            asked.ext.push(PROOF, &proof);
        }
        let answer = client.call(address, asked, TIMEOUT).await?;
        match answer.code {
            response::SUCCESS => {}
            response::REQUEST_CODE_NOT_SUPPORTED => return Err(NotCopied::Apache),
            _ => return Err(NotCopied::Refused(answer.remark.unwrap_or_default())),
        }
        let epochs = answer.ext.get(EPOCHS).unwrap_or_default();
        let given = [COPY_GIVEN, greeting.nonce.as_bytes(), epochs.as_bytes(), &answer.body];
        if !past.is_proved(&given, answer.ext.get(PROOF)) {
            return Err(NotCopied::NoProof);
        }
        let end = store.max_physical_offset();
        if answer.body.is_empty() {
            return Ok(end - begin);
        }
        // It may have been a master meanwhile: its bytes are of its epochs.
        let epochs = Epochs::from_json(epochs).ok_or(NotCopied::NoEpochs)?;
        past.adopt(&epochs)?;
        append(store, end, answer.body).await?;
        let after = store.max_physical_offset();
        assert!(end < after, "each answer of a slave makes the log longer: {after} after {end}");
        info!(address, end = %after, "copying the end of the log from a slave");
    }
}

async fn append(store: &Arc<Store>, end: PhysicalOffset, bytes: Bytes) -> Result<(), NotCopied> {
    let whole = whole_records(&bytes);
    if whole == 0 {
        return Err(NotCopied::TooLong);
    }
    loop {
        let (owner, at) = (store.clone(), store.max_physical_offset());
        let taken = at.saturating_sub(end);
        assert!(end <= at, "a log that takes its end back only grows: {at} after {end}");
        assert!(taken <= whole as u64, "no more is taken back than a slave gave: {taken} of {whole} bytes");
        let rest = bytes.slice(taken as usize..whole);
        let append = move || owner.append_replicated(at, &rest);
        match tokio::task::spawn_blocking(append).await {
            Ok(Err(error)) if error.retryable() => tokio::time::sleep(PAUSE).await,
            Ok(appended) => return Ok(appended.map(drop)?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// A slave of Apache's gives nothing back: this master must not continue if it has more.
async fn compare(store: &Store, client: &Client, address: &str) -> Result<(), BrokerError> {
    let end = store.max_physical_offset();
    match end_of_log(client, address).await {
        Ok(slave_end) if slave_end > end => {
            Err(BrokerError::SlaveHasMore { address: address.to_owned(), slave_end, end })
        }
        Ok(_) => Ok(()),
        Err(cause) => {
            warn!(address, cause, "end of the slave's log unknown");
            Ok(())
        }
    }
}

/// End of the log that a slave sends to its master, which lost it.
#[derive(Debug)]
pub(crate) struct GivenBack {
    /// Bytes after the end of the master's log, possibly none.
    pub(crate) bytes: Bytes,
    /// The epochs of this slave's log, as JSON.
    pub(crate) epochs: String,
    /// Proof of the secret of this broker, if it has one.
    pub(crate) proof: Option<String>,
}

/// Bytes after the end of a master's log that is a beginning of this slave's. `proof` covers the greeting, which is JSON.
///
/// # Errors
/// This broker is a master, the sender does not prove the secret, or its log is another one.
pub(crate) fn give_back(
    ground: &Ground,
    peers: &Peers,
    greeting: &str,
    proof: Option<&str>,
) -> Result<GivenBack, Refusal> {
    let (store, refused) = (ground.store(), |why: String| Refusal::NoCopy { why });
    let Some(past) = peers.past().filter(|_| !ground.role().is_master()) else {
        return Err(refused("this broker is not a slave".to_owned()));
    };
    if !past.is_proved(&[COPY_ASKED, greeting.as_bytes()], proof) {
        return Err(refused(
            "the sender did not prove the secret of haTokenFile or innerClientAuthenticationCredentials"
                .to_owned(),
        ));
    }
    let greeting = Greeting::decode(greeting.as_bytes())
        .ok_or_else(|| refused("the greeting is not readable".to_owned()))?;
    past.check_greeting(&greeting, store, None).map_err(|cause| refused(cause.to_string()))?;
    let bytes = store.log_slice(greeting.end, MAX_BYTES)?.unwrap_or_default();
    assert!(bytes.len() <= MAX_BYTES, "one answer gives back no more than a master takes: {}", bytes.len());
    let epochs = past.epochs().within(store.max_physical_offset()).to_json();
    let proof = past.prove(&[COPY_GIVEN, greeting.nonce.as_bytes(), epochs.as_bytes(), &bytes]);
    Ok(GivenBack { bytes, epochs, proof })
}
