//! Faults that are planted on purpose: the proof must find them.
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
        /// A fault that may be planted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[$doc])+ $name,)+
        }

        impl Bug {
            /// All bugs.
            pub const ALL: [Self; [$($title),+].len()] = [$(Self::$name),+];

            /// The bug in words.
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
    /// A flush that failed is tried again and believed.
    BelieveRetriedFlush = "believe a retried flush",
    /// No folder is flushed after a name in it was made.
    NoDirectoryFsync = "no directory fsync",
    /// Recovery checks the layout of records alone.
    SkipRecordCheck = "skip the record check",
    /// Recovery cuts the log at damage before the durable mark.
    TruncateInteriorDamage = "truncate interior damage",
    /// A file of the log may end one byte short of its blank record.
    OffByOneAtRoll = "off by one at a roll",
    /// Recovery leaves entries behind the end of a consume queue.
    QueueNotTruncated = "consume queue not truncated",
    /// A start leaves offsets of groups behind the end of their queue.
    OffsetClampMissing = "offset clamp missing",
    /// A start sets offsets of groups back in memory alone.
    ClampNotPersisted = "the clamp not persisted",
    /// A group may commit an offset above the end of a queue.
    CommitAboveEnd = "commits above the end taken",
    /// Recovery believes the entries of index files behind the durable mark.
    IndexAheadOfLog = "index ahead of the log",
    /// The mark says that consume queues are durable which nobody flushed.
    MarkBeforeQueues = "mark before the queues are flushed",
    /// The mark says that index files are durable which nobody flushed.
    MarkBeforeIndex = "mark before the index is flushed",
    /// What a start finds behind the mark is flushed without being written again.
    NotWrittenAgain = "what a start finds is not written again",
    /// Retention removes files of the log before what follows them is durable and noted in the mark.
    RetentionBeforeFlush = "retention before the flush",
    /// A flush leaves out the last record that it reports.
    FlushOneRecordShort = "flushed offset one record too far",
    /// A checkpoint leaves entries that were put off unwritten and counts them.
    PutOffDropped = "put-off entries dropped at a checkpoint",
    /// A change of a table is answered and not written.
    TableNotWritten = "table answered and not written",
    /// The `flush.type` of a topic is ignored: its sends are acknowledged as the broker's are.
    TopicFlushIgnored = "flush type of a topic ignored",
    /// Retention by the size of the log removes one file more than it may.
    RetentionTooEarly = "retention of one file too many",
    /// Whoever ends a flush does not wake the thread that is to flush next.
    NextFlushNotRung = "next flush not rung for",
    /// A thread says that it sleeps after it has looked for work.
    SleepNotedLate = "sleep noted after the look for work",
    /// The next file of the log is asked for ahead although it was handed out.
    FileWantedTwice = "next log file asked for twice",
    /// An append says that it waits for dispatch after it has looked how far that is.
    BehindNotedLate = "wait for dispatch noted after the look",
    /// Listeners are told how far dispatch has come before that is published.
    DispatchToldEarly = "dispatch told before it is published",
    /// A request is held, and shown to the threads of the store after the last look whether its wait is over.
    HeldShownLate = "held request shown after the look",
    /// Topics and groups count as on disk before the new name of their file is durable.
    TableFolderNotFlushed = "table answered before its name is durable",
    /// The progress of the delay levels is written before the copies are durable.
    DelayAheadOfLog = "delay progress ahead of the log",
    /// Delayed messages are stored again half a second early.
    DelayTooShort = "delayed messages early",
    /// A message that a consumer sends back keeps its count.
    RetryNotCounted = "count lost at send-back",
    /// The end of a transaction is marked before its message is stored.
    MarkBeforeCommit = "mark before commit",
    /// A second commit of the same half message stores it again.
    CommittedAgain = "second commit stores again",
    /// The progress of the timers is written before the copies are durable.
    TimerAheadOfLog = "timer progress ahead of the log",
    /// Timer messages are stored again half a second early.
    TimerTooEarly = "timer messages early",
    /// Some slots of the wheel are passed over.
    WheelSlotLost = "lost wheel slot",
    /// A start forgets which queues are locked.
    LocksForgotten = "locks forgotten at a start",
    /// A start leaves some slots out when it makes the wheel of the log of timers.
    SlotNotRebuilt = "wheel slot not made again",
    /// A start takes all half messages that it finds for ended.
    HalvesForgotten = "open transactions forgotten at a start",
    /// The progress of transactions is written before their ends are durable.
    EndsAheadOfLog = "progress of transactions ahead of the log",
    /// A SYNC_MASTER answers before a slave has the message.
    AckBeforeSlave = "acknowledge before the slave",
    /// A master takes nothing back from its slaves after a sudden end.
    NothingTakenBack = "nothing taken back from a slave",
    /// A master opens no epoch of its log after a sudden end, nor after it was a slave.
    NoEpochBegun = "no epoch begun",
    /// The epoch that a master opens is not written before it serves.
    EpochNotWritten = "epoch not written",
    /// A slave cuts off what its master does not have, whatever was acknowledged of it.
    AcknowledgedCut = "acknowledged bytes cut",
    /// A slave under SYNC_FLUSH reports what it has not flushed.
    ReportBeforeFlush = "report before the slave's flush",
    /// A slave takes over the offsets and the progress of its master before it has the messages.
    MetadataAheadOfLog = "metadata ahead of the log",
    /// A push consumer commits what it has handed out, whatever its handlers have ended.
    CommitUnfinished = "commit of unfinished messages",
    /// A push consumer that reads in order gives a queue to several handlers.
    OrderGivenUp = "queue in order given to several handlers",
    /// The flushed offset is told one byte further than the log is written.
    FlushedPastEnd = "flushed offset past the end",
    /// A flush reaches one byte further than the file is written.
    FlushPastWritten = "flush past what is written",
    /// An append publishes one byte that was not copied.
    PublishedAhead = "append published ahead",
    /// A round of dispatch says that it has come less far than the one before.
    DispatchGoesBack = "dispatch goes back",
    /// An entry of a consume queue is put one place too far.
    EntryMisplaced = "queue entry misplaced",
    /// The mark is written before the log is flushed.
    MarkBeforeLog = "mark before the log is flushed",
    /// Retention removes the newest of the old files first.
    NewestFileFirst = "newest file removed first",
    /// A master that begins an epoch keeps the epochs that begin behind it.
    EpochsNotCutBack = "epochs not cut back",
    /// A restart keeps what slaves acknowledged behind the end that it left.
    RestartKeepsAcknowledged = "acknowledged offsets kept at a restart",
    /// A master takes the report of a slave that has more than it was sent.
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
