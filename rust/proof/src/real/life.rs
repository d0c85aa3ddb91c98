//! One store and the lives of its server, one after the other.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rocketpy_client::{Client, ClientConfig};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::code::request;
use rocketpy_store::reader::StoreReader;
use rocketpy_tools::verify;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::journal::Journal;
use super::load::{GROUPS, LASTING, Load, ask};
use super::mount::Mounted;
use super::pair::{Slave, SlaveEnd};
use super::plan::{Drawn, Ending, How, Lives};
use super::server::{Death, Launch, Part, Server, Started};
use super::shape::{Pair, Shape};
use super::survey::Survey;
use super::{Flush, Harness, Options, Totals, is_interrupted, later, question, sql};
use crate::checker::{Rule, Violation};
use crate::history::{Contract, CrashKind, Event, Group};

/// Where servers listen.
const PORTS: Range<u16> = 20_000..32_000;
const PORT_TRIES: u32 = 100;
/// How long a server that does not answer may take to be found dead.
const FOUND_DEAD_WITHIN: Duration = Duration::from_secs(5);
const TASKS_END_WITHIN: Duration = Duration::from_secs(30);
/// A running server answers within this time, however slow its disk is.
const SURVEY_ANSWERS_WITHIN: Duration = Duration::from_secs(25);

/// A store and everything around it.
pub(super) struct Life<'a> {
    options: &'a Options,
    runtime: &'a Runtime,
    totals: &'a mut Totals,
    shape: Shape,
    lives: Lives,
    load: Load,
    /// Of the broker, of the name server, of the slave, and of the broker for the slave. They stay the same over all lives, so that clients find
    /// the server again.
    ports: [u16; 4],
    slave: Option<Slave>,
    /// A client that outlives the server, and its consumer.
    lasting: Option<(Client, JoinSet<()>)>,
    /// Before the folder: it is unmounted first.
    disk: Option<Mounted>,
    folder: TempDir,
    cycle: u64,
    /// Where the log started after the last start of the server.
    log_start: u64,
    /// When the power was cut, until the next server shows what that took.
    cut_at: Option<Instant>,
}

impl<'a> Life<'a> {
    pub(super) fn new(
        options: &'a Options,
        seed: u64,
        runtime: &'a Runtime,
        totals: &'a mut Totals,
    ) -> Result<Self, String> {
        let mut rng = Rng::with_seed(seed);
        let mut shape =
            if options.bound { Shape::of_bound(options.producers) } else { Shape::draw(&mut rng, options) };
        let lives = Lives::new(&mut rng, options);
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let disk = match options.harness {
            Harness::Power => Some(Mounted::make(folder.path(), shape.kind)?),
            Harness::Kill => None,
        };
        let mut journal = match &options.history {
            Some(path) => Journal::to_file(path)?,
            None => Journal::default(),
        };
        let harness = format!("{:?}", options.harness).to_lowercase();
        journal.push(Event::Begin { harness, seed, contract: contract(&shape) });
        totals.stores += 1;
        let ports = free_ports()?;
        let slave = || Slave::new(options.harness, &shape, ports[2], options.planted.clone());
        let slave = shape.pair.is_some().then(slave).transpose()?;
        if slave.is_some() {
            shape.settings.push(format!("haListenPort={}", ports[3]));
        }
        let load = Load::new(journal, &shape);
        Ok(Self {
            options,
            runtime,
            totals,
            shape,
            lives,
            load,
            ports,
            slave,
            lasting: None,
            disk,
            folder,
            cycle: 0,
            log_start: 0,
            cut_at: None,
        })
    }

    /// Runs `cycles` lives and a last one in which nothing fails. Returns the cycle that broke a rule, and how.
    pub(super) fn run(
        &mut self,
        cycles: u64,
        note: &mut impl FnMut(&Totals),
    ) -> Result<Option<(u64, Vec<Violation>)>, String> {
        while self.cycle < cycles && !self.is_broken() && !is_interrupted() {
            let drawn = self.lives.draw();
            self.cycle(drawn, false)?;
            self.cycle += 1;
            self.totals.cycles += 1;
            let mut now = *self.totals;
            now.add(self.load.journal.lock().checker.counts());
            note(&now);
        }
        if !self.is_broken() {
            let drawn = self.lives.draw_healed();
            self.cycle(drawn, true)?;
        }
        let journal = self.load.journal.lock();
        self.totals.add(journal.checker.counts());
        Ok(journal.is_broken().then(|| (self.cycle, journal.violations())))
    }

    fn is_broken(&self) -> bool {
        self.load.journal.lock().is_broken()
    }

    fn wrong(&self, rule: Rule, text: impl Into<String>) {
        self.load.journal.lock().wrong(rule, text);
    }

    fn store(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.folder.path(), Mounted::dir).join("store")
    }

    /// One life of the server.
    fn cycle(&mut self, drawn: Drawn, is_last: bool) -> Result<(), String> {
        let ending = drawn.ending;
        let [broker, name_server, ..] = self.ports;
        // Before its master: that takes back from it what it has lost.
        if self.slave.as_ref().is_some_and(Slave::has_a_log) {
            self.start_slave(None);
        }
        let (store, ready) = (self.store(), self.folder.path().join("ready"));
        let mut settings = self.shape.settings.clone();
        if is_last && self.shape.pair.is_some_and(|pair| pair.is_slow) {
            settings.push("haFlowControlEnable=false".to_owned()); // its slave gets everything
        }
        let launch = Launch {
            binary: &self.options.server,
            store: &store,
            ready: &ready,
            part: Part::Server { broker, name_server },
            settings: &settings,
            kill_at: ending.kill_at,
            hang_after: ending.hang_after,
            planted: self.options.planted.as_deref(),
            kill_after: ending.in_start,
        };
        match launch.start() {
            Ok(Started::Ready(server)) => self.live(server, drawn, is_last),
            Ok(Started::Ended(death)) => {
                self.died(&death, &ending, "in its start");
                self.totals.killed_in_start += u64::from(ending.in_start.is_some());
                Ok(())
            }
            Err(text) => {
                self.wrong(Rule::Alive, text);
                Ok(())
            }
        }
    }

    /// Starts the slave. One without a log needs its master: where that has ended meanwhile, it may fail.
    fn start_slave(&mut self, master: Option<&mut Server>) {
        let name_server = format!("{}:{}", Ipv4Addr::LOCALHOST, self.ports[1]);
        let started = self.slave.as_mut().map(|slave| slave.start(&self.options.server, &name_server));
        if let Some(Err(text)) = started
            && !master.is_some_and(Server::has_ended)
        {
            self.wrong(Rule::Alive, text);
        }
    }

    /// Checks that the slave follows.
    fn check_slave(&mut self, master: &mut Server, has_all: bool) {
        if self.is_broken() {
            return;
        }
        let Some(slave) = &mut self.slave else { return };
        if let Err(text) = self.runtime.block_on(slave.follows(master, has_all)) {
            self.wrong(Rule::R8, text);
        }
    }

    /// Checks that no group of a slave whose master is gone is ahead of its log: promoted, it would skip what it is sent then.
    fn check_groups_of_slave(&mut self) {
        let Some(slave) = &mut self.slave else { return };
        match self.runtime.block_on(slave.group_ahead()) {
            Ok(None) => {}
            Ok(Some(text)) => self.wrong(Rule::C12, text),
            Err(text) => self.wrong(Rule::Alive, text),
        }
    }

    fn client(&self, config: ClientConfig) -> Result<Client, String> {
        Client::new(config, self.runtime.handle().clone()).map_err(|error| error.to_string())
    }

    fn live(&mut self, mut server: Server, mut drawn: Drawn, is_last: bool) -> Result<(), String> {
        let ending = &drawn.ending;
        let config = ClientConfig::new([server.name_server.clone()]);
        // A server whose disk stalls answers late; that breaks no rule.
        let patient = self.client(ClientConfig { api_timeout: SURVEY_ANSWERS_WITHIN, ..config.clone() })?;
        let client = self.client(config.clone())?;
        let survey =
            Survey { load: &self.load, client: &patient, broker: &server.broker, shape: &self.shape };
        let seen = self.runtime.block_on(survey.run(&mut drawn.survey));
        drop(patient);
        if let Err(error) = seen {
            if server.wait_for_end(FOUND_DEAD_WITHIN) {
                self.died(&server.kill(), ending, "during the survey");
            } else {
                self.wrong(Rule::Alive, format!("the server does not answer: {error}"));
            }
            return Ok(());
        }
        self.note_log_start();
        self.check_log_start();
        self.note_lost();
        self.start_slave(Some(&mut server));
        self.check_slave(&mut server, false);
        if drawn.looks_at_files {
            self.check_files("after its start", false);
        }
        if self.is_broken() {
            return Ok(());
        }
        if is_last {
            self.load.journal.lock().push(Event::Healed);
        }
        let tasks = self.load.begin(&client, &server.broker, &mut drawn.load, !is_last);
        if self.lasting.is_none() && self.shape.has_consumers {
            let client = self.client(config)?;
            let tasks = self.load.begin_lasting(&client, &server.broker, &mut drawn.load);
            self.lasting = Some((client, tasks));
        }
        let is_enough = || ending.hang_after.is_some() && self.load.has_filled();
        let until_slave = if let SlaveEnd::Killed(after) = drawn.slave { after } else { Duration::ZERO };
        server.wait_for_end(until_slave);
        if let (Some(slave), SlaveEnd::Killed(_)) = (&mut self.slave, drawn.slave) {
            slave.kill();
            self.totals.slaves_killed += 1;
        }
        server.wait_for_end_or(ending.load.saturating_sub(until_slave), is_enough);
        if is_last {
            return self.finish(server, tasks, &client, drawn);
        }
        if ending.is_quiet {
            self.load.end();
            self.runtime.block_on(tasks.join_all());
            self.runtime.block_on(self.load.make_topic(&client));
            self.end(server, &drawn, JoinSet::new(), &client)
        } else {
            self.end(server, &drawn, tasks, &client)
        }
    }

    /// Ends a life as its plan says.
    fn end(
        &mut self,
        mut server: Server,
        drawn: &Drawn,
        tasks: JoinSet<()>,
        client: &Client,
    ) -> Result<(), String> {
        let (ending, ended_itself) = (&drawn.ending, server.has_ended());
        let slave = self.slave.as_mut().filter(|_| drawn.slave == SlaveEnd::WithMaster);
        self.totals.ended_both += u64::from(slave.is_some());
        let death = match ending.how {
            How::Kill | How::Stop => {
                slave.into_iter().for_each(Slave::kill);
                if ending.how == How::Kill { server.kill() } else { server.stop() }
            }
            How::Power if ended_itself => server.kill(), // which is a failure, and reported below
            How::Power => {
                if let Some(slave) = slave {
                    slave.freeze()?;
                    slave.cut()?;
                    slave.kill();
                    slave.restore()?;
                }
                self.note_flushed(drawn.slave);
                // Without it, a flush that runs during the cut may report success (Linux 6.18, ext4), and an answer would leave
                // a machine without power.
                server.freeze()?;
                self.disk.as_ref().map_or(Ok(()), Mounted::cut)?;
                self.cut_at = Some(Instant::now());
                self.load.later.lock().forget_halves();
                server.kill()
            }
        };
        self.join(tasks, client);
        if !ended_itself && ending.how == How::Kill {
            self.totals.killed_by_time += 1;
        }
        let when = if ended_itself { "under load" } else { "when it was ended" };
        self.died(&death, &Ending { kill_at: ending.kill_at.filter(|_| ended_itself), ..*ending }, when);
        self.check_groups_of_slave();
        if ending.how == How::Power
            && let Some(disk) = &mut self.disk
        {
            disk.restore()?;
        }
        Ok(())
    }

    fn join(&self, tasks: JoinSet<()>, client: &Client) {
        self.load.end();
        let joined = self.runtime.block_on(async {
            let joined = tokio::time::timeout(TASKS_END_WITHIN, tasks.join_all()).await;
            let _ = tokio::time::timeout(TASKS_END_WITHIN, client.close()).await;
            joined
        });
        if joined.is_err() {
            self.wrong(Rule::Alive, format!("calls did not return within {TASKS_END_WITHIN:?}"));
        }
    }

    /// Checks that what was acknowledged long enough ago is durable under either flush policy, and that no more is not durable
    /// than `maxUnflushedBytes` says, beside what the start found. What was acknowledged because a slave has it is durable while that goes on,
    /// or has flushed it.
    fn note_flushed(&self, slave: SlaveEnd) {
        let now = Instant::now();
        let survives = |pair: Pair| slave != SlaveEnd::WithMaster || pair.slave_flush == Flush::Sync;
        let has_slave = self.shape.pair.is_some_and(|pair| pair.is_waited_for && survives(pair));
        let durable_after = if has_slave { Duration::ZERO } else { self.shape.durable_after };
        let is_old = |(at, _): &&(Instant, u64)| now.duration_since(*at) >= durable_after;
        let acknowledged = self.load.acknowledged.lock();
        let by_time = acknowledged.iter().filter(is_old).map(|(_, start)| start + 1).max();
        let last = acknowledged.iter().map(|(_, start)| *start).max();
        drop(acknowledged);
        let at_once = self.shape.at_once_bytes();
        let by_size = last.and_then(|last| last.checked_sub(self.shape.max_unflushed_bytes + at_once));
        let found_to = self.load.journal.lock().kept.found_to + at_once;
        let by_size = by_size.filter(|&end| end > found_to);
        let end = by_time.max(by_size).unwrap_or(0);
        if end > 0 {
            self.load.journal.lock().push(Event::Flushed { end });
        }
    }

    /// Notes how much the last power cut took.
    fn note_lost(&mut self) {
        let Some(cut_at) = self.cut_at.take() else { return };
        let found_to = self.load.journal.lock().kept.found_to;
        let acknowledged = self.load.acknowledged.lock();
        for (at, start) in acknowledged.iter().filter(|(_, start)| *start >= found_to) {
            self.totals.oldest_lost = self.totals.oldest_lost.max(cut_at.duration_since(*at));
            self.totals.most_lost_bytes = self.totals.most_lost_bytes.max(start + 1 - found_to);
        }
    }

    /// Notes where the log starts now: not before where it started earlier.
    fn note_log_start(&mut self) {
        let names = RealDisk.list(&self.store().join("commitlog")).unwrap_or_default();
        let starts = names.iter().filter_map(|entry| entry.name.to_str()?.parse::<u64>().ok());
        let (start, was) = (starts.min().unwrap_or(0), self.log_start);
        if start < was {
            self.wrong(Rule::R4, format!("the log starts at {start}, it was durably removed up to {was}"));
        }
        let mut journal = self.load.journal.lock();
        journal.kept.found_to = journal.kept.found_to.max(start);
        self.totals.removed_files += start.saturating_sub(was) / self.shape.log_file;
        self.log_start = start;
    }

    /// Checks that the log starts where retention may have left it.
    fn check_log_start(&self) {
        let (start, may_start) = (self.log_start, self.load.journal.lock().kept.may_start);
        if start > may_start {
            let text = format!("the log starts at {start}, retention may have removed it up to {may_start}");
            self.wrong(Rule::C1, text);
        }
    }

    /// Asks for rounds of retention until one removes nothing.
    fn retain(&mut self, broker: &str) {
        loop {
            let was = self.log_start;
            let asked = self.runtime.block_on(async {
                ask(broker, request::DELETE_EXPIRED_COMMITLOG).await
                    && ask(broker, request::CLEAN_EXPIRED_CONSUMEQUEUE).await
            });
            if !asked {
                return self.wrong(Rule::Alive, "the server does not answer a request for retention");
            }
            self.note_log_start();
            if self.log_start == was {
                return;
            }
        }
    }

    /// Checks that retention removed what it must: the log was not appended to after the last round. Where it was never longer, no more
    /// may be gone.
    fn check_retained(&self, log_end: u64) {
        let must_start = self.shape.retention.start(log_end, self.shape.log_file);
        let start = self.log_start;
        if self.options.harness == Harness::Kill {
            self.load.journal.lock().kept.may_start = must_start;
        }
        self.check_log_start();
        if start < must_start {
            let text =
                format!("retention left the log at {start}, it should have removed it up to {must_start}");
            self.wrong(Rule::Alive, text);
        }
    }

    /// Notes how the process ended, and anything that must not happen at its end.
    fn died(&mut self, death: &Death, ending: &Ending, when: &str) {
        let kind = match ending.how {
            How::Kill => CrashKind::Kill,
            How::Stop => CrashKind::Stop,
            How::Power => CrashKind::Power,
        };
        if let Some((point, _)) = ending.kill_at
            && death.was_killed()
        {
            self.totals.points[point as usize] += 1;
        }
        self.totals.stopped += u64::from(kind == CrashKind::Stop);
        self.totals.power_cuts += u64::from(kind == CrashKind::Power);
        let is_well = match ending.how {
            How::Kill => death.was_killed(),
            How::Stop => death.status.success(),
            How::Power => when == "when it was ended", // and then the disk is gone: any end will do
        };
        if !is_well {
            self.wrong(Rule::Alive, format!("the server ended {when}, {}: {}", death.status, death.log));
        } else if kind != CrashKind::Power && death.log.contains("panicked at") {
            self.wrong(Rule::Alive, format!("a panic: {}", death.log));
        }
        self.load.journal.lock().push(Event::Crash { kind });
    }

    /// Checks that every record, queue entry and index entry of the files equals a rebuild from the log. Nobody writes meanwhile.
    fn check_files(&self, when: &str, is_closed: bool) {
        let report = StoreReader::open(self.store())
            .map_err(|error| error.to_string())
            .and_then(|reader| verify(&reader, &mut |_| true).map_err(|error| error.to_string()));
        match report {
            Err(error) => self.wrong(Rule::R6, format!("the store cannot be read {when}: {error}")),
            Ok(report) if !report.is_sound() || report.is_closed != is_closed => {
                let problem = report.problems.first();
                let (count, closed) = (report.problem_count, report.is_closed);
                self.wrong(
                    Rule::R6,
                    format!("the store has {count} problems {when}, closed {closed}, the first: {problem:?}"),
                );
            }
            Ok(_) => {}
        }
    }

    /// Nothing fails any more: everything arrives, and the server stops in order.
    fn finish(
        &mut self,
        mut server: Server,
        tasks: JoinSet<()>,
        client: &Client,
        mut drawn: Drawn,
    ) -> Result<(), String> {
        self.load.drain();
        self.runtime.block_on(tasks.join_all());
        if let Some((lasting, tasks)) = self.lasting.take() {
            self.join(tasks, &lasting);
        }
        let log_end = self.load.journal.lock().kept.log_end;
        if self.shape.retention.is_asked() {
            self.retain(&server.broker);
        }
        let survey = Survey { load: &self.load, client, broker: &server.broker, shape: &self.shape };
        let seen = self.runtime.block_on(async {
            if self.shape.has_later {
                let broker = server.broker.clone();
                let standing_by = question::stand_by(self.load.clone(), broker.clone(), true);
                let answering = question::answer(self.load.clone(), broker, drawn.load.fork(), true);
                tokio::select! {
                    read = later::read_all(&self.load, client) => read?,
                    () = answering => {}
                    () = standing_by => {}
                }
            }
            survey.run(&mut drawn.survey).await
        });
        if let Err(error) = seen {
            self.wrong(Rule::C15, format!("the server does not answer: {error}"));
        }
        self.runtime.block_on(client.close());
        self.check_slave(&mut server, true);
        self.died(&server.stop(), &drawn.ending, "when it was stopped");
        let store = self.store();
        if let Some(Err(text)) = self.slave.as_mut().map(|slave| slave.finish(&store)) {
            self.wrong(Rule::R8, text);
        }
        self.note_log_start();
        self.check_retained(log_end);
        self.check_files("after its stop", true);
        self.load.journal.lock().push(Event::End);
        Ok(())
    }
}

/// Four ports that nobody listens on, below those that the system gives to connections.
pub(super) fn free_ports() -> Result<[u16; 4], String> {
    let draw = |_| PORTS.start + (rocketpy_env::random_u64() % u64::from(PORTS.end - PORTS.start)) as u16;
    let listeners =
        (0..PORT_TRIES).map(draw).filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let listeners: Vec<TcpListener> = listeners.take(4).collect(); // held until all are known
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    let ports: Vec<u16> = addresses.map(|address| address.port()).collect();
    ports.try_into().map_err(|_| format!("no free ports among {PORTS:?}"))
}

fn contract(shape: &Shape) -> Contract {
    let group = |(name, tags): (&str, &str)| Group {
        name: name.to_owned(),
        tags: if tags == "*" { Vec::new() } else { vec![tags.to_owned()] },
        outlives: name == LASTING,
        ..Group::default()
    };
    let by_sql = Group {
        name: sql::GROUP.to_owned(),
        tags: sql::TAGS.map(str::to_owned).to_vec(),
        ..group((sql::GROUP, "*"))
    };
    let groups = GROUPS.into_iter().chain([(LASTING, "*")]).map(group).chain([by_sql]);
    let groups = groups.filter(|_| shape.has_consumers);
    Contract {
        acknowledged: shape.flush.acknowledged(),
        topics: shape.own_flushes().into_iter().chain(crate::later::topics_of_their_own()).collect(),
        groups: groups.collect(),
    }
}
