//! Reads index files by their layout alone: do they equal a rebuild from the log?

use std::path::{Path, PathBuf};

use rocketpy_env::sim::SimDisk;

use super::log_files::{Log, wrong};
use super::plan::{Plan, ROOT};
use crate::checker::{Rule, Violation};

const HEAD_BYTES: usize = 40;
const SLOT_BYTES: usize = 4;
const ENTRY_BYTES: usize = 20;

/// A key of a record: hash, physical offset, and when the record was stored.
type Key = (u32, u64, i64);

/// Compares the index files with the log. Entries that point before its start may be there or not; those before `may_start`
/// may be missing.
pub(super) fn check_index(disk: &SimDisk, plan: &Plan, log: &Log, may_start: u64) -> Result<(), Violation> {
    let Some((slots, numbers)) = plan.index.filter(|_| plan.record_check) else { return Ok(()) };
    let mut found = Vec::new();
    let dir = Path::new(ROOT).join("index");
    for (path, _) in disk.files().iter().filter(|(path, _)| path.parent() == Some(&dir)) {
        let file = File { path, bytes: disk.peek(path).unwrap_or_default(), slots, numbers };
        file.read(log, &mut found)?;
    }
    let keys = log.records.iter().flat_map(|record| {
        record.key_hashes.into_iter().flatten().map(|hash| (hash, record.at, record.stored_at_ms))
    });
    let expected: Vec<Key> = keys.collect();
    let living = found.iter().position(|key| key.1 >= log.start).unwrap_or(found.len());
    let found = &found[living..];
    let missing = expected.len().saturating_sub(found.len());
    let cut_off = expected[..missing].iter().take_while(|key| key.1 < may_start).count();
    let expected = &expected[cut_off..];
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let text = format!(
        "the index has {} keys, the log from {} to {} has {}; key {at} is {:?}, in the log {:?}",
        found.len(),
        log.start,
        log.end,
        expected.len(),
        found.get(at),
        expected.get(at)
    );
    Err(wrong(Rule::R6, text))
}

struct File<'a> {
    path: &'a PathBuf,
    bytes: Vec<u8>,
    slots: u32,
    numbers: u32,
}

impl File<'_> {
    fn int(&self, at: usize) -> u32 {
        self.bytes[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn long(&self, at: usize) -> u64 {
        self.bytes[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    fn wrong(&self, text: &str) -> Violation {
        wrong(Rule::R6, format!("index file {}: {text}", self.path.display()))
    }

    fn entry_at(&self, number: u32) -> usize {
        HEAD_BYTES + self.slots as usize * SLOT_BYTES + number as usize * ENTRY_BYTES
    }

    /// Adds the keys of the file. Its head, slots and chains must agree with each other.
    fn read(&self, log: &Log, keys: &mut Vec<Key>) -> Result<(), Violation> {
        if self.bytes.len() != self.entry_at(self.numbers) {
            return Err(self.wrong(&format!("it has {} bytes", self.bytes.len())));
        }
        let next = self.int(36);
        if next > self.numbers {
            return Err(self.wrong(&format!("its next entry is {next}")));
        }
        let before = keys.len();
        let mut newest = vec![0; self.slots as usize];
        for number in 1..next {
            let at = self.entry_at(number);
            let (hash, place) = (self.int(at), self.long(at + 4));
            if place >= log.end {
                let end = log.end;
                return Err(self.wrong(&format!("entry {number} points to {place}, the log ends at {end}")));
            }
            let slot = &mut newest[(hash % self.slots) as usize];
            let previous = std::mem::replace(slot, number);
            if self.int(at + 16) != previous {
                return Err(self.wrong(&format!("entry {number} does not point to {previous}")));
            }
            let record = log.records.binary_search_by_key(&place, |record| record.at).ok();
            let stored_at_ms = record.map_or(0, |record| log.records[record].stored_at_ms);
            keys.push((hash, place, stored_at_ms));
        }
        let slot = |slot: usize| self.int(HEAD_BYTES + slot * SLOT_BYTES);
        if let Some(wrong) = (0..newest.len()).find(|&number| slot(number) != newest[number]) {
            return Err(self.wrong(&format!(
                "slot {wrong} points to {}, not {}",
                slot(wrong),
                newest[wrong]
            )));
        }
        let used = newest.iter().filter(|&&number| number != 0).count();
        if next > 1 && self.int(32) as usize != used {
            return Err(self.wrong(&format!("{used} slots are in use, it says {}", self.int(32))));
        }
        if self.bytes[self.entry_at(next.max(1))..].iter().any(|&byte| byte != 0) {
            return Err(self.wrong(&format!("data lies behind entry {next}")));
        }
        self.check_head(&keys[before..], log)
    }

    /// Whether the head says where the file's first and last record lie, and when they were stored.
    fn check_head(&self, keys: &[Key], log: &Log) -> Result<(), Violation> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(()) };
        for (key, time_at, place_at) in [(first, 0, 16), (last, 8, 24)] {
            let (time, place) = (self.long(time_at) as i64, self.long(place_at));
            if place != key.1 || (key.1 >= log.start && time != key.2) {
                let text = format!("its head says {place} and {time}, its entry {} and {}", key.1, key.2);
                return Err(self.wrong(&text));
            }
        }
        Ok(())
    }
}
