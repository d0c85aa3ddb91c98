//! The pipe into which all processes write their lines.

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::super::journal::Journal;
use crate::checker::Rule;
use crate::history::{self, Event};

/// The harness's end of the pipe, and the thread that reads it.
pub(super) struct Pipe {
    writer: PipeWriter,
    reader: Option<JoinHandle<()>>,
}

impl Pipe {
    pub(super) fn new(journal: Arc<Mutex<Journal>>) -> Result<Self, String> {
        let (reader, writer) = io::pipe().map_err(|error| error.to_string())?;
        let reader = std::thread::spawn(move || read(reader, &journal));
        Ok(Self { writer, reader: Some(reader) })
    }

    /// An end for a process.
    pub(super) fn end(&self) -> Result<PipeWriter, String> {
        self.writer.try_clone().map_err(|error| error.to_string())
    }

    /// Writes a line behind those that were written before, by whatever process.
    pub(super) fn say(&self, event: &Event) {
        let mut line = Vec::new();
        let written = history::write(std::slice::from_ref(event), &mut line);
        let written = written.and_then(|()| (&self.writer).write_all(&line));
        debug_assert!(written.is_ok(), "its reader ends with the last line");
    }

    /// Waits until everything is read. Nobody writes after [`Event::End`].
    pub(super) fn join(&mut self) {
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

fn read(reader: PipeReader, journal: &Mutex<Journal>) {
    for line in BufReader::new(reader).lines() {
        let events = line.map_err(|error| error.to_string());
        let events = events.and_then(|line| history::read(&line).map_err(|error| format!("{error}: {line}")));
        let mut journal = journal.lock();
        match events {
            Ok(events) => {
                let is_last = events.contains(&Event::End);
                events.into_iter().for_each(|event| journal.push(event));
                if is_last {
                    return;
                }
            }
            Err(text) => journal.wrong(Rule::Alive, text),
        }
    }
}
