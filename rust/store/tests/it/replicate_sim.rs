//! A copy on a simulated disk ends at any operation, by a kill or a power cut: what is left is the beginning of its origin, and it goes on
//! from there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rocketpy_env::sim::{SimDisk, SimOptions, Stopped};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{FlushMode, NewRecord, Store, StoreConfig, whole_records};

use crate::replicate::log_from;
use crate::support::{read_all, record};

const FILE_BYTES: u64 = 16 << 10;

/// Numbers that a seed determines.
struct Draw(u64);

impl Draw {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        // Numerical Recipes' generator; its upper bits are good enough here.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn config(record_check: bool, flush: FlushMode) -> StoreConfig {
    StoreConfig {
        commit_log_file_size: FILE_BYTES,
        consume_queue_file_size: 400,
        index_slots: 7,
        index_entries: 20,
        record_check,
        flush,
        ..StoreConfig::new(Path::new("/store"))
    }
}

fn append_some(origin: &Store<SimDisk>, draw: &mut Draw) {
    for _ in 0..draw.below(20) {
        let topic = ["a", "b"][draw.below(2) as usize];
        if draw.below(40) == 0 {
            origin.delete_topic(topic).unwrap();
        }
        let body = vec![7; draw.below(1500) as usize];
        let keyed = NewRecord { properties: b"KEYS\x01k\x02", ..record(topic, draw.below(2) as u32, &body) };
        origin.append(&keyed).unwrap();
    }
}

/// Copies a few frames, and takes steps of the threads in between.
fn copy_some(origin: &Store<SimDisk>, copy: &Store<SimDisk>, draw: &mut Draw, frames: u64) {
    let mut kept = Vec::new();
    for _ in 0..frames {
        let at = copy.max_physical_offset();
        let step = 1 + draw.below(6000) as usize;
        kept.extend_from_slice(&origin.log_slice(at + kept.len() as u64, step).unwrap().unwrap());
        let whole = whole_records(&kept);
        copy.append_replicated(at, &kept[..whole]).unwrap();
        kept.drain(..whole);
        match draw.below(8) {
            0 => copy.step_flush().unwrap(),
            1 | 2 => drop(copy.step_dispatch().unwrap()),
            3 => copy.step_write().unwrap(),
            4 => copy.step_checkpoint().unwrap(),
            5 => copy.step_allocate(),
            _ => {}
        }
    }
}

fn settle(store: &Store<SimDisk>) {
    store.step_flush().unwrap();
    while store.step_dispatch().unwrap() {}
    store.step_checkpoint().unwrap();
}

/// Copies a log while the copy ends again and again. Returns how often it ended in the middle of something.
fn run(seed: u64) -> u64 {
    let mut draw = Draw(seed);
    let record_check = !seed.is_multiple_of(4);
    let flush = if seed.is_multiple_of(2) { FlushMode::Async } else { FlushMode::Sync };
    let origin = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
    let origin = Store::open_stepped(origin, config(record_check, flush)).unwrap();
    let begin = if seed.is_multiple_of(3) { 2 * FILE_BYTES } else { 0 };
    while origin.max_physical_offset().get() < begin {
        append_some(&origin, &mut draw);
    }
    let mut disk = SimDisk::new(SimOptions { seed, write_back_per_mille: 50, ..SimOptions::default() });
    let open = |disk: &SimDisk| -> Arc<Store<SimDisk>> {
        let begin_at = Some(PhysicalOffset(begin));
        Store::open_stepped(disk.clone(), StoreConfig { begin_at, ..config(true, flush) }).unwrap()
    };
    let mut ends = 0;
    for _ in 0..12 {
        append_some(&origin, &mut draw);
        disk.stop_at((draw.below(3) > 0).then(|| disk.operations() + draw.below(80)));
        let life = catch_unwind(AssertUnwindSafe(|| {
            let copy = open(&disk);
            assert!(log_from(&origin, begin).starts_with(&log_from(&copy, begin)), "seed {seed}");
            let frames = draw.below(12);
            copy_some(&origin, &copy, &mut draw, frames);
            copy // it is dropped behind the end of its process
        }));
        let next = |disk: &SimDisk, draw: &mut Draw| {
            // A record without a checksum of its own may be torn where its body's does not tell.
            if record_check && draw.below(2) == 0 { disk.cut_power() } else { disk.kill() }
        };
        let later = next(&disk, &mut draw);
        if let Err(panic) = &life {
            assert!(Stopped::is(&**panic), "seed {seed}: a copy that was not stopped failed");
            ends += 1;
        }
        let _ = catch_unwind(AssertUnwindSafe(|| drop(life)));
        disk = later;
    }
    let copy = open(&disk);
    while copy.max_physical_offset() < origin.max_physical_offset() {
        copy_some(&origin, &copy, &mut draw, 20);
    }
    settle(&origin);
    settle(&copy);
    assert!(log_from(&origin, begin) == log_from(&copy, begin), "seed {seed}");
    for queue in origin.queues() {
        let (topic, id) = (&queue.topic, queue.queue_id);
        let (all, copied) = (read_all(&origin, topic, id), read_all(&copy, topic, id));
        if begin > 0 && copied.is_empty() {
            continue; // all its records lie before
        }
        assert!(all.ends_with(&copied), "seed {seed}: {topic}-{id}");
        assert!(begin > 0 || copy.queue_bounds(topic, id) == queue.bounds, "seed {seed}: {topic}-{id}");
        assert_eq!(copy.next_queue_offset(topic, id), queue.bounds.max);
    }
    ends
}

#[test]
fn what_a_crash_leaves_of_a_copy_is_the_beginning_of_its_origin() {
    let ends: u64 = (0..150).map(run).sum();
    assert!(ends > 200, "{ends} ends in the middle of something are few");
}
