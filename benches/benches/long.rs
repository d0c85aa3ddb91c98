//! What takes gigabytes: rolling from file to file, recovery after a kill, and many queues. Prints a line for each figure
//! and writes them to `target/figures/store.json`; `ROCKETPY_LONG=small` runs everything once on small data,
//! `ROCKETPY_LONG=queues` and `ROCKETPY_LONG=recovery` only print the lines of many queues, and those of recovery.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_benches::{PLAIN, append_patiently, record};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::{NewRecord, Store, StoreConfig};

const GIB: u64 = 1 << 30;
/// Names the folder that this process is to fill and to be killed over.
const FILL: &str = "ROCKETPY_LONG_FILL";

type Figures = BTreeMap<String, BTreeMap<&'static str, f64>>;

fn main() {
    if let Ok(root) = std::env::var(FILL) {
        return fill(Path::new(&root));
    }
    let asked = std::env::var("ROCKETPY_LONG").unwrap_or_default();
    let small = asked == "small";
    let mut figures = Figures::new();
    if asked == "queues" {
        return queues(&[16, 10_000, 100_000], 6_000_000, &mut figures);
    }
    let fillings: &[_] =
        if small { &[(1, 4096)] } else { &[(1, 4096), (5, 4096), (20, 4096), (5, 1024), (5, 128)] };
    if asked == "recovery" {
        return fillings.iter().for_each(|&(gib, body_bytes)| recovery(gib, body_bytes, &mut figures));
    }
    roll(if small { 1 } else { 8 }, &mut figures);
    for &(gib, body_bytes) in fillings {
        recovery(gib, body_bytes, &mut figures);
    }
    if small {
        queues(&[16, 1_000], 100_000, &mut figures);
    } else {
        queues(&[16, 10_000, 100_000], 6_000_000, &mut figures);
    }
    let json = figures.iter().map(|(name, values)| {
        let values: Vec<_> = values.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
        format!(" \"{name}\": {{{}}}", values.join(", "))
    });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/figures");
    RealDisk.create_dir_all(&folder).unwrap();
    let text = format!("{{\n{}\n}}\n", json.collect::<Vec<_>>().join(",\n"));
    RealDisk.replace(&folder.join("store.json"), text.as_bytes()).unwrap();
}

fn note(figures: &mut Figures, name: impl Into<String>, values: &[(&'static str, f64)]) {
    let name = name.into();
    let text: Vec<_> = values.iter().map(|(key, value)| format!("{key} {value:.4}")).collect();
    eprintln!("{name}: {}", text.join(", "));
    figures.insert(name, values.iter().copied().collect());
}

fn wait_for_dispatch(store: &Store) {
    while store.dispatched_offset() < store.max_physical_offset() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Appends gigabytes over files of 1 GiB: the time of all beside that of as many stretches without a new file.
fn roll(gib: u64, figures: &mut Figures) {
    const STRETCH: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let file_bytes = if gib == 1 { GIB / 4 } else { GIB };
    let store = Store::open(StoreConfig { commit_log_file_size: file_bytes, ..StoreConfig::new(dir.path()) })
        .unwrap();
    let body = [7; 1024];
    append_patiently(&store, &record(&body, PLAIN));
    let (mut plain, mut all, mut slowest_roll, mut slowest) =
        (Vec::new(), Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut end = store.max_physical_offset().get();
    while end < gib * GIB {
        let (from, started) = (end, Instant::now());
        while end < from + STRETCH {
            let (before, began) = (end, Instant::now());
            end = append_patiently(&store, &record(black_box(&body), PLAIN)).end.get();
            let took = began.elapsed();
            slowest = slowest.max(took);
            if before / file_bytes != (end - 1) / file_bytes {
                slowest_roll = slowest_roll.max(took);
            }
        }
        let took = started.elapsed();
        all += took;
        if from / file_bytes == (end - 1) / file_bytes {
            plain.push(took);
        }
    }
    let mean = plain.iter().sum::<Duration>().as_secs_f64() / plain.len() as f64;
    let stretches = (end as f64 / STRETCH as f64).max(1.0);
    note(
        figures,
        "append through roll-overs",
        &[
            ("value", mean * stretches / all.as_secs_f64()),
            ("slowest_append_at_a_roll_ms", slowest_roll.as_secs_f64() * 1e3),
            ("slowest_append_ms", slowest.as_secs_f64() * 1e3),
            ("gib_per_s", end as f64 / GIB as f64 / all.as_secs_f64()),
        ],
    );
}

/// Fills the folder and goes on as fast as it can, until it is killed.
#[allow(clippy::print_stdout, reason = "the parent process reads it")]
fn fill(root: &Path) {
    let gib: u64 = std::env::var("ROCKETPY_LONG_GIB").unwrap().parse().unwrap();
    let store = Store::open(StoreConfig::new(root)).unwrap();
    let body: usize = std::env::var("ROCKETPY_LONG_BODY").unwrap().parse().unwrap();
    let body = vec![7; body];
    let mut is_full = false;
    for number in 0.. {
        let record = NewRecord { queue_id: number % 64, ..record(&body, PLAIN) };
        let end = append_patiently(&store, &record).end.get();
        if end >= gib * GIB && !is_full {
            println!("filled");
            is_full = true;
        }
    }
}

/// Time to open what a process left that was killed while it appended as fast as it could.
fn recovery(gib: u64, body_bytes: usize, figures: &mut Figures) {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(FILL, dir.path())
        .env("ROCKETPY_LONG_GIB", gib.to_string())
        .env("ROCKETPY_LONG_BODY", body_bytes.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "filled\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let started = Instant::now();
    let store = Store::open(StoreConfig::new(dir.path())).unwrap();
    let took = started.elapsed();
    assert!(!store.recovery().clean_exit);
    let report = store.recovery();
    let behind = report.end.get() - report.verified_from.get();
    note(
        figures,
        format!("recovery after a kill, {gib} GiB of {body_bytes} B"),
        &[("value", took.as_secs_f64()), ("gib_behind_the_mark", behind as f64 / GIB as f64)],
    );
}

fn process_status(key: &str) -> f64 {
    let status = RealDisk.read(Path::new("/proc/self/status"), 1 << 16).unwrap();
    let status = String::from_utf8_lossy(&status).into_owned();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time of the threads that are running, in nanoseconds.
fn processor_time() -> f64 {
    let tasks = Path::new("/proc/self/task");
    let of_one = |task: rocketpy_env::DirEntry| {
        let times = RealDisk.read(&tasks.join(task.name).join("schedstat"), 1 << 10).ok()?;
        String::from_utf8_lossy(&times).split_whitespace().next()?.parse::<f64>().ok()
    };
    RealDisk.list(tasks).unwrap().into_iter().filter_map(of_one).sum()
}

fn open_files() -> f64 {
    RealDisk.list(Path::new("/proc/self/fd")).map_or(0.0, |entries| entries.len() as f64)
}

/// Appends and dispatch over many queues in turn, opening them again, and what they cost. The messages are so many that
/// checkpoints write and flush the queues meanwhile.
fn queues(counts: &[u32], messages: u32, figures: &mut Figures) {
    const A_TOPIC: u32 = 1000;
    let mut few = None;
    for &count in counts {
        let dir = tempfile::tempdir().unwrap();
        let root: PathBuf = dir.path().to_path_buf();
        let topics: Vec<Arc<str>> =
            (0..count.div_ceil(A_TOPIC)).map(|topic| format!("topic-{topic}").into()).collect();
        let store = Store::open(StoreConfig::new(&root)).unwrap();
        let body = [7; 128];
        let append = |store: &Store, number: u32| {
            let queue = number % count;
            let topic = &*topics[(queue / A_TOPIC) as usize];
            let record = NewRecord { topic, queue_id: queue % A_TOPIC, ..record(&body, PLAIN) };
            append_patiently(store, &record);
        };
        (0..count).for_each(|number| append(&store, number)); // makes the queues
        wait_for_dispatch(&store);
        store.shutdown().unwrap(); // with their files
        drop(store);
        let store = Store::open(StoreConfig::new(&root)).unwrap();
        let (started, before) = (Instant::now(), processor_time());
        (0..messages).for_each(|number| append(&store, number));
        wait_for_dispatch(&store);
        let rate = f64::from(messages) / started.elapsed().as_secs_f64();
        let spent_ns = processor_time() - before;
        let (files, memory) = (open_files(), process_status("RssAnon") / 1024.0);
        store.shutdown().unwrap();
        drop(store);
        let started = Instant::now();
        let store = Store::open(StoreConfig::new(&root)).unwrap();
        let opened = started.elapsed().as_secs_f64();
        assert_eq!(store.queues().len(), count as usize);
        let few = *few.get_or_insert(rate);
        note(
            figures,
            format!("{count} queues"),
            &[
                ("value", rate / few),
                ("messages_per_s", rate),
                ("processor_ns_a_message", spent_ns / f64::from(messages)),
                ("open_s", opened),
                ("open_files", files),
                ("anonymous_memory_mib", memory),
            ],
        );
    }
}
