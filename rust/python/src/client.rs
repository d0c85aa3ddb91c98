//! The client of each producer, consumer and administration object.

use pyo3::prelude::*;
use rocketpy_client::{Client, ClientConfig, Program};
use rocketpy_protocol::Language;
use tokio::runtime::Handle;

use crate::error::raise;
use crate::options::Options;
use crate::{credentials, logs, runtime, stacks, tls};

/// Makes the client of one producer, consumer or administration object, from the remaining options. Opens no
/// connection.
pub(crate) fn connect(
    py: Python<'_>,
    name_servers: Vec<String>,
    options: Options<'_>,
) -> PyResult<(Client, Handle)> {
    start(py, ClientConfig::new(name_servers), options)
}

/// The client of a member of a group: with a namespace, and the instance name of one that is given none.
pub(crate) fn connect_member(
    py: Python<'_>,
    name_servers: Vec<String>,
    mut options: Options<'_>,
    default_name: Option<&str>,
) -> PyResult<(Client, Handle)> {
    let namespace = options.take_text("namespace")?;
    let instance_name = default_name.map(str::to_owned);
    start(py, ClientConfig { namespace, instance_name, ..ClientConfig::new(name_servers) }, options)
}

fn start(py: Python<'_>, mut config: ClientConfig, mut options: Options<'_>) -> PyResult<(Client, Handle)> {
    config.tls = tls::of_option(options.take("tls")?)?;
    config.credentials = credentials::of_option(py, options.take("credentials")?)?;
    if let Some(name) = options.take_text("instance_name")? {
        config.instance_name = Some(name);
    }
    config.client_ip = options.take_text("client_ip")?;
    config.unit_name = options.take_text("unit_name")?;
    options.set_duration("api_timeout", &mut config.api_timeout)?;
    options.set_duration("connect_timeout", &mut config.connect_timeout)?;
    options.finish()?;
    config.program = Program { language: Language::Python, stacks: Some(stacks::text) };
    stacks::prepare(py)?;
    logs::start(py)?;
    let runtime = runtime::handle()?;
    let client = Client::new(config, runtime.clone()).map_err(raise)?;
    Ok((client, runtime))
}
