//! The writer lock of the log beside one that parks its waiters, with 2, 16 and 256 threads.
//!
//! Each thread does what an append does around the lock: it encodes a record outside, then takes the lock, copies the record to the end
//! of a ring of bytes and publishes the new end. The locks take turns within each round, so that the load of the machine hits both.
//! Prints medians over the rounds: appends a second, processor time for a million appends, and the longest wait of one append.
//!
//! `cargo bench -p rocketpy-benches --bench lock [-- ROUNDS SECONDS]`
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::hint::black_box;
use std::ops::DerefMut;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Threads that append: as many as processors, a busy broker's network threads and its blocking ones, and far too many.
const THREADS: [usize; 3] = [2, 16, 256];
/// Length of a record with a body of 128 bytes.
const RECORD_BYTES: usize = 320;
/// Larger than the caches of a processor, as the log is.
const RING_BYTES: usize = 64 << 20;
const ROUNDS: u64 = 5;
const SECONDS: f64 = 1.0;

/// What the lock guards.
struct Ring {
    bytes: Vec<u8>,
    at: usize,
}

/// A lock to measure.
trait Lock: Sync {
    fn new(ring: Ring) -> Self;
    fn lock(&self) -> impl DerefMut<Target = Ring> + '_;
}

/// Spins, and yields the processor between two looks.
type Spin = spin::mutex::SpinMutex<Ring, spin::Yield>;
/// Spins for a moment, then parks.
type Parking = parking_lot::Mutex<Ring>;

impl Lock for Spin {
    fn new(ring: Ring) -> Self {
        Self::new(ring)
    }

    fn lock(&self) -> impl DerefMut<Target = Ring> + '_ {
        Self::lock(self)
    }
}

impl Lock for Parking {
    fn new(ring: Ring) -> Self {
        Self::new(ring)
    }

    fn lock(&self) -> impl DerefMut<Target = Ring> + '_ {
        Self::lock(self)
    }
}

/// What one run shows.
#[derive(Clone, Copy)]
struct Figures {
    appends_a_second: f64,
    cpu_seconds_a_million: f64,
    longest_wait: Duration,
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn run<L: Lock>(threads: usize, time: Duration) -> Figures {
    let lock = L::new(Ring { bytes: vec![1; RING_BYTES], at: 0 });
    let (end, appends, longest_ns) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (is_over, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let append = || {
        let (body, mut record) = ([7_u8; RECORD_BYTES], [0_u8; RECORD_BYTES]);
        let (mut count, mut longest) = (0, Duration::ZERO);
        start.wait();
        while !is_over.load(Ordering::Relaxed) {
            record.copy_from_slice(black_box(&body));
            let sum = record.iter().fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte)); // as long as a checksum
            record[..4].copy_from_slice(&sum.to_be_bytes());
            let asked = Instant::now();
            let mut ring = lock.lock();
            longest = longest.max(asked.elapsed());
            let at = if ring.at + RECORD_BYTES > RING_BYTES { 0 } else { ring.at };
            ring.bytes[at..at + RECORD_BYTES].copy_from_slice(&record);
            ring.at = at + RECORD_BYTES;
            end.fetch_add(RECORD_BYTES as u64, Ordering::Release);
            drop(ring);
            count += 1;
        }
        appends.fetch_add(count, Ordering::Relaxed);
        longest_ns.fetch_max(longest.as_nanos() as u64, Ordering::Relaxed);
    };
    let mut took = (Duration::ZERO, Duration::ZERO);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(append)));
        start.wait();
        let (started, cpu) = (Instant::now(), cpu_time());
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        took = (started.elapsed(), cpu_time() - cpu);
    });
    let appends = appends.into_inner() as f64;
    Figures {
        appends_a_second: appends / took.0.as_secs_f64(),
        cpu_seconds_a_million: took.1.as_secs_f64() / appends * 1e6,
        longest_wait: Duration::from_nanos(longest_ns.into_inner()),
    }
}

fn median(figures: &[Figures], value: impl Fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = figures.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let rounds = numbers.first().map_or(ROUNDS, |rounds| *rounds as u64);
    let time = Duration::from_secs_f64(numbers.get(1).copied().unwrap_or(SECONDS));
    println!("{rounds} rounds of {} s for each lock, medians", time.as_secs_f64());
    println!("threads  lock          appends/s  CPU s/million  longest wait");
    for threads in THREADS {
        let (mut spin, mut parking) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            spin.push(run::<Spin>(threads, time));
            parking.push(run::<Parking>(threads, time));
        }
        for (name, figures) in [("spin, yield", &spin), ("parking_lot", &parking)] {
            let longest_ms = median(figures, |run| run.longest_wait.as_secs_f64() * 1e3);
            println!(
                "{threads:>7}  {name:<12} {:>10.0}  {:>13.3}  {longest_ms:>9.1} ms",
                median(figures, |run| run.appends_a_second),
                median(figures, |run| run.cpu_seconds_a_million),
            );
        }
    }
}
