//! What a store and its server are like, drawn from the seed.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use super::mount::{Kind, Mounted};
use super::{Flush, Harness, Options, question};
use crate::history::Acknowledged;

/// The name that master and slave have in common.
const PAIR: &str = "pair";
const SLOW_BYTES_PER_SECOND: u64 = 16 << 10;

/// Attributes of a topic, as a topic specification takes them.
pub(super) type Attributes = BTreeMap<String, Option<String>>;

/// The attribute by which a topic has its own flush policy.
const FLUSH_TYPE: &str = "flush.type";
/// Most messages that a producer sends at once, and the longest body of one of them.
pub(super) const BATCH_MESSAGES: usize = 8;
pub(super) const BATCH_BODY_BYTES: usize = 1000;
/// More than a record takes beside its body.
const RECORD_BYTES: usize = 512;
/// The slowest case of "one flush": what was acknowledged this long before a power cut, and what the flush waits for, is durable. A
/// margin for a loaded machine.
const ONE_FLUSH: Duration = Duration::from_millis(1200);
const ALL_HOURS: &str = "00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23";

/// By which rule files of the log go. Rounds of retention come by request: by itself a server begins a minute after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retention {
    /// None goes: nobody asks, and no server lives for a minute.
    Never,
    /// None goes, whoever asks: none is old enough.
    Young,
    /// All but the last: each is old enough.
    Old,
    /// The oldest, while the log is longer than this.
    Longer(u64),
}

impl Retention {
    fn draw(rng: &mut Rng, log_file: u64) -> Self {
        match rng.u8(0..4) {
            0 => Self::Young,
            1 => Self::Old,
            _ => Self::Longer(log_file * rng.u64(2..=4)),
        }
    }

    /// Whether rounds are asked for.
    pub(super) fn is_asked(self) -> bool {
        self != Self::Never
    }

    /// Where the log starts once everything went that may go, with records up to `log_end`.
    pub(super) fn start(self, log_end: u64, log_file: u64) -> u64 {
        let files = log_end.div_ceil(log_file).max(1);
        let kept = match self {
            Self::Never | Self::Young => files,
            Self::Old => 1,
            Self::Longer(bytes) => bytes / log_file,
        };
        files.saturating_sub(kept.max(1)) * log_file
    }

    fn settings(self, rng: &mut Rng) -> Vec<(&'static str, String)> {
        let by_rule = match self {
            Self::Never => return Vec::new(),
            Self::Young => ("fileReservedTime", "1".to_owned()),
            Self::Old => ("fileReservedTime", "0".to_owned()),
            Self::Longer(bytes) => ("retentionMaxBytes", bytes.to_string()),
        };
        let hours = if rng.bool() { ALL_HOURS } else { "04" };
        vec![
            by_rule,
            ("deleteWhen", hours.to_owned()),
            ("deleteFileBatchMax", rng.u32(1..10).to_string()),
            ("deleteCommitLogFilesInterval", rng.u32(0..20).to_string()),
            ("deleteConsumeQueueFilesInterval", rng.u32(0..20).to_string()),
            // However full the disk of the harness is.
            ("cleanFileForciblyEnable", "false".to_owned()),
        ]
    }

    /// An age of an hour makes no message of a topic unreadable while the harness runs.
    fn attributes(self, rng: &mut Rng) -> Attributes {
        let is_aged = self.is_asked() && rng.bool();
        is_aged.then(|| ("retention.hours".to_owned(), Some("1".to_owned()))).into_iter().collect()
    }
}

/// When the log is flushed, beside what acknowledgements ask for.
#[derive(Debug, Clone, Copy)]
struct Flushes {
    interval_ms: u64,
    max_unflushed_bytes: u64,
    /// With fewer dirty pages an interval passes without a flush, until the thorough interval is over.
    least_pages: u64,
    thorough_ms: u64,
    /// Between two checkpoints.
    checkpoint_ms: u64,
}

impl Flushes {
    fn draw(rng: &mut Rng, harness: Harness) -> Self {
        // Frequent flushes, those of the default, or none before the bytes demand one.
        let (interval_ms, max_unflushed_bytes) = *rng
            .choice(&[(100, 256 << 20), (500, 256 << 20), (30_000, 64 << 10)])
            .unwrap_or(&(500, 256 << 20));
        // A kill is to meet checkpoints. Without one nothing but an interval or the bytes flushes the log.
        let checkpoints: &[u64] = match harness {
            Harness::Kill => &[20, 200, 1000],
            Harness::Power => &[20, 200, 1000, 60_000],
        };
        Self {
            interval_ms,
            max_unflushed_bytes,
            least_pages: *rng.choice(&[0, 0, 4, 64]).unwrap_or(&0),
            thorough_ms: *rng.choice(&[200, 1000]).unwrap_or(&1000),
            checkpoint_ms: *rng.choice(checkpoints).unwrap_or(&1000),
        }
    }

    fn settings(self) -> Vec<(&'static str, String)> {
        vec![
            ("flushIntervalCommitLog", self.interval_ms.to_string()),
            ("maxUnflushedBytes", self.max_unflushed_bytes.to_string()),
            ("flushCommitLogLeastPages", self.least_pages.to_string()),
            ("flushCommitLogThoroughInterval", self.thorough_ms.to_string()),
            ("flushIntervalConsumeQueue", self.checkpoint_ms.to_string()),
        ]
    }

    /// An acknowledged message that is older than this is durable.
    fn durable_after(self) -> Duration {
        let thorough_ms = if self.least_pages > 0 { self.thorough_ms } else { 0 };
        Duration::from_millis(self.interval_ms + thorough_ms) + ONE_FLUSH
    }
}

/// What one store is like.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub flush: Flush,
    pub kind: Kind,
    pub topics: Vec<Attributes>,
    pub queues: u32,
    pub body_min: usize,
    pub body_max: usize,
    pub producers: u32,
    pub has_consumers: bool,
    /// Messages are sent that have to wait. What they become must not be removed before it was read.
    pub has_later: bool,
    pub log_file: u64,
    pub retention: Retention,
    /// An acknowledged message that is older than this is durable.
    pub durable_after: Duration,
    pub max_unflushed_bytes: u64,
    /// `KEY=VALUE` of the server.
    pub settings: Vec<String>,
    /// How it is replicated, if it has a slave.
    pub pair: Option<Pair>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// Whether sends are acknowledged once the slave has them.
    pub is_waited_for: bool,
    /// When the slave says that it has something.
    pub slave_flush: Flush,
    /// Whether its slave gets less of the log than is appended: it is behind until the end, and what nobody waits for.
    pub is_slow: bool,
}

impl Pair {
    fn draw(rng: &mut Rng, options: &Options) -> Self {
        let slave_flush = if rng.bool() { Flush::Sync } else { Flush::Async };
        let is_waited_for = rng.u8(0..4) != 0;
        let is_slow = options.slow_slave.unwrap_or(!is_waited_for && rng.bool());
        Self { is_waited_for: is_waited_for && !is_slow, slave_flush, is_slow }
    }

    fn settings(self) -> Vec<(&'static str, String)> {
        let role = if self.is_waited_for { "SYNC_MASTER" } else { "ASYNC_MASTER" };
        let mut settings = vec![("brokerRole", role.to_owned()), ("brokerName", PAIR.to_owned())];
        if self.is_slow {
            settings.push(("haFlowControlEnable", "true".to_owned()));
            settings.push(("maxHaTransferByteInSecond", SLOW_BYTES_PER_SECOND.to_string()));
        }
        settings
    }
}

/// A life rolls small files several times, and large ones never: kills and retention are to meet rolls.
fn draw_log_file(rng: &mut Rng, harness: Harness, has_retention: bool) -> u64 {
    let log_files: &[u64] = match harness {
        Harness::Power if !has_retention => &[64 << 10, 128 << 10, 256 << 10, 16 << 20],
        _ => &[64 << 10, 128 << 10, 256 << 10],
    };
    *rng.choice(log_files).unwrap_or(&65_536)
}

impl Shape {
    pub(super) fn draw(rng: &mut Rng, options: &Options) -> Self {
        let is_sync = rng.bool();
        let flush = options.flush.unwrap_or(if is_sync { Flush::Sync } else { Flush::Async });
        let is_xfs = rng.u8(0..4) == 0;
        let has_retention = options.retention.unwrap_or(rng.bool());
        let log_file = draw_log_file(rng, options.harness, has_retention);
        // A master keeps nothing for a slave that is away: with small files it would have to begin anew now and then.
        let retention = match has_retention {
            true if options.pair => Retention::Young,
            true => Retention::draw(rng, log_file),
            false => Retention::Never,
        };
        let flushes = Flushes::draw(rng, options.harness);
        // More queues than a checkpoint flushes one by one: it flushes their file system.
        let (topics, queues) = match rng.u8(0..6) {
            0 => (3, rng.u32(24..=30)),
            _ => (rng.u32(1..=3), rng.u32(1..=4)),
        };
        let has_own_flush = options.own_flush.unwrap_or(rng.bool());
        let topics = (0..topics).map(|number| {
            let mut attributes = retention.attributes(rng);
            attributes.extend(own_flush(rng, number, flush).filter(|_| has_own_flush));
            attributes
        });
        let topics = topics.collect();
        let mut settings = vec![
            ("flushDiskType", flush.name().to_owned()),
            ("mappedFileSizeCommitLog", log_file.to_string()),
            ("mappedFileSizeConsumeQueue", (20 * rng.u32(10..200)).to_string()),
            ("maxHashSlotNum", rng.u32(100..1000).to_string()),
            ("maxIndexNum", rng.u32(500..5000).to_string()),
            ("flushConsumerOffsetInterval", rng.u32(100..1000).to_string()),
        ];
        settings.extend(flushes.settings());
        settings.extend(retention.settings(rng));
        settings.extend(question::SETTINGS.map(|(key, value)| (key, value.to_owned())));
        let pair = options.pair.then(|| Pair::draw(rng, options));
        settings.extend(pair.into_iter().flat_map(Pair::settings));
        let body_max = *rng.choice(&[100, 1000, 6000]).unwrap_or(&100);
        Self {
            flush,
            kind: if is_xfs && Mounted::has_xfs() { Kind::Xfs } else { Kind::Ext4 },
            topics,
            queues,
            body_min: 8,
            has_consumers: true,
            has_later: matches!(retention, Retention::Never | Retention::Young),
            body_max,
            producers: options.producers,
            log_file,
            retention,
            durable_after: flushes.durable_after(),
            max_unflushed_bytes: flushes.max_unflushed_bytes,
            settings: settings.into_iter().map(|(key, value)| format!("{key}={value}")).collect(),
            pair,
        }
    }

    /// `KEY=VALUE` of its slave.
    pub(super) fn slave_settings(&self) -> Vec<String> {
        let of_master = ["flushDiskType=", "brokerRole="];
        let own =
            self.settings.iter().filter(|setting| !of_master.iter().any(|key| setting.starts_with(key)));
        let flush = self.pair.map_or(self.flush, |pair| pair.slave_flush);
        let of_slave = [
            "brokerRole=SLAVE".to_owned(),
            "brokerId=1".to_owned(),
            format!("flushDiskType={}", flush.name()),
        ];
        own.cloned().chain(of_slave).collect()
    }

    /// A store with the default of `maxUnflushedBytes` and bodies of 1 MiB, which nothing but these bytes flushes.
    pub(super) fn of_bound(producers: u32) -> Self {
        let log_file = 256 << 20;
        let day_ms = 86_400_000_u64;
        let settings = [
            ("flushDiskType", Flush::Async.name().to_owned()),
            ("mappedFileSizeCommitLog", log_file.to_string()),
            ("flushIntervalCommitLog", day_ms.to_string()),
            ("flushIntervalConsumeQueue", day_ms.to_string()),
        ];
        Self {
            flush: Flush::Async,
            kind: Kind::LargeExt4,
            topics: vec![Attributes::new()],
            queues: 4,
            body_min: 1 << 20,
            body_max: 1 << 20,
            producers,
            has_consumers: false,
            has_later: false,
            log_file,
            retention: Retention::Never,
            durable_after: Duration::from_millis(day_ms),
            max_unflushed_bytes: 256 << 20,
            settings: settings.into_iter().map(|(key, value)| format!("{key}={value}")).collect(),
            pair: None,
        }
    }

    /// More bytes than all producers together append with one call each. Appends that passed the check of a bound together may exceed
    /// it by this much.
    pub(super) fn at_once_bytes(&self) -> u64 {
        let batch = BATCH_MESSAGES * (self.body_max.min(BATCH_BODY_BYTES) + RECORD_BYTES);
        u64::from(self.producers) * (self.body_max + RECORD_BYTES).max(batch) as u64
    }

    /// The topics whose `flush.type` says when their sends are acknowledged.
    pub(super) fn own_flushes(&self) -> BTreeMap<String, Acknowledged> {
        let own = |(number, attributes): (usize, &Attributes)| {
            let value = attributes.get(FLUSH_TYPE)?.as_deref()?;
            let flush = [Flush::Sync, Flush::Async].into_iter().find(|flush| flush.name() == value)?;
            Some((topic_name(number), flush.acknowledged()))
        };
        self.topics.iter().enumerate().filter_map(own).collect()
    }
}

/// The name of a topic of the load.
pub(super) fn topic_name(number: usize) -> String {
    format!("topic{number}")
}

/// Lets a topic say when its sends are acknowledged: the first one in another way than the broker, each other one in any way.
fn own_flush(rng: &mut Rng, number: u32, of_broker: Flush) -> Option<(String, Option<String>)> {
    let other = if of_broker == Flush::Sync { Flush::Async } else { Flush::Sync };
    let drawn = *rng.choice(&[None, Some(Flush::Sync), Some(Flush::Async)]).unwrap_or(&None);
    let flush = if number == 0 { Some(other) } else { drawn };
    flush.map(|flush| (FLUSH_TYPE.to_owned(), Some(flush.name().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_leaves_what_its_rule_says() {
        for (retention, log_end, start) in [
            (Retention::Never, 1000, 0),
            (Retention::Young, 1000, 0),
            (Retention::Old, 0, 0),
            (Retention::Old, 100, 0),
            (Retention::Old, 101, 100),
            (Retention::Old, 399, 300),
            (Retention::Longer(300), 300, 0),
            (Retention::Longer(300), 301, 100),
            (Retention::Longer(350), 399, 100),
            (Retention::Longer(50), 399, 300),
        ] {
            assert_eq!(retention.start(log_end, 100), start, "{retention:?} of {log_end}");
        }
    }
}
