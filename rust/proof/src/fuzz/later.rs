//! What filters and what waits: SQL expressions, recall handles, delay levels, the files of timers.

use rocketpy_filter::SqlFilter;
use rocketpy_protocol::disk::{TimerCheckpoint, TimerSlot, TimerUnit};
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_store::DelayLevels;

use super::Seed;

/// An expression, and behind a line feed the value of every property.
pub(super) fn sql(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (expression, value) = text.split_once('\n').unwrap_or((&text, ""));
    if let Ok(filter) = SqlFilter::parse(expression) {
        for property in [None, Some(""), Some(value)] {
            let _ = filter.evaluate(|_| property);
        }
    }
}

/// Handles and levels write to themselves.
pub(super) fn text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(handle) = text.parse::<RecallHandle>() {
        let again =
            handle.to_string().parse::<RecallHandle>().expect("a handle that was read can be written");
        assert_eq!(again, handle, "a handle writes to itself");
    }
    if let Ok(levels) = text.parse::<DelayLevels>() {
        assert_eq!(levels.to_string().parse(), Ok(levels.clone()), "levels write to themselves");
        assert!((0..=i64::from(levels.count()) + 1).all(|level| levels.ms(level) > 0));
    }
}

/// Slots, units and the checkpoint of timers.
pub(super) fn timer(bytes: &[u8]) {
    if let Some(checkpoint) = TimerCheckpoint::decode(bytes) {
        assert_eq!(
            TimerCheckpoint::decode(&checkpoint.encode_file()),
            Some(checkpoint),
            "it writes to itself"
        );
    }
    if let Some(unit) = TimerUnit::decode(bytes) {
        assert_eq!(TimerUnit::decode(&unit.encode()), Some(unit), "it writes to itself");
    }
    if let Some(slot) = bytes.first_chunk() {
        let slot = TimerSlot::decode(slot);
        assert_eq!(TimerSlot::decode(&slot.encode()), slot, "it writes to itself");
    }
}

pub(super) fn expressions() -> Vec<Seed> {
    let named = [
        ("compare", "a > 5 AND b = 'x' OR NOT c IS NULL\n7"),
        ("between", "(a BETWEEN 1 AND 2.5) AND a NOT BETWEEN -3 AND 4\n2"),
        ("in", "a IN ('x', 'y', '') AND b NOT IN ('z')\nx"),
        ("text", "a CONTAINS 'b' AND a STARTSWITH 'c' AND NOT a ENDSWITH 'd''e'\nabc"),
        ("truth", "TRUE AND (FALSE OR a = TRUE)\ntrue"),
        ("deep", "((((((((a IS NOT NULL))))))))\n"),
    ];
    named.into_iter().map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).collect()
}

pub(super) fn texts() -> Vec<Seed> {
    let handle = RecallHandle {
        topic: "orders".to_owned(),
        broker_name: "broker-a".to_owned(),
        deliver_at_ms: 1_700_000_000_123,
        unique_key: "K".to_owned(),
    };
    vec![
        ("handle".to_owned(), handle.to_string().into_bytes()),
        ("levels".to_owned(), DelayLevels::APACHE.as_bytes().to_vec()),
    ]
}

pub(super) fn timers() -> Vec<Seed> {
    let checkpoint =
        TimerCheckpoint { read_ms: 1_700_000_000_000, queue_offset: 9, ..TimerCheckpoint::default() };
    let slot = TimerSlot { second: 1_700_000_000, first: 0, last: 52, messages: 2 };
    let unit = [&[0, 0, 0, 52][..], &[0; 48]].concat();
    vec![
        ("checkpoint".to_owned(), checkpoint.encode_file()),
        ("slot".to_owned(), slot.encode().to_vec()),
        ("unit".to_owned(), unit),
    ]
}
