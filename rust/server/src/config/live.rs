//! Live values: changes of a running server that later starts use too.
//!
//! They are a layer between the environment and the command line, in a file of their own beside the tables of the store. A master
//! and a slave have files of their own; snapshots do not copy them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_broker::{ConfigChange, SettingError};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::printable::beginning;
use tracing::info;

use super::key::{Key, Section};
use super::keys::KEYS;
use super::live_place::{BROKER_FILE, unset_command};
use super::{ConfigError, Known, Origin, ServerConfig, file, find, folded};

/// Ending of the file of a name server's live values; the rest of the name is that of its key-value configuration.
const NAME_SERVER_ENDING: &str = "live.properties";
/// Apache's name for the file of the key-value configuration.
pub(crate) const KV_CONFIG: &str = "kvConfig.json";
const FIRST_LINE: &str =
    "# Live values: `rocketpy config set` and `unset` change them, also while no server runs.\n";

/// Keys without a live value. A request from the network names no file, and changes neither who a broker is nor who reaches it.
pub(super) const NEVER_LIVE: [&str; 15] = [
    "storePathRootDir",
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "kvConfigPath",
    "readyFile",
    "haTokenFile",
    "haAllowedSlaves",
    "bindAddress",
    "metricsPromExporterHost",
    "brokerClusterName",
    "brokerName",
    "brokerId",
    "brokerRole",
    // Its values are secrets.
    "metricsGrpcExporterHeader",
    "haMasterAddress",
];

/// Server that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    NameServer,
    Broker,
}

impl Part {
    fn of(key: &Key) -> Self {
        if key.section == Section::NameServer { Self::NameServer } else { Self::Broker }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NameServer => "name server",
            Self::Broker => "broker",
        }
    }

    /// File of the live values; `None` for a name server that keeps nothing on disk.
    fn file(self, config: &ServerConfig) -> Option<PathBuf> {
        match self {
            Self::NameServer => {
                Some(config.name_server.kv_config_path.as_ref()?.with_extension(NAME_SERVER_ENDING))
            }
            Self::Broker => Some(config.broker.store.root.join("config").join(BROKER_FILE)),
        }
    }
}

/// Live values by key, as they were written.
type Values = BTreeMap<&'static str, String>;

/// Live values of a running server.
#[derive(Debug)]
pub(crate) struct LiveLayer {
    part: Part,
    path: Option<PathBuf>,
    /// The configuration without live values.
    base: Arc<ServerConfig>,
    values: Mutex<Values>,
}

/// Live values of the parts of a process.
#[derive(Debug)]
pub(crate) struct LiveLayers {
    pub(crate) name_server: Arc<LiveLayer>,
    pub(crate) broker: Arc<LiveLayer>,
}

impl LiveLayers {
    /// Reads the files of the parts that the process has, and sets their values where no flag or setting does.
    ///
    /// # Errors
    /// A file cannot be read, or a value cannot be used: all values at once.
    pub(crate) fn take(config: &mut ServerConfig, parts: &[Part]) -> Result<Self, ConfigError> {
        let base = Arc::new(config.clone());
        let mut take = |part: Part| {
            let path = part.file(&base).filter(|_| parts.contains(&part));
            let values = match &path {
                Some(path) => take_file(config, part, path)?,
                None => Values::new(),
            };
            let (base, values) = (base.clone(), Mutex::new(values));
            Ok::<_, ConfigError>(Arc::new(LiveLayer { part, path, base, values }))
        };
        Ok(Self { name_server: take(Part::NameServer)?, broker: take(Part::Broker)? })
    }

    /// Keys that only a start reads and that have live values, with the command that removes one of them; `None` without.
    pub(crate) fn at_start(&self) -> Option<(String, String)> {
        let mut found = Vec::new();
        for layer in [&self.broker, &self.name_server] {
            let values = layer.values.lock();
            let is_in_force = |key: &&Key| *layer.base.origin(key.name) != Origin::CommandLine;
            let at_start = KEYS.iter().filter(|key| values.contains_key(key.name) && !key.is_changeable);
            let keys = at_start.filter(is_in_force).map(|key| key.name);
            let path = layer.path.as_deref().unwrap_or(Path::new(""));
            found.extend(keys.map(|key| (key, unset_command(path, key))));
        }
        let command = found.first()?.1.clone();
        Some((found.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(" "), command))
    }
}

/// Sets the live values that a broker on the store of this configuration would have.
///
/// # Errors
/// As a start: a file cannot be read, or a value cannot be used.
pub fn take_live_values(config: &mut ServerConfig) -> Result<(), ConfigError> {
    LiveLayers::take(config, &[Part::Broker]).map(drop)
}

/// Sets the values of a file, and returns them.
fn take_file(config: &mut ServerConfig, part: Part, path: &Path) -> Result<Values, ConfigError> {
    let (mut values, mut refused) = (Values::new(), Vec::new());
    for (name, value) in read(path)? {
        match take_value(config, part, path, &name, &value) {
            Ok(key) => drop(values.insert(key, value)),
            Err(error) => refused.push(error),
        }
    }
    match refused.len() {
        0 => {}
        1 => return Err(refused.remove(0)),
        _ => return Err(ConfigError::Several(refused)),
    }
    if !values.is_empty() {
        let keys = values.keys().copied().collect::<Vec<_>>().join(" ");
        info!(keys, path = %path.display(), "live values in force");
    }
    Ok(values)
}

fn take_value(
    config: &mut ServerConfig,
    part: Part,
    path: &Path,
    name: &str,
    value: &str,
) -> Result<&'static str, ConfigError> {
    let origin = Origin::Live(path.to_owned());
    let key = match find(name) {
        Ok(Known::Used(key)) if is_allowed(key) && Part::of(key) == part => proper(key),
        Ok(_) => return Err(ConfigError::NotLive { key: beginning(name).into_owned(), origin }),
        Err(near) => return Err(unknown(name, near, origin)),
    };
    if *config.origin(key.name) == Origin::CommandLine {
        config.clone().set_from(key.name, value, &origin)?;
    } else {
        config.set_from(key.name, value, &origin)?;
    }
    Ok(key.name)
}

/// Key of a second name.
fn proper(key: &'static Key) -> &'static Key {
    key.alias_of.and_then(|name| KEYS.iter().find(|known| known.name == name)).unwrap_or(key)
}

pub(super) fn is_allowed(key: &Key) -> bool {
    // A user with the right to change the configuration must not gain others by it, or let others in.
    let is_of_security = matches!(key.section, Section::Tls | Section::Auth);
    !is_of_security && !NEVER_LIVE.contains(&key.name)
}

impl LiveLayer {
    /// The configuration without live values.
    pub(super) fn base(&self) -> &ServerConfig {
        &self.base
    }

    /// Whether a key may have a live value here.
    pub(super) fn allows(&self, key: &Key) -> bool {
        is_allowed(key) && Part::of(key) == self.part
    }

    /// Live value of a key.
    pub(super) fn value(&self, key: &'static Key) -> Option<String> {
        self.values.lock().get(proper(key).name).cloned()
    }

    /// Layer of the live values.
    pub(super) fn origin(&self) -> Origin {
        Origin::Live(self.path.clone().unwrap_or_default())
    }

    /// Permission of clients by the layers as they are now.
    pub(crate) fn broker_permission(&self) -> i32 {
        let mut config = (*self.base).clone();
        if let Some(text) = self.values.lock().get("brokerPermission")
            && *config.origin("brokerPermission") != Origin::CommandLine
        {
            // The value was checked when it was set.
            let _checked = config.set_from("brokerPermission", text, &self.origin());
        }
        config.broker.broker_permission
    }

    /// The running configuration after a change. Nothing is saved.
    ///
    /// # Errors
    /// A key is unknown or cannot be changed this way, or a value is invalid.
    pub(super) fn changed(
        &self,
        mut running: ServerConfig,
        change: &ConfigChange,
    ) -> Result<ServerConfig, SettingError> {
        let (next, changed) = self.next(&self.values.lock(), change)?;
        for key in changed.into_iter().filter(|key| key.is_changeable) {
            let lower = || key.value(&self.base).to_string();
            let text = next.get(key.name).cloned().unwrap_or_else(lower);
            running.set_from(key.name, &text, &Origin::Request).map_err(refusal)?;
        }
        Ok(running)
    }

    /// Saves a change.
    ///
    /// # Errors
    /// As [`LiveLayer::changed`]; the file cannot be written.
    pub(super) fn keep(&self, change: &ConfigChange) -> Result<Option<String>, SettingError> {
        let mut values = self.values.lock();
        let (next, changed) = self.next(&values, change)?;
        let mut notes = Vec::new();
        match &self.path {
            _ if next == *values => {}
            Some(path) => write(path, &next)?,
            None => notes.push(
                "the change ends with this process: set kvConfigPath, and live values are kept beside that file"
                    .to_owned(),
            ),
        }
        *values = next;
        let waiting: Vec<&str> =
            changed.iter().filter(|key| !key.is_changeable).map(|key| key.name).collect();
        if !waiting.is_empty() {
            notes.push(format!("takes effect at the next start: {}", waiting.join(" ")));
        }
        Ok(Some(notes.join("; ")).filter(|note| !note.is_empty()))
    }

    /// The values after a change, and the keys that it names.
    fn next(
        &self,
        values: &Values,
        change: &ConfigChange,
    ) -> Result<(Values, Vec<&'static Key>), SettingError> {
        let (mut next, mut changed) = (values.clone(), Vec::new());
        let mut scratch = (*self.base).clone();
        let pairs = file::properties_pairs(&change.text).map_err(ConfigError::Text).map_err(refusal)?;
        for (name, value) in pairs {
            let Some(key) = self.key(&name, &value, change.at_restart).map_err(refusal)? else { continue };
            scratch.set_from(key.name, &value, &Origin::Request).map_err(refusal)?;
            next.insert(key.name, value.trim().to_owned());
            changed.push(key);
        }
        for name in &change.unset {
            let key = self.removable(name).map_err(refusal)?;
            if changed.iter().any(|set| set.name == key.name) {
                return Err(SettingError::Value(format!("{} is both set and unset", key.name)));
            }
            next.remove(key.name);
            changed.push(key);
        }
        Ok((next, changed))
    }

    /// The key to set; `None` for a key with one value that has this value.
    fn key(&self, name: &str, value: &str, at_restart: bool) -> Result<Option<&'static Key>, ConfigError> {
        let key = match find(name) {
            Ok(Known::Used(key)) => proper(key),
            Ok(Known::Fixed(fixed)) => {
                return super::check_fixed(fixed, value.trim(), &Origin::Request).map(|()| None);
            }
            Ok(Known::Path(path)) => return Err(ConfigError::ReadAtStart { key: path.name }),
            Ok(Known::Meaningless(key)) => return Err(ConfigError::Meaningless { key }),
            Err(near) => return Err(unknown(name, near, Origin::Request)),
        };
        self.check_part(key)?;
        if !is_allowed(key) {
            return Err(ConfigError::ReadAtStart { key: key.name });
        }
        if *self.base.origin(key.name) == Origin::CommandLine {
            return Err(ConfigError::Overridden { key: key.name });
        }
        if !key.is_changeable && !at_restart {
            return Err(ConfigError::NeedsRestart { key: key.name });
        }
        Ok(Some(key))
    }

    fn removable(&self, name: &str) -> Result<&'static Key, ConfigError> {
        let key = match find(name) {
            Ok(Known::Used(key)) => proper(key),
            Ok(Known::Fixed(fixed)) => return Err(ConfigError::ReadAtStart { key: fixed.name }),
            Ok(Known::Path(path)) => return Err(ConfigError::ReadAtStart { key: path.name }),
            Ok(Known::Meaningless(key)) => return Err(ConfigError::Meaningless { key }),
            Err(near) => return Err(unknown(name, near, Origin::Request)),
        };
        self.check_part(key).map(|()| key)
    }

    fn check_part(&self, key: &'static Key) -> Result<(), ConfigError> {
        let owner = Part::of(key);
        if owner == self.part {
            return Ok(());
        }
        Err(ConfigError::OfOtherServer { key: key.name, owner: owner.name(), asked: self.part.name() })
    }
}

fn unknown(name: &str, near: Vec<&'static str>, origin: Origin) -> ConfigError {
    ConfigError::UnknownKey { key: beginning(name).into_owned(), near, origin }
}

fn refusal(error: ConfigError) -> SettingError {
    match error {
        ConfigError::Value { .. } | ConfigError::Text(_) => SettingError::Value(error.to_string()),
        _ => SettingError::Fixed(error.to_string()),
    }
}

/// A live value that was removed while no server ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// File that had the value.
    pub file: PathBuf,
    /// Key as the file had it.
    pub key: String,
    /// Value as the file had it.
    pub value: String,
}

/// Removes live values from the files of a store whose server does not run, or from one file, all or none.
///
/// # Errors
/// The store is in use, no file has one of the keys, or a file cannot be read or written.
///
/// # Durability
/// On return the change survives a power cut.
pub fn unset_offline(store: &Path, keys: &[String], is_dry_run: bool) -> Result<Vec<Removed>, ConfigError> {
    let is_store = RealDisk.list(store).is_ok();
    let locked = is_store.then(|| RealDisk.lock(&store.join("lock"))).transpose();
    let _lock =
        locked.map_err(|error| ConfigError::InUse { path: store.to_owned(), reason: error.to_string() })?;
    let folder = store.join("config");
    let of_name_server = folder.join(KV_CONFIG).with_extension(NAME_SERVER_ENDING);
    let files =
        if is_store { vec![folder.join(BROKER_FILE), of_name_server] } else { vec![store.to_owned()] };
    let (mut removed, mut rewritten) = (Vec::new(), Vec::new());
    for file in &files {
        let is_named = |(key, _): &(String, String)| keys.iter().any(|wanted| folded(wanted) == folded(key));
        let (gone, rest): (Vec<_>, Vec<_>) = read(file)?.into_iter().partition(is_named);
        if !gone.is_empty() {
            rewritten.push((file, rest));
        }
        removed.extend(gone.into_iter().map(|(key, value)| Removed { file: file.clone(), key, value }));
    }
    for key in keys {
        if !removed.iter().any(|one| folded(&one.key) == folded(key)) {
            return Err(ConfigError::NoLiveValue {
                key: beginning(key).into_owned(),
                path: store.to_owned(),
            });
        }
    }
    for (file, rest) in rewritten.iter().filter(|_| !is_dry_run) {
        let rest = rest.iter().map(|(key, value)| (key.as_str(), value));
        replace(file, rest).map_err(|reason| ConfigError::File { path: file.to_path_buf(), reason })?;
    }
    Ok(removed)
}

/// Reads a file; nothing where there is none.
fn read(path: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Vec::new()) };
    // A folder that is none, or is closed to this user, has no file: whoever opens the store names it.
    let is_there = RealDisk.list(folder).is_ok_and(|found| found.iter().any(|entry| entry.name == name));
    // Read as properties: the name does not end in `.toml`.
    if is_there { file::read(path) } else { Ok(Vec::new()) }
}

fn write(path: &Path, values: &Values) -> Result<(), SettingError> {
    replace(path, values.iter().map(|(key, value)| (*key, value))).map_err(|reason| {
        SettingError::NotKept(format!("cannot save the live values in {}: {reason}", path.display()))
    })
}

/// Replaces a file; its former content becomes the backup.
fn replace<'a>(path: &Path, values: impl Iterator<Item = (&'a str, &'a String)>) -> Result<(), String> {
    let lines = values.map(|(key, value)| format!("{}={}\n", escaped(key), escaped(value)));
    let text: String = std::iter::once(FIRST_LINE.to_owned()).chain(lines).collect();
    if text.len() as u64 > file::MAX_FILE_BYTES {
        return Err(format!("the values exceed {} bytes", file::MAX_FILE_BYTES));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let saved =
        RealDisk.create_dir_all(folder).and_then(|()| RealDisk.replace_keeping_backup(path, text.as_bytes()));
    saved.map_err(|error| error.to_string())
}

/// A key or a value as Java properties have it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            c if c.is_control() => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}
