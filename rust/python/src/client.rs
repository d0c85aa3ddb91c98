//! The client of each producer, consumer and administration object.

use pyo3::prelude::*;
use rocketpy_client::{Client, ClientConfig};
use tokio::runtime::Handle;

use crate::error::raise;
use crate::options::Options;
use crate::{logs, runtime};

/// Makes the client of one producer, consumer or administration object, from the remaining options. Opens no
/// connection.
pub(crate) fn connect(
    py: Python<'_>,
    name_servers: Vec<String>,
    options: Options<'_>,
) -> PyResult<(Client, Handle)> {
    connect_as(py, name_servers, options, None)
}

/// The same with the instance name of a client that is given none.
pub(crate) fn connect_as(
    py: Python<'_>,
    name_servers: Vec<String>,
    mut options: Options<'_>,
    default_name: Option<&str>,
) -> PyResult<(Client, Handle)> {
    let mut config = ClientConfig::new(name_servers);
    let name = options.take::<Option<String>>("instance_name")?.flatten();
    config.instance_name = name.or_else(|| default_name.map(str::to_owned));
    config.client_ip = options.take::<Option<String>>("client_ip")?.flatten();
    config.unit_name = options.take::<Option<String>>("unit_name")?.flatten();
    options.set_duration("api_timeout", &mut config.api_timeout)?;
    options.set_duration("connect_timeout", &mut config.connect_timeout)?;
    options.finish()?;
    logs::start(py)?;
    let runtime = runtime::handle()?;
    let client = Client::new(config, runtime.clone()).map_err(raise)?;
    Ok((client, runtime))
}
