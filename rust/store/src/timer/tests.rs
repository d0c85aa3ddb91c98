//! Wheel and log on real files.

use rocketpy_env::OpenMode;

use super::*;

const NOW: i64 = 1_700_000_000_000;

fn unit(slot_ms: i64, record: u64) -> TimerUnit {
    TimerUnit {
        previous: -1,
        flags: TimerUnit::DEFAULT,
        written_at_ms: NOW,
        slot_ms,
        physical_offset: PhysicalOffset(record),
        size_bytes: 100,
        topic_hash: 7,
    }
}

fn open(root: &Path, read_ms: i64) -> TimerFiles {
    TimerFiles::open(Arc::new(RealDisk), root, read_ms, |_| true).unwrap()
}

/// The records of a slot, the last one first.
fn chain(files: &mut TimerFiles, slot_ms: i64) -> Vec<u64> {
    let mut chain = files.chain(slot_ms).unwrap();
    let mut records = Vec::new();
    while chain.position() >= 0 {
        let unit = files.unit(chain.position()).unwrap().unwrap();
        records.push(unit.physical_offset.get());
        chain = chain.after(&unit).unwrap();
    }
    assert!(chain.is_complete());
    records
}

#[test]
fn the_next_slot_of_thousands_of_years_is_found_by_one_turn_of_the_wheel() {
    let root = tempfile::tempdir().unwrap();
    let mut files = open(root.path(), NOW);
    let two_weeks = TimerSlot::COUNT as i64 * SLOT_MS;
    let year = 365 * 24 * 3600 * SLOT_MS;
    for (slot_ms, record) in
        [(NOW + 5000, 0), (NOW + two_weeks - SLOT_MS, 100), (NOW + two_weeks, 200), (NOW + 9 * year, 300)]
    {
        files.add(unit(slot_ms, record)).unwrap();
    }
    files.write().unwrap();
    let next = |from_ms| files.next_used(from_ms, NOW + 9000 * year).unwrap();
    assert_eq!(next(NOW), Some(NOW + 5000));
    assert_eq!(next(NOW + 6000), Some(NOW + two_weeks - SLOT_MS));
    assert_eq!(next(NOW + two_weeks), Some(NOW + two_weeks));
    assert_eq!(next(NOW + two_weeks + SLOT_MS), Some(NOW + 9 * year));
    assert_eq!(next(NOW + 9 * year + SLOT_MS), None);
    assert_eq!(files.next_used(NOW + two_weeks + SLOT_MS, NOW + 9 * year).unwrap(), None);
    assert_eq!(files.next_used(0, two_weeks).unwrap(), None, "no slot is used in 1970");
}

#[test]
fn units_are_found_by_their_slot_and_after_a_start() {
    let root = tempfile::tempdir().unwrap();
    let mut files = open(root.path(), NOW);
    let two_weeks = TimerSlot::COUNT as i64 * SLOT_MS;
    for (slot_ms, record) in [(NOW, 0), (NOW + 5000, 100), (NOW, 200), (NOW + 5000, 300)] {
        files.add(unit(slot_ms, record)).unwrap();
    }
    files.write().unwrap();
    let check = |files: &mut TimerFiles| {
        assert_eq!(chain(files, NOW), [200, 0]);
        assert_eq!(chain(files, NOW + 5000), [300, 100]);
        assert!(chain(files, NOW + 1000).is_empty());
        assert!(chain(files, NOW + two_weeks).is_empty(), "the same place of the wheel");
        assert_eq!(files.next_used(NOW, NOW + two_weeks).unwrap(), Some(NOW));
        assert_eq!(files.next_used(NOW + 1000, NOW + two_weeks).unwrap(), Some(NOW + 5000));
        assert_eq!(files.next_used(NOW + 1000, NOW + 5000).unwrap(), None);
        assert_eq!(files.next_used(NOW + 6000, NOW + two_weeks).unwrap(), None);
    };
    check(&mut files);
    RealDisk.replace(&root.path().join("timerwheel"), b"damaged").unwrap();
    check(&mut open(root.path(), NOW));
    let mut later = open(root.path(), NOW + 1000);
    assert_eq!(
        (chain(&mut later, NOW), chain(&mut later, NOW + 5000)),
        (vec![], vec![300, 100]),
        "delivered"
    );
}

#[test]
fn the_log_ends_at_the_first_unit_that_is_damaged_or_not_wanted() {
    let root = tempfile::tempdir().unwrap();
    let write = || {
        let mut files = open(root.path(), NOW);
        for record in [0, 100, 200] {
            files.add(unit(NOW, record)).unwrap();
        }
        files.write().unwrap();
    };
    write();
    let kept =
        TimerFiles::open(Arc::new(RealDisk), root.path(), NOW, |unit| unit.physical_offset.get() < 200);
    let mut kept = kept.unwrap();
    assert_eq!((chain(&mut kept, NOW), kept.end()), (vec![100, 0], 104));
    assert_eq!(chain(&mut open(root.path(), NOW), NOW), [100, 0], "the third one is gone");

    let path = root.path().join("timerlog").join(crate::folder::file_name(0));
    let mut bytes = RealDisk.read(&path, 1 << 30).unwrap();
    bytes[52 + 15] = 0xFF;
    RealDisk.replace(&path, &bytes).unwrap();
    assert_eq!(chain(&mut open(root.path(), NOW), NOW), [0]);

    write(); // record 0 again: it does not lie behind the one before
    assert_eq!(chain(&mut open(root.path(), NOW), NOW), [0]);
    RealDisk.remove_dir_all(&root.path().join("timerlog")).unwrap();
    assert!(chain(&mut open(root.path(), NOW), NOW).is_empty());
}

#[test]
fn a_unit_that_leads_past_another_ends_the_log_and_its_chain() {
    for bit in 0..64 {
        let root = tempfile::tempdir().unwrap();
        let mut files = open(root.path(), NOW);
        for (slot_ms, record) in [(NOW, 0), (NOW + 5000, 100), (NOW, 200), (NOW, 300), (NOW + 5000, 400)] {
            files.add(unit(slot_ms, record)).unwrap();
        }
        files.write().unwrap();
        let path = root.path().join("timerlog").join(crate::folder::file_name(0));
        let place = 3 * TimerUnit::BYTES as u64 + 4; // the unit of record 300
        let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
        file.write_all_at(place, &(104_i64 ^ 1 << bit).to_be_bytes()).unwrap();

        let mut slot = files.chain(NOW).unwrap();
        let is_whole = loop {
            match files.unit(slot.position()).unwrap().and_then(|unit| slot.after(&unit)) {
                Some(rest) if rest.position() < 0 => break rest.is_complete(),
                Some(rest) => slot = rest,
                None => break false,
            }
        };
        assert!(!is_whole, "bit {bit} is noticed by who reads the slot");

        let held = held_units(&RealDisk, root.path(), NOW).unwrap().unwrap();
        assert_eq!(held.broken, Some((156, 104 ^ 1 << bit)), "bit {bit}");
        let mut again = open(root.path(), NOW);
        assert_eq!(
            (chain(&mut again, NOW), chain(&mut again, NOW + 5000)),
            (vec![200, 0], vec![100]),
            "bit {bit}"
        );
    }
}

#[test]
fn a_slot_that_was_done_begins_anew_after_the_clock_was_set_back() {
    let root = tempfile::tempdir().unwrap();
    let mut files = open(root.path(), NOW);
    files.add(unit(NOW, 0)).unwrap();
    files.write().unwrap();
    let mut files = open(root.path(), NOW + 1000);
    for record in [100, 200] {
        files.add(unit(NOW, record)).unwrap();
    }
    files.write().unwrap();
    assert_eq!(chain(&mut files, NOW), [200, 100]);
    assert_eq!(held_units(&RealDisk, root.path(), NOW).unwrap().unwrap().broken, None);
    assert_eq!(chain(&mut open(root.path(), NOW), NOW), [200, 100]);
}

#[test]
fn a_full_file_is_followed_by_the_next_and_removed_when_nothing_of_it_waits() {
    let root = tempfile::tempdir().unwrap();
    let mut files = open(root.path(), NOW);
    let a_file = 104_857_532 / 52 + 1;
    for record in 0..a_file + 2 {
        files.add(unit(NOW, record)).unwrap();
        if record % 10_000 == 0 {
            files.write().unwrap();
        }
    }
    files.write().unwrap();
    assert_eq!(files.end(), (100 << 20) + 104);
    let mut again = open(root.path(), NOW);
    assert_eq!(again.end(), files.end());
    assert_eq!(again.unit(104_857_532).unwrap().unwrap().physical_offset.get(), a_file - 1);
    let last = again.unit(again.chain(NOW).unwrap().position()).unwrap().unwrap();
    assert_eq!((last.physical_offset.get(), last.previous), (a_file + 1, 100 << 20));
    assert_eq!(again.unit(100 << 20).unwrap().unwrap().previous, 104_857_532);

    files.remove_before(NOW, PhysicalOffset(a_file)).unwrap();
    files.remove_before(NOW + 1000, PhysicalOffset(a_file - 1)).unwrap();
    assert!(files.unit(0).unwrap().is_some(), "one of its messages waits, one has its record");
    files.remove_before(NOW + 1000, PhysicalOffset(a_file)).unwrap();
    assert!(files.unit(0).unwrap().is_none());
    assert_eq!(open(root.path(), NOW).end(), files.end());
}

#[test]
fn the_checkpoint_has_a_backup() {
    let root = tempfile::tempdir().unwrap();
    RealDisk.create_dir_all(&root.path().join("config")).unwrap();
    assert_eq!(read_checkpoint(&RealDisk, root.path()).unwrap(), None);
    let at = |read_ms| TimerCheckpoint { read_ms, ..TimerCheckpoint::default() };
    for read_ms in [1000, 2000] {
        write_checkpoint(&RealDisk, root.path(), &at(read_ms)).unwrap();
        assert_eq!(read_checkpoint(&RealDisk, root.path()).unwrap(), Some(at(read_ms)));
    }
    let path = root.path().join("config/timercheck");
    for damaged in [b"".as_slice(), b"\0\0\0", &TimerCheckpoint::default().encode_file()] {
        RealDisk.replace(&path, damaged).unwrap();
        assert_eq!(read_checkpoint(&RealDisk, root.path()).unwrap(), Some(at(1000)));
        write_checkpoint(&RealDisk, root.path(), &at(3000)).unwrap();
        assert_eq!(read_checkpoint(&RealDisk, root.path()).unwrap(), Some(at(3000)));
        RealDisk.remove_file(&path).unwrap();
        let backup = read_checkpoint(&RealDisk, root.path()).unwrap();
        assert_eq!(backup, Some(at(1000)), "the damaged file is not the backup");
    }
}
