//! Push consumers in processes of their own, killed again and again: side by side, in order, and each with everything.
//!
//! A kill shows that nothing counts as handled which no handler has ended, whatever the member had pulled ahead, committed or sent back.
//! All processes write their lines into one pipe, which keeps the order in which they are written, also those of a process that is killed
//! after them.

mod group;
mod member;
mod pipe;
mod renew;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rocketpy_client::{Admin, Client, ClientConfig, ClientError, RangeReader, TopicSpec};
use rocketpy_model::{MessageQueue, QueueOffset, system};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use self::group::{GROUPS, Kind, Seat};
pub use self::member::Member;
use self::pipe::Pipe;
use self::renew::Renewals;
use super::journal::Journal;
use super::life::free_ports;
use super::load::Load;
use super::message::{delivery, queue_name};
use super::server::{Launch, Part, Server, Started};
use super::shape::{Attributes, Shape};
use super::{Harness, Options, is_interrupted, listen_for_interrupt};
use crate::checker::{Rule, Violation};
use crate::history::{Contract, CrashKind, Event};

/// Producers that send side by side.
const PRODUCERS: u32 = 2;
const MOST_TOPICS: usize = 2;
/// Members that have not advanced for this long are stuck: a lock of a member that is gone lasts a minute. How long everything takes is not
/// bounded: handlers in order may need minutes for a queue.
const STUCK_AFTER: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a line takes from a process into the history.
const SETTLES_WITHIN: Duration = Duration::from_millis(5);
/// A server that was just started, or whose disk stalls, answers late.
const ANSWERS_WITHIN: Duration = Duration::from_secs(25);

#[derive(Debug, Clone)]
pub struct MembersOptions {
    /// Draws everything.
    pub seed: u64,
    /// Stores with their groups.
    pub stores: u64,
    /// Processes that end on a store.
    pub ends_a_store: u64,
    /// Whether some members that read in order come back under another name, and have to wait for their own locks.
    pub waits_for_locks: bool,
    /// Whether queues begin anew under the members; drawn when not given.
    pub renewals: Option<bool>,
    pub server: PathBuf,
    pub member: PathBuf,
    /// Gets the history of the last store, as JSON lines.
    pub history: Option<PathBuf>,
    /// The title of a bug that is planted in the members and in the server.
    pub planted: Option<String>,
}

/// Sums of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MembersTotals {
    pub stores: u64,
    /// Members that were killed, by group.
    pub killed: [u64; GROUPS.len()],
    /// Members that were stopped in order before the end.
    pub stopped: u64,
    pub servers_killed: u64,
    /// Topics that were deleted and created again, topics that got more queues, and stores that were lost.
    pub renewed: [u64; renew::KINDS],
    pub messages: u64,
    /// Handlers that ended.
    pub handled: u64,
    /// Messages that became dead letters.
    pub dead: u64,
}

#[derive(Debug)]
pub struct MembersOutcome {
    pub totals: MembersTotals,
    /// What the first store that broke a rule did; empty when all rules held.
    pub violations: Vec<Violation>,
    /// The seed of that store.
    pub broken_at: Option<u64>,
}

/// Runs all stores, or until a rule is broken. `note` gets the counts after every store.
///
/// # Errors
/// The harness cannot run: no temporary folder, no server or member to start.
pub fn run_members(
    options: &MembersOptions,
    mut note: impl FnMut(&MembersTotals),
) -> Result<MembersOutcome, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    listen_for_interrupt();
    let mut outcome =
        MembersOutcome { totals: MembersTotals::default(), violations: Vec::new(), broken_at: None };
    let mut seeds = Rng::with_seed(options.seed);
    while outcome.totals.stores < options.stores && outcome.broken_at.is_none() && !is_interrupted() {
        // The first store has the seed of the run, so that `--seed` repeats a store that broke.
        let seed = if outcome.totals.stores == 0 { options.seed } else { seeds.u64(..) >> 16 };
        outcome.totals.stores += 1;
        let violations = Round::new(options, seed, &runtime, &mut outcome.totals)?.run()?;
        if !violations.is_empty() {
            (outcome.violations, outcome.broken_at) = (violations, Some(seed));
        }
        note(&outcome.totals);
    }
    Ok(outcome)
}

/// One store, its server and the members of its groups.
struct Round<'a> {
    options: &'a MembersOptions,
    runtime: &'a Runtime,
    totals: &'a mut MembersTotals,
    rng: Rng,
    shape: Shape,
    load: Load,
    pipe: Pipe,
    seats: Vec<Seat>,
    /// Processes of members so far.
    processes: u64,
    /// Of the broker and of the name server.
    ports: [u16; 2],
    server: Option<Server>,
    client: Client,
    renewals: Option<Renewals>,
    /// Dead letters up to here are noted, by queue.
    dead: Vec<(MessageQueue, QueueOffset)>,
    folder: TempDir,
}

impl<'a> Round<'a> {
    fn new(
        options: &'a MembersOptions,
        seed: u64,
        runtime: &'a Runtime,
        totals: &'a mut MembersTotals,
    ) -> Result<Self, String> {
        let mut rng = Rng::with_seed(seed);
        let has_renewals = options.renewals.unwrap_or_else(|| rng.bool());
        let shape = draw_shape(&mut rng, options);
        let mut journal = match &options.history {
            Some(path) => Journal::to_file(path)?,
            None => Journal::default(),
        };
        let groups = group::groups(has_renewals).map(Kind::contract).collect();
        let contract = Contract { acknowledged: shape.flush.acknowledged(), topics: [].into(), groups };
        journal.push(Event::Begin { harness: "members".to_owned(), seed, contract });
        let load = Load::new(journal, &shape);
        let [broker, name_server, ..] = free_ports()?;
        Ok(Self {
            options,
            runtime,
            totals,
            rng,
            pipe: Pipe::new(load.journal.clone())?,
            renewals: has_renewals.then(|| Renewals::new(&load, &shape)),
            shape,
            load,
            seats: group::seats(group::groups(has_renewals)).collect(),
            processes: 0,
            ports: [broker, name_server],
            server: None,
            client: new_client(runtime, name_server)?,
            dead: Vec::new(),
            folder: tempfile::tempdir().map_err(|error| error.to_string())?,
        })
    }

    fn run(mut self) -> Result<Vec<Violation>, String> {
        self.start_server()?;
        let made = self.runtime.block_on(self.make_topics());
        self.expect(made);
        for seat in 0..self.seats.len() {
            self.start(seat)?;
        }
        self.wait_until_joined();
        let mut tasks = self.begin_load();
        let mut ends = 0;
        while ends < self.options.ends_a_store && !self.is_broken() && !is_interrupted() {
            std::thread::sleep(Duration::from_millis(self.rng.u64(50..600)));
            self.check_positions();
            ends += self.end_one(&mut tasks)?;
            self.renew(ends, &mut tasks)?;
            for seat in 0..self.seats.len() {
                if self.seats[seat].is_empty() && self.rng.bool() {
                    self.start(seat)?;
                }
            }
        }
        self.load.drain();
        self.runtime.block_on(tasks.join_all());
        if !self.is_broken() {
            self.finish()?;
        }
        self.seats.clear();
        self.server = None;
        self.pipe.say(&Event::End);
        self.pipe.join();
        let journal = self.load.journal.lock();
        let counts = journal.checker.counts();
        self.totals.messages += counts.sent;
        self.totals.handled += counts.worked_on;
        Ok(journal.violations())
    }

    fn is_broken(&self) -> bool {
        self.load.journal.lock().is_broken()
    }

    fn wrong(&self, rule: Rule, text: impl Into<String>) {
        self.load.journal.lock().wrong(rule, text);
    }

    /// A server that runs answers.
    fn expect<T>(&self, answer: Result<T, ClientError>) -> Option<T> {
        answer.map_err(|error| self.wrong(Rule::Alive, format!("the server does not answer: {error}"))).ok()
    }

    fn begin_load(&mut self) -> JoinSet<()> {
        let broker = format!("{}:{}", Ipv4Addr::LOCALHOST, self.ports[0]);
        self.load.begin(&self.client, &broker, &mut self.rng, false)
    }

    fn start_server(&mut self) -> Result<(), String> {
        let (store, ready) = (self.folder.path().join("store"), self.folder.path().join("ready"));
        let [broker, name_server] = self.ports;
        let launch = Launch {
            binary: &self.options.server,
            store: &store,
            ready: &ready,
            part: Part::Server { broker, name_server },
            settings: &self.shape.settings,
            kill_at: None,
            hang_after: None,
            planted: self.options.planted.as_deref(),
            kill_after: None,
        };
        match launch.start()? {
            Started::Ready(server) => self.server = Some(server),
            Started::Ended(death) => {
                self.wrong(Rule::Alive, format!("the server ended in its start: {}", death.log));
            }
        }
        Ok(())
    }

    async fn make_topics(&self) -> Result<(), ClientError> {
        let admin = Admin::new(&self.client);
        for (number, topic) in self.load.topics.iter().enumerate() {
            let queues = self.renewals.as_ref().map_or(self.shape.queues, |renewals| renewals.queues[number]);
            admin.create_topic(&TopicSpec::new(topic, queues)).await?;
        }
        for kind in self.groups().filter(|kind| !kind.broadcast) {
            admin.create_topic(&TopicSpec::new(system::dlq_topic(kind.name), 1)).await?; // readable
        }
        Ok(())
    }

    fn start(&mut self, seat: usize) -> Result<(), String> {
        self.processes += 1;
        let seat = &mut self.seats[seat];
        let member = Member {
            name_server: format!("{}:{}", Ipv4Addr::LOCALHOST, self.ports[1]),
            group: seat.kind.name.to_owned(),
            topics: self.load.topics.to_vec(),
            number: seat.number,
            process: self.processes,
            instance_name: seat.draw_name(&mut self.rng, self.processes, self.options.waits_for_locks),
            ordered: seat.kind.ordered,
            latest: seat.kind.latest,
            max_retries: group::MAX_RETRIES,
            offsets: seat.kind.broadcast.then(|| seat.offsets(self.folder.path())),
            seed: self.rng.u64(..),
        };
        seat.start(&self.options.member, &member, self.pipe.end()?, self.options.planted.as_deref())
    }

    fn groups(&self) -> impl Iterator<Item = &'static Kind> + use<> {
        group::groups(self.renewals.is_some())
    }

    fn start_all(&mut self) -> Result<(), String> {
        for seat in 0..self.seats.len() {
            if self.seats[seat].is_empty() {
                self.start(seat)?;
            }
        }
        Ok(())
    }

    /// Waits until the members of the groups at LATEST have their start offsets.
    fn wait_until_joined(&self) {
        let has_joined = |kind: &Kind| {
            self.load.journal.lock().checker.joined(kind.name) as u64 == u64::from(kind.members)
        };
        for kind in self.groups().filter(|kind| kind.latest) {
            let since = Instant::now();
            while !has_joined(kind) && !is_interrupted() {
                std::thread::sleep(SETTLES_WITHIN);
                if since.elapsed() > STUCK_AFTER {
                    return self.wrong(Rule::Alive, format!("members of {} do not join", kind.name));
                }
            }
        }
    }

    /// Ends a member or the server. Returns how many processes ended.
    fn end_one(&mut self, tasks: &mut JoinSet<()>) -> Result<u64, String> {
        if self.rng.u8(0..12) == 0 {
            self.end_server(tasks)?;
            return Ok(1);
        }
        let seat = self.rng.usize(..self.seats.len());
        if self.seats[seat].is_empty() || self.seats[seat].kind.latest {
            return Ok(0);
        }
        if self.rng.u8(0..5) == 0 {
            self.totals.stopped += 1;
            self.stop(seat, false);
        } else {
            self.totals.killed[self.seats[seat].kind.index()] += 1;
            self.seats[seat].kill();
            self.note_gone(seat);
            self.check_local_offsets(seat);
        }
        if self.rng.bool() {
            self.start(seat)?;
        }
        Ok(1)
    }

    /// Kills the server; the next one comes at once.
    fn end_server(&mut self, tasks: &mut JoinSet<()>) -> Result<(), String> {
        self.kill_server();
        self.totals.servers_killed += 1;
        self.end_load(tasks)?;
        self.start_server()?;
        *tasks = self.begin_load();
        Ok(())
    }

    fn kill_server(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let ended_itself = server.has_ended();
        let death = server.kill();
        if ended_itself {
            self.wrong(Rule::Alive, format!("the server ended by itself: {}", death.log));
        }
        self.pipe.say(&Event::Crash { kind: CrashKind::Kill });
    }

    /// Ends the load; the next one has a client of its own.
    fn end_load(&mut self, tasks: &mut JoinSet<()>) -> Result<(), String> {
        self.load.end();
        self.runtime.block_on(std::mem::take(tasks).join_all());
        let former = std::mem::replace(&mut self.client, new_client(self.runtime, self.ports[1])?);
        self.runtime.block_on(former.close());
        Ok(())
    }

    /// Stops a member in order. Its last commit may fail, unless everything `is_healed`.
    fn stop(&mut self, seat: usize, is_healed: bool) {
        if let Err(text) = self.seats[seat].stop(is_healed) {
            self.wrong(Rule::Alive, text);
        }
        self.note_gone(seat);
        self.check_local_offsets(seat);
    }

    fn note_gone(&self, seat: usize) {
        let Seat { kind, number, .. } = &self.seats[seat];
        self.pipe.say(&Event::MemberGone { group: kind.name.to_owned(), member: *number });
    }

    /// Notes where a member that gets everything would continue.
    fn check_local_offsets(&self, seat: usize) {
        let seat = &self.seats[seat];
        let offsets =
            if seat.kind.broadcast { seat.local_offsets(self.folder.path()) } else { Ok(Vec::new()) };
        match offsets {
            Ok(offsets) => {
                for (queue, offset) in offsets {
                    let (group, member) = (seat.kind.name.to_owned(), Some(seat.number));
                    self.pipe.say(&Event::Positioned { group, queue, offset, member });
                }
            }
            Err(text) => self.wrong(Rule::Alive, text),
        }
    }

    /// Notes where the groups would continue, and returns that with the ends of the queues.
    fn check_positions(&self) -> Vec<(String, MessageQueue, Option<QueueOffset>, QueueOffset)> {
        let positions = self.runtime.block_on(self.positions());
        let positions = self.expect(positions).unwrap_or_default();
        for (group, queue, offset, _) in &positions {
            let Some(offset) = offset else { continue };
            let (group, queue, offset) = (group.clone(), queue_name(queue), offset.get());
            self.pipe.say(&Event::Positioned { group, queue, offset, member: None });
        }
        positions
    }

    async fn positions(
        &self,
    ) -> Result<Vec<(String, MessageQueue, Option<QueueOffset>, QueueOffset)>, ClientError> {
        let (admin, mut positions) = (Admin::new(&self.client), Vec::new());
        for kind in self.groups().filter(|kind| !kind.broadcast) {
            let retries = system::retry_topic(kind.name);
            for topic in self.load.topics.iter().chain([&retries]) {
                for queue in queues_of(&admin, topic).await? {
                    let (offset, end) =
                        (admin.committed_offset(kind.name, &queue).await?, admin.max_offset(&queue).await?);
                    positions.push((kind.name.to_owned(), queue, offset, end));
                }
            }
        }
        Ok(positions)
    }

    /// Notes dead letters that were not noted before.
    async fn read_dead(&mut self) -> Result<(), ClientError> {
        let admin = Admin::new(&self.client);
        for kind in self.groups().filter(|kind| !kind.broadcast) {
            for queue in queues_of(&admin, &system::dlq_topic(kind.name)).await? {
                let known = self.dead.iter().position(|(other, _)| *other == queue);
                let known = known.unwrap_or_else(|| {
                    self.dead.push((queue.clone(), QueueOffset(0)));
                    self.dead.len() - 1
                });
                let (from, end) = (self.dead[known].1, admin.max_offset(&queue).await?);
                self.dead[known].1 = end;
                let mut reader = RangeReader::new(&self.client, queue, from, end, "*").await?;
                while let Some(part) = reader.next().await? {
                    for view in part.iter() {
                        self.totals.dead += 1;
                        let (group, message) = (kind.name.to_owned(), delivery(&view).message);
                        self.pipe.say(&Event::DeadLetter { group, message });
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until every message is handled, and as long as the members advance.
    fn wait_until_handled(&mut self) {
        let (mut advanced, mut fewest) = (Instant::now(), usize::MAX);
        while !self.is_broken() && !is_interrupted() && advanced.elapsed() < STUCK_AFTER {
            let read = self.runtime.block_on(async {
                tokio::time::sleep(LOOK_AGAIN).await;
                self.read_dead().await
            });
            self.expect(read);
            let missing = self.load.journal.lock().checker.missing();
            if missing == 0 {
                return;
            }
            if missing < fewest {
                (advanced, fewest) = (Instant::now(), missing);
            }
        }
    }

    /// Nothing fails any more: all members are there, everything is handled, and they stop in order.
    fn finish(&mut self) -> Result<(), String> {
        self.pipe.say(&Event::Healed);
        self.start_all()?;
        self.wait_until_handled();
        self.check_positions();
        for seat in 0..self.seats.len() {
            self.stop(seat, true);
        }
        for (group, queue, offset, end) in self.check_positions() {
            let offset = offset.map_or(0, QueueOffset::get);
            // A retry may have waited for its time until now, of a message that came to another member before.
            let is_retry = *queue.topic == system::retry_topic(&group);
            if offset != end.get() && !is_retry {
                let text = format!("{group} stopped in order at {offset} of {queue}, which ends at {end}");
                self.wrong(Rule::C15, text);
            }
        }
        let read = self.runtime.block_on(self.read_dead());
        self.expect(read);
        self.runtime.block_on(self.client.close());
        let Some(death) = self.server.take().map(Server::stop) else { return Ok(()) };
        if !death.status.success() {
            self.wrong(Rule::Alive, format!("the server ended {}: {}", death.status, death.log));
        }
        Ok(())
    }
}

/// The queues of a topic; none while it is not there.
async fn queues_of(admin: &Admin, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
    match admin.queues(topic).await {
        Err(ClientError::NoRoute { .. }) => Ok(Vec::new()),
        queues => queues,
    }
}

fn new_client(runtime: &Runtime, name_server: u16) -> Result<Client, String> {
    let name_servers = [format!("{}:{name_server}", Ipv4Addr::LOCALHOST)];
    let config = ClientConfig { api_timeout: ANSWERS_WITHIN, ..ClientConfig::new(name_servers) };
    Client::new(config, runtime.handle().clone()).map_err(|error| error.to_string())
}

fn draw_shape(rng: &mut Rng, options: &MembersOptions) -> Shape {
    let of_servers = Options {
        harness: Harness::Kill,
        seed: options.seed,
        cycles: 0,
        cycles_a_store: 0,
        load: None,
        producers: PRODUCERS,
        flush: None,
        own_flush: Some(false),
        retention: Some(false),
        bound: false,
        pair: false,
        slow_slave: None,
        server: options.server.clone(),
        history: None,
        planted: None,
    };
    let shape = Shape::draw(rng, &of_servers);
    let topics: Vec<Attributes> = shape.topics.iter().take(MOST_TOPICS).cloned().collect();
    Shape { topics, queues: rng.u32(1..=4), has_consumers: false, has_later: false, ..shape }
}
