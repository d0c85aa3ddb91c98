//! Scripted name servers and brokers: real sockets, answers chosen by the test.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_client::{Client, ClientConfig};
use rocketpy_protocol::body::{
    BrokerData, GetConsumerListByGroupResponseBody, HeartbeatData, QueueData, TopicRouteData,
};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    PullMessageResponseHeader, SendMessageRequestHeader, SendMessageResponseHeader,
};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Connection, Handler, Reply, Server, ServerConfig};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// No test waits longer than this, not even on a disk that stalls.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a peer does with a request.
pub(crate) enum Act {
    Answer(Command),
    /// Keeps the request until the test answers it. A commit is stored at once.
    Hold,
    /// The peer's default answer.
    Default,
}

type Script = Box<dyn FnMut(&Command) -> Act + Send>;

/// One server.
pub(crate) struct Peer {
    pub address: String,
    inner: Arc<Inner>,
    server: Server,
}

struct Inner {
    state: Mutex<State>,
    happened: Notify,
}

#[derive(Default)]
struct State {
    script: Option<Script>,
    seen: Vec<Command>,
    held: VecDeque<(Command, Reply)>,
    routes: BTreeMap<String, TopicRouteData>,
    members: BTreeMap<String, Vec<String>>,
    /// Committed offsets by group, topic and queue id.
    offsets: BTreeMap<[String; 3], String>,
    connections: Vec<Arc<Connection>>,
    next_offset: i64,
}

impl Handler for Inner {
    fn handle(&self, _: &Arc<Connection>, request: Command, reply: Reply) {
        let mut state = self.state.lock();
        state.seen.push(request.clone());
        let act = state.script.as_mut().map_or(Act::Default, |script| script(&request));
        if request.code == request::UPDATE_CONSUMER_OFFSET && !matches!(act, Act::Answer(_)) {
            let offset = request.ext.get("commitOffset").unwrap().to_owned();
            state.offsets.insert(offset_key(&request), offset);
        }
        let act = match act {
            Act::Default => state.by_default(&request),
            act => act,
        };
        match act {
            Act::Answer(answer) => reply.send(answer),
            Act::Hold | Act::Default => state.held.push_back((request, reply)),
        }
        drop(state);
        self.happened.notify_waiters();
    }

    fn connected(&self, connection: &Arc<Connection>) {
        self.state.lock().connections.push(connection.clone());
    }

    fn disconnected(&self, _: &Arc<Connection>) {
        self.happened.notify_waiters();
    }
}

fn offset_key(command: &Command) -> [String; 3] {
    ["consumerGroup", "topic", "queueId"].map(|name| command.ext.get(name).unwrap().to_owned())
}

impl State {
    fn by_default(&mut self, command: &Command) -> Act {
        let answer = match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => {
                match self.routes.get(command.ext.get("topic").unwrap_or_default()) {
                    Some(route) => ok().with_body(json::to_vec(route)),
                    None => status(response::TOPIC_NOT_EXIST, "no such topic"),
                }
            }
            request::HEART_BEAT => {
                let data: HeartbeatData = json::from_slice(&command.body).unwrap();
                for consumer in data.consumer_data_set {
                    let members = self.members.entry(consumer.group_name).or_default();
                    if !members.contains(&data.client_id) {
                        members.push(data.client_id.clone());
                    }
                }
                ok()
            }
            request::GET_CONSUMER_LIST_BY_GROUP => {
                match self.members.get(command.ext.get("consumerGroup").unwrap_or_default()) {
                    Some(members) => {
                        let body = GetConsumerListByGroupResponseBody { consumer_id_list: members.clone() };
                        ok().with_body(json::to_vec(&body))
                    }
                    None => status(response::SYSTEM_ERROR, "no members"),
                }
            }
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
                let messages = messages_of(command) as i64;
                self.next_offset += messages;
                sent(command, self.next_offset - messages)
            }
            request::QUERY_CONSUMER_OFFSET => match self.offsets.get(&offset_key(command)) {
                Some(offset) => with(ok(), "offset", offset),
                None => status(response::QUERY_NOT_FOUND, "no offset"),
            },
            request::GET_MAX_OFFSET | request::GET_MIN_OFFSET => with(ok(), "offset", "0"),
            // A member that only asks whether its offset is still there does not wait for messages.
            request::LITE_PULL_MESSAGE if command.ext.get("suspendTimeoutMillis") == Some("0") => {
                let begin = command.ext.get("queueOffset").unwrap_or("0");
                let answer = with(status(response::PULL_NOT_FOUND, "no message"), "nextBeginOffset", begin);
                let answer = with(with(answer, "minOffset", "0"), "maxOffset", begin);
                with(answer, "suggestWhichBrokerId", "0")
            }
            request::LITE_PULL_MESSAGE => return Act::Hold,
            _ => ok(),
        };
        Act::Answer(answer)
    }
}

impl Peer {
    pub(crate) fn start() -> Self {
        let inner = Arc::new(Inner { state: Mutex::default(), happened: Notify::new() });
        let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse().unwrap()), inner.clone()).unwrap();
        Self { address: server.local_addr().to_string(), inner, server }
    }

    /// Sets how it answers requests from now on.
    pub(crate) fn script(&self, script: impl FnMut(&Command) -> Act + Send + 'static) {
        self.inner.state.lock().script = Some(Box::new(script));
    }

    /// Adds a topic with queues at each of the brokers.
    pub(crate) fn route(&self, topic: &str, brokers: &[(&str, &Self, u32)]) {
        let queue_data = |(name, _, queues): &(&str, &Self, u32)| QueueData {
            broker_name: (*name).to_owned(),
            read_queues: *queues,
            write_queues: *queues,
            perm: if topic == "TBW102" { 7 } else { 6 },
            sys_flag: 0,
        };
        let broker_data = |(name, peer, _): &(&str, &Self, u32)| BrokerData {
            broker_name: (*name).to_owned(),
            cluster: "c".to_owned(),
            broker_addrs: [(0, peer.address.clone())].into(),
            ..BrokerData::default()
        };
        let route = TopicRouteData {
            queue_datas: brokers.iter().map(queue_data).collect(),
            broker_datas: brokers.iter().map(broker_data).collect(),
            ..TopicRouteData::default()
        };
        self.inner.state.lock().routes.insert(topic.to_owned(), route);
    }

    /// Requests with this code, oldest first.
    pub(crate) fn seen(&self, code: i32) -> Vec<Command> {
        self.inner.state.lock().seen.iter().filter(|command| command.code == code).cloned().collect()
    }

    /// Waits until `count` requests with this code have come.
    pub(crate) async fn wait_for(&self, code: i32, count: usize) -> Vec<Command> {
        self.until(|| Some(self.seen(code)).filter(|seen| seen.len() >= count), code).await
    }

    /// Waits for a request that the peer holds, and takes it.
    pub(crate) async fn held(&self, code: i32) -> (Command, Reply) {
        let take = || {
            let mut state = self.inner.state.lock();
            let index = state.held.iter().position(|(command, _)| command.code == code)?;
            state.held.remove(index)
        };
        self.until(take, code).await
    }

    /// Connections opened so far, without those that were cut, and how many of them are open.
    pub(crate) fn connections(&self) -> (usize, usize) {
        let connections = &self.inner.state.lock().connections;
        (connections.len(), connections.iter().filter(|connection| connection.is_open()).count())
    }

    /// Waits until every connection has ended.
    pub(crate) async fn abandoned(&self) {
        self.wait("end of all connections", || (self.connections().1 == 0).then_some(())).await;
    }

    async fn until<T>(&self, get: impl FnMut() -> Option<T>, code: i32) -> T {
        self.wait(request::name_of(code).unwrap_or("?"), get).await
    }

    async fn wait<T>(&self, what: &str, mut get: impl FnMut() -> Option<T>) -> T {
        let wait = async {
            loop {
                let happened = self.inner.happened.notified();
                tokio::pin!(happened);
                happened.as_mut().enable();
                if let Some(value) = get() {
                    return value;
                }
                happened.await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no {what} came"))
    }

    /// Sends a one-way request to every client.
    pub(crate) fn push(&self, command: &Command) {
        for connection in &self.inner.state.lock().connections {
            drop(connection.send_oneway(command.clone()));
        }
    }

    /// Asks the client that connected last.
    pub(crate) async fn ask(&self, command: Command) -> Command {
        let connection = self.inner.state.lock().connections.last().unwrap().clone();
        connection.call(command, PATIENCE).await.unwrap()
    }

    pub(crate) fn set_members(&self, group: &str, members: &[&str]) {
        let members = members.iter().map(|member| (*member).to_owned()).collect();
        self.inner.state.lock().members.insert(group.to_owned(), members);
    }

    /// Cuts all connections. Clients may come back.
    pub(crate) fn cut(&self) {
        self.inner.state.lock().connections.drain(..).for_each(|connection| connection.close());
    }

    /// Cuts all connections and listens no more.
    pub(crate) async fn stop(&self) {
        self.server.shutdown(Duration::ZERO).await;
    }
}

/// As [`single`], where group `report` has begun at the start of each queue.
pub(crate) fn begun(queues: u32) -> Peer {
    let peer = single(queues);
    let key = |queue: u32| ["report".to_owned(), "t".to_owned(), queue.to_string()];
    peer.inner.state.lock().offsets.extend((0..queues).map(|queue| (key(queue), "0".to_owned())));
    peer
}

/// One peer that is name server and broker `b` at once, with topic `t` of `queues` queues.
pub(crate) fn single(queues: u32) -> Peer {
    let peer = Peer::start();
    peer.route("t", &[("b", &peer, queues)]);
    peer
}

pub(crate) fn client(names: &[&Peer]) -> Client {
    let config = ClientConfig::new(names.iter().map(|peer| peer.address.clone()));
    Client::new(config, Handle::current()).unwrap()
}

pub(crate) fn ok() -> Command {
    Command::bare_request(response::SUCCESS)
}

pub(crate) fn status(code: i32, remark: &str) -> Command {
    Command::bare_request(code).with_remark(remark)
}

pub(crate) fn with(mut command: Command, name: &str, value: &str) -> Command {
    command.ext.push(name, value);
    command
}

pub(crate) fn header_of(send: &Command) -> SendMessageRequestHeader<'_> {
    SendMessageRequestHeader::of(send).unwrap()
}

/// Messages in a send request.
pub(crate) fn messages_of(send: &Command) -> usize {
    if header_of(send).is_batch() { rocketpy_protocol::batch::items(&send.body).count() } else { 1 }
}

/// The acknowledgement of a send.
pub(crate) fn sent(send: &Command, offset: i64) -> Command {
    let ids: Vec<String> =
        (0..messages_of(send)).map(|index| format!("{:032X}", offset + index as i64)).collect();
    ok().with_header(&SendMessageResponseHeader {
        msg_id: &ids.join(","),
        queue_id: header_of(send).queue_id,
        queue_offset: offset,
        transaction_id: None,
        batch_uniq_id: None,
        recall_handle: None,
        region: Some("DefaultRegion"),
        trace_on: Some("true"),
    })
}

/// The answer to a pull.
pub(crate) fn pull_answer(code: i32, next: i64, max: i64, body: Vec<u8>) -> Command {
    let header = PullMessageResponseHeader {
        suggest_which_broker_id: 0,
        next_begin_offset: next,
        min_offset: 0,
        max_offset: max,
        offset_delta: None,
        topic_sys_flag: None,
        group_sys_flag: None,
        forbidden_type: None,
        region: None,
        trace_on: None,
    };
    Command::bare_request(code).with_header(&header).with_body(body)
}
