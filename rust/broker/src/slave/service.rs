//! The background work that takes over what the master has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::PhysicalOffset;
use rocketpy_remoting::Client;
use tracing::{debug, info, warn};

use super::address::MasterAddress;
use super::ask::{AccountsOfMaster, Master, NotTaken, SecretOfMaster, version_text};
use super::pending::{Pending, Progress};
use crate::Auth;
use crate::blocking::{aside, on_disk};
use crate::delay::Delays;
use crate::ground::Ground;
use crate::members::Members;
use crate::operation::topic;
use crate::parts::Parts;
use crate::refusal::Refusal;
use crate::role::OwnLog;
use crate::service::{Pace, Service, Work};
use crate::table::offset_adopt::MasterOffsets;
use crate::table::topic::Adopted;
use crate::timer::Timers;
use crate::transaction::Transactions;

/// Name of the quotas among the parts.
const QUOTAS: &str = "quotas";
/// Between two looks whether the own log has reached the end that the master's had.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Asks the master for topics, groups, offsets and progress.
#[doc(alias = "SlaveSynchronize")]
pub(crate) struct MasterMetadata {
    ground: Arc<Ground>,
    members: Arc<Members>,
    delays: Arc<Delays>,
    timers: Arc<Timers>,
    transactions: Arc<Transactions>,
    master: Arc<MasterAddress>,
    secret: Option<Arc<dyn SecretOfMaster>>,
    client: Client,
    pace: Pace,
    pending: Mutex<Pending>,
    /// One round at a time.
    rounds: tokio::sync::Mutex<()>,
    /// Whether there may be queues of topics that the master has deleted.
    has_deleted: AtomicBool,
    /// Whether the master has users off: the log says so once.
    pub(super) has_users_off: AtomicBool,
    /// What is not taken over at the moment, by its name: the log says the same once.
    reasons: Mutex<BTreeMap<&'static str, String>>,
    #[cfg(test)]
    pub(super) warnings: std::sync::atomic::AtomicUsize,
}

/// Outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    All,
    /// All but offsets that name a queue that no topic has.
    WithoutStrangeOffsets,
    /// Not all, or not in time.
    Not,
}

impl MasterMetadata {
    pub(crate) fn new(
        parts: &Parts,
        master: Arc<MasterAddress>,
        secret: Option<Arc<dyn SecretOfMaster>>,
    ) -> Self {
        let pace = Pace::new(Duration::ZERO, parts.ground.config().intervals.ask_master);
        Self {
            ground: parts.ground.clone(),
            members: parts.members.clone(),
            delays: parts.delays.clone(),
            timers: parts.timers.clone(),
            transactions: parts.transactions.clone(),
            master,
            secret,
            client: parts.ground.config().new_client(),
            pace,
            pending: Mutex::default(),
            rounds: tokio::sync::Mutex::default(),
            has_deleted: AtomicBool::new(true), // the start does not know
            has_users_off: AtomicBool::new(false),
            reasons: Mutex::default(),
            #[cfg(test)]
            warnings: std::sync::atomic::AtomicUsize::default(),
        }
    }
}

impl Service for MasterMetadata {
    fn name(&self) -> &str {
        "metadata of the master"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            // Offsets of another log say nothing here, nor what groups did here to the master of another one.
            self.ground.role().wait_until_followed().await;
            self.master.known().await;
            self.pace.due().await;
        })
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            let _alone = self.rounds.lock().await;
            let Some(address) = self.followed_master() else { return };
            let asked = self.ask(&address).await;
            self.master.note(&address, asked.is_ok());
            self.note("master", &address, asked);
            if let Some(applied) = self.apply_reached().await {
                self.note("progress", &address, applied);
            }
        })
    }
}

impl MasterMetadata {
    /// Where the log of the master ended when it was asked last, if this one does not reach there.
    pub(crate) fn missing_end(&self) -> Option<PhysicalOffset> {
        self.pending.lock().end().filter(|end| *end > self.ground.store().max_physical_offset())
    }

    fn followed_master(&self) -> Option<Arc<str>> {
        let role = self.ground.role();
        self.master.get().filter(|_| !role.is_master() && role.log() == OwnLog::Followed)
    }

    /// A round at once, and what it brings is taken over: before this broker becomes the master, or because the master asks for it.
    pub(crate) async fn finish(&self, within: Duration) -> Finished {
        let finishing = async {
            let _alone = self.rounds.lock().await;
            let Some(address) = self.followed_master() else { return Finished::Not };
            if self.ask(&address).await.is_err() {
                return Finished::Not;
            }
            let mut has_strange_offsets = false;
            let mut looks = tokio::time::interval(LOOK_EVERY);
            while self.pending.lock().waits() {
                looks.tick().await;
                if let Some(applied) = self.apply_reached().await {
                    has_strange_offsets = matches!(applied, Err(NotTaken::LeftOut(_)));
                    self.note("progress", &address, applied);
                }
            }
            // Quotas lose nothing.
            match self.reasons.lock().keys().filter(|part| **part != QUOTAS).count() {
                0 => Finished::All,
                1 if has_strange_offsets => Finished::WithoutStrangeOffsets,
                _ => Finished::Not,
            }
        };
        tokio::time::timeout(within, finishing).await.unwrap_or(Finished::Not)
    }

    /// Requests all tables.
    ///
    /// # Errors
    /// The master does not answer, or does not prove that it knows the secret.
    async fn ask(&self, address: &Arc<str>) -> Result<(), NotTaken> {
        let master = Master { client: &self.client, address };
        if let Some(secret) = &self.secret {
            master.check_proof(&**secret).await?;
        }
        let before = self.ground.store().dispatched_offset();
        let topics = match self.take_topics(&master).await {
            Ok(()) => self.clean_deleted(before).await,
            failed => failed,
        };
        self.check("topics", address, topics)?;
        self.check("groups", address, self.take_groups(&master).await)?;
        self.check("users", address, self.take_accounts(&master).await)?;
        self.check(QUOTAS, address, self.take_quotas(&master).await)?;
        self.check("commits", address, self.members.own_commits().give_to(&master).await)?;
        let progress =
            self.progress(&master, address).await.map(|progress| self.pending.lock().add(progress));
        self.check("offsets", address, progress)
    }

    /// Notes what became of a part. The others are asked for unless the master does not answer.
    fn check(&self, part: &'static str, address: &str, taken: Result<(), NotTaken>) -> Result<(), NotTaken> {
        match taken {
            Err(error @ NotTaken::Call(_)) => Err(error),
            taken => {
                self.note(part, address, taken);
                Ok(())
            }
        }
    }

    /// Says why a part is not taken over, once for each reason.
    fn note(&self, part: &'static str, master: &str, taken: Result<(), NotTaken>) {
        let mut reasons = self.reasons.lock();
        let Err(error) = taken else {
            if reasons.remove(part).is_some() {
                info!(master, part, "metadata of the master copied again");
            }
            return;
        };
        let reason = error.to_string();
        if reasons.get(part) == Some(&reason) {
            debug!(master, part, reason, "metadata of the master still not copied");
            return;
        }
        warn!(master, part, reason, "metadata of the master not copied, retrying");
        reasons.insert(part, reason);
        #[cfg(test)]
        self.warnings.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn reason(&self, part: &str) -> Option<String> {
        self.reasons.lock().get(part).cloned()
    }

    async fn take_topics(&self, master: &Master<'_>) -> Result<(), NotTaken> {
        let ground = &self.ground;
        let table = master.topics(ground.topics().version(), ground.config().max_topics).await?;
        let Some(table) = table.filter(|_| !ground.role().is_master()) else { return Ok(()) };
        let topics = table.topic_config_table.len();
        let Adopted { removed, written } =
            ground.topics().adopt(table.data_version, table.topic_config_table)?;
        on_disk(written).await?;
        self.has_deleted.store(true, Ordering::Relaxed);
        let owner = ground.clone();
        aside(move || owner.set_topic_retention()).await.map_err(Refusal::from)?;
        for topic in &removed {
            // Else they would be ahead of the messages of a later topic of this name.
            on_disk(self.members.offsets().remove_topic(topic)?).await?;
        }
        info!(topics, removed = removed.len(), "topics of the master copied");
        Ok(())
    }

    async fn clean_deleted(&self, before: PhysicalOffset) -> Result<(), NotTaken> {
        if self.has_deleted.load(Ordering::Relaxed) && !self.ground.role().is_master() {
            let are_gone = topic::clean_deleted(&self.ground, before).await?;
            self.has_deleted.store(!are_gone, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn take_groups(&self, master: &Master<'_>) -> Result<(), NotTaken> {
        let ground = &self.ground;
        let table = master.groups(ground.groups().version(), ground.config().max_groups).await?;
        let Some(table) = table.filter(|_| !ground.role().is_master()) else { return Ok(()) };
        let groups = table.subscription_group_table.len();
        let Adopted { removed, written } = ground.groups().adopt(table)?;
        on_disk(written).await?;
        info!(groups, removed = removed.len(), "consumer groups of the master copied");
        Ok(())
    }

    pub(super) async fn take_accounts(&self, master: &Master<'_>) -> Result<(), NotTaken> {
        let Auth { guard: Some(guard), credentials: Some(credentials) } = self.ground.config().auth.clone()
        else {
            return Ok(());
        };
        let answer = master.accounts(&version_text(guard.accounts().version())).await?;
        let are_off = matches!(answer, AccountsOfMaster::Off);
        if self.has_users_off.swap(are_off, Ordering::Relaxed) != are_off && are_off {
            info!(
                master = master.address,
                "master has users off, this slave keeps its own users and policies"
            );
        }
        let AccountsOfMaster::Changed(sealed) = answer else { return Ok(()) };
        if self.ground.role().is_master() {
            return Ok(());
        }
        aside(move || {
            let accounts = guard.accounts();
            // A rotation ends at one broker after the other.
            let user = accounts.user(&credentials.access_key);
            let known = user.iter().flat_map(|user| user.secrets.iter().map(str::to_owned));
            let secrets: Vec<String> = [credentials.secret_key.clone()].into_iter().chain(known).collect();
            accounts.replace(&sealed.open(secrets)?).map_err(NotTaken::from)
        })
        .await?;
        info!("users and policies of the master copied");
        Ok(())
    }

    async fn take_quotas(&self, master: &Master<'_>) -> Result<(), NotTaken> {
        let (ground, quotas) = (&self.ground, self.ground.quotas());
        let Some(list) = master.quotas().await? else { return Ok(()) };
        if ground.role().is_master() || list.data_version == quotas.version() {
            return Ok(());
        }
        on_disk(quotas.adopt(list)?).await?;
        quotas.apply(ground.store().monotonic());
        info!("quotas of the master copied");
        Ok(())
    }

    /// Takes over which creations the topics are. Offsets in earlier topics go at once: they may be beyond the end of the later ones.
    async fn take_creations(&self, offsets: &MasterOffsets) -> Result<(), NotTaken> {
        if self.ground.role().is_master() {
            return Ok(());
        }
        let before = self.ground.creations().all();
        let (owner, creations) = (self.ground.clone(), offsets.creations.clone());
        for topic in aside(move || owner.creations().adopt(&creations)).await? {
            let number = before.get(&topic).map_or(0, |creation| creation.number);
            on_disk(self.members.offsets().remove_creation(&topic, number)?).await?;
        }
        Ok(())
    }

    async fn progress(&self, master: &Master<'_>, address: &Arc<str>) -> Result<Progress, NotTaken> {
        let offsets = MasterOffsets::new(master.consumer_offsets().await?);
        self.take_creations(&offsets).await?;
        let delays = master.delay_offsets().await?;
        let timers = master.timer_checkpoint(self.ground.store().now_ms()).await?;
        let end = master.end().await?; // the last of all
        Ok(Progress { master: address.clone(), end, offsets, delays, timers })
    }

    /// Takes over the progress whose messages are all there, and can be found by their queues; `None` where there is none.
    async fn apply_reached(&self) -> Option<Result<(), NotTaken>> {
        let store = self.ground.store();
        let end = store.max_physical_offset().min(store.dispatched_offset());
        let reached = self.pending.lock().take_reached(end);
        let progress = reached.filter(|_| !self.ground.role().is_master())?;
        let (ground, members) = (self.ground.clone(), self.members.clone());
        let (delays, timers, transactions) =
            (self.delays.clone(), self.timers.clone(), self.transactions.clone());
        let apply = move || {
            let Progress { offsets, delays: levels, timers: checkpoint, .. } = progress;
            let end_of = |topic: &str, queue_id| ground.store().queue_bounds(topic, queue_id).max.to_wire();
            let is_earlier = |topic: &str, number| number < ground.creations().of_topic(topic).number;
            members.offsets().adopt(&offsets, end_of, is_earlier)?;
            delays.adopt(levels)?;
            if let Some(checkpoint) = checkpoint {
                timers.adopt(&checkpoint)?;
            }
            transactions.keep_open_ones();
            match offsets.left_out {
                0 => Ok(()),
                left_out => Err(NotTaken::LeftOut(left_out)),
            }
        };
        Some(aside(apply).await)
    }
}
