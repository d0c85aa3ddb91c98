//! What a run does, drawn from its seed.

use std::iter;
use std::time::Duration;

use fastrand::Rng;
use rocketpy_env::sim::SimOptions;
use rocketpy_store::{DeleteHours, FlushMode, RetentionConfig, StoreConfig};

use crate::history::{CrashKind, QueueName};

/// The folder of the store on the simulated disk.
pub(super) const ROOT: &str = "/store";

/// Longer than the days of a run.
const FAR_RESERVED: Duration = Duration::from_secs(1000 * 86_400);

#[derive(Debug, Clone)]
pub struct Plan {
    /// Draws everything.
    pub seed: u64,
    /// When sends are acknowledged.
    pub flush: FlushMode,
    /// Whether records carry a check of all of their bytes.
    pub record_check: bool,
    /// Size of a log file in bytes.
    pub log_file: u64,
    /// Size of a consume queue file in bytes.
    pub queue_file: u64,
    /// Slots and entries of an index file; `None` for no index.
    pub index: Option<(u32, u32)>,
    pub topics: u32,
    pub queues: u32,
    /// Longest body in bytes.
    pub body_max: usize,
    /// Most consume queue files that are open at a time.
    pub open_queue_files: usize,
    /// Most queues that a round writes at once, and most bytes of entries that wait in memory.
    pub put_off: (usize, usize),
    /// Bytes of the log that one flush covers, and bytes that a start makes durable itself.
    pub flushes: (u64, u64),
    /// Bytes of the log after which a checkpoint comes early.
    pub checkpoint_bytes: u64,
    /// How the disk fails.
    pub disk: SimOptions,
    /// `None`: nothing is removed by age, by size or on a full disk.
    pub retention: Option<Retention>,
    /// Whether topics are deleted, and made again by the next send.
    pub deletes: bool,
    /// Whether topics and groups of the broker's tables are made, changed and deleted. They are not those of the messages.
    pub tables: bool,
    /// Whether all messages wait, for a time or for the end of their transaction, and come by the services of a broker.
    pub waits: bool,
    /// Whether somebody sets the clock between two calls. [`SimOptions::clock_steps_per_mille`] does so during one.
    pub sets_clock: bool,
    /// Whether some timer messages wait for days, and days pass: the broker stores them again on the way.
    pub goes_far: bool,
    /// The lives of the process, one after the other.
    pub boots: Vec<Boot>,
}

/// When records are removed.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// For how long a log file is kept.
    pub reserved_ms: u64,
    /// Whether old files may go at every hour, or at none: then only a request or a full disk removes them.
    pub at_any_hour: bool,
    /// Most files of the log.
    pub max_files: Option<u64>,
    /// Most log files that go in one round.
    pub files_a_round: usize,
    /// Whether a full disk takes files before their time.
    pub clean_forcibly: bool,
    /// Age at which messages of the first topic are removed.
    pub topic_ms: Option<u64>,
}

/// One life of the process, after which another follows.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// The process ends at this operation of the disk, possibly during recovery.
    pub stop: Option<u64>,
    pub steps: u32,
    /// How it ends unless it is stopped before.
    pub end: CrashKind,
    /// Draws what a power cut loses; without it the run's seed does.
    pub outcome: Option<u64>,
    /// What happens to the files while no process has them open.
    pub damage: Option<Damage>,
}

/// What a medium does to a store at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A bit of a record before the durable mark is flipped: the start is refused. Then it is flipped back.
    DurableBit,
    /// A bit of a record that was never flushed is flipped. If it is the last one, the log is cut there. Else the start is refused;
    /// then the bit is flipped back.
    TailBit,
    /// A log file with durable bytes is gone, or short: the start is refused. Then it is back.
    LogFile,
    /// A file of a consume queue is gone: the queues are rebuilt.
    QueueFile,
    /// The mark in the checkpoint is destroyed, or the whole file is gone.
    Checkpoint,
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let rare =
            |rng: &mut Rng, chance: u32, per_mille: u32| if rng.u32(0..100) < chance { per_mille } else { 0 };
        let disk = SimOptions {
            seed: rng.u64(..),
            write_back_per_mille: *rng.choice(&[0, 10, 100, 500]).unwrap_or(&0),
            write_back_fails_per_mille: rare(rng, 30, 50),
            flush_fails_per_mille: rare(rng, 20, 20),
            no_space_per_mille: rare(rng, 20, 20),
            no_handle_per_mille: rare(rng, 10, 10),
            clock_steps_per_mille: rare(rng, 20, 20),
            ..SimOptions::default()
        };
        let boots = rng.u32(1..6);
        let boots = (0..boots).map(|_| Boot::of(rng, &disk)).collect();
        let plan = Self {
            seed,
            flush: if rng.bool() { FlushMode::Sync } else { FlushMode::Async },
            record_check: rng.u8(0..4) != 0,
            log_file: rng.u64(16..=64) * 1024,
            queue_file: rng.u64(1..=100) * 20,
            index: (rng.u8(0..5) != 0).then(|| (rng.u32(1..40), rng.u32(2..60))),
            topics: rng.u32(1..=3),
            // More queues than a checkpoint flushes one by one.
            queues: if rng.u8(0..8) == 0 { 40 } else { rng.u32(1..=3) },
            body_max: *rng.choice(&[100, 1000, 3000]).unwrap_or(&100),
            open_queue_files: *rng.choice(&[1, 2, 100]).unwrap_or(&1),
            put_off: *rng
                .choice(&[(64, 64 << 20), (0, 1 << 20), (0, 40), (1, 200), (2, 0)])
                .unwrap_or(&(0, 0)),
            flushes: *rng
                .choice(&[(128 << 20, 64 << 20), (4096, 0), (10_000, 5000), (1 << 20, 0)])
                .unwrap_or(&(1 << 20, 0)),
            checkpoint_bytes: *rng.choice(&[128 << 20, 3000, 20_000]).unwrap_or(&3000),
            disk,
            retention: None,
            deletes: false,
            tables: false,
            waits: false,
            sets_clock: false,
            goes_far: false,
            boots,
        };
        plan.with_removals(rng).with_media(rng).with_tables(rng)
    }

    /// All plans of a seed. Every eighth has a second one: the services of a broker work, on a disk that is sound but for its pages.
    pub fn all_of(seed: u64) -> impl Iterator<Item = Self> {
        let waiting = seed.is_multiple_of(8).then(|| Self::waiting_of(seed));
        iter::once(Self::of(seed)).chain(waiting)
    }

    /// The plan of a seed for messages that wait.
    pub fn waiting_of(seed: u64) -> Self {
        Self::of(seed).waiting()
    }

    fn waiting(mut self) -> Self {
        let SimOptions { seed, write_back_per_mille, clock_steps_per_mille, tears_sectors, .. } = self.disk;
        self.disk = SimOptions { seed, write_back_per_mille, tears_sectors, ..SimOptions::default() };
        self.sets_clock = clock_steps_per_mille > 0;
        self.goes_far = !self.sets_clock && (self.seed / 8).is_multiple_of(3);
        for boot in &mut self.boots {
            boot.damage = None;
        }
        let index = self.index.or(Some((20, 40))); // without it a commit before a kill may be repeated after it
        Self {
            index,
            record_check: true,
            retention: None,
            deletes: false,
            tables: false,
            waits: true,
            ..self
        }
    }

    /// Worse media: unreadable places, torn sectors, pages that are evicted before they were written.
    fn with_media(mut self, rng: &mut Rng) -> Self {
        self.disk.read_fails_per_mille = if rng.u8(0..10) == 0 { 20 } else { 0 };
        // Nothing else than the check of the whole record finds a torn head.
        self.disk.tears_sectors = rng.bool() && self.record_check;
        self.disk.evicts = rng.u8(0..4) == 0;
        self
    }

    /// A sixth of the runs: the tables are written whole, which takes a while.
    fn with_tables(mut self, rng: &mut Rng) -> Self {
        self.tables = rng.u8(0..6) == 0;
        self
    }

    /// About half of the runs remove something.
    fn with_removals(mut self, rng: &mut Rng) -> Self {
        self.deletes = rng.u8(0..3) == 0;
        if rng.u8(0..3) == 0 {
            self.retention = Some(Retention::of(rng, &self.disk));
            self.log_file = rng.u64(16..=20) * 1024; // many files
        }
        if self.deletes {
            // Without a mark a part of the log is dispatched again, including deleted topics.
            for boot in self.boots.iter_mut().filter(|boot| boot.damage == Some(Damage::Checkpoint)) {
                boot.damage = None;
            }
        }
        self
    }

    /// All queues that there may be.
    pub fn queue_names(&self) -> impl Iterator<Item = QueueName> {
        let (topics, queues) = (self.topics, self.queues);
        let of = move |topic| {
            (0..queues).map(move |queue_id| QueueName { topic: format!("topic{topic}"), queue_id })
        };
        (0..topics).flat_map(of)
    }

    pub fn config(&self) -> StoreConfig {
        StoreConfig {
            commit_log_file_size: self.log_file,
            consume_queue_file_size: self.queue_file,
            index: self.index.is_some(),
            index_slots: self.index.map_or(1, |(slots, _)| slots),
            index_entries: self.index.map_or(2, |(_, entries)| entries),
            flush: self.flush,
            record_check: self.record_check,
            open_queue_files: self.open_queue_files,
            queues_at_once: self.put_off.0,
            queue_tail_bytes: self.put_off.1,
            flush_step_bytes: self.flushes.0,
            flush_at_start_bytes: self.flushes.1,
            checkpoint_bytes: self.checkpoint_bytes,
            retention: match self.retention {
                Some(rules) => rules.config(self.log_file),
                // Half messages are given up when they are older than this.
                None if self.goes_far => {
                    RetentionConfig { reserved_time: FAR_RESERVED, ..RetentionConfig::default() }
                }
                None => RetentionConfig::default(),
            },
            ..StoreConfig::new(ROOT)
        }
    }
}

impl Retention {
    fn of(rng: &mut Rng, disk: &SimOptions) -> Self {
        // With the clock set back, the next start shows again what a topic had forgotten. The checks do not expect that.
        let topic_ms = (rng.u8(0..3) == 0 && disk.clock_steps_per_mille == 0).then(|| rng.u64(1..400));
        Self {
            reserved_ms: *rng.choice(&[0, 100, 1000, 1 << 40]).unwrap_or(&0),
            at_any_hour: rng.bool(),
            max_files: rng.bool().then(|| rng.u64(0..6)),
            files_a_round: *rng.choice(&[1, 3, 100]).unwrap_or(&1),
            clean_forcibly: rng.bool(),
            topic_ms,
        }
    }

    fn config(&self, log_file: u64) -> RetentionConfig {
        let all: Vec<u32> = (0..24).collect();
        RetentionConfig {
            reserved_time: Duration::from_millis(self.reserved_ms),
            delete_hours: if self.at_any_hour { DeleteHours::of(&all) } else { DeleteHours::default() },
            max_bytes: self.max_files.map(|files| files * log_file),
            files_a_round: self.files_a_round,
            clean_forcibly: self.clean_forcibly,
            ..RetentionConfig::default()
        }
    }
}

impl Boot {
    fn of(rng: &mut Rng, disk: &SimOptions) -> Self {
        let steps = rng.u32(5..120);
        let stop = match rng.u8(0..4) {
            0 => Some(rng.u64(1..150)), // mostly during recovery
            1 => Some(rng.u64(1..u64::from(steps) * 4)),
            _ => None,
        };
        let end =
            *rng.choice(&[CrashKind::Stop, CrashKind::Kill, CrashKind::Power]).unwrap_or(&CrashKind::Kill);
        let damage = match rng.u8(0..40) {
            0 | 1 => Some(Damage::DurableBit),
            2 | 3 => Some(Damage::TailBit),
            4 => Some(Damage::LogFile),
            5 => Some(Damage::QueueFile),
            // Without a mark the format's own rule decides, which trusts the clock.
            6 if disk.clock_steps_per_mille == 0 => Some(Damage::Checkpoint),
            _ => None,
        };
        Self { stop, steps, end, outcome: None, damage }
    }

    /// The last one: nothing ends it, nothing fails.
    pub fn last() -> Self {
        Self { stop: None, steps: 20, end: CrashKind::Stop, outcome: None, damage: None }
    }
}
