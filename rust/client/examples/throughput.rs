//! Measures what sending and polling cost the client: `cargo run --release -p rocketpy-client --example throughput`.
//!
//! The server is another process that stores nothing: it acknowledges sends and answers pulls with one prepared body. The
//! figures are therefore the processor time of the client alone.
#![allow(clippy::print_stdout)] // a tool for the terminal

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rocketpy_client::{
    Client, ClientConfig, ConsumerConfig, Producer, ProducerConfig, PullConsumer, SendOptions, Start,
    Subscription,
};
use rocketpy_model::{Message, PhysicalOffset, QueueOffset};
use rocketpy_protocol::body::{
    BrokerData, GetConsumerListByGroupResponseBody, HeartbeatData, QueueData, TopicRouteData,
};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    PullMessageRequestHeader, PullMessageResponseHeader, SendMessageRequestHeader, SendMessageResponseHeader,
};
use rocketpy_protocol::record::RecordFields;
use rocketpy_protocol::{Command, Header, json, properties_text};
use rocketpy_remoting::{Connection, Handler, Reply, Response, Server, ServerConfig};

const QUEUES: u32 = 8;
const BODY_BYTES: usize = 128;
const MESSAGES: usize = 2_000_000;
const PULL_MESSAGES: u64 = 4000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("peer") {
        serve();
    } else {
        measure();
    }
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

/// Serves until standard input ends.
fn serve() {
    let runtime = runtime(1);
    let server = runtime.block_on(async {
        let peer = Arc::new(NullBroker::default());
        let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), peer.clone()).unwrap();
        *peer.address.lock() = server.local_addr().to_string();
        server
    });
    println!("{}", server.local_addr());
    std::io::stdin().lines().for_each(drop);
}

#[derive(Default)]
struct NullBroker {
    address: parking_lot::Mutex<String>,
    member: parking_lot::Mutex<String>,
    pull_body: std::sync::OnceLock<Bytes>,
}

impl Handler for NullBroker {
    fn handle(&self, _: &Arc<Connection>, request: Command, reply: Reply) {
        let answer = match request.code {
            request::GET_ROUTEINFO_BY_TOPIC => ok().with_body(json::to_vec(&self.route())),
            request::HEART_BEAT => {
                let data: HeartbeatData = json::from_slice(&request.body).unwrap();
                *self.member.lock() = data.client_id;
                ok()
            }
            request::GET_CONSUMER_LIST_BY_GROUP => {
                let body =
                    GetConsumerListByGroupResponseBody { consumer_id_list: vec![self.member.lock().clone()] };
                ok().with_body(json::to_vec(&body))
            }
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => sent(&request),
            request::QUERY_CONSUMER_OFFSET => Command::bare_request(response::QUERY_NOT_FOUND),
            request::LITE_PULL_MESSAGE => {
                reply.send(self.pulled(&request));
                return;
            }
            _ => {
                let mut answer = ok();
                answer.ext.push("offset", "0");
                answer
            }
        };
        reply.send(answer);
    }
}

fn ok() -> Command {
    Command::bare_request(response::SUCCESS)
}

fn sent(send: &Command) -> Command {
    let header = SendMessageRequestHeader::of(send).unwrap();
    let count = if header.is_batch() { rocketpy_protocol::batch::items(&send.body).count() } else { 1 };
    let ids = vec!["0A00000200002A9F000000000001E240"; count].join(",");
    ok().with_header(&SendMessageResponseHeader {
        msg_id: &ids,
        queue_id: header.queue_id,
        queue_offset: 0,
        transaction_id: None,
        batch_uniq_id: None,
        recall_handle: None,
        region: Some("DefaultRegion"),
        trace_on: Some("true"),
    })
}

impl NullBroker {
    fn route(&self) -> TopicRouteData {
        let broker_name = "b".to_owned();
        let addresses = [(0, self.address.lock().clone())].into();
        TopicRouteData {
            queue_datas: vec![QueueData {
                broker_name: broker_name.clone(),
                read_queues: QUEUES,
                write_queues: QUEUES,
                perm: 6,
                sys_flag: 0,
            }],
            broker_datas: vec![BrokerData { broker_name, broker_addrs: addresses, ..BrokerData::default() }],
            ..TopicRouteData::default()
        }
    }

    /// Always the same messages; only the next offset advances.
    fn pulled(&self, pull: &Command) -> Response {
        let header = PullMessageRequestHeader::read(&pull.ext).unwrap();
        let next = header.queue_offset + PULL_MESSAGES as i64;
        let answer = ok().with_header(&PullMessageResponseHeader {
            suggest_which_broker_id: 0,
            next_begin_offset: next,
            min_offset: 0,
            max_offset: i64::MAX,
            offset_delta: None,
            topic_sys_flag: None,
            group_sys_flag: None,
            forbidden_type: None,
            region: None,
            trace_on: None,
        });
        Response::from(answer).with_body(self.pull_body.get_or_init(pull_body).clone())
    }
}

fn pull_body() -> Bytes {
    let mut properties = Vec::new();
    properties_text::push(&mut properties, "TAGS", "UA");
    properties_text::push(&mut properties, "UNIQ_KEY", "0A000001123418B4AAC2000003E80001");
    let host = "127.0.0.1:10911".parse().unwrap();
    let fields = RecordFields {
        topic: "t",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset(0),
        body: &[7; BODY_BYTES],
        properties: &properties,
        more_properties: &[],
    };
    let mut body = Vec::new();
    for offset in 0..PULL_MESSAGES {
        let start = body.len();
        let plan = fields.encode(true, &mut body).unwrap();
        plan.finish(&mut body[start..], QueueOffset(offset), PhysicalOffset(offset), 2);
    }
    body.into()
}

struct PeerProcess(Child);

impl Drop for PeerProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn measure() {
    let mut peer = Process::new(std::env::current_exe().unwrap());
    let peer = peer.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut peer = PeerProcess(peer);
    let mut address = String::new();
    BufReader::new(peer.0.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    let runtime = runtime(2);
    let config = ClientConfig::new([address.trim().to_owned()]);
    let client = Client::new(config, runtime.handle().clone()).unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            send_many(&client).await;
        }
        submit(&client).await;
        poll(&client).await;
    });
}

fn messages() -> Vec<Message> {
    let message = |number: usize| {
        let mut message = Message::new("t", vec![7; BODY_BYTES]);
        message.set_tag("UA").unwrap();
        message.set_order_key(format!("N{}", number % 1000)).unwrap();
        message
    };
    (0..MESSAGES).map(message).collect()
}

async fn send_many(client: &Client) {
    let producer = Producer::new(client, "many", ProducerConfig::default()).await.unwrap();
    let parts: Vec<Arc<[Message]>> = messages().chunks(MESSAGES / 20).map(Into::into).collect();
    let meter = Meter::start();
    for part in &parts {
        let part = part.clone();
        producer.send_many(part, SendOptions::default()).await.unwrap().check().unwrap();
    }
    meter.report("send_many", MESSAGES);
    producer.close().await.unwrap();
}

async fn submit(client: &Client) {
    let producer = Producer::new(client, "submit", ProducerConfig::default()).await.unwrap();
    let messages = messages();
    let meter = Meter::start();
    for message in messages {
        drop(producer.submit(message, SendOptions::default()).await.unwrap());
    }
    producer.flush(Duration::from_secs(60)).await.unwrap();
    meter.report("submit", MESSAGES);
    producer.close().await.unwrap();
}

async fn poll(client: &Client) {
    let config = ConsumerConfig { start: Start::Earliest, ..ConsumerConfig::default() };
    let consumer =
        PullConsumer::new(client, "poll", vec![Subscription::new("t", "*")], config).await.unwrap();
    let meter = Meter::start();
    let (mut count, mut bytes) = (0, 0);
    while count < 10 * MESSAGES {
        let batch = consumer.poll(10_000, Duration::from_secs(10)).await.unwrap();
        count += batch.len();
        bytes += batch.size_bytes();
    }
    meter.report("poll", count);
    let meter = Meter::start();
    let (mut count, mut offsets) = (0, 0);
    while count < 10 * MESSAGES {
        let batch = consumer.poll(10_000, Duration::from_secs(10)).await.unwrap();
        for message in batch.iter() {
            offsets ^= message.record().physical_offset.get();
            count += 1;
        }
    }
    meter.report("poll, each record parsed", count);
    assert!(bytes > 0 && offsets < u64::MAX);
    consumer.close().await.unwrap();
}

/// Wall and processor time of this process.
struct Meter {
    started: Instant,
    cpu_ticks: u64,
}

impl Meter {
    fn start() -> Self {
        Self { started: Instant::now(), cpu_ticks: cpu_ticks() }
    }

    fn report(&self, what: &str, messages: usize) {
        let seconds = self.started.elapsed().as_secs_f64();
        let cpu = (cpu_ticks() - self.cpu_ticks) as f64 / 100.0;
        let millions = messages as f64 / 1e6;
        println!(
            "{what:26} {:6.2} M msgs/s, {cpu:5.2} CPU-s, {:5.2} M msgs per CPU-s",
            millions / seconds,
            millions / cpu
        );
    }
}

/// User and system time of this process in hundredths of a second.
#[expect(clippy::disallowed_methods, reason = "a figure of the operating system, read by an example")]
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}
