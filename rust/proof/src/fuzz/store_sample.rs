//! A small store on a simulated disk, closed in order or left by a killed process, of which one file is replaced.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rocketpy_env::sim::{SimDisk, SimOptions};
use rocketpy_env::{Disk, DiskFile, OpenMode};
use rocketpy_store::{NewRecord, Store, StoreConfig};

use super::Seed;
use crate::history::QueueName;
use crate::sim::message::Message;

pub(super) const ROOT: &str = "/store";

/// The configuration with the smallest files.
pub(super) fn config() -> StoreConfig {
    StoreConfig {
        commit_log_file_size: 16 * 1024,
        consume_queue_file_size: 100,
        index_slots: 5,
        index_entries: 8,
        flush_at_start_bytes: 0,
        ..StoreConfig::new(ROOT)
    }
}

/// All files of a store with their bytes.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// The files of a store that was closed, and of one whose process was killed.
fn samples() -> &'static [Files; 2] {
    static SAMPLES: OnceLock<[Files; 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| [make(true), make(false)])
}

fn make(close: bool) -> Files {
    let disk = SimDisk::new(SimOptions::default());
    let store = Store::open_stepped(disk.clone(), config()).expect("an empty disk");
    for number in 0..24 {
        append(&store, number);
        if number == 16 {
            store.step_flush().expect("a sound disk");
            while store.step_dispatch().expect("a sound disk") {}
            store.step_checkpoint().expect("a sound disk");
        }
    }
    if close {
        store.shutdown().expect("a sound disk");
    }
    let files = disk.files().into_iter().filter(|(path, _)| !path.ends_with("lock"));
    let files = files.map(|(path, _)| (path.clone(), disk.peek(&path).expect("it is listed"))).collect();
    let _ended = disk.kill(); // the store's drop does nothing to a former process
    files
}

/// Appends the message of a number to one of two queues.
pub(super) fn append(store: &Arc<Store<SimDisk>>, number: u64) {
    let queue = QueueName { topic: "topic".to_owned(), queue_id: (number % 2) as u32 };
    let message = Message::new(number, queue, 40);
    let _ = store.append(&NewRecord {
        topic: &message.queue.topic,
        queue_id: message.queue.queue_id,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: ([127, 0, 0, 1], 50_000).into(),
        reconsume_times: 0,
        prepared_transaction_offset: rocketpy_model::PhysicalOffset::ZERO,
        body: &message.body,
        properties: &message.properties,
        may_have_crc: true,
    });
}

/// The first file below a part of the store.
fn find<'a>(files: &'a Files, part: &str) -> &'a (PathBuf, Vec<u8>) {
    let dir = Path::new(ROOT).join(part);
    files.iter().find(|(path, _)| path.starts_with(&dir)).expect("the sample has every part")
}

/// A disk with the sample on it, after `change` has replaced the bytes of the first file of a part.
pub(super) fn disk_with(is_closed: bool, part: &str, change: impl FnOnce(&[u8]) -> Vec<u8>) -> SimDisk {
    let files = &samples()[usize::from(!is_closed)];
    let disk = SimDisk::new(SimOptions::default());
    let (replaced, before) = find(files, part);
    let changed = change(before);
    for (path, bytes) in files {
        let bytes = if path == replaced { &changed } else { bytes };
        disk.create_dir_all(path.parent().expect("a file lies in a folder")).expect("a sound disk");
        let file = disk.open_file(path, OpenMode::CreateOrWrite).expect("a sound disk");
        file.write_all_at(0, bytes).expect("a sound disk");
    }
    disk
}

/// The first file of a part as it is: of the closed store and of the killed one.
pub(super) fn seeds(part: &str) -> Vec<Seed> {
    let seed = |(name, (files, options)): (&str, (&Files, u8))| {
        let bytes = &find(files, part).1;
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        (name.to_owned(), [&[options], &bytes[..used]].concat())
    };
    let [closed, killed] = samples();
    ["closed", "killed"].into_iter().zip([(closed, super::store::CLOSED), (killed, 0)]).map(seed).collect()
}
