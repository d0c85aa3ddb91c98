//! Threads that sleep until there is work.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::wake::Wake;
use crate::{EVER, join};

const OTHERS: u64 = 3;

/// A thread that sleeps when there is no work, and others that bring some.
pub(crate) fn wake_up() {
    let (wake, work) = (Arc::new(Wake::default()), Arc::new(AtomicU64::new(0)));
    let others = (0..OTHERS).map(|_| {
        let (wake, work) = (Arc::clone(&wake), Arc::clone(&work));
        thread::spawn(move || {
            work.fetch_add(1, Ordering::SeqCst);
            wake.wake();
        })
    });
    let others: Vec<_> = others.collect();
    loop {
        let seen = work.load(Ordering::SeqCst);
        if seen == OTHERS {
            break;
        }
        wake.sleep(EVER, || work.load(Ordering::SeqCst) > seen);
    }
    join(others);
}

/// A thread that rests between its rounds of work, unless somebody waits for the next one.
pub(crate) fn hurry() {
    let (wake, work) = (Arc::new(Wake::default()), Arc::new(AtomicU64::new(0)));
    let others = (0..OTHERS).map(|_| {
        let (wake, work) = (Arc::clone(&wake), Arc::clone(&work));
        thread::spawn(move || {
            work.fetch_add(1, Ordering::SeqCst);
            wake.hurry();
        })
    });
    let others: Vec<_> = others.collect();
    loop {
        wake.forget_hurry();
        if work.load(Ordering::SeqCst) == OTHERS {
            break;
        }
        wake.sleep_unless_hurried(EVER, || false);
    }
    join(others);
}

/// A thread that sleeps until it is stopped, while others wake it.
pub(crate) fn stop() {
    let wake = Arc::new(Wake::default());
    let sleeper = thread::spawn({
        let wake = Arc::clone(&wake);
        move || {
            while !wake.is_stopped() {
                wake.sleep(EVER, || false);
            }
        }
    });
    wake.wake();
    wake.stop();
    sleeper.join().expect("it ends");
}
