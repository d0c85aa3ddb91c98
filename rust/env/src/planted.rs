//! Planted bugs, which the proof must find.
//!
//! Without the feature `planted-bugs` none of them is compiled in. The proof asks for it, and so has each build of the whole workspace.
//! A release build of the Python module refuses the feature; a test looks at the module of the other profile.

/// Whether this build can have planted bugs.
pub const PLANTED_BUGS: bool = cfg!(feature = "planted-bugs");

/// The environment variable that plants the bug of this title in a process that has not chosen one itself.
pub const VARIABLE: &str = "ROCKETPY_TEST_PLANTED";

/// Declares the bugs: each with its variant and its title once.
macro_rules! bugs {
    ($($(#[$doc:meta])+ $name:ident = $title:literal,)+) => {
        /// Bug that can be planted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[$doc])+ $name,)+
        }

        impl Bug {
            /// Every bug.
            pub const ALL: [Self; [$($title),+].len()] = [$(Self::$name),+];

            /// Title of the bug.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)+
                }
            }
        }
    };
}

bugs! {
    /// The flushed offset moves before the flush.
    AckBeforeFlush = "acknowledge before flush",
    /// A failed flush is retried, and its success is trusted.
    BelieveRetriedFlush = "believe a retried flush",
    /// Folders are not flushed after a file in them was created.
    NoDirectoryFsync = "no directory fsync",
    /// Recovery checks only the layout of records.
    SkipRecordCheck = "skip the record check",
    /// Recovery cuts the log at damage before the durable mark.
    TruncateInteriorDamage = "truncate interior damage",
    /// A file of the log may end one byte short of its blank record.
    OffByOneAtRoll = "off by one at a roll",
    /// Recovery leaves entries after the end of a consume queue.
    QueueNotTruncated = "consume queue not truncated",
    /// A start leaves offsets of groups past the end of their queue.
    OffsetClampMissing = "offset clamp missing",
    /// A start resets offsets of groups only in memory.
    ClampNotPersisted = "the clamp not persisted",
    /// A group may commit an offset above the end of a queue.
    CommitAboveEnd = "commits above the end taken",
    /// Recovery trusts the entries of index files after the durable mark.
    IndexAheadOfLog = "index ahead of the log",
    /// The mark reports unflushed consume queues as durable.
    MarkBeforeQueues = "mark before the queues are flushed",
    /// The mark reports unflushed index files as durable.
    MarkBeforeIndex = "mark before the index is flushed",
    /// Records that a start finds after the mark are flushed without being written again.
    NotWrittenAgain = "what a start finds is not written again",
    /// Retention removes files of the log before the following files are durable and recorded in the mark.
    RetentionBeforeFlush = "retention before the flush",
    /// A flush leaves out the last record that it reports.
    FlushOneRecordShort = "flushed offset one record too far",
    /// A checkpoint counts postponed entries without writing them.
    PutOffDropped = "put-off entries dropped at a checkpoint",
    /// A change of a table is answered but not written.
    TableNotWritten = "table answered and not written",
    /// The `flush.type` of a topic is ignored: its sends are acknowledged as the broker's are.
    TopicFlushIgnored = "flush type of a topic ignored",
    /// Retention by the size of the log removes one file more than it may.
    RetentionTooEarly = "retention of one file too many",
    /// The thread that ends a flush does not wake the one that flushes next.
    NextFlushNotRung = "next flush not rung for",
    /// A thread announces its sleep after it has looked for work.
    SleepNotedLate = "sleep noted after the look for work",
    /// The next file of the log is requested in advance although it is already in use.
    FileWantedTwice = "next log file asked for twice",
    /// An append announces its wait for dispatch after it has read the progress of dispatch.
    BehindNotedLate = "wait for dispatch noted after the look",
    /// Listeners receive the progress of dispatch before it is published.
    DispatchToldEarly = "dispatch told before it is published",
    /// A held request becomes visible to the threads of the store only after the last check whether its wait is over.
    HeldShownLate = "held request shown after the look",
    /// Topics and groups count as on disk before the new name of their file is durable.
    TableFolderNotFlushed = "table answered before its name is durable",
    /// The progress of the delay levels is written before the copies are durable.
    DelayAheadOfLog = "delay progress ahead of the log",
    /// Delayed messages are stored again half a second early.
    DelayTooShort = "delayed messages early",
    /// A message that a consumer sends back keeps its delivery count.
    RetryNotCounted = "count lost at send-back",
    /// The op message of a transaction is written before its message is stored.
    MarkBeforeCommit = "mark before commit",
    /// A second commit of the same half message stores it again.
    CommittedAgain = "second commit stores again",
    /// The progress of the timers is written before the copies are durable.
    TimerAheadOfLog = "timer progress ahead of the log",
    /// Timer messages are stored again half a second early.
    TimerTooEarly = "timer messages early",
    /// Some slots of the wheel are skipped.
    WheelSlotLost = "lost wheel slot",
    /// A start forgets which queues are locked.
    LocksForgotten = "locks forgotten at a start",
    /// A start skips some slots when it rebuilds the wheel from the timer log.
    SlotNotRebuilt = "wheel slot not made again",
    /// A start treats all half messages as ended.
    HalvesForgotten = "open transactions forgotten at a start",
    /// The progress of transactions is written before their ends are durable.
    EndsAheadOfLog = "progress of transactions ahead of the log",
    /// Steps of the wall clock are not noticed.
    ClockStepMissed = "steps of the clock not noticed",
    /// A SYNC_MASTER answers before a slave has the message.
    AckBeforeSlave = "acknowledge before the slave",
    /// A master copies no records from its slaves after a sudden end.
    NothingTakenBack = "nothing taken back from a slave",
    /// A master opens no epoch of its log after a sudden end, nor after it was a slave.
    NoEpochBegun = "no epoch begun",
    /// The epoch that a master opens is not written before it serves.
    EpochNotWritten = "epoch not written",
    /// A slave cuts off records that its master does not have, even acknowledged ones.
    AcknowledgedCut = "acknowledged bytes cut",
    /// A slave under SYNC_FLUSH reports records that it has not flushed.
    ReportBeforeFlush = "report before the slave's flush",
    /// A slave adopts the offsets and the progress of its master before it has the messages.
    MetadataAheadOfLog = "metadata ahead of the log",
    /// A push consumer commits messages before their handlers have ended.
    CommitUnfinished = "commit of unfinished messages",
    /// An ordered push consumer gives a queue to several handlers.
    OrderGivenUp = "queue in order given to several handlers",
    /// The flushed offset is published one byte past the end of the log.
    FlushedPastEnd = "flushed offset past the end",
    /// A flush covers one byte past the written part of the file.
    FlushPastWritten = "flush past what is written",
    /// An append publishes one byte that was not copied.
    PublishedAhead = "append published ahead",
    /// A round of dispatch reports less progress than the previous one.
    DispatchGoesBack = "dispatch goes back",
    /// An entry of a consume queue is written one position too far.
    EntryMisplaced = "queue entry misplaced",
    /// The mark is written before the log is flushed.
    MarkBeforeLog = "mark before the log is flushed",
    /// Retention removes the newest of the old files first.
    NewestFileFirst = "newest file removed first",
    /// A master that starts an epoch keeps the epochs that start after it.
    EpochsNotCutBack = "epochs not cut back",
    /// A restart keeps acknowledged offsets of slaves past the end of the log.
    RestartKeepsAcknowledged = "acknowledged offsets kept at a restart",
    /// A master accepts the report of a slave that has more than it was sent.
    ReportAheadTaken = "report ahead of the log taken",
}

#[cfg(feature = "planted-bugs")]
mod selection {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::{Bug, VARIABLE};

    static PLANTED: AtomicU8 = AtomicU8::new(NOT_READ);
    /// The environment was not read yet.
    const NOT_READ: u8 = u8::MAX;

    /// The number that [`PLANTED`] has for a bug, 0 for none.
    const fn number(bug: Option<Bug>) -> u8 {
        match bug {
            Some(bug) => bug as u8 + 1,
            None => 0,
        }
    }

    /// Plants a bug in this process, in place of the former one.
    pub fn set(bug: Option<Bug>) {
        PLANTED.store(number(bug), Ordering::SeqCst);
    }

    /// Whether a bug is planted.
    pub fn has(bug: Bug) -> bool {
        let planted = match PLANTED.load(Ordering::Relaxed) {
            NOT_READ => read_environment(),
            planted => planted,
        };
        planted == number(Some(bug))
    }

    /// Plants the bug that the environment names.
    fn read_environment() -> u8 {
        let title = std::env::var(VARIABLE).ok();
        let bug = title.map(|title| {
            let named = Bug::ALL.into_iter().find(|bug| bug.title() == title);
            named.unwrap_or_else(|| panic!("{VARIABLE} names no bug: {title}"))
        });
        set(bug);
        number(bug)
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
