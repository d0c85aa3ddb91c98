//! The table of configuration keys, and the values that a server's configuration gives them.

use std::path::PathBuf;

use pyo3::prelude::*;
use rocketpy_server::config::live::unset_offline;
use rocketpy_server::config::{
    Apache, FIXED, KEYS, Key, STORE_PATHS, Value, check_on_command_line, key_name,
};
use rocketpy_server::{ServerConfig, Sources};

use crate::error::raise;

/// A value as Python has it.
#[derive(IntoPyObject)]
enum Typed {
    Switch(bool),
    Number(i64),
    Text(String),
    List(Vec<String>),
    Nothing(Option<bool>),
}

impl From<Value> for Typed {
    fn from(value: Value) -> Self {
        match value {
            Value::Switch(value) => Self::Switch(value),
            Value::Number(value) => Self::Number(value),
            Value::Text(text) => Self::Text(text),
            Value::List(texts, _) => Self::List(texts),
            Value::Nothing => Self::Nothing(None),
        }
    }
}

/// One row of the table with its value: a dict in Python.
#[derive(IntoPyObject)]
pub(crate) struct ConfigKey {
    name: &'static str,
    section: &'static str,
    kind: &'static str,
    unit: Option<&'static str>,
    bounds: Option<(i64, i64)>,
    choices: Vec<&'static str>,
    description: &'static str,
    /// Absent where Apache does not have the key.
    apache_default: Option<String>,
    alias_of: Option<&'static str>,
    is_changeable: bool,
    default: Typed,
    default_text: String,
    value: Typed,
    text: String,
    layer: &'static str,
    /// The file or the variable of the layer.
    source: Option<String>,
}

fn row(key: &'static Key, config: &ServerConfig) -> ConfigKey {
    let shape = key.shape();
    let (default, value) = (key.default_value(), key.value(config));
    let origin = config.origin(key.name);
    ConfigKey {
        name: key.name,
        section: key.section.title(),
        kind: shape.kind,
        unit: shape.unit,
        bounds: shape.bounds,
        choices: shape.choices,
        description: key.description(),
        apache_default: match key.apache {
            Apache::Same => Some(default.to_string()),
            Apache::Default(text) => Some(text.to_owned()),
            Apache::Unknown => None,
        },
        alias_of: key.alias_of,
        is_changeable: key.is_changeable,
        default_text: default.to_string(),
        default: default.into(),
        text: value.to_string(),
        value: value.into(),
        layer: origin.layer(),
        source: origin.source(),
    }
}

/// Every key with the value that a server would take, and the keys given that have no meaning here.
#[pyfunction]
pub(crate) fn config_keys(
    config: Option<PathBuf>,
    settings: Vec<(String, String)>,
    environment: bool,
) -> PyResult<(Vec<ConfigKey>, Vec<&'static str>)> {
    let environment = if environment { Sources::environment_of_process() } else { Vec::new() };
    let config = ServerConfig::load(&Sources { file: config, environment, settings }).map_err(raise)?;
    Ok((KEYS.iter().map(|key| row(key, &config)).collect(), config.ignored))
}

/// Key, its only value, and the feature that another value needs.
type FixedKey = (&'static str, &'static str, &'static str);
/// Key, and the place of its path in the store.
type PathKey = (&'static str, &'static str);

/// Apache's keys that are not used but checked: those with one value, and those for a path in the store.
#[pyfunction]
pub(crate) fn config_unused_keys() -> (Vec<FixedKey>, Vec<PathKey>) {
    let fixed = FIXED.iter().map(|fixed| (fixed.name, fixed.only, fixed.feature));
    let paths = STORE_PATHS.iter().map(|path| (path.name, path.place));
    (fixed.collect(), paths.collect())
}

/// Removes live values while no server runs; file, key and value of each.
#[pyfunction]
pub(crate) fn config_unset(
    store: PathBuf,
    keys: Vec<String>,
    dry_run: bool,
) -> PyResult<Vec<(String, String, String)>> {
    let removed = unset_offline(&store, &keys, dry_run).map_err(raise)?;
    Ok(removed.into_iter().map(|one| (one.file.display().to_string(), one.key, one.value)).collect())
}

/// Refuses a key that a command line must not set, because its value is a secret.
#[pyfunction]
pub(crate) fn config_check_on_command_line(key: &str) -> PyResult<()> {
    check_on_command_line(key).map_err(raise)
}

/// The proper name of a key in any spelling.
#[pyfunction]
pub(crate) fn config_key_name(key: &str) -> PyResult<&'static str> {
    key_name(key).map_err(raise)
}
