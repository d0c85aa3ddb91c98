//! Asks a master for its tables, one of RocketPy or of Apache.
//!
//! # Source
//! docs/reference/store-format.md 12.7, docs/reference/protocol.md 2.6.1, 2.6.2 and 2.6.4.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_auth::{AccountsError, SealError, Snapshot};
use rocketpy_env::EnvError;
use rocketpy_model::{DataVersion, GroupConfig, PhysicalOffset, TopicConfig};
use rocketpy_protocol::body::{
    ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper, KvTable, QuotaList,
    SubscriptionGroupWrapper, TopicConfigFile,
};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::disk::TimerCheckpoint;
use rocketpy_protocol::header::{
    GetAllSubscriptionGroupRequestHeader, GetAllSubscriptionGroupResponseHeader,
    GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader, GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader, Header, UpdateConsumerOffsetRequestHeader, key,
};
use rocketpy_protocol::signature::STATUS;
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{CallError, Client};
use serde::de::DeserializeOwned;

use crate::config_file::MAX_ENTRY_BYTES;
use crate::nonce::random_text;
use crate::refusal::Refusal;
use crate::table::offset::{CommitError, Place};

/// Maximum wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Entries of a page; masters have the same limit (`splitMetadataSize`).
const PAGE: i32 = 2000;
/// Maximum number of times that reading a table starts again because the table changes meanwhile.
const MAX_BEGINNINGS: usize = 3;
/// How far ahead of this clock the progress of a master's timers may be. Beyond it messages would count as delivered that are not.
const MAX_AHEAD_MS: i64 = 3_600_000;

/// Why something of the master is not taken over. What was known before counts.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotTaken {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("broker answered with code {code}: {remark}")]
    Code { code: i32, remark: String },
    #[error("cannot decode the answer: {reason}")]
    Body { reason: String },
    #[error(
        "the master did not prove the secret of haTokenFile or innerClientAuthenticationCredentials (a master with authenticationEnabled=false has only the first)"
    )]
    NoProof,
    #[error("the master's table is empty")]
    Empty,
    #[error(
        "the master's table of {entries} entries exceeds the limit of {limit}; raise maxTopics or maxGroups"
    )]
    TooMany { entries: i32, limit: usize },
    #[error("the master's table exceeds {limit_bytes} bytes")]
    TooLong { limit_bytes: usize },
    #[error("the pages of the master's table do not fit together")]
    Pages,
    #[error(
        "the master's clock is more than an hour ahead (its timers are at {read_ms}); set the clocks of both machines"
    )]
    Ahead { read_ms: i64 },
    #[error("{0} of the master's offsets name a queue that no topic has; the others are stored")]
    LeftOut(usize),
    #[error(transparent)]
    Sealed(#[from] SealError),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Full(#[from] CommitError),
    #[error("cannot store the master's tables: {0}")]
    NotWritten(#[from] EnvError),
}

impl NotTaken {
    fn body(error: impl ToString) -> Self {
        Self::Body { reason: error.to_string() }
    }
}

/// Field of COPY_ACCOUNTS and its answer: the version of users and policies.
pub(crate) const VERSION: &str = "version";

/// Value of [`VERSION`].
pub(crate) fn version_text(version: DataVersion) -> String {
    String::from_utf8_lossy(&json::to_vec(&version)).into_owned()
}

/// Where the log of a broker ends.
///
/// # Errors
/// Why that is not known: for the log.
pub(crate) async fn end_of_log(client: &Client, address: &str) -> Result<PhysicalOffset, String> {
    Master { client, address }.end().await.map_err(|error| error.to_string())
}

/// The token of `haTokenFile` or the secret of the user of the servers, or both: a master has to prove it.
pub(crate) trait SecretOfMaster: Send + Sync {
    /// Whether the proof of a master for these parts of its answer is that of the secret.
    fn is_proved(&self, parts: &[&[u8]], proof: Option<&str>) -> bool;
}

/// What a master answers about its users and policies.
pub(super) enum AccountsOfMaster {
    /// Their version is the known one.
    Same,
    Changed(SealedAccounts),
    /// `authenticationEnabled` is false there.
    Off,
    /// The request: a master of Apache's.
    Unknown,
}

/// Users and policies of a master, encrypted.
pub(super) struct SealedAccounts {
    /// Drawn for this request: an earlier answer does not fit.
    pub(super) nonce: String,
    pub(super) bytes: Bytes,
}

impl SealedAccounts {
    /// Decrypts them with the first secret that fits.
    ///
    /// # Errors
    /// None of the secrets fits.
    pub(super) fn open(&self, secrets: impl IntoIterator<Item = String>) -> Result<Snapshot, SealError> {
        let mut failed = SealError::Sealed;
        for secret in secrets {
            match Snapshot::unseal(&self.bytes, &secret, self.nonce.as_bytes()) {
                Err(error) => failed = error,
                opened => return opened,
            }
        }
        Err(failed)
    }
}

/// A master at an address.
pub(super) struct Master<'a> {
    pub(super) client: &'a Client,
    pub(super) address: &'a str,
}

/// A table that comes in pages.
trait Paged: DeserializeOwned {
    type Value;

    fn version(&self) -> DataVersion;
    fn table(&mut self) -> &mut BTreeMap<String, Self::Value>;
}

impl Paged for TopicConfigFile {
    type Value = TopicConfig;

    fn version(&self) -> DataVersion {
        self.data_version
    }

    fn table(&mut self) -> &mut BTreeMap<String, TopicConfig> {
        &mut self.topic_config_table
    }
}

impl Paged for SubscriptionGroupWrapper {
    type Value = GroupConfig;

    fn version(&self) -> DataVersion {
        self.data_version
    }

    fn table(&mut self) -> &mut BTreeMap<String, GroupConfig> {
        &mut self.subscription_group_table
    }
}

impl Master<'_> {
    /// Checks that the master knows the secret: name servers may name a stranger while no master is alive.
    pub(super) async fn check_proof(&self, secret: &dyn SecretOfMaster) -> Result<(), NotTaken> {
        let nonce = random_text();
        let mut asked = Command::bare_request(request::GET_BROKER_HA_STATUS);
        asked.ext.push(key::NONCE, &nonce);
        let answer = self.client.call(self.address, asked, TIMEOUT).await?;
        match secret.is_proved(&[STATUS, nonce.as_bytes(), &answer.body], answer.ext.get(key::PROOF)) {
            true => Ok(()),
            false => Err(NotTaken::NoProof),
        }
    }

    /// The topics; `None` where their version is the known one.
    pub(super) async fn topics(
        &self,
        known: DataVersion,
        limit: usize,
    ) -> Result<Option<TopicConfigFile>, NotTaken> {
        let request = |seq, entries, version: &str| {
            let header = GetAllTopicConfigRequestHeader {
                topic_seq: Some(seq),
                data_version: Some(version),
                max_topic_num: Some(entries),
            };
            Command::request(request::GET_ALL_TOPIC_CONFIG, &header)
        };
        let total =
            |answer: &Command| GetAllTopicConfigResponseHeader::read(&answer.ext).ok()?.total_topic_num;
        self.pages(known, limit, request, total).await
    }

    /// The consumer groups; `None` where their version is the known one.
    pub(super) async fn groups(
        &self,
        known: DataVersion,
        limit: usize,
    ) -> Result<Option<SubscriptionGroupWrapper>, NotTaken> {
        let request = |seq, entries, version: &str| {
            let header = GetAllSubscriptionGroupRequestHeader {
                group_seq: Some(seq),
                data_version: Some(version),
                max_group_num: Some(entries),
            };
            Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, &header)
        };
        let total =
            |answer: &Command| GetAllSubscriptionGroupResponseHeader::read(&answer.ext).ok()?.total_group_num;
        self.pages(known, limit, request, total).await
    }

    /// The quotas; `None` from a master that has none, such as Apache's.
    pub(super) async fn quotas(&self) -> Result<Option<QuotaList>, NotTaken> {
        match self.ask(request::GET_QUOTAS).await {
            Err(NotTaken::Code { code: response::REQUEST_CODE_NOT_SUPPORTED, .. }) => Ok(None),
            answer => decoded(&answer?).map(Some),
        }
    }

    /// Users and policies, encrypted with the secret of the servers.
    pub(super) async fn accounts(&self, known: &str) -> Result<AccountsOfMaster, NotTaken> {
        let nonce = random_text();
        let mut asked = Command::bare_request(request::COPY_ACCOUNTS);
        asked.ext.push(key::NONCE, &nonce);
        asked.ext.push(VERSION, known);
        match self.call(asked).await {
            Err(NotTaken::Code { code: response::REQUEST_CODE_NOT_SUPPORTED, .. }) => {
                Ok(AccountsOfMaster::Unknown)
            }
            Err(NotTaken::Code { remark, .. }) if remark == Refusal::UsersOff.to_string() => {
                Ok(AccountsOfMaster::Off)
            }
            answer => {
                let answer = answer?;
                let is_known = answer.ext.get(VERSION) == Some(known);
                let changed = || AccountsOfMaster::Changed(SealedAccounts { nonce, bytes: answer.body });
                Ok(if is_known { AccountsOfMaster::Same } else { changed() })
            }
        }
    }

    pub(super) async fn consumer_offsets(&self) -> Result<ConsumerOffsetSerializeWrapper, NotTaken> {
        decoded(&self.ask(request::GET_ALL_CONSUMER_OFFSET).await?)
    }

    pub(super) async fn delay_offsets(&self) -> Result<DelayOffsetSerializeWrapper, NotTaken> {
        decoded(&self.ask(request::GET_ALL_DELAY_OFFSET).await?)
    }

    /// Progress of the timers; `None` if the master has none, as those of version 4.9.
    pub(super) async fn timer_checkpoint(&self, now_ms: i64) -> Result<Option<TimerCheckpoint>, NotTaken> {
        let answer = match self.ask(request::GET_TIMER_CHECK_POINT).await {
            Err(NotTaken::Code { .. }) => return Ok(None),
            answer => answer?,
        };
        let numbers = answer.body.get(..TimerCheckpoint::BYTES).unwrap_or(&answer.body);
        let checkpoint =
            TimerCheckpoint::decode(numbers).ok_or_else(|| NotTaken::body("no timer checkpoint"))?;
        match checkpoint.read_ms {
            read_ms if read_ms > now_ms.saturating_add(MAX_AHEAD_MS) => Err(NotTaken::Ahead { read_ms }),
            _ => Ok(Some(checkpoint)),
        }
    }

    /// Commits an offset for a group, no further than the end of the queue.
    pub(super) async fn commit(&self, place: Place<'_>, offset: i64) -> Result<(), NotTaken> {
        let Place { group, topic, queue_id } = place;
        let queue_id = queue_id as i32; // from a request
        let asked = GetMaxOffsetRequestHeader { topic, queue_id, committed: None };
        let answer = self.call(Command::request(request::GET_MAX_OFFSET, &asked)).await?;
        let end = GetMaxOffsetResponseHeader::read(&answer.ext).map_err(NotTaken::body)?.offset;
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group: group,
            topic,
            queue_id,
            commit_offset: offset.min(end),
            broker_name: None,
        };
        let mut commit = Command::request(request::UPDATE_CONSUMER_OFFSET, &header);
        // This slave answers nothing else meanwhile: a master that waited for its copy of this offset would wait in vain.
        commit.ext.push(key::OF_SLAVE, "true");
        self.call(commit).await.map(drop)
    }

    /// The end of the master's log.
    pub(super) async fn end(&self) -> Result<PhysicalOffset, NotTaken> {
        const KEY: &str = "commitLogMaxOffset";
        let table = decoded::<KvTable>(&self.ask(request::GET_BROKER_RUNTIME_INFO).await?)?.table;
        let text = table.get(KEY).ok_or_else(|| NotTaken::body("commitLogMaxOffset is missing"))?;
        text.trim()
            .parse()
            .map(PhysicalOffset)
            .map_err(|_| NotTaken::body("commitLogMaxOffset is not an offset"))
    }

    async fn ask(&self, code: i32) -> Result<Command, NotTaken> {
        self.call(Command::bare_request(code)).await
    }

    async fn call(&self, request: Command) -> Result<Command, NotTaken> {
        let answer = self.client.call(self.address, request, TIMEOUT).await?;
        match answer.code {
            response::SUCCESS => Ok(answer),
            code => Err(NotTaken::Code { code, remark: answer.remark.unwrap_or_default() }),
        }
    }

    /// Reads a table page by page. The first page has one entry, and says the version: where that is known, nothing more is asked for.
    async fn pages<T: Paged>(
        &self,
        known: DataVersion,
        limit: usize,
        request: impl Fn(i32, i32, &str) -> Command,
        total: impl Fn(&Command) -> Option<i32>,
    ) -> Result<Option<T>, NotTaken> {
        for _ in 0..MAX_BEGINNINGS {
            let answer = self.call(request(0, 1, "")).await?;
            let mut whole: T = decoded(&answer)?;
            let version = whole.version();
            if version == known {
                return Ok(None);
            }
            // Without a total the master has sent everything, as those before 5.3 do.
            let entries = total(&answer).unwrap_or(0);
            let wanted = usize::try_from(entries).unwrap_or(0);
            if wanted > limit {
                return Err(NotTaken::TooMany { entries, limit });
            }
            let mut bytes = answer.body.len();
            let text = String::from_utf8_lossy(&json::to_vec(&version)).into_owned();
            while whole.version() == version && whole.table().len() < wanted {
                let from = whole.table().len();
                let answer = self.call(request(i32::try_from(from).unwrap_or(i32::MAX), PAGE, &text)).await?;
                bytes += answer.body.len();
                if bytes > MAX_ENTRY_BYTES {
                    return Err(NotTaken::TooLong { limit_bytes: MAX_ENTRY_BYTES });
                }
                let mut page: T = decoded(&answer)?;
                if page.version() != version {
                    whole = page; // begins again
                    break;
                }
                whole.table().append(page.table());
                if whole.table().len() == from {
                    return Err(NotTaken::Pages);
                }
            }
            match (whole.version() == version, whole.table().is_empty()) {
                (false, _) => {}
                (true, true) => return Err(NotTaken::Empty),
                (true, false) => return Ok(Some(whole)),
            }
        }
        Err(NotTaken::Pages)
    }
}

fn decoded<T: DeserializeOwned>(answer: &Command) -> Result<T, NotTaken> {
    json::from_slice(&answer.body).map_err(NotTaken::body)
}
