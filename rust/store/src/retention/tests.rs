//! The plan, case by case and for any situation.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rocketpy_env::DiskUsage;
use rocketpy_model::PhysicalOffset;

use super::*;
use crate::error::FullDisk;

const HOUR: i64 = 3_600_000;
const NOW: i64 = 1_700_000_000_000;
const GIB: u64 = 1 << 30;

/// A file system of 100 GiB.
fn disk(path: &str, file_system: u64, used_percent: u64) -> FolderSpace {
    let free_bytes = (100 - used_percent) * GIB;
    let usage = DiskUsage { file_system, total_bytes: 100 * GIB, free_bytes, available_bytes: free_bytes };
    FolderSpace { path: path.into(), usage }
}

/// Files of 1 GiB in `/log`, by their ages in hours.
fn files(ages: &[i64]) -> Vec<LogFile> {
    let of = |(index, age): (usize, &i64)| LogFile {
        path: format!("/log/{index}").into(),
        start: PhysicalOffset(index as u64 * GIB),
        size_bytes: GIB,
        written_at_ms: NOW - age * HOUR,
    };
    ages.iter().enumerate().map(of).collect()
}

/// Noon, half full.
fn situation(ages: &[i64]) -> Situation {
    Situation {
        files: files(ages),
        log_folders: vec![disk("/log", 1, 50)],
        queue_folder: disk("/queues", 1, 50),
        now_ms: NOW,
        young_from: PhysicalOffset(u64::MAX),
        waiting_from: PhysicalOffset(u64::MAX),
        hour: 12,
        is_asked: false,
        is_refusing: false,
    }
}

fn full(situation: Situation, used_percent: u64) -> Situation {
    Situation {
        log_folders: vec![disk("/log", 1, used_percent)],
        queue_folder: disk("/queues", 1, used_percent),
        ..situation
    }
}

/// Starts of the files that go, in GiB, with the names of their rules, and why the next one stays.
fn outcome(situation: &Situation, config: &RetentionConfig) -> (Vec<(u64, &'static str)>, Option<Keep>) {
    let plan = plan(situation, config);
    let removals = plan.removals.iter().map(|removal| (removal.file.start.get() / GIB, removal.rule.name()));
    (removals.collect(), plan.kept.map(|(_, why)| why))
}

fn default() -> RetentionConfig {
    RetentionConfig::default()
}

#[test]
fn old_files_go_in_their_hour_and_the_last_never() {
    let at_four = Situation { hour: 4, ..situation(&[100, 80, 72, 71, 10]) };
    let (removals, kept) = outcome(&at_four, &default());
    assert_eq!(removals, [(0, "expired"), (1, "expired"), (2, "expired")]);
    assert_eq!(kept, Some(Keep::Young { age_ms: 71 * HOUR, reserved_ms: 72 * HOUR }));
    let all_old = Situation { hour: 4, ..situation(&[100, 100]) };
    assert_eq!(outcome(&all_old, &default()), (vec![(0, "expired")], Some(Keep::Last)));
    assert_eq!(outcome(&Situation { hour: 4, ..situation(&[]) }, &default()), (vec![], None));
}

#[test]
fn a_file_with_a_message_that_waits_stays_unless_space_is_short() {
    let waits_in_second = |percent| {
        let at_four = Situation { hour: 4, ..situation(&[100, 100, 100, 1]) };
        full(Situation { waiting_from: PhysicalOffset(2 * GIB - 1), ..at_four }, percent)
    };
    assert_eq!(outcome(&waits_in_second(50), &default()), (vec![(0, "expired")], Some(Keep::Waiting)));
    let (removals, _) = outcome(&waits_in_second(95), &default());
    assert_eq!(removals[..2], [(0, "expired"), (1, "disk full")]);
    let young = Situation { hour: 12, ..waits_in_second(50) };
    assert_eq!(outcome(&young, &default()), (vec![], Some(Keep::NotNow)));
}

#[test]
fn at_another_hour_old_files_stay_unless_somebody_asks_or_the_disk_does() {
    let noon = situation(&[100, 10]);
    assert_eq!(outcome(&noon, &default()), (vec![], Some(Keep::NotNow)));
    let asked = Situation { is_asked: true, ..noon.clone() };
    assert_eq!(outcome(&asked, &default()).0, [(0, "expired")]);
    assert_eq!(outcome(&full(noon.clone(), 75), &default()).0, []);
    let plan = plan(&full(noon, 76), &default());
    let full = FullDisk { path: "/log".into(), used_percent: 76, limit_percent: 75 };
    let rule = Rule::Expired { reserved_ms: 72 * HOUR, occasion: Occasion::Disk(full) };
    assert_eq!(plan.removals[0].rule, rule);
    assert_eq!(rule.to_string(), "older than 72.0 h, and the disk is 76 % full, the limit is 75 %: /log");
}

#[test]
fn a_file_that_is_young_keeps_the_older_ones_behind_it() {
    let at_four = Situation { hour: 4, ..situation(&[100, 1, 100, 1]) };
    let (removals, kept) = outcome(&at_four, &default());
    assert_eq!(removals, [(0, "expired")]);
    assert_eq!(kept, Some(Keep::Young { age_ms: HOUR, reserved_ms: 72 * HOUR }), "no hole");
}

#[test]
fn a_full_disk_takes_young_files_but_no_more_than_it_needs() {
    let (removals, kept) = outcome(&full(situation(&[3, 2, 1, 0, 0]), 87), &default());
    assert_eq!(removals, [(0, "disk full"), (1, "disk full")], "down to 85 %");
    assert!(matches!(kept, Some(Keep::Young { .. })));
    assert_eq!(outcome(&full(situation(&[1, 1]), 85), &default()).0, []);
    let never = RetentionConfig { clean_forcibly: false, ..default() };
    assert_eq!(outcome(&full(situation(&[1, 1]), 99), &never).0, []);
}

#[test]
fn space_that_the_log_cannot_free_is_not_sought_in_it_for_ever() {
    // The queues lie on a disk of their own: a round removes its share, and the next one decides again.
    let queues = Situation { queue_folder: disk("/queues", 2, 90), ..situation(&[1; 30]) };
    let (removals, kept) = outcome(&queues, &default());
    assert_eq!((removals.len(), kept), (10, Some(Keep::EnoughForNow)));
}

#[test]
fn a_log_that_is_too_long_loses_its_oldest_files_at_any_hour() {
    let config = RetentionConfig { max_bytes: Some(3 * GIB), ..default() };
    let (removals, _) = outcome(&situation(&[1; 5]), &config);
    assert_eq!(removals, [(0, "total size"), (1, "total size")]);
    let tiny = RetentionConfig { max_bytes: Some(1), ..default() };
    assert_eq!(outcome(&situation(&[1; 3]), &tiny).0.len(), 2, "the last stays");
}

#[test]
fn a_round_takes_no_more_than_its_share() {
    let config = RetentionConfig { files_a_round: 2, ..default() };
    let at_four = Situation { hour: 4, ..situation(&[100; 5]) };
    assert_eq!(outcome(&at_four, &config), (vec![(0, "expired"), (1, "expired")], Some(Keep::EnoughForNow)));
    let three = Situation { hour: 4, ..situation(&[100; 3]) };
    assert_eq!(outcome(&three, &config).1, Some(Keep::Last), "nothing is left for a next round");
}

#[test]
fn appends_are_refused_beyond_the_last_limit_until_the_disk_is_below_the_one_before() {
    let refused = |used_percent, is_refusing| {
        let now = Situation { is_refusing, ..full(situation(&[]), used_percent) };
        plan(&now, &default()).refusal.map(|full| (full.used_percent, full.limit_percent))
    };
    assert_eq!(refused(90, false), None);
    assert_eq!(refused(91, false), Some((91, 90)));
    assert_eq!(refused(90, true), Some((90, 85)), "it keeps its state between the two");
    assert_eq!(refused(86, true), Some((86, 85)));
    assert_eq!(refused(85, true), None);
    let queues = Situation { queue_folder: disk("/queues", 2, 95), ..situation(&[]) };
    assert_eq!(plan(&queues, &default()).refusal.unwrap().path, Path::new("/queues"));
}

#[test]
fn of_several_folders_the_emptiest_decides_and_full_ones_are_left_out() {
    let folders = vec![disk("/a", 1, 95), disk("/b", 2, 50), disk("/c", 3, 86)];
    let now = Situation { log_folders: folders, ..situation(&[1, 1]) };
    let decided = plan(&now, &default());
    assert_eq!((decided.removals.len(), decided.refusal), (0, None));
    assert_eq!(decided.full_folders, [PathBuf::from("/a"), PathBuf::from("/c")]);
}

prop_compose! {
    fn any_situation()(
        ages in prop::collection::vec(-5..200_i64, 0..30),
        log in prop::collection::vec((1..4_u64, 0..=100_u64), 1..4),
        queues in (1..4_u64, 0..=100_u64),
        hour in 0..24_u32,
        is_asked: bool,
        is_refusing: bool,
    ) -> Situation {
        let folders = ["/log", "/more", "/other"];
        let log_folders: Vec<_> =
            log.iter().zip(folders).map(|((system, used), path)| disk(path, *system, *used)).collect();
        let mut files = files(&ages);
        for (index, file) in files.iter_mut().enumerate() {
            file.path = log_folders[index % log_folders.len()].path.join(index.to_string());
        }
        let queue_folder = disk("/queues", queues.0, queues.1);
        let young_from = PhysicalOffset(u64::MAX);
        let waiting_from = PhysicalOffset(u64::MAX);
        Situation {
            files,
            log_folders,
            queue_folder,
            now_ms: NOW,
            young_from,
            waiting_from,
            hour,
            is_asked,
            is_refusing,
        }
    }
}

prop_compose! {
    fn any_config()(
        reserved_hours in 0..100_u64,
        percents in (0..=100_u64, 0..=100_u64, 0..=100_u64),
        clean_forcibly: bool,
        max_bytes in prop::option::of(0..40 * GIB),
        files_a_round in 0..20_usize,
    ) -> RetentionConfig {
        RetentionConfig {
            reserved_time: std::time::Duration::from_secs(reserved_hours * 3600),
            max_used_percent: percents.0,
            force_used_percent: percents.1,
            refuse_used_percent: percents.2,
            clean_forcibly,
            max_bytes,
            files_a_round,
            ..default()
        }.checked().unwrap()
    }
}

proptest! {
    #[test]
    fn what_goes_is_the_beginning_of_the_log_and_each_file_has_its_reason(
        situation in any_situation(), config in any_config()
    ) {
        let plan = plan(&situation, &config);
        let gone = plan.removals.len();
        let removed: Vec<_> = plan.removals.iter().map(|removal| removal.file.clone()).collect();
        prop_assert_eq!(&removed[..], &situation.files[..gone], "no hole");
        prop_assert!(gone <= config.files_a_round);
        prop_assert!(gone < situation.files.len().max(1), "the last file stays");
        prop_assert_eq!(plan.kept.as_ref().map(|(file, _)| file), situation.files.get(gone));
        let fullest = |limit| {
            let emptiest = situation.log_folders.iter().map(|folder| folder.usage.used_percent()).min();
            emptiest.unwrap() > limit || situation.queue_folder.usage.used_percent() > limit
        };
        let mut total: u64 = situation.files.iter().map(|file| file.size_bytes).sum();
        for removal in &plan.removals {
            prop_assert!(removal.age_ms >= 0, "one from the future is as old as one of now");
            let is_old = removal.age_ms >= config.reserved_ms();
            let is_time = config.delete_hours.contains(situation.hour)
                || situation.is_asked
                || fullest(config.max_used_percent);
            match &removal.rule {
                Rule::Expired { .. } => prop_assert!(is_old && is_time),
                Rule::TotalSize { total_bytes, limit_bytes } => {
                    prop_assert_eq!(*total_bytes, total);
                    prop_assert!(total > *limit_bytes && !(is_old && is_time));
                }
                Rule::Forced(full) => {
                    prop_assert!(config.clean_forcibly && fullest(config.force_used_percent));
                    prop_assert!(full.used_percent > full.limit_percent);
                }
            }
            total -= removal.file.size_bytes;
        }
        if gone < config.files_a_round && gone + 1 < situation.files.len() {
            prop_assert!(config.max_bytes.is_none_or(|limit| total <= limit), "it is short enough now");
        }
    }

    #[test]
    fn a_round_that_finds_what_the_former_left_goes_on_where_it_ended(
        situation in any_situation(), config in any_config()
    ) {
        // Neither disk nor size asks for anything: only ages count, and they do not change by removals.
        let config = RetentionConfig { clean_forcibly: false, max_bytes: None, ..config };
        let mut rest = situation.clone();
        let mut gone = 0;
        loop {
            let next = plan(&rest, &config);
            if next.removals.is_empty() {
                break;
            }
            gone += next.removals.len();
            rest.files.drain(..next.removals.len());
        }
        let at_once = RetentionConfig { files_a_round: usize::MAX, ..config };
        prop_assert_eq!(plan(&situation, &at_once).removals.len(), gone);
    }

    #[test]
    fn a_fuller_disk_never_keeps_more_and_never_lets_appends_in_again(
        situation in any_situation(), config in any_config(), more in 0..=50_u64
    ) {
        let fuller = |folder: &FolderSpace| {
            let less = folder.usage.free_bytes.saturating_sub(more * GIB);
            let usage = DiskUsage { free_bytes: less, available_bytes: less, ..folder.usage };
            FolderSpace { path: folder.path.clone(), usage }
        };
        let later = Situation {
            log_folders: situation.log_folders.iter().map(fuller).collect(),
            queue_folder: fuller(&situation.queue_folder),
            ..situation.clone()
        };
        let (now, then) = (plan(&situation, &config), plan(&later, &config));
        prop_assert!(then.removals.len() >= now.removals.len());
        prop_assert!(now.refusal.is_none() || then.refusal.is_some());
    }
}
