//! One connection of a load: fills its window, writes it at once, and takes the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use bytes::BytesMut;
use hdrhistogram::Histogram;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::response;
use rocketpy_protocol::frame::decode_frame;
use rocketpy_remoting::{EncryptedStream, RequestHook as _, Signer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::request::{QueueRequests, SendRequest};
use super::{LoadOptions, LoadReport, MAX_LATENCY};
use crate::error::ClientError;

const OPERATION: &str = "sending a message of a load";
/// Longest wait for an answer, and for a connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that are read at once, and longest answer.
const READ_BYTES: usize = 64 << 10;
/// Different refusals that are told apart; further ones count together.
const MAX_REFUSALS: usize = 16;

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY.as_micros() as u64, 3).expect("the bounds are sound")
}

/// When the requests of a connection are to be sent.
#[derive(Debug)]
pub(super) struct Pace {
    next: Instant,
    /// From one message to the next.
    period: Duration,
}

impl Pace {
    /// Connection `number` of `count`, that send `rate` messages a second together, in turn a batch each.
    pub(super) fn new(began: Instant, rate: f64, number: u64, count: u64, batch: usize) -> Self {
        let between = Duration::from_secs_f64(1.0 / rate.max(1e-3));
        let turn = number as f64 * batch.max(1) as f64;
        Self { next: began + between.mul_f64(turn), period: between.mul_f64(count as f64) }
    }

    /// When the next request, of `count` messages, is to be sent; then the one behind it is the next.
    fn step(&mut self, count: u64) -> Instant {
        let now = self.next;
        self.next += self.period.mul_f64(count as f64);
        now
    }
}

/// What a connection measured.
#[derive(Debug)]
pub(super) struct Measured {
    sent: u64,
    requests: u64,
    refused: BTreeMap<(i32, String), u64>,
    latency_us: Histogram<u64>,
}

impl Measured {
    pub(super) fn add_to(self, report: &mut LoadReport) {
        report.sent += self.sent;
        report.requests += self.requests;
        for (refusal, count) in self.refused {
            *report.refused.entry(refusal).or_default() += count;
        }
        report.latency_us.add(&self.latency_us).expect("both have the same bounds");
    }

    fn refused(&mut self, code: i32, remark: Option<String>, count: u64) {
        let mut refusal = (code, remark.unwrap_or_default());
        if self.refused.len() >= MAX_REFUSALS && !self.refused.contains_key(&refusal) {
            refusal = (0, "others".to_owned());
        }
        *self.refused.entry(refusal).or_default() += count;
    }
}

#[derive(Debug)]
pub(super) struct LoadConnection {
    sends: Sends,
    stream: Stream,
}

/// A connection to a broker.
enum Stream {
    Plain(TcpStream),
    Tls(Box<EncryptedStream>),
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

/// What a connection sends, and where.
#[derive(Debug)]
struct Sends {
    address: String,
    number: usize,
    requests: Arc<[QueueRequests]>,
    /// Signs each request.
    signer: Option<Signer>,
}

impl LoadConnection {
    pub(super) async fn open(
        address: &str,
        number: usize,
        requests: &Arc<[QueueRequests]>,
        options: &LoadOptions,
    ) -> Result<Self, ClientError> {
        let connect = |reason: String| ClientError::Connect { address: address.to_owned(), reason };
        let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
        let stream = stream.map_err(|elapsed| connect(elapsed.to_string()))?;
        let stream = stream.map_err(|error| connect(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| connect(error.to_string()))?;
        let stream = match &options.tls {
            None => Stream::Plain(stream),
            Some(tls) => {
                let secured = tokio::time::timeout(PATIENCE, tls.connect(address, stream)).await;
                let secured = secured.map_err(|elapsed| connect(elapsed.to_string()))?;
                Stream::Tls(Box::new(secured.map_err(|error| no_tls(address, &error))?))
            }
        };
        let signer = options.credentials.clone().map(Signer::new);
        let sends = Sends { address: address.to_owned(), number, requests: Arc::clone(requests), signer };
        Ok(Self { sends, stream })
    }

    pub(super) async fn run(
        self,
        messages: u64,
        window: usize,
        pace: Option<Pace>,
        answered: Arc<AtomicU64>,
    ) -> Result<Measured, ClientError> {
        let Self { sends, stream } = self;
        match stream {
            Stream::Plain(mut stream) => {
                let ends = stream.split();
                sends.run(ends, messages, window, pace, answered).await
            }
            Stream::Tls(stream) => {
                let ends = tokio::io::split(stream);
                sends.run(ends, messages, window, pace, answered).await
            }
        }
    }
}

impl Sends {
    async fn run(
        &self,
        (mut reader, mut writer): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        messages: u64,
        window: usize,
        mut pace: Option<Pace>,
        answered: Arc<AtomicU64>,
    ) -> Result<Measured, ClientError> {
        let Self { address, number, requests, .. } = self;
        let mut flight = Flight::new(window);
        let (mut out, mut buffer) = (BytesMut::new(), BytesMut::with_capacity(READ_BYTES));
        let (mut begun, mut sends, mut is_unflushed) = (0, 0, false);
        while begun < messages || flight.is_under_way() {
            let now = Instant::now();
            while begun < messages
                && pace.as_ref().is_none_or(|pace| pace.next <= now)
                && let Some(slot) = flight.free.pop()
            {
                let request = requests[(sends + *number) % requests.len()].next(messages - begun);
                let count = request.messages() as u64;
                assert!(begun + count <= messages, "a load sends no more messages than it was asked for");
                let begun_at = pace.as_mut().map_or(now, |pace| pace.step(count));
                flight.under_way[slot as usize] = UnderWay { begun_at, count };
                self.write(request, slot, (*number as u64) << 48 | begun, &mut out);
                sends += 1;
                begun += count;
            }
            let next = pace.as_ref().filter(|_| begun < messages && !flight.free.is_empty());
            let until = next.map_or(now + PATIENCE, |pace| pace.next);
            is_unflushed |= !out.is_empty();
            // Both at once: a broker that waits for its answers to be read may read nothing more.
            tokio::select! {
                biased;
                written = write_some(&mut writer, &mut out), if is_unflushed => {
                    written.map_err(|error| lost(address, &error.to_string()))?;
                    is_unflushed = false;
                }
                read = reader.read_buf(&mut buffer) => {
                    match read {
                        Ok(1..) => {}
                        Ok(0) => return Err(lost(address, "the broker closed it")),
                        Err(error) => return Err(lost(address, &error.to_string())),
                    }
                    let count = flight.take(&mut buffer).map_err(|reason| bad_answer(address, reason))?;
                    answered.fetch_add(count, Ordering::Relaxed);
                }
                () = tokio::time::sleep_until(until.into()) => {
                    if next.is_none() {
                        return Err(silent(address));
                    }
                }
            }
        }
        Ok(flight.measured)
    }

    /// Appends a request, signed where there is a user.
    fn write(&self, request: &SendRequest, slot: u32, number: u64, out: &mut BytesMut) {
        let start = out.len();
        request.write(slot, number, out);
        let Some(signer) = &self.signer else { return };
        let mut unsigned = out.split_off(start);
        let frame = decode_frame(&mut unsigned, usize::MAX).expect("own frame").expect("a whole frame");
        let mut command = Command::decode(frame).expect("own request");
        signer.outgoing("", &mut command);
        command.encode(out).expect("names and body are bounded");
        assert!(out.len() - start > request.frame_bytes(), "a signature adds fields");
    }
}

/// Writes a part of `out`. An encrypting stream buffers written bytes until its flush.
async fn write_some(writer: &mut (impl AsyncWrite + Unpin), out: &mut BytesMut) -> io::Result<()> {
    if !out.is_empty() {
        writer.write_buf(out).await?;
    }
    writer.flush().await
}

/// A request.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    begun_at: Instant,
    /// Its messages.
    count: u64,
}

/// The requests that are not answered yet: their opaques are slots of the window.
#[derive(Debug)]
struct Flight {
    under_way: Vec<UnderWay>,
    free: Vec<u32>,
    measured: Measured,
}

impl Flight {
    fn new(window: usize) -> Self {
        Self {
            under_way: vec![UnderWay { begun_at: Instant::now(), count: 0 }; window],
            free: (0..window as u32).rev().collect(),
            measured: Measured { sent: 0, requests: 0, refused: BTreeMap::new(), latency_us: histogram() },
        }
    }

    fn is_under_way(&self) -> bool {
        self.free.len() < self.under_way.len()
    }

    /// Takes the answers that are whole; how many messages they answer.
    ///
    /// # Errors
    /// What is wrong with one.
    fn take(&mut self, buffer: &mut BytesMut) -> Result<u64, String> {
        let (came_at, mut count) = (Instant::now(), 0);
        while let Some(frame) = decode_frame(buffer, READ_BYTES).map_err(|error| error.to_string())? {
            let answer = Command::decode(frame).map_err(|error| error.to_string())?;
            let slot = answer.opaque as u32;
            let sent = self.under_way.get(slot as usize).ok_or("an answer to no request")?;
            if answer.code == response::SUCCESS {
                let latency = came_at.saturating_duration_since(sent.begun_at).min(MAX_LATENCY);
                self.measured.sent += sent.count;
                self.measured.latency_us.saturating_record((latency.as_micros() as u64).max(1));
            } else {
                self.measured.refused(answer.code, answer.remark, sent.count);
            }
            self.measured.requests += 1;
            self.free.push(slot);
            count += sent.count;
        }
        Ok(count)
    }
}

fn no_tls(address: &str, error: &io::Error) -> ClientError {
    let is_closed = error.kind() == io::ErrorKind::UnexpectedEof;
    ClientError::Tls { address: address.to_owned(), reason: error.to_string(), is_closed }
}

fn lost(address: &str, reason: &str) -> ClientError {
    let (address, reason) = (address.to_owned(), reason.to_owned());
    ClientError::ConnectionLost { operation: OPERATION, address, reason, may_have_been_applied: true }
}

fn silent(address: &str) -> ClientError {
    let (address, timeout_ms) = (address.to_owned(), PATIENCE.as_millis() as u64);
    ClientError::Timeout { operation: OPERATION, address, timeout_ms, may_have_been_applied: true }
}

fn bad_answer(address: &str, reason: String) -> ClientError {
    let address = address.to_owned();
    ClientError::BadAnswer { operation: OPERATION, address, reason, may_have_been_applied: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_go_in_turn_and_what_is_left_over_takes_no_more_time_than_it_is() {
        let began = Instant::now();
        let due = |pace: &Pace| (pace.next - began).as_millis();
        let mut paces = [0, 1].map(|number| Pace::new(began, 1000.0, number, 2, 100));
        assert_eq!(paces.each_ref().map(due), [0, 100]);
        for pace in &mut paces {
            pace.step(100);
        }
        assert_eq!(paces.each_ref().map(due), [200, 300]);
        paces[0].step(1);
        assert_eq!(due(&paces[0]), 202);
    }
}
