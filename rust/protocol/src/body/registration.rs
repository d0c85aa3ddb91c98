//! Registrations: what brokers tell name servers about themselves, plain and compressed.

use std::collections::BTreeMap;

use rocketpy_model::{CompressionType, DataVersion, Permission, TopicConfig, TopicFilterType};
use serde::{Deserialize, Serialize};

use super::TopicConfigSerializeWrapper;
use crate::compression::{self, CompressionError, DecompressLimits};
use crate::json::{self, JsonError};
use crate::record;
use crate::wire::Reader;

/// Version ordinal from which the compressed form ends in the mapping section.
const MAPPING_SINCE: i32 = 413;

/// What a broker registers (body of code 103).
///
/// # Source
/// docs/reference/protocol.md 2.2.1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisterBrokerBody {
    /// Addresses of filter servers: 4.x only.
    pub filter_server_list: Vec<String>,
    /// The topics and their version.
    pub topic_config_serialize_wrapper: TopicConfigSerializeWrapper,
}

/// Why a registration body could not be read. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RegistrationError {
    #[error("registration body has the checksum {computed}, its header declares: {stated}")]
    Checksum { stated: i32, computed: u32 },
    #[error("cannot decompress the registration body")]
    Inflate(#[source] CompressionError),
    #[error("cannot compress the registration body")]
    Deflate(#[source] CompressionError),
    #[error("compressed registration body is truncated in part {part}")]
    Truncated { part: &'static str },
    #[error("compressed registration body has an invalid count or length in part {part}: {value}")]
    Length { part: &'static str, value: i32 },
    #[error("expected a topic in text form: {text:?}")]
    Topic { text: String },
    #[error("registration body does not match its JSON format")]
    Json(#[from] JsonError),
}

impl RegisterBrokerBody {
    /// The checksum that goes into the header of a registration: of the body bytes as sent, top bit cleared.
    #[must_use]
    pub fn checksum(body: &[u8]) -> u32 {
        record::crc31(body)
    }

    /// Reads a body, in the form that the header's `compressed` names; an empty one is an empty table.
    ///
    /// # Errors
    /// When the checksum differs (0 is not checked) or the body is malformed.
    pub fn decode(
        body: &[u8],
        compressed: bool,
        checksum: Option<i32>,
        peer_version: i32,
    ) -> Result<Self, RegistrationError> {
        if let Some(stated) = checksum.filter(|&stated| stated != 0) {
            let computed = Self::checksum(body);
            if computed as i32 != stated {
                return Err(RegistrationError::Checksum { stated, computed });
            }
        }
        if body.is_empty() {
            return Ok(Self::default());
        }
        if !compressed {
            return Ok(json::from_slice(body)?);
        }
        let limits = DecompressLimits::default();
        let inflated = compression::decompress(CompressionType::Zlib, body, &limits)
            .map_err(RegistrationError::Inflate)?;
        Self::decode_sections(&inflated, peer_version)
    }

    /// Reads the inflated form: data version, topics as text, filter servers, mappings (not used).
    ///
    /// # Errors
    /// When a length or a text is malformed.
    pub fn decode_sections(bytes: &[u8], peer_version: i32) -> Result<Self, RegistrationError> {
        let mut reader = Reader::new(bytes);
        let data_version: DataVersion = json::from_slice(section(&mut reader, "data version")?)?;
        let topics = count(&mut reader, "topic count")?;
        let mut topic_config_table = BTreeMap::new();
        for _ in 0..topics {
            let topic = parse_topic(section(&mut reader, "topic")?)?;
            topic_config_table.insert(topic.name.clone(), topic);
        }
        let filter_server_list = json::from_slice(section(&mut reader, "filter servers")?)?;
        if peer_version >= MAPPING_SINCE {
            for _ in 0..count(&mut reader, "mapping count")? {
                section(&mut reader, "mapping")?;
            }
        }
        let wrapper = TopicConfigSerializeWrapper { data_version, topic_config_table, ..Default::default() };
        Ok(Self { filter_server_list, topic_config_serialize_wrapper: wrapper })
    }

    /// Writes the form that is compressed, before compression.
    #[must_use]
    pub fn encode_sections(&self) -> Vec<u8> {
        let wrapper = &self.topic_config_serialize_wrapper;
        let mut out = Vec::new();
        push_section(&mut out, &json::to_vec(&wrapper.data_version));
        out.extend_from_slice(&(wrapper.topic_config_table.len() as u32).to_be_bytes());
        for topic in wrapper.topic_config_table.values() {
            push_section(&mut out, format_topic(topic).as_bytes());
        }
        push_section(&mut out, &json::to_vec(&self.filter_server_list));
        out.extend_from_slice(&[0; 4]);
        out
    }

    /// Writes the compressed form.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn encode_compressed(&self) -> Result<Vec<u8>, RegistrationError> {
        compression::compress(CompressionType::Zlib, compression::DEFAULT_LEVEL, &self.encode_sections())
            .map_err(RegistrationError::Deflate)
    }
}

fn count(reader: &mut Reader<'_>, part: &'static str) -> Result<u32, RegistrationError> {
    let value = reader.i32().ok_or(RegistrationError::Truncated { part })?;
    u32::try_from(value).map_err(|_| RegistrationError::Length { part, value })
}

fn section<'a>(reader: &mut Reader<'a>, part: &'static str) -> Result<&'a [u8], RegistrationError> {
    let length = count(reader, part)? as usize;
    reader.take(length).ok_or(RegistrationError::Truncated { part })
}

fn push_section(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Writes a topic as text: name, queue counts, permission, filter type, attributes; order and system flag are not carried.
fn format_topic(topic: &TopicConfig) -> String {
    let attributes = json::to_vec(&topic.attributes);
    format!(
        "{} {} {} {} {} {}",
        topic.name,
        topic.read_queues,
        topic.write_queues,
        topic.perm.bits(),
        topic.filter_type.as_str(),
        String::from_utf8_lossy(&attributes)
    )
}

fn parse_topic(bytes: &[u8]) -> Result<TopicConfig, RegistrationError> {
    let text = String::from_utf8_lossy(bytes);
    let bad = || RegistrationError::Topic { text: text.chars().take(128).collect() };
    let mut parts = text.splitn(6, ' ');
    let mut next = || parts.next().ok_or_else(bad);
    let name = next()?.to_owned();
    let read_queues = next()?.parse().map_err(|_| bad())?;
    let write_queues = next()?.parse().map_err(|_| bad())?;
    let perm = Permission(next()?.parse().map_err(|_| bad())?);
    let filter_type = match next()? {
        "MULTI_TAG" => TopicFilterType::MultiTag,
        _ => TopicFilterType::SingleTag,
    };
    let attributes = match parts.next() {
        Some(json) => json::from_str(json)?,
        None => BTreeMap::new(),
    };
    Ok(TopicConfig {
        attributes,
        name,
        perm,
        read_queues,
        write_queues,
        filter_type,
        ..TopicConfig::default()
    })
}
