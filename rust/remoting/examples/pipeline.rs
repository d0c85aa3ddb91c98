//! Small pipelined requests against the remoting server: measures the cost of remoting and codec.
//!
//! ```text
//! pipeline serve [late]                                 prints its address, and its CPU time when the last peer has left;
//!                                                       late: another thread answers, as after a flush
//! pipeline raw    ADDR CONNECTIONS REQUESTS BODY_BYTES  a peer made of bytes: the server's own limit
//! pipeline client ADDR TASKS REQUESTS BODY_BYTES        the client of this crate, one connection per task
//! ```
//!
//! A request is a SEND_MESSAGE_V2 with JSON header. Its header is read and answered as a broker would; nothing is stored.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a tool for the terminal, reading its own CPU time from /proc

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rocketpy_protocol::header::{
    SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use rocketpy_protocol::{Command, code};
use rocketpy_remoting::{
    Client, ClientConfig, Connection, Handler, Reply, Response, Server, ServerConfig, cork,
};

/// Requests under way on each connection of the raw peer.
const WINDOW: usize = 2000;
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;

#[derive(Default)]
struct Sink {
    peers: AtomicUsize,
    requests: AtomicI64,
    late: Option<mpsc::Sender<(Reply, Response)>>,
}

impl Handler for Sink {
    fn handle(&self, _: &Arc<Connection>, request: Command, reply: Reply) {
        let Ok(header) = SendMessageRequestHeader::of(&request) else {
            return reply.send(Response::status(code::response::INVALID_PARAMETER, "no send header"));
        };
        let queue_offset = self.requests.fetch_add(1, Ordering::Relaxed);
        let answer = SendMessageResponseHeader {
            msg_id: "0A00000200002A9F000000000001E240",
            queue_id: header.queue_id,
            queue_offset,
            transaction_id: None,
            batch_uniq_id: None,
            recall_handle: None,
            region: Some("DefaultRegion"),
            trace_on: Some("true"),
        };
        let answer = Command::response(&request, code::response::SUCCESS).with_header(&answer);
        match &self.late {
            Some(late) => late.send((reply, answer.into())).expect("the other thread lives"),
            None => reply.send(answer),
        }
    }

    fn connected(&self, _: &Arc<Connection>) {
        self.peers.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&self, _: &Arc<Connection>) {
        if self.peers.fetch_sub(1, Ordering::Relaxed) == 1 {
            println!(
                "server: {} requests, {:.2} CPU-s in all",
                self.requests.load(Ordering::Relaxed),
                cpu_seconds()
            );
        }
    }
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / CLOCK_TICKS_PER_SECOND
}

fn request(body_bytes: usize) -> Command {
    let header = SendMessageRequestHeader {
        producer_group: "bench",
        topic: "flights",
        default_topic: "TBW102",
        default_topic_queue_nums: 8,
        queue_id: 3,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        flag: 0,
        properties: Some(
            "UNIQ_KEY\u{1}0A000001123418B4AAC2000003E80001\u{2}WAIT\u{1}true\u{2}TAGS\u{1}UA\u{2}",
        ),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        max_reconsume_times: None,
        batch: Some(false),
        broker_name: None,
    };
    Command::request(code::request::SEND_MESSAGE_V2, &SendMessageRequestHeaderV2(header))
        .with_body(vec![b'x'; body_bytes])
}

/// Answers from another thread, all waiting requests at a time.
fn answer_late() -> mpsc::Sender<(Reply, Response)> {
    let (sender, receiver) = mpsc::channel::<(Reply, Response)>();
    std::thread::spawn(move || {
        while let Ok(first) = receiver.recv() {
            let _cork = cork();
            for (reply, answer) in std::iter::once(first).chain(receiver.try_iter()) {
                reply.send(answer);
            }
        }
    });
    sender
}

fn serve(late: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = ServerConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let sink = Sink { late: late.then(answer_late), ..Sink::default() };
        let server = Server::bind(config, Arc::new(sink)).expect("binds");
        println!("{}", server.local_addr());
        std::future::pending::<()>().await;
    });
}

/// Writes windows of frames and reads as many answers, which it counts by their frame lengths.
fn raw_peer(addr: &str, requests: usize, body_bytes: usize) {
    let mut stream = TcpStream::connect(addr).expect("connects");
    let mut frame = BytesMut::new();
    request(body_bytes).encode(&mut frame).expect("encodes");
    let burst = frame.repeat(WINDOW / 2);
    let (mut sent, mut answered) = (0, 0);
    let (mut buffer, mut have) = (vec![0; 256 * 1024], 0);
    while answered < requests {
        while sent < requests && sent - answered <= WINDOW / 2 {
            stream.write_all(&burst).expect("writes");
            sent += WINDOW / 2;
        }
        have += stream.read(&mut buffer[have..]).expect("reads");
        let mut at = 0;
        while let Some(length) = buffer[at..have].first_chunk::<4>() {
            let end = at + 4 + u32::from_be_bytes(*length) as usize;
            if end > have {
                break;
            }
            (at, answered) = (end, answered + 1);
        }
        buffer.copy_within(at..have, 0);
        have -= at;
    }
}

fn raw(addr: &str, connections: usize, requests: usize, body_bytes: usize) {
    std::thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(move || raw_peer(addr, requests / connections, body_bytes));
        }
    });
}

fn client(addr: &str, tasks: usize, requests: usize, body_bytes: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let workers = (0..tasks).map(|_| {
            let addr = addr.to_owned();
            tokio::spawn(async move {
                let client =
                    Client::new(ClientConfig { max_outstanding_calls: WINDOW, ..ClientConfig::default() });
                let connection = client.connection(&addr, Duration::from_secs(3)).await.expect("connects");
                let (template, answered) = (request(body_bytes), Arc::new(AtomicUsize::new(0)));
                let each = requests / tasks;
                for _ in 0..each {
                    let counter = Arc::clone(&answered);
                    let count = move |answer: Result<Command, _>| {
                        assert_eq!(answer.expect("an answer").code, 0);
                        counter.fetch_add(1, Ordering::Relaxed);
                    };
                    let call = connection.start_call_with(template.clone(), Duration::from_secs(30), count);
                    call.await.expect("queued");
                }
                while answered.load(Ordering::Relaxed) < each {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.expect("runs");
        }
    });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<usize>().expect("a number");
    let load = match arguments.first().map(String::as_str) {
        Some("serve") => return serve(arguments.get(1).is_some_and(|late| late == "late")),
        Some("raw") if arguments.len() == 5 => raw,
        Some("client") if arguments.len() == 5 => client,
        _ => return println!("pipeline serve [late] | raw|client ADDR CONNECTIONS REQUESTS BODY_BYTES"),
    };
    let started = Instant::now();
    load(&arguments[1], number(2), number(3), number(4));
    let seconds = started.elapsed().as_secs_f64();
    let rate = f64::from(u32::try_from(number(3)).expect("fewer requests")) / seconds;
    println!("load: {seconds:.2} s, {rate:.0} requests/s, {:.2} CPU-s of its own", cpu_seconds());
}
