//! Reads that wait for the disk, apart from the threads that serve connections.

use std::sync::Arc;

use rocketpy_env::give_way;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::blocking::aside;
use crate::refusal::Refusal;
use crate::shares::{self, Bounds, Shares};

/// Maximum number of reads that run at a time, each on a thread. More would only wait for each other at the disk.
pub(crate) const MAX_RUNNING: usize = 16;
/// Maximum number of reads that run or wait for their turn. Each keeps its request, with its filter, in memory.
const MAX_WAITING: usize = 4096;
/// Reads of one connection: no more than are free, so that a client that reads many queues leaves room for others.
const OF_A_CONNECTION: Bounds = Bounds { most: MAX_WAITING, part: 1 };

/// Threads that give way to those that serve connections.
#[derive(Debug)]
struct LowThreads(Option<Runtime>);

impl LowThreads {
    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .thread_name("rocketpy-disk")
            .on_thread_start(give_way)
            .max_blocking_threads(MAX_RUNNING)
            .build();
        Self(Some(runtime.expect("a runtime without drivers asks the system for nothing")))
    }

    fn handle(&self) -> Handle {
        self.0.as_ref().expect("it is there until the drop").handle().clone()
    }
}

/// Waits for no read: this may be dropped by a thread that reads, or that serves connections.
impl Drop for LowThreads {
    fn drop(&mut self) {
        self.0.take().expect("it is dropped once").shutdown_background();
    }
}

/// The reads of one broker that wait for the disk, or for their turn to use it.
#[derive(Debug)]
pub(crate) struct DiskReads {
    turns: Arc<Semaphore>,
    /// Those that were let in and are not done.
    waiting: Arc<Shares>,
    /// `None`: threads of the runtime that asks.
    low: Option<LowThreads>,
    #[cfg(test)]
    pub(crate) gate: Arc<crate::testing::Gate>,
}

/// The right to wait for a turn; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    turns: Arc<Semaphore>,
    _waiting: shares::Place,
    low: Option<Handle>,
    #[cfg(test)]
    gate: Arc<crate::testing::Gate>,
}

/// Waits for a turn and reads from the disk, on a thread that serves no connections.
///
/// # Errors
/// Too many wait.
pub(crate) async fn look_up_aside<T: Send + 'static>(
    look_ups: &DiskReads,
    connection_id: u64,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let place = look_ups.enter(connection_id)?;
    Ok(aside(place.in_turn(read).await).await)
}

impl DiskReads {
    pub(crate) fn new() -> Self {
        Self::with_limit(MAX_WAITING)
    }

    /// Reads with more to do than any other request, which hold up senders where processors are scarce: pulls of old messages.
    pub(crate) fn giving_way() -> Self {
        Self { low: Some(LowThreads::new()), ..Self::new() }
    }

    /// Lets in no more than `limit` at a time.
    fn with_limit(limit: usize) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MAX_RUNNING)),
            waiting: Shares::new(limit, OF_A_CONNECTION),
            low: None,
            #[cfg(test)]
            gate: Arc::default(),
        }
    }

    /// How many were let in and are not done.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.taken()
    }

    /// Lets a read of a connection in.
    ///
    /// # Errors
    /// [`Refusal::DiskReads`] when too many are there, in all or of the connection.
    pub(crate) fn enter(&self, connection_id: u64) -> Result<Place, Refusal> {
        let waiting = self.waiting.take(connection_id);
        let waiting = waiting.map_err(|_| Refusal::DiskReads { limit: self.waiting.limit() })?;
        Ok(Place {
            turns: self.turns.clone(),
            _waiting: waiting,
            low: self.low.as_ref().map(LowThreads::handle),
            #[cfg(test)]
            gate: self.gate.clone(),
        })
    }
}

impl Place {
    /// Waits for a turn and reads, on a thread of its own. `None` when the read panicked or the runtime ends.
    ///
    /// # Cancel safety
    /// A read that has begun runs to its end, and its result is lost.
    pub(crate) async fn read<T: Send + 'static>(
        self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let low = self.low.clone();
        let read = self.in_turn(read).await;
        match low {
            Some(threads) => threads.spawn_blocking(read).await.ok(),
            None => spawn_blocking(read).await.ok(),
        }
    }

    /// Waits for a turn. What is returned reads, and gives the turn back.
    pub(crate) async fn in_turn<T>(self, read: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let turn = self.turns.clone().acquire_owned().await.expect("nobody closes it");
        move || {
            #[cfg(test)]
            self.gate.pass();
            let result = read();
            drop((turn, self));
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rocketpy_env::{Disk, RealDisk};

    use super::*;
    use crate::testing::until;

    #[tokio::test]
    async fn no_more_reads_than_turns_run_and_no_more_than_the_limit_are_let_in() {
        let reads = DiskReads::with_limit(MAX_RUNNING + 2);
        let running = Arc::new(AtomicUsize::new(0));
        reads.gate.close();
        let started: Vec<_> = (0..MAX_RUNNING + 2)
            .map(|number| {
                let (place, running) = (reads.enter(number as u64).unwrap(), running.clone());
                tokio::spawn(place.read(move || {
                    let at_once = running.fetch_add(1, Ordering::SeqCst) + 1;
                    running.fetch_sub(1, Ordering::SeqCst);
                    (number, at_once)
                }))
            })
            .collect();
        until("all turns are taken", || reads.turns.available_permits() == 0).await;
        assert!(matches!(reads.enter(99), Err(Refusal::DiskReads { limit }) if limit == MAX_RUNNING + 2));
        assert_eq!(reads.waiting(), MAX_RUNNING + 2);
        reads.gate.open();
        for (number, read) in started.into_iter().enumerate() {
            let (read, at_once) = read.await.unwrap().unwrap();
            assert_eq!(read, number);
            assert!(at_once <= MAX_RUNNING);
        }
        assert_eq!((reads.waiting(), reads.turns.available_permits()), (0, MAX_RUNNING));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_read_has_a_lower_priority_than_the_thread_that_asked_for_it() {
        fn nice() -> i32 {
            let stat = RealDisk.read("/proc/thread-self/stat".as_ref(), 4096).unwrap();
            let fields = String::from_utf8(stat).unwrap();
            let after_name = fields.rsplit_once(')').unwrap().1;
            after_name.split_ascii_whitespace().nth(16).unwrap().parse().unwrap()
        }
        let reads = DiskReads::giving_way();
        let reading = reads.enter(1).unwrap().read(nice).await.unwrap();
        assert!(reading > nice() || reading == 19, "{reading} beside {}", nice());
    }

    #[tokio::test]
    async fn a_connection_with_many_reads_leaves_room_for_others() {
        let reads = DiskReads::new();
        let greedy: Vec<_> = std::iter::from_fn(|| reads.enter(1).ok()).collect();
        assert_eq!(greedy.len(), MAX_WAITING / 2);
        assert!(reads.enter(2).is_ok());
    }

    #[tokio::test]
    async fn a_read_that_panics_gives_its_place_and_its_turn_back() {
        let reads = DiskReads::with_limit(1);
        let place = reads.enter(1).unwrap();
        assert!(place.read(|| panic!("on purpose")).await.is_none());
        assert_eq!((reads.waiting(), reads.turns.available_permits()), (0, MAX_RUNNING));
    }
}
