//! A load of sends, single or in batches, for measurements and for operators.
//!
//! It speaks to brokers over connections of its own, with a request that is made once and then only gets its number and its unique
//! keys: what it takes of the processor is small beside a broker's. Nothing is sent again.

mod connection;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use connection::{LoadConnection, Measured, Pace};
use hdrhistogram::Histogram;
use request::QueueRequests;
use rocketpy_model::MessageQueue;
use rocketpy_remoting::{ClientTls, Credentials};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::error::ClientError;

/// Longest latency that is told apart from longer ones.
const MAX_LATENCY: Duration = Duration::from_secs(60);

/// What a load does.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The producer group that the messages name.
    pub group: String,
    pub body_bytes: usize,
    /// Messages of one request, as a producer makes batches of what waits. What is left over is sent message by message.
    pub batch: usize,
    /// Messages to send, over all connections.
    pub messages: u64,
    /// Connections; they go over the brokers in turn.
    pub connections: usize,
    /// Threads that serve them.
    pub threads: usize,
    /// Requests of a connection that are not answered yet. With 1 each waits for the answer to the one before.
    pub window: usize,
    /// Messages a second over all connections. A latency then counts from the moment at which the request was to be sent.
    pub rate: Option<f64>,
    /// The user that signs each request.
    pub credentials: Option<Credentials>,
    /// TLS of the connections; `None`: they are plain.
    pub tls: Option<Arc<ClientTls>>,
}

/// A queue of the topic, and the address of its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadTarget {
    /// `HOST:PORT`.
    pub address: String,
    /// Where it sends.
    pub queue: MessageQueue,
}

/// What came of a load.
#[derive(Debug, Clone)]
pub struct LoadReport {
    /// Messages that were acknowledged.
    pub sent: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Messages that were not, by the code and the remark of the answer.
    pub refused: BTreeMap<(i32, String), u64>,
    /// From the first send to the last answer.
    pub took: Duration,
    /// From a request to its answer, in microseconds.
    pub latency_us: Histogram<u64>,
}

/// The messages of connection `number` of `count`: whole batches, and what is left over at the first one.
fn share_of(options: &LoadOptions, number: u64, count: u64) -> u64 {
    let batch = options.batch.max(1) as u64;
    let (batches, rest) = (options.messages / batch, options.messages % batch);
    let share = (batches / count + u64::from(number < batches % count)) * batch;
    share + if number == 0 { rest } else { 0 }
}

/// A load that runs.
#[derive(Debug)]
pub struct SendLoad {
    runtime: Runtime,
    connections: JoinSet<Result<Measured, ClientError>>,
    answered: Arc<AtomicU64>,
    began: Instant,
    report: LoadReport,
}

impl SendLoad {
    /// Connects, and begins to send. Blocks while it connects.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::Tls`]. [`ClientError::NoQueue`] without a target.
    ///
    /// # Panics
    /// When the system gives no threads.
    pub fn start(targets: &[LoadTarget], options: &LoadOptions) -> Result<Self, ClientError> {
        let mut requests: BTreeMap<&str, Vec<QueueRequests>> = BTreeMap::new();
        for target in targets {
            let request = QueueRequests::new(&target.queue, options);
            requests.entry(&target.address).or_default().push(request);
        }
        let brokers: Vec<(&str, Arc<[QueueRequests]>)> =
            requests.into_iter().map(|(address, requests)| (address, requests.into())).collect();
        if brokers.is_empty() {
            return Err(ClientError::NoQueue { topic: String::new(), wanted: "writable" });
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("rocketpy-load")
            .enable_all()
            .build()
            .expect("the system gives threads");
        let count = options.connections.max(1);
        let mut opened = Vec::with_capacity(count);
        for number in 0..count {
            let (address, requests) = &brokers[number % brokers.len()];
            opened.push(runtime.block_on(LoadConnection::open(address, number, requests, options))?);
        }
        let shares = (0..count as u64).map(|number| share_of(options, number, count as u64));
        let shared: u64 = shares.sum();
        assert_eq!(shared, options.messages, "the connections of a load send all its messages");
        let (answered, began) = (Arc::<AtomicU64>::default(), Instant::now());
        let mut connections = JoinSet::new();
        for (number, connection) in opened.into_iter().enumerate() {
            let (number, count) = (number as u64, count as u64);
            let messages = share_of(options, number, count);
            let pace = options.rate.map(|rate| Pace::new(began, rate, number, count, options.batch));
            let run = connection.run(messages, options.window.max(1), pace, Arc::clone(&answered));
            connections.spawn_on(run, runtime.handle());
        }
        let report = LoadReport {
            sent: 0,
            requests: 0,
            refused: BTreeMap::new(),
            took: Duration::ZERO,
            latency_us: connection::histogram(),
        };
        Ok(Self { runtime, connections, answered, began, report })
    }

    /// Messages that were answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits up to `at_most` for the load to finish; `None` while it is still running.
    ///
    /// # Errors
    /// [`ClientError::ConnectionLost`], [`ClientError::Timeout`]: a connection has ended, or a broker does not answer.
    pub fn wait(&mut self, at_most: Duration) -> Result<Option<LoadReport>, ClientError> {
        let (connections, report) = (&mut self.connections, &mut self.report);
        let ended = self.runtime.block_on(async {
            let join = async {
                while let Some(joined) = connections.join_next().await {
                    match joined {
                        Ok(measured) => measured?.add_to(report),
                        Err(error) => std::panic::resume_unwind(error.into_panic()),
                    }
                }
                Ok(())
            };
            tokio::time::timeout(at_most, join).await
        });
        match ended {
            Err(_still_runs) => Ok(None),
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => {
                self.report.took = self.began.elapsed();
                Ok(Some(self.report.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_whole_batches_and_the_first_sends_what_is_left_over() {
        let options = LoadOptions {
            group: "g".to_owned(),
            body_bytes: 1,
            batch: 100,
            messages: 5050,
            connections: 64,
            threads: 1,
            window: 1,
            rate: None,
            credentials: None,
            tls: None,
        };
        let shares: Vec<_> = (0..64).map(|number| share_of(&options, number, 64)).collect();
        assert_eq!((shares[0], shares[1], shares[49], shares[50]), (150, 100, 100, 0));
        assert_eq!(shares.iter().sum::<u64>(), 5050);
        let single = LoadOptions { batch: 1, ..options };
        assert_eq!((0..64).map(|number| share_of(&single, number, 64)).sum::<u64>(), 5050);
    }
}
