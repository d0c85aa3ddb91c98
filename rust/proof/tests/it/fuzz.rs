//! Every file of the corpus through its fuzz target, once. `tools/fuzz` looks for new ones.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_proof::fuzz::{TARGETS, Target};

fn corpus(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name)
}

/// Name and bytes of every file.
fn files(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = corpus(target);
    let entries = RealDisk.list(&dir).unwrap();
    let name = |entry: rocketpy_env::DirEntry| entry.name.into_string().unwrap();
    entries
        .into_iter()
        .map(name)
        .map(|name| (name.clone(), RealDisk.read(&dir.join(name), 1 << 20).unwrap()))
        .collect()
}

#[test]
fn every_file_of_the_corpus_passes_its_target() {
    for target in TARGETS {
        for (name, bytes) in files(target) {
            eprintln!("{} {name}", target.name);
            (target.run)(&bytes);
            // What libFuzzer tries first.
            (target.run)(&bytes[..bytes.len() / 2]);
        }
        (target.run)(b"");
    }
}

#[test]
fn the_corpus_begins_with_the_seeds_of_the_code() {
    for target in TARGETS {
        let seeds = (target.seeds)().into_iter().map(|(name, bytes)| (format!("seed-{name}"), bytes));
        let mut seeds: Vec<_> = seeds.collect();
        seeds.sort();
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            RealDisk.create_dir_all(&corpus(target)).unwrap();
            for (name, bytes) in &seeds {
                RealDisk.replace(&corpus(target).join(name), bytes).unwrap();
            }
        }
        let found: Vec<_> = files(target).into_iter().filter(|(name, _)| name.starts_with("seed-")).collect();
        assert!(found == seeds, "{}: UPDATE_CORPUS=1 writes the seeds anew", target.name);
    }
}
