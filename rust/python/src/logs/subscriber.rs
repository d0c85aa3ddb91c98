//! From `tracing` to the queue.

use std::fmt::{self, Write};

use rocketpy_env::now_ms;
use rocketpy_model::printable::is_control;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};

use super::level::{finest, is_wanted, logger_of};
use super::queue::{MAX_TEXT_BYTES, Queue, Record};

/// Takes the records of clients. False where something else takes records already: a server process writes its own lines.
pub(super) fn install() -> bool {
    set_global_default(ToQueue).is_ok()
}

struct ToQueue;

impl Subscriber for ToQueue {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match logger_of(metadata) {
            Some(_) if metadata.is_event() => Interest::sometimes(),
            _ => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        logger_of(metadata).is_some_and(|logger| is_wanted(logger, *metadata.level()))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(finest().map_or(LevelFilter::OFF, LevelFilter::from_level))
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let (Some(queue), Some(logger)) = (Queue::find(), logger_of(metadata)) else { return };
        let mut text = Text(String::new());
        event.record(&mut text);
        let (file, line) = (metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
        let made_at_ms = now_ms();
        queue.put(Record { logger, level: *metadata.level(), made_at_ms, text: text.0, file, line });
    }

    // Clients make no spans.

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Message and fields in one line: `send failed, retrying topic="orders"`. The message is the first field.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        // A failure is the end of the room, and the text is cut there.
        let _cut = match field.name() {
            "message" => write!(self, "{space}{value:?}"),
            name => write!(self, "{space}{name}={value:?}"),
        };
    }
}

/// What peers wrote into a text must not look like another line.
impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for letter in part.chars() {
            if self.0.len() + 10 > MAX_TEXT_BYTES {
                return Err(fmt::Error);
            }
            match is_control(letter) {
                true => self.0.extend(letter.escape_default()),
                false => self.0.push(letter),
            }
        }
        Ok(())
    }
}
