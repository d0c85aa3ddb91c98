//! Points at which a process ends itself by SIGKILL, so that a harness reaches moments that no timer hits.
//!
//! The variable [`VARIABLE`] chooses the point and how often it is reached: with `roll:3` the process ends at the third roll.
//! With [`HANG_VARIABLE`] a flush of the log never ends, as on a disk that hangs.
//! Without the feature `failpoints` none of this is compiled in. A release build of the Python module refuses the feature.

/// Whether a process of this build can end itself.
pub const FAILPOINTS: bool = cfg!(feature = "failpoints");

/// The environment variable that chooses: the name of a point, a colon, and how often it is reached.
pub const VARIABLE: &str = "ROCKETPY_TEST_KILL_AT";

/// The environment variable that says after how many appends the next flush hangs.
pub const HANG_VARIABLE: &str = "ROCKETPY_TEST_HANG_AFTER";

/// A moment in the life of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A record is about to get its place; the writer lock is held.
    BeforeAppend,
    /// A record has its place and its bytes in the log.
    AfterAppend,
    /// A full file of the log has its blank record, and the next one is not part of the log yet.
    Roll,
    /// A flush of the log begins.
    BeforeFlush,
    /// The log is flushed, and nobody knows it yet.
    AfterFlush,
    /// The answer to a send is about to leave.
    BeforeAcknowledge,
    /// The new mark of a checkpoint is durable, the timestamps that make it valid are not written.
    Checkpoint,
    /// The files of a deleted topic, or one of retention, are gone, and this is not durable yet.
    Delete,
    /// A new file of metadata is written and does not have its name yet.
    Rename,
    /// It has its name, and the folder is not flushed.
    AfterRename,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::BeforeAppend,
        Self::AfterAppend,
        Self::Roll,
        Self::BeforeFlush,
        Self::AfterFlush,
        Self::BeforeAcknowledge,
        Self::Checkpoint,
        Self::Delete,
        Self::Rename,
        Self::AfterRename,
    ];

    /// Its name in the variable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeAppend => "before-append",
            Self::AfterAppend => "after-append",
            Self::Roll => "roll",
            Self::BeforeFlush => "before-flush",
            Self::AfterFlush => "after-flush",
            Self::BeforeAcknowledge => "before-acknowledge",
            Self::Checkpoint => "checkpoint",
            Self::Delete => "delete",
            Self::Rename => "rename",
            Self::AfterRename => "after-rename",
        }
    }
}

#[cfg(feature = "failpoints")]
mod plan {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{HANG_VARIABLE, Point, VARIABLE};

    /// The point of this process, and how often it is still to be reached.
    static PLAN: LazyLock<Option<(Point, AtomicU64)>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).ok()?;
        let plan = parse(&text);
        assert!(plan.is_some(), "{VARIABLE} is POINT:TIMES, not {text}");
        plan.map(|(point, times)| (point, AtomicU64::new(times)))
    });

    /// Appends that are left before flushes hang.
    static HANG: LazyLock<Option<AtomicU64>> = LazyLock::new(|| {
        let text = std::env::var(HANG_VARIABLE).ok()?;
        Some(AtomicU64::new(
            text.parse().unwrap_or_else(|_| panic!("{HANG_VARIABLE} is a number, not {text}")),
        ))
    });

    pub(super) fn parse(text: &str) -> Option<(Point, u64)> {
        let (name, times) = text.split_once(':')?;
        let point = Point::ALL.into_iter().find(|point| point.name() == name)?;
        Some((point, times.parse().ok().filter(|&times| times > 0)?))
    }

    /// Ends the process when this point is the chosen one, and it was reached as often as was chosen.
    pub fn reach(point: Point) {
        if let Some((chosen, left)) = &*PLAN
            && *chosen == point
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            // SAFETY: two plain system calls; the signal is for this process, which it ends.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        if let Some(left) = &*HANG {
            hang(point, left);
        }
    }

    fn hang(point: Point, left: &AtomicU64) {
        if point == Point::AfterAppend {
            let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        }
        while point == Point::BeforeFlush && left.load(Ordering::Relaxed) == 0 {
            std::thread::park();
        }
    }
}

#[cfg(feature = "failpoints")]
pub use plan::reach;

/// Does nothing in this build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn reach(_point: Point) {}

#[cfg(all(test, feature = "failpoints"))]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_chosen_by_its_name_and_a_number() {
        for point in Point::ALL {
            assert_eq!(plan::parse(&format!("{}:7", point.name())), Some((point, 7)));
        }
        for wrong in ["roll", "roll:", "roll:0", "role:1", ":1", "roll:-1"] {
            assert_eq!(plan::parse(wrong), None, "{wrong}");
        }
    }
}
