//! What a server would remove from a store's folder, as the dataclasses of `rocketpy.store.retention_plan`.

use std::path::PathBuf;

use pyo3::prelude::*;
use rocketpy_server::config::live::take_live_values;
use rocketpy_server::{ServerConfig, ServerError, Sources, topic_retention};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{FolderSpace, Keep, LogFile, plan_folder, plan_topics};
use serde::Serialize;

use crate::error::raise;
use crate::named;

#[derive(Serialize)]
struct RetentionPlan {
    removals: Vec<Removal>,
    kept: Option<KeptFile>,
    aged_queues: Vec<AgedQueue>,
    folders: Vec<FolderUsage>,
    refusal: Option<String>,
    log_files: usize,
    log_bytes: u64,
}

#[derive(Serialize)]
struct Removal {
    path: PathBuf,
    start: u64,
    size_bytes: u64,
    written_at_ms: i64,
    age: Age,
    rule: &'static str,
    reason: String,
}

#[derive(Serialize)]
#[serde(rename = "timedelta")]
struct Age {
    milliseconds: i64,
}

#[derive(Serialize)]
struct KeptFile {
    path: PathBuf,
    start: u64,
    size_bytes: u64,
    written_at_ms: i64,
    reason: String,
}

#[derive(Serialize)]
struct AgedQueue {
    topic: String,
    queue_id: u32,
    min_offset: u64,
    new_min_offset: u64,
    reason: String,
}

#[derive(Serialize)]
struct FolderUsage {
    path: PathBuf,
    used_percent: u64,
}

fn removal(removal: rocketpy_store::Removal) -> Removal {
    let LogFile { path, start, size_bytes, written_at_ms } = removal.file;
    let (age, reason) = (Age { milliseconds: removal.age_ms }, removal.rule.to_string());
    Removal { path, start: start.get(), size_bytes, written_at_ms, age, rule: removal.rule.name(), reason }
}

fn kept(file: LogFile, why: &Keep) -> KeptFile {
    let LogFile { path, start, size_bytes, written_at_ms } = file;
    KeptFile { path, start: start.get(), size_bytes, written_at_ms, reason: why.to_string() }
}

fn aged(queue: rocketpy_store::AgedQueue) -> AgedQueue {
    let hours = queue.kept.as_secs() / 3600;
    AgedQueue {
        topic: queue.topic,
        queue_id: queue.queue_id,
        min_offset: queue.former_min.get(),
        new_min_offset: queue.min.get(),
        reason: format!("older than {hours} h, the retention.hours of the topic"),
    }
}

fn usage(folder: FolderSpace) -> FolderUsage {
    let used_percent = folder.usage.used_percent();
    FolderUsage { path: folder.path, used_percent }
}

/// Plans with the configuration of a server: its file, the environment, the live values of the store, the settings.
#[pyfunction]
pub(crate) fn store_retention(
    py: Python<'_>,
    path: PathBuf,
    config: Option<PathBuf>,
    settings: Vec<(String, String)>,
    asked: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let sources = Sources { file: config, environment: Sources::environment_of_process(), settings };
    let mut config = ServerConfig::load(&sources).map_err(raise)?;
    config.broker.store.root = path;
    take_live_values(&mut config).map_err(raise)?;
    let store = config.broker.store;
    // Refuses a folder that is not a store, with a hint where the log may be.
    let reader = py
        .detach(|| match store.commit_log_dir {
            None if store.read_only_commit_log_dirs.is_empty() => StoreReader::open(&store.root),
            _ => StoreReader::open_in(&store.root, store.commit_log_dirs()),
        })
        .map_err(raise)?;
    let folder = py.detach(|| plan_folder(&store, asked)).map_err(raise)?;
    let topics = py.detach(|| topic_retention(&store.root)).map_err(ServerError::from).map_err(raise)?;
    let queues = py.detach(|| plan_topics(&reader, &topics)).map_err(raise)?;
    let (situation, plan) = (folder.situation, folder.plan);
    let plan = RetentionPlan {
        removals: plan.removals.into_iter().map(removal).collect(),
        kept: plan.kept.map(|(file, why)| kept(file, &why)),
        aged_queues: queues.into_iter().map(aged).collect(),
        log_files: situation.files.len(),
        log_bytes: situation.files.iter().map(|file| file.size_bytes).sum(),
        folders: situation.log_folders.into_iter().chain([situation.queue_folder]).map(usage).collect(),
        refusal: plan.refusal.map(|full| full.to_string()),
    };
    named::to_python(py, &plan)
}
