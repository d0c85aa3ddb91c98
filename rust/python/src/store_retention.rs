//! What a running store would remove from its folder.

use std::path::PathBuf;

use pyo3::prelude::*;
use rocketpy_server::{ServerConfig, Sources};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{FolderSpace, LogFile, Removal, plan_folder};

use crate::error::raise;

/// Path, first physical offset, bytes, time of the last write in milliseconds.
type File = (PathBuf, u64, u64, i64);
/// Age in milliseconds, rule, reason.
type Why = (i64, &'static str, String);
/// Files that go; the first file that stays, and why; how full each folder is in percent; why messages would be refused; all
/// files; all bytes.
type Plan = (Vec<(File, Why)>, Option<(File, String)>, Vec<(PathBuf, u64)>, Option<String>, usize, u64);

fn file(file: LogFile) -> File {
    (file.path, file.start, file.size_bytes, file.written_at_ms)
}

fn removal(removal: Removal) -> (File, Why) {
    let reason = removal.rule.to_string();
    (file(removal.file), (removal.age_ms, removal.rule.name(), reason))
}

/// Plans by the configuration that a server would have: its file, the environment, the settings.
#[pyfunction]
pub(crate) fn store_retention(
    py: Python<'_>,
    path: PathBuf,
    config: Option<PathBuf>,
    settings: Vec<(String, String)>,
    asked: bool,
) -> PyResult<Plan> {
    let sources = Sources { file: config, environment: Sources::environment_of_process(), settings };
    let mut config = ServerConfig::load(&sources).map_err(raise)?.broker;
    config.store_root = path;
    let store = config.store();
    // Says what is not a store, and where its log may lie.
    py.detach(|| match config.commit_log_dir {
        Some(_) => StoreReader::open_with_log(&store.root, store.commit_log_dir()),
        None => StoreReader::open(&store.root),
    })
    .map_err(raise)?;
    let folder = py.detach(|| plan_folder(&store, asked)).map_err(raise)?;
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
    Ok((removals, kept, spaces, plan.refusal.map(|full| full.to_string()), files, total_bytes))
}
