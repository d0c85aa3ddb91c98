//! Faults that are planted on purpose: the proof must find them.
//!
//! Without the feature `planted-bugs` none of them is compiled in. The proof asks for it, and so has each build of the whole workspace.
//! A release build of the Python module refuses the feature; a test looks at the module of the other profile.

/// Whether this build can have planted bugs.
pub const PLANTED_BUGS: bool = cfg!(feature = "planted-bugs");

/// The environment variable that plants the bug of this title in a process that has not chosen one itself.
pub const VARIABLE: &str = "ROCKETPY_TEST_PLANTED";

/// A fault that may be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// The flushed offset moves before the flush.
    AckBeforeFlush = 1,
    /// A flush that failed is tried again and believed.
    BelieveRetriedFlush,
    /// No folder is flushed after a name in it was made.
    NoDirectoryFsync,
    /// Recovery checks the layout of records alone.
    SkipRecordCheck,
    /// Recovery cuts the log at damage before the durable mark.
    TruncateInteriorDamage,
    /// A file of the log may end one byte short of its blank record.
    OffByOneAtRoll,
    /// Recovery leaves entries behind the end of a consume queue.
    QueueNotTruncated,
    /// A start leaves offsets of groups behind the end of their queue.
    OffsetClampMissing,
    /// A start sets offsets of groups back in memory alone.
    ClampNotPersisted,
    /// A group may commit an offset above the end of a queue.
    CommitAboveEnd,
    /// Recovery believes the entries of index files behind the durable mark.
    IndexAheadOfLog,
    /// The mark says that consume queues are durable which nobody flushed.
    MarkBeforeQueues,
    /// The mark says that index files are durable which nobody flushed.
    MarkBeforeIndex,
    /// What a start finds behind the mark is flushed without being written again.
    NotWrittenAgain,
    /// Retention removes files of the log before what follows them is durable and noted in the mark.
    RetentionBeforeFlush,
    /// A flush leaves out the last record that it reports.
    FlushOneRecordShort,
    /// A checkpoint leaves entries that were put off unwritten and counts them.
    PutOffDropped,
    /// A change of a table is answered and not written.
    TableNotWritten,
    /// The `flush.type` of a topic is ignored: its sends are acknowledged as the broker's are.
    TopicFlushIgnored,
    /// Retention by the size of the log removes one file more than it may.
    RetentionTooEarly,
    /// Whoever ends a flush does not wake the thread that is to flush next.
    NextFlushNotRung,
    /// A thread says that it sleeps after it has looked for work.
    SleepNotedLate,
    /// The next file of the log is asked for ahead although it was handed out.
    FileWantedTwice,
    /// An append says that it waits for dispatch after it has looked how far that is.
    BehindNotedLate,
    /// Listeners are told how far dispatch has come before that is published.
    DispatchToldEarly,
    /// A request is held, and shown to the threads of the store after the last look whether its wait is over.
    HeldShownLate,
    /// Topics and groups count as on disk before the new name of their file is durable.
    TableFolderNotFlushed,
    /// The progress of the delay levels is written before the copies are durable.
    DelayAheadOfLog,
    /// Delayed messages are stored again half a second early.
    DelayTooShort,
    /// A message that a consumer sends back keeps its count.
    RetryNotCounted,
    /// The end of a transaction is marked before its message is stored.
    MarkBeforeCommit,
    /// A second commit of the same half message stores it again.
    CommittedAgain,
    /// The progress of the timers is written before the copies are durable.
    TimerAheadOfLog,
    /// Timer messages are stored again half a second early.
    TimerTooEarly,
    /// Some slots of the wheel are passed over.
    WheelSlotLost,
    /// A start forgets which queues are locked.
    LocksForgotten,
    /// A start leaves some slots out when it makes the wheel of the log of timers.
    SlotNotRebuilt,
    /// A start takes all half messages that it finds for ended.
    HalvesForgotten,
    /// The progress of transactions is written before their ends are durable.
    EndsAheadOfLog,
    /// A SYNC_MASTER answers before a slave has the message.
    AckBeforeSlave,
    /// A master takes nothing back from its slaves after a sudden end.
    NothingTakenBack,
    /// A master opens no epoch of its log after a sudden end, nor after it was a slave.
    NoEpochBegun,
    /// The epoch that a master opens is not written before it serves.
    EpochNotWritten,
    /// A slave cuts off what its master does not have, whatever was acknowledged of it.
    AcknowledgedCut,
    /// A slave under SYNC_FLUSH reports what it has not flushed.
    ReportBeforeFlush,
    /// A slave takes over the offsets and the progress of its master before it has the messages.
    MetadataAheadOfLog,
    /// A push consumer commits what it has handed out, whatever its handlers have ended.
    CommitUnfinished,
    /// A push consumer that reads in order gives a queue to several handlers.
    OrderGivenUp,
    /// The flushed offset is told one byte further than the log is written.
    FlushedPastEnd,
    /// A flush reaches one byte further than the file is written.
    FlushPastWritten,
    /// An append publishes one byte that was not copied.
    PublishedAhead,
    /// A round of dispatch says that it has come less far than the one before.
    DispatchGoesBack,
    /// An entry of a consume queue is put one place too far.
    EntryMisplaced,
    /// The mark is written before the log is flushed.
    MarkBeforeLog,
    /// Retention removes the newest of the old files first.
    NewestFileFirst,
    /// A master that begins an epoch keeps the epochs that begin behind it.
    EpochsNotCutBack,
    /// A restart keeps what slaves acknowledged behind the end that it left.
    RestartKeepsAcknowledged,
    /// A master takes the report of a slave that has more than it was sent.
    ReportAheadTaken,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 58] = [
        Self::AckBeforeFlush,
        Self::BelieveRetriedFlush,
        Self::NoDirectoryFsync,
        Self::SkipRecordCheck,
        Self::TruncateInteriorDamage,
        Self::OffByOneAtRoll,
        Self::QueueNotTruncated,
        Self::OffsetClampMissing,
        Self::ClampNotPersisted,
        Self::CommitAboveEnd,
        Self::IndexAheadOfLog,
        Self::MarkBeforeQueues,
        Self::MarkBeforeIndex,
        Self::NotWrittenAgain,
        Self::RetentionBeforeFlush,
        Self::FlushOneRecordShort,
        Self::PutOffDropped,
        Self::TableNotWritten,
        Self::TopicFlushIgnored,
        Self::RetentionTooEarly,
        Self::NextFlushNotRung,
        Self::SleepNotedLate,
        Self::FileWantedTwice,
        Self::BehindNotedLate,
        Self::DispatchToldEarly,
        Self::HeldShownLate,
        Self::TableFolderNotFlushed,
        Self::DelayAheadOfLog,
        Self::DelayTooShort,
        Self::RetryNotCounted,
        Self::MarkBeforeCommit,
        Self::CommittedAgain,
        Self::TimerAheadOfLog,
        Self::TimerTooEarly,
        Self::WheelSlotLost,
        Self::LocksForgotten,
        Self::SlotNotRebuilt,
        Self::HalvesForgotten,
        Self::EndsAheadOfLog,
        Self::AckBeforeSlave,
        Self::NothingTakenBack,
        Self::NoEpochBegun,
        Self::EpochNotWritten,
        Self::AcknowledgedCut,
        Self::ReportBeforeFlush,
        Self::MetadataAheadOfLog,
        Self::CommitUnfinished,
        Self::OrderGivenUp,
        Self::FlushedPastEnd,
        Self::FlushPastWritten,
        Self::PublishedAhead,
        Self::DispatchGoesBack,
        Self::EntryMisplaced,
        Self::MarkBeforeLog,
        Self::NewestFileFirst,
        Self::EpochsNotCutBack,
        Self::RestartKeepsAcknowledged,
        Self::ReportAheadTaken,
    ];

    /// What it is, in words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::AckBeforeFlush => "acknowledge before flush",
            Self::BelieveRetriedFlush => "believe a retried flush",
            Self::NoDirectoryFsync => "no directory fsync",
            Self::SkipRecordCheck => "skip the record check",
            Self::TruncateInteriorDamage => "truncate interior damage",
            Self::OffByOneAtRoll => "off by one at a roll",
            Self::QueueNotTruncated => "consume queue not truncated",
            Self::OffsetClampMissing => "offset clamp missing",
            Self::ClampNotPersisted => "the clamp not persisted",
            Self::CommitAboveEnd => "commits above the end taken",
            Self::IndexAheadOfLog => "index ahead of the log",
            Self::MarkBeforeQueues => "mark before the queues are flushed",
            Self::MarkBeforeIndex => "mark before the index is flushed",
            Self::NotWrittenAgain => "what a start finds is not written again",
            Self::RetentionBeforeFlush => "retention before the flush",
            Self::FlushOneRecordShort => "flushed offset one record too far",
            Self::PutOffDropped => "put-off entries dropped at a checkpoint",
            Self::TableNotWritten => "table answered and not written",
            Self::TopicFlushIgnored => "flush type of a topic ignored",
            Self::RetentionTooEarly => "retention of one file too many",
            Self::NextFlushNotRung => "next flush not rung for",
            Self::SleepNotedLate => "sleep noted after the look for work",
            Self::FileWantedTwice => "next log file asked for twice",
            Self::BehindNotedLate => "wait for dispatch noted after the look",
            Self::DispatchToldEarly => "dispatch told before it is published",
            Self::HeldShownLate => "held request shown after the look",
            Self::TableFolderNotFlushed => "table answered before its name is durable",
            Self::DelayAheadOfLog => "delay progress ahead of the log",
            Self::DelayTooShort => "delayed messages early",
            Self::RetryNotCounted => "count lost at send-back",
            Self::MarkBeforeCommit => "mark before commit",
            Self::CommittedAgain => "second commit stores again",
            Self::TimerAheadOfLog => "timer progress ahead of the log",
            Self::TimerTooEarly => "timer messages early",
            Self::WheelSlotLost => "lost wheel slot",
            Self::LocksForgotten => "locks forgotten at a start",
            Self::SlotNotRebuilt => "wheel slot not made again",
            Self::HalvesForgotten => "open transactions forgotten at a start",
            Self::EndsAheadOfLog => "progress of transactions ahead of the log",
            Self::AckBeforeSlave => "acknowledge before the slave",
            Self::NothingTakenBack => "nothing taken back from a slave",
            Self::NoEpochBegun => "no epoch begun",
            Self::EpochNotWritten => "epoch not written",
            Self::AcknowledgedCut => "acknowledged bytes cut",
            Self::ReportBeforeFlush => "report before the slave's flush",
            Self::MetadataAheadOfLog => "metadata ahead of the log",
            Self::CommitUnfinished => "commit of unfinished messages",
            Self::OrderGivenUp => "queue in order given to several handlers",
            _ => self.title_of_assertion(),
        }
    }

    /// The same of those that an assertion shows.
    const fn title_of_assertion(self) -> &'static str {
        match self {
            Self::FlushedPastEnd => "flushed offset past the end",
            Self::FlushPastWritten => "flush past what is written",
            Self::PublishedAhead => "append published ahead",
            Self::DispatchGoesBack => "dispatch goes back",
            Self::EntryMisplaced => "queue entry misplaced",
            Self::MarkBeforeLog => "mark before the log is flushed",
            Self::NewestFileFirst => "newest file removed first",
            Self::EpochsNotCutBack => "epochs not cut back",
            Self::RestartKeepsAcknowledged => "acknowledged offsets kept at a restart",
            Self::ReportAheadTaken => "report ahead of the log taken",
            _ => "",
        }
    }
}

#[cfg(feature = "planted-bugs")]
mod selection {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::{Bug, VARIABLE};

    static PLANTED: AtomicU8 = AtomicU8::new(NOT_READ);
    /// The environment was not read yet.
    const NOT_READ: u8 = u8::MAX;

    /// Plants a bug in this process, in place of the former one.
    pub fn set(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
    }

    /// Whether a bug is planted.
    pub fn has(bug: Bug) -> bool {
        let planted = match PLANTED.load(Ordering::Relaxed) {
            NOT_READ => read_environment(),
            planted => planted,
        };
        planted == bug as u8
    }

    /// Plants the bug that the environment names.
    fn read_environment() -> u8 {
        let title = std::env::var(VARIABLE).ok();
        let bug = title.map(|title| {
            let named = Bug::ALL.into_iter().find(|bug| bug.title() == title);
            named.unwrap_or_else(|| panic!("{VARIABLE} names no bug: {title}"))
        });
        set(bug);
        bug.map_or(0, |bug| bug as u8)
    }
}

#[cfg(feature = "planted-bugs")]
pub use selection::{has, set};

/// Whether a bug is planted: not in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn has(_bug: Bug) -> bool {
    false
}
