use rocketpy_model::{property, sys_flag};
use rocketpy_protocol::properties_text::{self, MAX_BYTES};

use crate::refusal::Refusal;

/// What the broker has to know about the properties of a message, found in one walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PropertyFacts<'a> {
    pub(crate) unique_key: Option<&'a str>,
    /// The sender wants its answer before the flush (`WAIT=false`).
    pub(crate) answer_before_flush: bool,
    /// Some property that the broker sets itself, or takes out, is there already.
    has_broker_property: bool,
    /// The delay level is to be taken out.
    drops_delay: bool,
}

/// What a delay level means for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelayLevel {
    /// The message must wait, which is not there yet.
    Refused,
    /// The message is dead: it waits for nothing any more.
    Dropped,
}

/// Looks through the properties text.
///
/// # Errors
/// The properties ask for delayed or timed delivery or for a transaction: never stored as a plain message.
pub(crate) fn inspect(text: &[u8], delay_level: DelayLevel) -> Result<PropertyFacts<'_>, Refusal> {
    let mut facts = PropertyFacts::default();
    for (name, value) in properties_text::iter_bytes(text) {
        match name {
            b"UNIQ_KEY" => facts.unique_key = str::from_utf8(value).ok(),
            b"WAIT" => facts.answer_before_flush = value.eq_ignore_ascii_case(b"false"),
            b"DELAY" if delay_level == DelayLevel::Dropped => facts.drops_delay = true,
            b"DELAY" if !is_no_level(value) => return Err(Refusal::Delay { property: property::DELAY }),
            b"TIMER_DELAY_SEC" => return Err(Refusal::Delay { property: property::TIMER_DELAY_SEC }),
            b"TIMER_DELAY_MS" => return Err(Refusal::Delay { property: property::TIMER_DELAY_MS }),
            b"TIMER_DELIVER_MS" => return Err(Refusal::Delay { property: property::TIMER_DELIVER_MS }),
            b"TRAN_MSG" if value.eq_ignore_ascii_case(b"true") => {
                return Err(Refusal::Transaction { marked_by: "property TRAN_MSG" });
            }
            b"MSG_REGION" | b"TRACE_ON" | b"CLUSTER" | b"POP_CK" | b"__CRC32#" => {
                facts.has_broker_property = true
            }
            _ => {}
        }
    }
    Ok(facts)
}

/// Delay level 0 and below mean no delay; anything that is no number is a wish that cannot be met.
fn is_no_level(value: &[u8]) -> bool {
    str::from_utf8(value)
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok())
        .is_some_and(|level| level <= 0)
}

/// # Errors
/// The flags ask for a transaction or an inner batch.
pub(crate) fn check_sys_flag(flags: i32) -> Result<(), Refusal> {
    if sys_flag::transaction(flags) != 0 {
        return Err(Refusal::Transaction { marked_by: "transaction bits of sysFlag" });
    }
    if flags & (sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP) != 0 {
        return Err(Refusal::InnerBatch { sys_flag: flags });
    }
    Ok(())
}

/// The properties that the broker adds to every message, as text.
///
/// # Source
/// docs/reference/protocol.md 2.3.1 rule 5.
pub(crate) fn broker_suffix(region_id: &str, trace_on: bool, cluster_name: &str) -> Vec<u8> {
    let mut suffix = Vec::new();
    properties_text::push(&mut suffix, property::MSG_REGION, region_id);
    properties_text::push(&mut suffix, property::TRACE_ON, if trace_on { "true" } else { "false" });
    properties_text::push(&mut suffix, property::CLUSTER, cluster_name);
    suffix
}

/// Writes the stored properties to `out`: the sender's, a unique key where there is none, the broker's.
///
/// # Errors
/// The text does not fit a record.
pub(crate) fn stored(
    text: &[u8],
    facts: &PropertyFacts<'_>,
    new_key: Option<&str>,
    suffix: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    out.clear();
    if facts.has_broker_property || facts.drops_delay {
        copy_without_broker_properties(text, facts.drops_delay, out);
    } else {
        out.extend_from_slice(text);
    }
    if out.last().is_some_and(|last| *last != property::PROPERTY_SEPARATOR) {
        out.push(property::PROPERTY_SEPARATOR);
    }
    if let Some(key) = new_key {
        properties_text::push(out, property::UNIQUE_KEY, key);
    }
    out.extend_from_slice(suffix);
    if out.len() > MAX_BYTES {
        return Err(Refusal::PropertiesTooLong { size_bytes: out.len(), limit_bytes: MAX_BYTES });
    }
    Ok(())
}

fn copy_without_broker_properties(text: &[u8], drops_delay: bool, out: &mut Vec<u8>) {
    for (name, value) in properties_text::iter_bytes(text) {
        let is_dropped = match name {
            b"MSG_REGION" | b"TRACE_ON" | b"CLUSTER" | b"POP_CK" | b"__CRC32#" => true,
            b"DELAY" => drops_delay,
            _ => false,
        };
        if !is_dropped {
            out.extend_from_slice(name);
            out.push(property::NAME_VALUE_SEPARATOR);
            out.extend_from_slice(value);
            out.push(property::PROPERTY_SEPARATOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_yet_is_refused_by_its_name() {
        for (text, name) in [
            ("DELAY\u{1}3\u{2}", "DELAY"),
            ("a\u{1}b\u{2}DELAY\u{1}soon", "DELAY"),
            ("TIMER_DELAY_SEC\u{1}1\u{2}", "TIMER_DELAY_SEC"),
            ("TIMER_DELAY_MS\u{1}1\u{2}", "TIMER_DELAY_MS"),
            ("TIMER_DELIVER_MS\u{1}1\u{2}", "TIMER_DELIVER_MS"),
            ("TRAN_MSG\u{1}true\u{2}", "TRAN_MSG"),
        ] {
            let remark = inspect(text.as_bytes(), DelayLevel::Refused).unwrap_err().to_string();
            assert!(remark.contains(name), "{remark}");
        }
        assert!(inspect(b"DELAY\x010\x02TRAN_MSG\x01false\x02", DelayLevel::Refused).is_ok());
        assert!(
            check_sys_flag(0x4).is_err() && check_sys_flag(0x8).is_err() && check_sys_flag(0xC0).is_err()
        );
        assert!(check_sys_flag(0x301).is_ok());
    }

    #[test]
    fn the_broker_sets_its_own_properties_once() {
        let suffix = broker_suffix("r", true, "c");
        let text = b"TAGS\x01a\x02CLUSTER\x01forged\x02POP_CK\x01x";
        let facts = inspect(text, DelayLevel::Refused).unwrap();
        let mut out = Vec::new();
        stored(text, &facts, Some("K"), &suffix, &mut out).unwrap();
        assert_eq!(
            out,
            b"TAGS\x01a\x02UNIQ_KEY\x01K\x02MSG_REGION\x01r\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"
        );

        let text = b"UNIQ_KEY\x01mine\x02WAIT\x01false";
        let facts = inspect(text, DelayLevel::Refused).unwrap();
        assert_eq!(facts.unique_key, Some("mine"));
        assert!(facts.answer_before_flush);
        stored(text, &facts, None, &suffix, &mut out).unwrap();
        assert!(out.starts_with(b"UNIQ_KEY\x01mine\x02WAIT\x01false\x02MSG_REGION"));
    }

    #[test]
    fn a_dead_message_loses_its_delay_level() {
        let text = b"a\x01b\x02DELAY\x013\x02";
        let facts = inspect(text, DelayLevel::Dropped).unwrap();
        let mut out = Vec::new();
        stored(text, &facts, None, b"", &mut out).unwrap();
        assert_eq!(out, b"a\x01b\x02");
    }

    #[test]
    fn properties_that_do_not_fit_with_the_brokers_own_are_refused() {
        let text = [b"a\x01".as_slice(), &vec![b'x'; MAX_BYTES - 10]].concat();
        let facts = inspect(&text, DelayLevel::Refused).unwrap();
        let refused = stored(&text, &facts, None, &broker_suffix("r", true, "c"), &mut Vec::new());
        assert!(matches!(refused, Err(Refusal::PropertiesTooLong { .. })));
    }
}
