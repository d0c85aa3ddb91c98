//! Credentials of clients: the option `credentials`, else the environment.

use pyo3::prelude::*;
use rocketpy_client::Credentials;

use crate::error;

/// Reads the user of a client; `None`: its requests are not signed.
///
/// # Errors
/// The option is of another type, or the file or variables of the environment cannot be used.
pub(crate) fn of_option(py: Python<'_>, value: Option<Bound<'_, PyAny>>) -> PyResult<Option<Credentials>> {
    let given = match value.filter(|value| !value.is_none()) {
        None => py.import("rocketpy.base.credential_file")?.getattr("of_environment")?.call0()?,
        Some(value) => value,
    };
    if given.is_none() || matches!(given.extract(), Ok(false)) {
        return Ok(None);
    }
    if !given.is_instance(&py.import("rocketpy.config")?.getattr("Credentials")?)? {
        return Err(error::wrong_type("option credentials", "a Credentials, False or None", &given));
    }
    Ok(Some(Credentials {
        access_key: given.getattr("access_key")?.extract()?,
        secret_key: given.getattr("secret_key")?.extract()?,
        security_token: given.getattr("security_token")?.extract()?,
    }))
}
