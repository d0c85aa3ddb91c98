//! The simulated disk does to files what Linux and a power cut do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rocketpy_env::sim::{SimDisk, SimOptions, Stopped};
use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode, Region};

const FILE: &str = "/file";
const MANY: u64 = 300;

fn path() -> &'static Path {
    Path::new(FILE)
}

fn quiet(seed: u64) -> SimDisk {
    SimDisk::new(SimOptions { seed, ..SimOptions::default() })
}

/// A durable file of zeros of 8 KiB, and its handle.
fn with_file(disk: &SimDisk) -> <SimDisk as Disk>::File {
    let file = disk.open_file(path(), OpenMode::CreateOrWrite).unwrap();
    file.write_all_at(0, &[0; 8192]).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file
}

fn content(disk: &SimDisk) -> Option<Vec<u8>> {
    disk.peek(path())
}

#[test]
fn a_kill_keeps_what_a_power_cut_may_lose() {
    let mut lost = 0;
    for seed in 0..MANY {
        let disk = quiet(seed);
        let file = with_file(&disk);
        file.write_all_at(100, b"new").unwrap();
        let disk = disk.kill();
        assert_eq!(&content(&disk).unwrap()[100..103], b"new");
        let disk = disk.cut_power();
        lost += u64::from(&content(&disk).unwrap()[100..103] != b"new");
    }
    assert!((MANY / 5..MANY * 4 / 5).contains(&lost), "{lost} of {MANY}");
}

#[test]
fn what_was_flushed_survives_the_power_and_names_need_a_flush_of_their_folder() {
    let mut named = 0;
    for seed in 0..MANY {
        let disk = quiet(seed);
        let file = with_file(&disk);
        file.write_all_at(5000, b"new").unwrap();
        file.sync().unwrap();
        let other = disk.open_file(Path::new("/other"), OpenMode::CreateOrWrite).unwrap();
        other.write_all_at(0, b"flushed").unwrap();
        other.sync().unwrap();
        let disk = disk.cut_power();
        assert_eq!(&content(&disk).unwrap()[5000..5003], b"new");
        if let Some(bytes) = disk.peek(Path::new("/other")) {
            assert_eq!(bytes, b"flushed");
            named += 1;
        }
    }
    assert!((1..MANY).contains(&named), "the flush of a file says nothing of its name: {named} of {MANY}");
}

#[test]
fn a_page_tears_between_sectors_and_never_within_one() {
    let mut torn = 0;
    for seed in 0..MANY {
        let disk = quiet(seed);
        with_file(&disk).write_all_at(0, &[7; 4096]).unwrap();
        let bytes = content(&disk.cut_power()).unwrap();
        let sectors: Vec<_> = bytes[..4096].chunks(512).map(|sector| sector[0]).collect();
        for (sector, &first) in bytes[..4096].chunks(512).zip(&sectors) {
            assert!(sector.iter().all(|&byte| byte == first), "a sector is torn");
        }
        torn += u64::from(sectors.contains(&0) && sectors.contains(&7));
    }
    assert!(torn > MANY / 10, "{torn} of {MANY}");
}

#[test]
fn after_a_failed_flush_the_next_one_succeeds_and_the_bytes_are_gone_with_the_power() {
    let mut lost = 0;
    for seed in 0..MANY {
        let disk = quiet(seed);
        let file = with_file(&disk);
        file.write_all_at(0, b"new").unwrap();
        disk.set_options(SimOptions { flush_fails_per_mille: 1000, ..disk.options() });
        assert!(matches!(file.sync(), Err(EnvError::FlushFailed { .. })));
        disk.set_options(disk.options().without_faults());
        assert_eq!(&content(&disk).unwrap()[..3], b"new", "readers see them");
        file.sync().unwrap();
        assert_eq!(disk.failed_flushes(), 1);
        lost += u64::from(&content(&disk.cut_power()).unwrap()[..3] != b"new");
    }
    assert_eq!(lost, MANY, "one page at least does not get there, and this is the only one");
}

#[test]
fn bytes_of_a_failed_flush_are_durable_once_they_are_written_again() {
    let disk = quiet(1);
    let file = with_file(&disk);
    file.write_all_at(0, b"new").unwrap();
    disk.set_options(SimOptions { flush_fails_per_mille: 1000, ..disk.options() });
    assert!(file.sync().is_err());
    disk.set_options(disk.options().without_faults());
    file.write_all_at(4000, b"!").unwrap(); // the same page: it is written back whole
    file.sync().unwrap();
    assert_eq!(&content(&disk.cut_power()).unwrap()[..3], b"new");
}

#[test]
fn a_failed_write_back_is_reported_by_the_next_flush_once() {
    let disk = quiet(1);
    let file = with_file(&disk);
    let fails = SimOptions { write_back_per_mille: 900, write_back_fails_per_mille: 1000, ..disk.options() };
    file.write_all_at(0, b"new").unwrap();
    disk.set_options(fails);
    for _ in 0..50 {
        let _ = file.len();
    }
    disk.set_options(disk.options().without_faults());
    assert!(file.sync().is_err(), "fifty operations let the page be written back");
    file.sync().unwrap();
    assert_eq!(&content(&disk.cut_power()).unwrap()[..3], &[0; 3]);
}

#[test]
fn names_survive_as_a_prefix_of_their_order() {
    let name = |index: usize| format!("/{index}");
    let mut counts = std::collections::BTreeSet::new();
    for seed in 0..MANY {
        let disk = quiet(seed);
        for index in 0..5 {
            disk.open_file(Path::new(&name(index)), OpenMode::CreateOrWrite).unwrap();
        }
        let disk = disk.cut_power();
        let there: Vec<_> = (0..5).map(|index| disk.peek(Path::new(&name(index))).is_some()).collect();
        assert!(there.is_sorted_by(|a, b| a >= b), "{there:?}");
        counts.insert(there.iter().filter(|&&is| is).count());
    }
    assert_eq!(counts.len(), 6, "every prefix comes up: {counts:?}");
}

#[test]
fn what_a_folder_held_does_not_come_back_in_another_one_of_its_name() {
    let (dir, file) = (Path::new("/dir"), Path::new("/dir/file"));
    let mut made_again = 0;
    for seed in 0..MANY {
        let disk = quiet(seed);
        disk.create_dir_all(dir).unwrap();
        disk.replace(file, b"old").unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.remove_dir_all(dir).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.create_dir_all(dir).unwrap();
        disk.open_file(file, OpenMode::CreateOrWrite).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let disk = disk.cut_power();
        made_again += u64::from(disk.peek(file).is_some_and(|bytes| bytes.is_empty()));
        assert_ne!(disk.peek(file).as_deref(), Some(&b"old"[..]), "seed {seed}");
    }
    assert!((1..MANY).contains(&made_again), "{made_again} of {MANY}");
}

#[test]
fn a_new_length_without_its_bytes_reads_as_zeros() {
    let mut zeros = 0;
    for seed in 0..MANY {
        let disk = quiet(seed);
        with_file(&disk).write_all_at(8192, &[7; 512]).unwrap();
        let bytes = content(&disk.cut_power()).unwrap();
        assert!(bytes.len() == 8192 || bytes.len() == 8704, "{}", bytes.len());
        assert!(bytes[8192..].iter().all(|&byte| byte == 7) || bytes[8192..].iter().all(|&byte| byte == 0));
        zeros += u64::from(bytes.get(8192) == Some(&0));
    }
    assert!(zeros > 10, "{zeros} of {MANY}");
}

#[test]
fn a_file_that_was_cut_and_grew_again_does_not_show_what_it_held() {
    let disk = quiet(3);
    let file = with_file(&disk);
    file.write_all_at(0, &[7; 8192]).unwrap();
    file.sync().unwrap();
    file.set_len(10).unwrap();
    file.set_len(8192).unwrap();
    file.sync().unwrap();
    let bytes = content(&disk.cut_power()).unwrap();
    assert_eq!((&bytes[..10], bytes.len()), (&[7; 10][..], 8192));
    assert!(bytes[10..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_replaced_file_holds_the_old_or_the_new_bytes_whenever_the_power_goes() {
    for stop in 1.. {
        let disk = quiet(stop);
        disk.replace(path(), b"old").unwrap();
        let start = disk.operations();
        disk.stop_at(Some(start + stop));
        let replaced = catch_unwind(AssertUnwindSafe(|| disk.replace_keeping_backup(path(), b"new")));
        let disk = disk.cut_power();
        let bytes = content(&disk).unwrap();
        match replaced {
            Err(stopped) => {
                assert!(Stopped::is(&*stopped));
                assert!(bytes == b"old" || bytes == b"new");
            }
            Ok(done) => {
                done.unwrap();
                assert_eq!(bytes, b"new");
                assert!(stop > 4, "it takes several operations");
                return;
            }
        }
    }
}

#[test]
fn a_region_is_durable_from_its_creation_and_an_append_can_end_in_its_midst() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..MANY {
        let disk = quiet(seed);
        let region = disk.create_region(path(), 8192).unwrap();
        let disk = disk.cut_power();
        assert_eq!(content(&disk).unwrap(), vec![0; 8192]);
        assert_eq!(region.flush(0..1).map_err(|error| error.to_string().contains("down")), Err(true));

        let mut region = disk.open_region(path()).unwrap();
        region.rewind(0);
        region.append(b"first", 5);
        disk.stop_at(Some(disk.operations() + 2));
        let torn = catch_unwind(AssertUnwindSafe(|| region.append(b"second", 6)));
        assert!(Stopped::is(&*torn.unwrap_err()));
        assert_eq!((region.written(), region.view(0..5)), (5, &b"first"[..]));
        let bytes = content(&disk.kill()).unwrap();
        let copied = bytes[5..11].iter().take_while(|&&byte| byte != 0).count();
        assert_eq!(bytes[5..5 + copied], b"second"[..copied]);
        lengths.insert(copied);
    }
    assert_eq!(lengths.len(), 7, "every part of it comes up: {lengths:?}");
}

#[test]
fn handles_and_locks_of_a_former_process_do_nothing() {
    let disk = quiet(1);
    let file = with_file(&disk);
    let lock = disk.lock(Path::new("/lock")).unwrap();
    let next = disk.kill();
    assert!(file.write_all_at(0, b"late").is_err() && disk.sync_dir(Path::new("/")).is_err());
    let held = next.lock(Path::new("/lock")).unwrap();
    drop(lock);
    assert!(matches!(next.lock(Path::new("/lock")), Err(EnvError::Locked { .. })));
    drop(held);
    next.lock(Path::new("/lock")).unwrap();
    assert_eq!(&content(&next).unwrap()[..4], &[0; 4]);
}

#[test]
fn a_full_disk_refuses_new_files_and_leaves_nothing_under_their_names() {
    let disk = quiet(1);
    disk.set_options(SimOptions { no_space_per_mille: 1000, ..disk.options() });
    assert!(matches!(disk.create_region(path(), 4096), Err(EnvError::NoSpace { .. })));
    assert!(matches!(disk.open_file(path(), OpenMode::CreateOrWrite), Err(EnvError::NoSpace { .. })));
    assert!(matches!(disk.replace(path(), b"x"), Err(EnvError::NoSpace { .. })));
    assert!(disk.files().is_empty());
}

#[test]
fn bytes_that_have_their_space_are_written_on_a_full_disk_and_those_that_need_some_are_not() {
    let disk = quiet(1);
    let file = with_file(&disk);
    file.set_len(16_384).unwrap();
    disk.set_options(SimOptions { no_space_per_mille: 1000, ..disk.options() });
    file.write_all_at(100, b"in place").unwrap();
    assert!(matches!(file.write_all_at(8000, &[7; 400]), Err(EnvError::NoSpace { .. })));
    assert_eq!(content(&disk).unwrap()[8000..8400], [vec![7; 192], vec![0; 208]].concat(), "up to the hole");
    file.zero_range(0..4096, false).unwrap();
    assert!(file.write_all_at(0, b"x").is_err(), "its space was given back");
    file.zero_range(4096..8192, true).unwrap();
    file.write_all_at(4096, b"x").unwrap();
}

#[test]
fn damage_and_hidden_files_outlast_the_power_and_can_be_taken_back() {
    let disk = quiet(1);
    with_file(&disk).write_all_at(0, b"bytes").unwrap();
    disk.damage(path(), |bytes| bytes[1] ^= 1).unwrap();
    let disk = disk.cut_power();
    assert_eq!(&content(&disk).unwrap()[..5], b"bxtes");
    let hidden = disk.hide(path()).unwrap();
    let disk = disk.cut_power();
    assert_eq!(content(&disk), None);
    disk.unhide(hidden);
    let disk = disk.cut_power();
    assert_eq!(&content(&disk).unwrap()[..5], b"bxtes");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = |seed| {
        let options = SimOptions {
            seed,
            write_back_per_mille: 300,
            no_space_per_mille: 100,
            flush_fails_per_mille: 100,
            clock_steps_per_mille: 100,
            ..SimOptions::default()
        };
        let disk = SimDisk::new(options);
        let mut log = Vec::new();
        for round in 0..40_u8 {
            if let Ok(file) = disk.open_file(path(), OpenMode::CreateOrWrite) {
                let written = file.write_all_at(u64::from(round) * 700, &[round; 900]).is_ok();
                log.push((written, file.sync().is_ok(), disk.now_ms()));
            }
        }
        (log, disk.operations(), content(&disk.cut_power()))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_sector_tears_when_the_options_say_so_and_never_in_the_checkpoint() {
    let torn = |name: &str, seed| {
        let disk = SimDisk::new(SimOptions { seed, tears_sectors: true, ..SimOptions::default() });
        let path = Path::new("/").join(name);
        let file = disk.open_file(&path, OpenMode::CreateOrWrite).unwrap();
        file.write_all_at(0, &[1; 4096]).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        file.write_all_at(0, &[7; 4096]).unwrap();
        let bytes = disk.cut_power().peek(&path).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 1 || byte == 7));
        u64::from(bytes.chunks(512).any(|sector| sector.iter().any(|&byte| byte != sector[0])))
    };
    let count: u64 = (0..MANY).map(|seed| torn("file", seed)).sum();
    assert!(count > MANY / 20, "{count} of {MANY}");
    assert_eq!((0..MANY).map(|seed| torn("checkpoint", seed)).sum::<u64>(), 0);
}

#[test]
fn a_place_that_cannot_be_read_is_a_typed_error() {
    let disk = quiet(1);
    let file = with_file(&disk);
    disk.set_options(SimOptions { read_fails_per_mille: 1000, ..disk.options() });
    let failed = [
        file.read_at(0, &mut [0; 8]).map(drop),
        file.read_exact_at(0, &mut [0; 8]),
        disk.read(path(), 1 << 20).map(drop),
    ];
    for error in failed.map(Result::unwrap_err) {
        assert!(matches!(&error, EnvError::Io { operation: "read", .. }), "{error:?}");
    }
    disk.set_options(disk.options().without_faults());
    file.read_exact_at(0, &mut [0; 8]).unwrap();
}

#[test]
fn the_end_of_a_process_may_evict_a_page_that_was_never_written_back() {
    let mut evicted = 0;
    for seed in 0..MANY {
        let disk = SimDisk::new(SimOptions { seed, evicts: true, ..SimOptions::default() });
        let file = with_file(&disk);
        file.write_all_at(0, b"new").unwrap();
        let disk = disk.kill();
        assert!(!disk.has_evicted(), "a dirty page stays");
        disk.set_options(SimOptions { flush_fails_per_mille: 1000, ..disk.options() });
        assert!(disk.open_file(path(), OpenMode::Write).unwrap().sync().is_err());
        let disk = disk.kill();
        let is_back = &content(&disk).unwrap()[..3] == b"\0\0\0";
        assert_eq!(disk.has_evicted(), is_back);
        evicted += u64::from(is_back);
    }
    assert!(evicted > MANY / 4 && evicted < MANY, "{evicted} of {MANY}");
}

#[test]
fn whole_pages_become_zeros_with_the_journal_and_not_in_part() {
    let mut kept = 0;
    for seed in 0..MANY {
        let disk = quiet(seed);
        let file = with_file(&disk);
        file.write_all_at(0, &[7; 8192]).unwrap();
        file.sync().unwrap();
        file.zero_range(0..4096, true).unwrap();
        assert_eq!(content(&disk).unwrap()[0], 0, "readers see zeros");
        let bytes = content(&disk.cut_power()).unwrap();
        assert!(bytes[..4096].iter().all(|&byte| byte == bytes[0]), "a page is zero or as before");
        assert!(bytes[4096..].iter().all(|&byte| byte == 7));
        kept += u64::from(bytes[0] == 7);
    }
    assert!(kept > MANY / 4 && kept < MANY, "{kept} of {MANY}");
    let disk = quiet(1);
    let file = with_file(&disk);
    file.write_all_at(0, &[7; 8192]).unwrap();
    file.sync().unwrap();
    file.zero_range(0..4096, true).unwrap();
    file.write_all_at(0, b"new").unwrap();
    file.sync().unwrap();
    assert_eq!(&content(&disk.cut_power()).unwrap()[..5], b"new\0\0", "what is written later stays");
}

#[test]
fn pages_written_ahead_are_durable_and_a_failure_is_one_of_a_flush() {
    let disk = quiet(1);
    let region = disk.create_region(path(), 8192).unwrap();
    region.append(b"record", 6);
    region.fault_in_written(0..4096).unwrap();
    let disk = disk.cut_power();
    assert_eq!(&content(&disk).unwrap()[..6], b"record");
    let region = disk.open_region(path()).unwrap();
    disk.set_options(SimOptions { flush_fails_per_mille: 1000, ..disk.options() });
    assert!(matches!(region.fault_in_written(4096..8192), Err(EnvError::FlushFailed { .. })));
    assert_eq!(disk.failed_flushes(), 1);
}
