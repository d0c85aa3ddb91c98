//! What a server would remove from a store's folder.

use std::path::PathBuf;

use pyo3::prelude::*;
use rocketpy_server::{ServerConfig, ServerError, Sources, topic_retention};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{AgedQueue, FolderSpace, LogFile, Removal, plan_folder, plan_topics};

use crate::error::raise;

/// Path, first physical offset, bytes, time of the last write in milliseconds.
type File = (PathBuf, u64, u64, i64);
/// Age in milliseconds, rule, reason.
type Why = (i64, &'static str, String);
/// Files to remove; the first file that stays, and why; used space of each folder in percent; why messages would be refused;
/// number of files; their bytes.
type Plan = (Vec<(File, Why)>, Option<(File, String)>, Vec<(PathBuf, u64)>, Option<String>, usize, u64);
/// Topic, queue id, current and next minimum offset, hours for which the topic keeps its messages.
type Aged = (String, u32, u64, u64, u64);

fn file(file: LogFile) -> File {
    (file.path, file.start.get(), file.size_bytes, file.written_at_ms)
}

fn removal(removal: Removal) -> (File, Why) {
    let reason = removal.rule.to_string();
    (file(removal.file), (removal.age_ms, removal.rule.name(), reason))
}

fn aged(queue: AgedQueue) -> Aged {
    let hours = queue.kept.as_secs() / 3600;
    (queue.topic, queue.queue_id, queue.former_min.get(), queue.min.get(), hours)
}

/// Plans with the configuration of a server: its file, the environment, the settings.
#[pyfunction]
pub(crate) fn store_retention(
    py: Python<'_>,
    path: PathBuf,
    config: Option<PathBuf>,
    settings: Vec<(String, String)>,
    asked: bool,
) -> PyResult<(Plan, Vec<Aged>)> {
    let sources = Sources { file: config, environment: Sources::environment_of_process(), settings };
    let mut config = ServerConfig::load(&sources).map_err(raise)?.broker;
    config.store.root = path;
    let store = config.store;
    // Refuses a folder that is not a store, with a hint where the log may be.
    let reader = py
        .detach(|| match store.commit_log_dir {
            None if store.read_only_commit_log_dirs.is_empty() => StoreReader::open(&store.root),
            _ => StoreReader::open_in(&store.root, store.commit_log_dirs()),
        })
        .map_err(raise)?;
    let folder = py.detach(|| plan_folder(&store, asked)).map_err(raise)?;
    let topics = py.detach(|| topic_retention(&store.root)).map_err(ServerError::from).map_err(raise)?;
    let queues = py.detach(|| plan_topics(&reader, &topics)).map_err(raise)?.into_iter().map(aged).collect();
    let situation = folder.situation;
    let files = situation.files.len();
    let total_bytes = situation.files.iter().map(|file| file.size_bytes).sum();
    let space = |folder: FolderSpace| {
        let used_percent = folder.usage.used_percent();
        (folder.path, used_percent)
    };
    let spaces = situation.log_folders.into_iter().chain([situation.queue_folder]).map(space).collect();
    let plan = folder.plan;
    let removals = plan.removals.into_iter().map(removal).collect();
    let kept = plan.kept.map(|(kept, why)| (file(kept), why.to_string()));
    let plan = (removals, kept, spaces, plan.refusal.map(|full| full.to_string()), files, total_bytes);
    Ok((plan, queues))
}
