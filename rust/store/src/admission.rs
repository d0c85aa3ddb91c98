//! Why appends are refused, if they are.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rocketpy_env::EnvError;

use crate::append_bell::AppendBell;
use crate::error::{AppendError, DispatchError, FullDisk, StoreError};
use crate::flush::turn::Turns;
use crate::listener::Listeners;
use crate::queue::files::FlushFailure;

/// Reasons to refuse appends. One word holds them all: none is lost when another comes or goes at the same time.
mod reason {
    /// The store closes.
    pub(super) const CLOSING: u8 = 1;
    /// A flush failed.
    pub(super) const POISONED: u8 = 2;
    /// Consume queues cannot be written.
    pub(super) const QUEUES: u8 = 4;
    /// The disk is fuller than it may be.
    pub(super) const SPACE: u8 = 8;
}

/// Lets appends in, or returns why not. Every part of a store reports here what keeps it from working.
pub(crate) struct Admission {
    /// Bits of [`reason`]; 0 while appends are let in.
    reasons: AtomicU8,
    poison: OnceLock<Arc<EnvError>>,
    /// The assertion that failed in the write path, if one did.
    failed_assertion: OnceLock<Arc<str>>,
    /// The simulator takes the steps of the store, and reports panics itself.
    is_stepped: AtomicBool,
    /// Whether the listeners were told of the failed flush.
    is_told: AtomicBool,
    /// Why consume queues cannot be written.
    queue_fault: Mutex<Option<Arc<DispatchError>>>,
    full_disk: Mutex<Option<FullDisk>>,
    listeners: Arc<Listeners>,
    /// A failed flush ends all waits for appends, of which none comes any more.
    append_bell: Arc<AppendBell>,
    /// A failed flush ends all waits for a flush.
    turns: Arc<Turns>,
    /// Folder of the store, for messages.
    root: PathBuf,
}

impl Admission {
    pub(crate) fn new(turns: Arc<Turns>, root: PathBuf) -> Self {
        Self {
            reasons: AtomicU8::new(0),
            poison: OnceLock::new(),
            failed_assertion: OnceLock::new(),
            is_stepped: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            queue_fault: Mutex::new(None),
            full_disk: Mutex::new(None),
            listeners: Arc::default(),
            append_bell: Arc::default(),
            turns,
            root,
        }
    }

    pub(crate) fn listeners(&self) -> &Arc<Listeners> {
        &self.listeners
    }

    /// Where threads wait for appends.
    pub(crate) fn append_bell(&self) -> &Arc<AppendBell> {
        &self.append_bell
    }

    /// Whether an append is admitted.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), AppendError> {
        if self.reasons.load(Ordering::Acquire) == 0 { Ok(()) } else { self.refusal() }
    }

    #[cold]
    fn refusal(&self) -> Result<(), AppendError> {
        if self.has(reason::CLOSING) {
            return Err(AppendError::ShutDown);
        }
        if let Some(cause) = self.poison_cause() {
            return Err(AppendError::Poisoned { cause });
        }
        if let Some(cause) = self.queue_fault.lock().clone() {
            return Err(AppendError::QueueNotWriteable { cause });
        }
        match self.full_disk.lock().clone() {
            Some(FullDisk { path, used_percent, limit_percent }) => {
                Err(AppendError::DiskNearlyFull { path, used_percent, limit_percent })
            }
            None => Ok(()), // it went away meanwhile
        }
    }

    fn has(&self, reason: u8) -> bool {
        self.reasons.load(Ordering::Acquire) & reason != 0
    }

    fn set(&self, reason: u8, is_set: bool) {
        match is_set {
            true => self.reasons.fetch_or(reason, Ordering::AcqRel),
            false => self.reasons.fetch_and(!reason, Ordering::AcqRel),
        };
    }

    /// Refuses appends from now on. Returns whether this call was the first.
    pub(crate) fn close(&self) -> bool {
        self.reasons.fetch_or(reason::CLOSING, Ordering::AcqRel) & reason::CLOSING == 0
    }

    /// The failed flush, once there was one.
    pub(crate) fn poison_cause(&self) -> Option<Arc<EnvError>> {
        self.poison.get().map(Arc::clone)
    }

    /// Fails once a flush or an assertion has failed.
    pub(crate) fn check_sound(&self) -> Result<(), StoreError> {
        if let Some(text) = self.failed_assertion.get() {
            return Err(StoreError::AssertionFailed { text: Arc::clone(text) });
        }
        self.poison_cause().map_or(Ok(()), |cause| Err(StoreError::Poisoned { cause }))
    }

    /// Notes a failed flush: nothing is acknowledged from now on. The listeners are called once.
    pub(crate) fn poison(&self, error: EnvError) -> Arc<EnvError> {
        let cause = self.mark_poisoned(error);
        self.tell_poisoned();
        cause
    }

    /// Refuses appends from now on because of a failed flush. [`Admission::tell_poisoned`] follows, once the caller holds no
    /// lock of the log.
    pub(crate) fn mark_poisoned(&self, error: EnvError) -> Arc<EnvError> {
        let cause = Arc::clone(self.poison.get_or_init(|| Arc::new(error)));
        self.set(reason::POISONED, true);
        cause
    }

    /// Tells the listeners of the failed flush, once, and ends all waits for a flush or for appends.
    pub(crate) fn tell_poisoned(&self) {
        if let Some(cause) = self.poison_cause()
            && !self.is_told.swap(true, Ordering::AcqRel)
        {
            tracing::error!(error = %cause, "flush failed, the store refuses writes from now on");
            self.listeners.poisoned(&StoreError::Poisoned { cause });
        }
        self.turns.notify();
        self.append_bell.end_waits();
    }

    /// Notes that an assertion failed, or another panic ended a part of the write path: what it left in memory is unknown. The listeners are
    /// called, also when a flush has failed before.
    pub(crate) fn poison_by_panic(&self, operation: &'static str, text: &str) -> Arc<EnvError> {
        let is_first = self.failed_assertion.set(text.into()).is_ok();
        let source = std::io::Error::other(text.to_owned());
        let cause = self.mark_poisoned(EnvError::from_io(operation, &self.root, source));
        if is_first {
            self.is_told.store(true, Ordering::Release);
            tracing::error!(
                assertion = text,
                "assertion of the store failed, the store refuses writes from now on"
            );
            self.listeners.poisoned(&StoreError::AssertionFailed { text: text.into() });
        }
        self.tell_poisoned();
        cause
    }

    /// Lets panics through to the caller.
    #[cfg(feature = "sim")]
    pub(crate) fn set_stepped(&self) {
        self.is_stepped.store(true, Ordering::Relaxed);
    }

    /// Runs a call that writes, on the thread of its caller. When it panics, the store is poisoned and the call returns what `refuse` makes
    /// of the cause.
    #[inline]
    pub(crate) fn guarded<T, E>(
        &self,
        operation: &'static str,
        call: impl FnOnce() -> Result<T, E>,
        refuse: impl FnOnce(Arc<EnvError>) -> E,
    ) -> Result<T, E> {
        if self.is_stepped.load(Ordering::Relaxed) {
            return call();
        }
        // Nobody relies on what a panic left: the poisoned store writes no more.
        catch_unwind(AssertUnwindSafe(call))
            .unwrap_or_else(|panic| Err(refuse(self.poison_by_panic(operation, panic_text(&*panic)))))
    }

    /// [`Admission::guarded`] of a call for the store as a whole.
    pub(crate) fn guarded_change<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.guarded(operation, call, |cause| {
            self.check_sound().err().unwrap_or(StoreError::Poisoned { cause })
        })
    }

    /// The error that the caller gets for an error of the disk. A failed flush poisons the store.
    pub(crate) fn noted(&self, error: EnvError) -> StoreError {
        match error.is_failed_flush() {
            true => StoreError::Poisoned { cause: self.poison(error) },
            false => error.into(),
        }
    }

    /// The same for a flush that says how far it came. What was not tried, as on a full disk, the next round tries
    /// again.
    pub(crate) fn noted_failure(&self, failure: FlushFailure) -> StoreError {
        match failure {
            FlushFailure::NotTried(error) => error.into(),
            FlushFailure::Failed(error) => StoreError::Poisoned { cause: self.poison(error) },
        }
    }

    /// Notes whether consume queues can be written.
    pub(crate) fn set_queue_fault(&self, fault: Option<DispatchError>) {
        let mut state = self.queue_fault.lock();
        match (&*state, &fault) {
            (None, Some(error @ DispatchError::Damage { .. })) => {
                tracing::error!(%error, "commit log damaged, appends are refused until it is repaired");
            }
            (None, Some(error)) => {
                tracing::error!(%error, "consume queues not writable, appends are refused until they are");
            }
            (Some(_), None) => tracing::info!("consume queues writable again"),
            _ => {}
        }
        *state = fault.map(Arc::new);
        self.set(reason::QUEUES, state.is_some());
    }

    /// Whether consume queues could not be written at the last try.
    pub(crate) fn has_queue_fault(&self) -> bool {
        self.has(reason::QUEUES)
    }

    /// Notes whether the disk has space for appends.
    pub(crate) fn set_full_disk(&self, full: Option<FullDisk>) {
        let mut state = self.full_disk.lock();
        match (&full, &*state) {
            (Some(full), None) => tracing::error!(
                path = %full.path.display(), used_percent = full.used_percent, limit_percent = full.limit_percent,
                "disk nearly full, appends are refused until space is free"
            ),
            (None, Some(_)) => tracing::info!("disk has space again, appends continue"),
            _ => {}
        }
        *state = full;
        self.set(reason::SPACE, state.is_some());
    }

    /// Whether appends are refused because the disk is too full.
    pub(crate) fn has_full_disk(&self) -> bool {
        self.has(reason::SPACE)
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic without a text")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn admission() -> Admission {
        Admission::new(Arc::default(), "/store".into())
    }

    fn failed_flush() -> EnvError {
        EnvError::from_flush("flush", Path::new("/store"), std::io::Error::from_raw_os_error(5))
    }

    #[test]
    fn reasons_come_and_go_by_themselves_and_the_gravest_is_told() {
        let admission = admission();
        admission.set_full_disk(Some(FullDisk { path: "/".into(), used_percent: 91, limit_percent: 90 }));
        assert!(matches!(admission.check(), Err(AppendError::DiskNearlyFull { .. })));
        admission.set_queue_fault(Some(failed_flush().into()));
        assert!(matches!(admission.check(), Err(AppendError::QueueNotWriteable { .. })));
        admission.set_queue_fault(None);
        assert!(admission.has_full_disk() && !admission.has_queue_fault());
        assert!(matches!(admission.check(), Err(AppendError::DiskNearlyFull { .. })));
        admission.set_full_disk(None);
        assert!(admission.check().is_ok());
    }

    #[test]
    fn the_first_failed_flush_is_the_cause_for_ever() {
        let admission = admission();
        assert!(admission.check_sound().is_ok());
        let first = admission.poison(failed_flush());
        let second = admission.noted(EnvError::from_flush(
            "flush",
            Path::new("/other"),
            std::io::Error::from_raw_os_error(5),
        ));
        assert!(matches!(second, StoreError::Poisoned { cause } if Arc::ptr_eq(&cause, &first)));
        assert!(matches!(admission.check(), Err(AppendError::Poisoned { .. })));
        assert!(admission.close() && !admission.close());
        assert!(matches!(admission.check(), Err(AppendError::ShutDown)));
    }

    #[test]
    fn a_panic_of_a_guarded_call_poisons_and_the_call_fails() {
        let admission = admission();
        let call = || -> Result<(), AppendError> { panic!("offsets grow: {}", 7) };
        let refused = admission.guarded("append to", call, |cause| AppendError::Poisoned { cause });
        assert!(
            matches!(&refused, Err(AppendError::Poisoned { cause }) if cause.to_string().contains("offsets grow: 7"))
        );
        assert!(matches!(admission.check(), Err(AppendError::Poisoned { .. })));
        let StoreError::AssertionFailed { text } = admission.check_sound().unwrap_err() else {
            panic!("another error")
        };
        assert_eq!(&*text, "offsets grow: 7");
        let other: Result<(), _> = admission.guarded_change("close", || panic!("later"));
        assert!(
            matches!(other, Err(StoreError::AssertionFailed { text }) if &*text == "offsets grow: 7"),
            "the first counts"
        );
    }

    #[test]
    fn an_error_that_is_no_flush_does_not_poison() {
        let admission = admission();
        let full = EnvError::from_flush("flush", Path::new("/store"), std::io::Error::from_raw_os_error(28));
        assert!(matches!(admission.noted(full), StoreError::Env(EnvError::NoSpace { .. })));
        assert!(admission.check().is_ok());
    }
}
