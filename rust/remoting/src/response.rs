//! What a request is answered with.
use bytes::Bytes;
use rocketpy_protocol::{Command, code};

/// An answer: a command, and a body that may consist of many slices.
#[derive(Debug)]
pub struct Response {
    /// Code, remark, header fields. Its own `body` comes before the slices. [`Reply::send`](crate::Reply::send) sets `opaque`,
    /// the response bit and the serialization.
    pub command: Command,
    /// Body slices, written as they are, without a copy.
    pub body: Vec<Bytes>,
    /// Bytes of the slices that are parts of mapped files: they cost no memory of their own while they wait to be written. Default 0.
    pub mapped_bytes: usize,
    /// Why the request was refused, as an [`AnswerObserver`](crate::AnswerObserver) counts it: one of few words. Not written.
    pub refused_for: Option<&'static str>,
}

impl Response {
    /// A response with code and remark, without header fields and body.
    pub fn status(code: i32, remark: impl Into<String>) -> Self {
        Self::from(Command::bare_response(code).with_remark(remark))
    }

    /// A response SUCCESS without header fields and body.
    pub fn success() -> Self {
        Self::from(Command::bare_response(code::response::SUCCESS))
    }

    /// Refuses a request code that this process does not know.
    pub fn not_supported(request_code: i32) -> Self {
        let remark = match code::request::name_of(request_code) {
            Some(name) => format!("request code {request_code} ({name}) is not supported here"),
            None => format!("request code {request_code} is not supported"),
        };
        Self::status(code::response::REQUEST_CODE_NOT_SUPPORTED, remark)
    }

    #[must_use]
    pub fn with_body(mut self, slice: Bytes) -> Self {
        self.body.push(slice);
        self
    }

    pub fn body_len(&self) -> usize {
        self.command.body.len() + self.body.iter().map(Bytes::len).sum::<usize>()
    }
}

impl From<Command> for Response {
    fn from(command: Command) -> Self {
        Self { command, body: Vec::new(), mapped_bytes: 0, refused_for: None }
    }
}
