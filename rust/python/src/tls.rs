//! TLS of clients: the option `tls`, else the environment.

use std::env::var_os;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use rocketpy_client::{ClientTls, ClientTlsFiles, TlsError, Trust};
use rocketpy_model::printable::printable;

use crate::error;

/// Turns TLS on or off for clients without the option.
const SWITCH: &str = "ROCKETPY_TLS";
const CA: &str = "ROCKETPY_TLS_CA";
const CERT: &str = "ROCKETPY_TLS_CERT";
const KEY: &str = "ROCKETPY_TLS_KEY";
const KEY_PASSWORD: &str = "ROCKETPY_TLS_KEY_PASSWORD";

/// Reads certificates and keys of a client; `None`: its connections are plain.
///
/// # Errors
/// The option is of another type, the switch in the environment is no switch, or a file cannot be used.
pub(crate) fn of_option(value: Option<Bound<'_, PyAny>>) -> PyResult<Option<Arc<ClientTls>>> {
    let files = match value.filter(|value| !value.is_none()) {
        None => of_environment()?,
        Some(value) => match value.extract::<bool>() {
            Ok(is_wanted) => is_wanted.then(ClientTlsFiles::default),
            Err(_) => Some(of_object(&value)?),
        },
    };
    files.map(ClientTls::load).transpose().map_err(|error| refused(&error))
}

fn of_object(value: &Bound<'_, PyAny>) -> PyResult<ClientTlsFiles> {
    let py = value.py();
    if !value.is_instance(&py.import("rocketpy.config")?.getattr("Tls")?)? {
        return Err(error::wrong_type("option tls", "a Tls, True, False or None", value));
    }
    let path = |name: &str| value.getattr(name)?.extract::<Option<PathBuf>>();
    let trust = match path("ca_file")? {
        _ if !value.getattr(intern!(py, "verify"))?.extract::<bool>()? => Trust::Anybody,
        Some(ca) => Trust::Authorities(ca),
        None => Trust::System,
    };
    let key_password = value.getattr(intern!(py, "key_password"))?.extract()?;
    Ok(ClientTlsFiles { trust, cert: path("cert_file")?, key: path("key_file")?, key_password })
}

fn of_environment() -> PyResult<Option<ClientTlsFiles>> {
    let path = |name: &str| var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let (ca, cert, key) = (path(CA), path(CERT), path(KEY));
    let switch = var_os(SWITCH).map(|text| text.to_string_lossy().to_lowercase());
    let is_wanted = match switch.as_deref() {
        Some("1" | "true") => true,
        Some("0" | "false") => false,
        None | Some("") => ca.is_some() || cert.is_some(),
        Some(other) => return Err(error::invalid(format!("{SWITCH} must be 1, true, 0 or false: {other}"))),
    };
    let key_password = var_os(KEY_PASSWORD).and_then(|text| text.into_string().ok());
    let trust = ca.map_or(Trust::System, Trust::Authorities);
    Ok(is_wanted.then_some(ClientTlsFiles { trust, cert, key, key_password }))
}

fn refused(error: &TlsError) -> PyErr {
    error::invalid_with(
        printable(&format!("cannot use TLS: {error}")).into_owned(),
        error.hint().map(str::to_owned),
    )
}
