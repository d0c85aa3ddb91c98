//! The body of a broker's registration.

use rocketpy_model::{DataVersion, TopicConfig};
use rocketpy_protocol::body::{RegisterBrokerBody, TopicConfigSerializeWrapper};
use rocketpy_protocol::json;

use crate::error::Refusal;

/// Brokers older than this send the bare topic table.
const FULL_BODY_FROM_VERSION: i32 = 37;

/// The body of a registration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) data_version: DataVersion,
    pub(crate) topics: Vec<TopicConfig>,
    /// `None` when the form does not carry them.
    pub(crate) filter_servers: Option<Vec<String>>,
}

/// Reads the body of a registration.
///
/// # Source
/// docs/reference/protocol.md 2.2.1.
pub(crate) fn read(
    body: &[u8],
    compressed: bool,
    checksum: Option<i32>,
    version: i32,
) -> Result<Table, Refusal> {
    if version < FULL_BODY_FROM_VERSION && !compressed && !body.is_empty() {
        return Ok(Table::new(json::from_slice(body)?, None));
    }
    let body = RegisterBrokerBody::decode(body, compressed, checksum, version)?;
    Ok(Table::new(body.topic_config_serialize_wrapper, Some(body.filter_server_list)))
}

impl Table {
    fn new(wrapper: TopicConfigSerializeWrapper, filter_servers: Option<Vec<String>>) -> Self {
        let named =
            wrapper.topic_config_table.into_iter().map(|(name, config)| TopicConfig { name, ..config });
        Self { data_version: wrapper.data_version, topics: named.collect(), filter_servers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(filter_servers: Option<Vec<String>>) -> Table {
        let data_version = DataVersion { counter: 1, state_version: 0, changed_at_ms: 1_700_000_000_000 };
        Table { data_version, topics: vec![TopicConfig::new("TopicTest", 4)], filter_servers }
    }

    #[test]
    fn the_bare_table_of_ancient_brokers_is_read() {
        let body = br#"{"dataVersion":{"counter":1,"timestamp":1700000000000},"topicConfigTable":{"TopicTest":{"readQueueNums":4,"writeQueueNums":4}}}"#;
        assert_eq!(read(body, false, None, 36).unwrap(), table(None));
    }

    #[test]
    fn the_full_body_is_read() {
        let body = br#"{"filterServerList":["f"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{"TopicTest":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"TopicTest","topicSysFlag":0,"writeQueueNums":4}}}}"#;
        assert_eq!(read(body, false, None, 37).unwrap(), table(Some(vec!["f".into()])));
    }
}
