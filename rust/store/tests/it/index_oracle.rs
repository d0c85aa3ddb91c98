//! A check of index files that shares no code with the store's: it reads the log and the files by the layout alone.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::record::{CheckMode, RecordCheck, check_record};
use rocketpy_store::StoreConfig;

/// An entry: key hash, physical offset, seconds.
pub(crate) type Entry = (i32, u64, i32);

/// What one index file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub begin_ms: i64,
    pub end_ms: i64,
    pub begin: u64,
    pub end: u64,
    pub entries: Vec<Entry>,
}

fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

pub(crate) fn key_hash(text: &str) -> i32 {
    java_hash(text).checked_abs().unwrap_or(0)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(number(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(number(bytes, at))
}

pub(crate) fn paths(config: &StoreConfig) -> Vec<PathBuf> {
    let dir = config.root.join("index");
    RealDisk.list(&dir).unwrap().into_iter().map(|file| dir.join(file.name)).collect()
}

/// Reads a file, and checks that slots, chains and head agree with each other and that nothing lies behind.
pub(crate) fn read(path: &Path, config: &StoreConfig) -> File {
    let bytes = RealDisk.read(path, 1 << 31).unwrap();
    let (slots, numbers) = (config.index_slots as usize, config.index_entries as usize);
    assert_eq!(bytes.len(), 40 + slots * 4 + numbers * 20);
    assert!(path.file_name().unwrap().to_str().unwrap().len() == 17);
    let next = int(&bytes, 36) as usize;
    assert!(next >= 2 && next <= numbers, "a file has a key, and room for it: {next}");
    let mut expected = vec![0; slots];
    let mut entries = Vec::new();
    for entry in 1..next {
        let at = 40 + slots * 4 + entry * 20;
        let hash = int(&bytes, at);
        let slot = hash as usize % slots;
        assert_eq!(int(&bytes, at + 16), expected[slot], "the chain of entry {entry}");
        expected[slot] = entry as i32;
        entries.push((hash, long(&bytes, at + 4) as u64, int(&bytes, at + 12)));
    }
    let stored: Vec<i32> = (0..slots).map(|slot| int(&bytes, 40 + slot * 4)).collect();
    assert_eq!(stored, expected, "slots lead to the newest entries");
    let used = expected.iter().filter(|&&slot| slot != 0).count();
    assert_eq!(int(&bytes, 32) as usize, used, "slots in use");
    let behind = &bytes[40 + slots * 4 + next * 20..];
    assert!(behind.iter().all(|&byte| byte == 0), "nothing lies behind the last entry");
    let (begin, end) = (long(&bytes, 16) as u64, long(&bytes, 24) as u64);
    assert_eq!((begin, end), (entries[0].1, entries.last().unwrap().1));
    File { begin_ms: long(&bytes, 0), end_ms: long(&bytes, 8), begin, end, entries }
}

/// Texts under which a record is found, in order.
fn keys(topic: &str, properties: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(properties);
    let pairs: Vec<_> = text.split('\x02').filter_map(|pair| pair.split_once('\x01')).collect();
    let value = |name| pairs.iter().rev().find(|pair| pair.0 == name).map_or("", |pair| pair.1);
    let mut keys = vec![value("UNIQ_KEY").to_owned()];
    keys.extend(value("KEYS").split(' ').map(str::to_owned));
    if !value("TAGS").is_empty() {
        keys.push(format!("T#{}", value("TAGS")));
    }
    keys.retain(|key| !key.is_empty());
    keys.into_iter().map(|key| format!("{topic}#{key}")).collect()
}

/// The index files that the log makes.
pub(crate) fn of_log(config: &StoreConfig) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    let dir = config.commit_log_dir();
    for file in RealDisk.list(&dir).unwrap() {
        let bytes = RealDisk.read(&dir.join(&file.name), 1 << 31).unwrap();
        let mut at = 0;
        while let Ok(RecordCheck::Record(view)) = check_record(&bytes[at..], CheckMode::Layout) {
            at += view.size();
            if view.sys_flag & 0xC == 0xC {
                continue;
            }
            let (phy, stored_at) = (view.physical_offset.get(), view.stored_at_ms);
            for key in keys(view.topic, view.properties) {
                put(config, &mut files, key_hash(&key), phy, stored_at);
            }
        }
    }
    files
}

fn put(config: &StoreConfig, files: &mut Vec<File>, hash: i32, phy: u64, stored_at: i64) {
    if files.last().is_none_or(|file| file.entries.len() + 1 >= config.index_entries as usize) {
        let (end_ms, end) = files.last().map_or((0, 0), |file| (file.end_ms, file.end));
        files.push(File { begin_ms: end_ms, end_ms, begin: end, end, entries: Vec::new() });
    }
    let file = files.last_mut().unwrap();
    let seconds = if file.begin_ms <= 0 { 0 } else { ((stored_at - file.begin_ms) / 1000).max(0) };
    if file.entries.is_empty() {
        (file.begin_ms, file.begin) = (stored_at, phy);
    }
    file.entries.push((hash, phy, seconds as i32));
    (file.end_ms, file.end) = (stored_at, phy);
}

/// Checks that the index files of a closed folder are those that the log makes. Returns how many keys they have.
pub(crate) fn assert_index_equals_log(config: &StoreConfig) -> usize {
    let expected = of_log(config);
    let found: Vec<File> = paths(config).iter().map(|path| read(path, config)).collect();
    assert_eq!(found.len(), expected.len(), "index files");
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "index file {number}");
    }
    expected.iter().map(|file| file.entries.len()).sum()
}
