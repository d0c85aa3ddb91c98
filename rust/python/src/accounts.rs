//! Users of servers that do not run.

use std::path::PathBuf;

use pyo3::prelude::*;
use rocketpy_auth::{UserType, put_offline};

use crate::error::raise;

/// Creates or changes a user in the store of a stopped broker. Returns the users file, and whether the user is new.
#[pyfunction]
pub(crate) fn put_user_offline(
    store: PathBuf,
    name: &str,
    password: &str,
    is_super: bool,
    dry_run: bool,
) -> PyResult<(String, bool)> {
    let kind = if is_super { UserType::Super } else { UserType::Normal };
    let put = put_offline(&store, name, password, kind, dry_run).map_err(raise)?;
    Ok((put.file.display().to_string(), put.is_new))
}
