//! The port for slaves: a thread that listens, and two for each slave, one of which reads its reports and one of which sends.

use std::collections::HashMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::{Disk, EnvError};
use rocketpy_ha::{
    Feed, FeedConfig, FeedEnd, FeedStep, FrameHead, GREETING, GREETING_HEAD_BYTES, Greeting, HEAD_BYTES,
    LogRange, REPORT_BYTES, TwoHistories,
};
use rocketpy_model::PhysicalOffset;
use rocketpy_model::system::MAX_SLAVES;
use rocketpy_remoting::{Refused, ServerTls, Socket};
use rocketpy_store::{Store, StoreError};
use tracing::{debug, error, info, warn};

use super::config::OWN_BODY_BYTES;
use super::confirm::ConfirmOffset;
use super::past::{NoBeginning, Past};
use super::slaves::{Slave, Slaves};
use super::{MASTER, PROOF_BYTES, ReplicationConfig, SLAVE, is_time_out};

/// Maximum number of connections with running threads: those of slaves, and closed ones that have not ended yet.
const MAX_CONNECTIONS: usize = 4 * MAX_SLAVES;
/// Maximum wait of a thread before it looks whether the master stops.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Pause after the listening socket refused to give a connection, as it does when files run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A master's port for slaves.
#[doc(alias = "HAService")]
#[derive(Debug)]
pub(crate) struct Master<D: Disk> {
    feeding: Arc<Feeding<D>>,
    addr: SocketAddr,
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by all threads.
#[derive(Debug)]
struct Feeding<D: Disk> {
    store: Arc<Store<D>>,
    slaves: Arc<Slaves>,
    /// How far readers see; `None`: they do not wait for slaves.
    confirm: Option<Arc<ConfirmOffset<D>>>,
    past: Arc<Past<D>>,
    /// Where this master answers requests.
    address: String,
    /// Length of the files of the log.
    file_bytes: u64,
    config: FeedConfig,
    allowed: Vec<IpAddr>,
    /// TLS of the port; `None`: connections are plain.
    tls: Option<Arc<ServerTls>>,
    began: Instant,
    is_stopping: AtomicBool,
    /// Reader threads, one per slave; each ends after its sender thread.
    threads: Mutex<Vec<JoinHandle<()>>>,
    sockets: Mutex<Vec<(SocketAddr, TcpStream)>>,
    /// Why the last connection from an address ended.
    causes: Mutex<HashMap<IpAddr, String>>,
}

/// Why a slave is disconnected.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Feed(#[from] FeedEnd),
    #[error(transparent)]
    Past(#[from] TwoHistories),
    #[error("slave rejected: {0}")]
    NoBeginning(#[from] NoBeginning),
    #[error("slave did not prove the secret of haTokenFile or innerClientAuthenticationCredentials")]
    NoProof,
    #[error("cannot read the slave's greeting: the peer is another program or a newer version")]
    NoGreeting,
    #[error("cannot save slave progress: {0}")]
    File(#[from] EnvError),
    #[error("connection to the slave broke: {0}")]
    Socket(#[from] io::Error),
    #[error("connection rejected: {0}")]
    NotTaken(io::Error),
    #[error(transparent)]
    NotSecure(#[from] Refused),
    #[error("slave closed the connection")]
    Closed,
    #[error("cannot read the log: {0}")]
    Log(#[from] StoreError),
    #[error("this master is stopping")]
    Stop,
}

impl<D: Disk> Master<D> {
    /// Takes slaves.
    ///
    /// # Errors
    /// There are no threads.
    pub(crate) fn start(
        (listener, tls): (TcpListener, Option<Arc<ServerTls>>),
        store: Arc<Store<D>>,
        (slaves, confirm): (Arc<Slaves>, Option<Arc<ConfirmOffset<D>>>),
        past: Arc<Past<D>>,
        address: String,
        file_bytes: u64,
        config: &ReplicationConfig,
    ) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let feeding = Arc::new(Feeding {
            store,
            slaves,
            confirm,
            past,
            address,
            file_bytes,
            config: config.feed(),
            allowed: config.allowed.clone(),
            tls,
            began: Instant::now(),
            is_stopping: AtomicBool::new(false),
            threads: Mutex::default(),
            sockets: Mutex::default(),
            causes: Mutex::default(),
        });
        let owner = feeding.clone();
        let listening =
            Builder::new().name("rocketpy-ha".to_owned()).spawn(move || listen(&owner, &listener))?;
        info!(%addr, "listening for slaves");
        Ok(Self { feeding, addr, listening: Mutex::new(Some(listening)) })
    }

    /// Where slaves connect.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits at most `within` until the slaves have the whole log, then closes all connections. Blocks.
    pub(crate) fn stop(&self, within: Duration) {
        let Some(listening) = self.listening.lock().take() else { return };
        let feeding = &self.feeding;
        feeding.slaves.wait_until_all_have(feeding.store.max_physical_offset(), within);
        feeding.is_stopping.store(true, Ordering::Release);
        feeding.store.wake_waiting();
        drop(TcpStream::connect_timeout(&self.addr, LONGEST_WAIT)); // wakes the thread that listens
        let _ = listening.join(); // its panic is in the log
        feeding.sockets.lock().iter().for_each(|(_, socket)| drop(socket.shutdown(Shutdown::Both)));
        for slave in feeding.slaves.all() {
            slave.begun.notify_all();
        }
        let threads = std::mem::take(&mut *feeding.threads.lock());
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl<D: Disk> Drop for Master<D> {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn listen<D: Disk>(feeding: &Arc<Feeding<D>>, listener: &TcpListener) {
    loop {
        let accepted = listener.accept();
        if feeding.is_stopping.load(Ordering::Acquire) {
            return;
        }
        feeding.threads.lock().retain(|thread| !thread.is_finished());
        match accepted {
            Ok((socket, peer)) => {
                if let Err(error) = admit(feeding, socket, peer) {
                    feeding.tell_end(peer, false, End::NotTaken(error), Ok(Ok(End::Closed)));
                }
            }
            Err(error) => {
                warn!(%error, "connection of a slave not accepted");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn admit<D: Disk>(feeding: &Arc<Feeding<D>>, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !feeding.allowed.is_empty() && !feeding.allowed.contains(&peer.ip().to_canonical()) {
        return refused(format!("{} is not in haAllowedSlaves", peer.ip()));
    }
    if feeding.threads.lock().len() >= MAX_CONNECTIONS {
        return refused(format!("{MAX_CONNECTIONS} closed connections have not ended yet"));
    }
    if !feeding.make_room() {
        return refused(format!("{MAX_SLAVES} slaves are connected already"));
    }
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LONGEST_WAIT))?;
    socket.set_write_timeout(Some(feeding.config.silence_limit))?;
    let kept = socket.try_clone()?;
    let slave = Arc::new(Slave::new(peer, Feed::new(feeding.config, feeding.began.elapsed())));
    feeding.slaves.add(slave.clone());
    feeding.sockets.lock().push((peer, kept));
    let (owner, added) = (feeding.clone(), slave.clone());
    let serve = move || {
        let (reports, sender) = serve(&owner, &slave, socket);
        owner.slaves.remove(&slave); // it counts for no send from now on
        let feed = slave.feed.lock();
        slave.has_ended.store(true, Ordering::Release);
        drop(feed);
        slave.begun.notify_all();
        owner.store.wake_waiting();
        let sent = sender.map_or(Ok(Ok(End::Closed)), |sender| sender.map(JoinHandle::join));
        if let Err(error) = owner.past.settle() {
            warn!(%peer, %error, "slave progress not saved");
        }
        owner.sockets.lock().retain(|(other, _)| *other != peer);
        owner.tell_end(peer, slave.has_reported(), reports, sent);
    };
    let thread = Builder::new().name("rocketpy-ha-in".to_owned()).spawn(serve).inspect_err(|_| {
        feeding.slaves.remove(&added);
        feeding.sockets.lock().retain(|(other, _)| *other != peer);
    })?;
    feeding.threads.lock().push(thread);
    Ok(())
}

/// Completes the handshake of an encrypted connection, then sends frames on a thread of their own, and reads reports until the connection
/// ends. Returns its end, and the thread if it was started.
fn serve<D: Disk>(
    feeding: &Arc<Feeding<D>>,
    slave: &Arc<Slave>,
    socket: TcpStream,
) -> (End, Option<io::Result<JoinHandle<End>>>) {
    let secured = match &feeding.tls {
        None => Ok(Socket::plain(socket)),
        Some(tls) => Socket::accept(socket, tls, feeding.config.silence_limit),
    };
    let socket = match secured {
        Ok(socket) => Arc::new(socket),
        Err(_) if feeding.is_stopping.load(Ordering::Acquire) => return (End::Stop, None),
        Err(refused) => return (refused.into(), None),
    };
    let sending = (feeding.clone(), slave.clone(), socket.clone());
    let sender = Builder::new().name("rocketpy-ha-out".to_owned()).spawn(move || {
        let (feeding, slave, socket) = sending;
        let ended = send(&feeding, &slave, &socket);
        drop(socket.shutdown()); // which ends the reports
        ended
    });
    let reports = receive(feeding, slave, &socket);
    drop(socket.shutdown());
    (reports, Some(sender))
}

/// Reads reports until the connection ends.
fn receive<D: Disk>(feeding: &Feeding<D>, slave: &Slave, mut socket: &Socket) -> End {
    let mut buffer = [0; 1024];
    let (checked_end, mut unread) = match greet(feeding, slave, socket) {
        Ok(Begun::Greeted(end)) => (Some(end), None),
        Ok(Begun::Reported(report)) => (None, Some(report)),
        Err(end) => return end,
    };
    loop {
        let read = match unread.take() {
            Some(report) => {
                buffer[..REPORT_BYTES].copy_from_slice(&report);
                Ok(REPORT_BYTES)
            }
            None => socket.read(&mut buffer),
        };
        if feeding.is_stopping.load(Ordering::Acquire) {
            return End::Stop;
        }
        let count = match read {
            Ok(0) => return End::Closed,
            Ok(count) => count,
            Err(error) if is_time_out(&error) => continue, // the sending thread ends a silent connection
            Err(error) => return error.into(),
        };
        let mut feed = slave.feed.lock();
        let is_first = feed.next().is_none();
        if let Err(end) = feed.heard(&buffer[..count], feeding.log(), feeding.began.elapsed()) {
            return end.into();
        }
        let Some(end) = feed.acknowledged() else { continue };
        let address = slave.peer.ip().to_canonical();
        if is_first {
            let is_checked = checked_end == Some(end) || feed.asked_for_all();
            let admitted = feeding.admit_report(slave, end, is_checked);
            if let Err(refused) = admitted {
                let _ = socket.shutdown(); // while the other thread waits for the feed: nothing is sent
                return refused;
            }
            info!(peer = %slave.peer, %end, "slave connected");
        }
        drop(feed);
        if is_first {
            slave.begun.notify_all();
        }
        if let Some(reached) = feeding.slaves.acknowledge(slave, end) {
            feeding.reached(reached);
        }
        feeding.past.acknowledged(address, end);
    }
}

/// First bytes of a slave, before its reports.
enum Begun {
    /// The greeting of a slave of RocketPy, whose log reaches to here and is a beginning of this one.
    Greeted(PhysicalOffset),
    /// The first report of one of Apache's.
    Reported([u8; REPORT_BYTES]),
}

/// Answers the greeting of a slave of RocketPy.
fn greet<D: Disk>(feeding: &Feeding<D>, slave: &Slave, mut socket: &Socket) -> Result<Begun, End> {
    let mut report = [0; REPORT_BYTES];
    read_whole(feeding, socket, &mut report)?;
    if i64::from_be_bytes(report) != GREETING {
        let is_proved = feeding.past.is_proved(&[], None);
        return if is_proved { Ok(Begun::Reported(report)) } else { Err(End::NoProof) };
    }
    let mut head = [0; GREETING_HEAD_BYTES];
    read_whole(feeding, socket, &mut head)?;
    let mut body = vec![0; Greeting::length(head).ok_or(End::NoGreeting)?];
    read_whole(feeding, socket, &mut body)?;
    let greeting = Greeting::decode(&body).ok_or(End::NoGreeting)?;
    let checked = feeding.slaves.check_id(&greeting).and_then(|()| {
        feeding.past.check_greeting(&greeting, &feeding.store, Some(slave.peer.ip().to_canonical()))
    });
    let mut answer = feeding.past.greeting(&feeding.store, &feeding.address, feeding.file_bytes)?;
    answer.refusal = checked.as_ref().err().map(ToString::to_string);
    feeding.slaves.note(&greeting, answer.refusal.clone());
    answer.is_other_log = checked.as_ref().is_err_and(NoBeginning::is_other_log);
    let parts = |who| [who, greeting.nonce.as_bytes(), answer.nonce.as_bytes()];
    answer.proof = feeding.past.prove(&parts(MASTER));
    socket.write_all(&answer.encode())?;
    checked?;
    if answer.proof.is_some() {
        let mut proof = [0; PROOF_BYTES];
        read_whole(feeding, socket, &mut proof).map_err(|end| match end {
            End::Closed => End::NoProof, // it knows another token, or none
            end => end,
        })?;
        if !feeding.past.is_proved(&parts(SLAVE), Some(&String::from_utf8_lossy(&proof))) {
            return Err(End::NoProof);
        }
    }
    feeding.past.greeted(&greeting)?;
    slave.greeted(greeting.broker_id, &greeting.address);
    slave.feed.lock().takes(OWN_BODY_BYTES.min(greeting.max_body_bytes) as usize);
    Ok(Begun::Greeted(greeting.end))
}

/// Fills a buffer. The sending thread ends a silent connection.
fn read_whole<D: Disk>(feeding: &Feeding<D>, mut socket: &Socket, mut buffer: &mut [u8]) -> Result<(), End> {
    while !buffer.is_empty() {
        let read = socket.read(buffer);
        if feeding.is_stopping.load(Ordering::Acquire) {
            return Err(End::Stop);
        }
        match read {
            Ok(0) => return Err(End::Closed),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if is_time_out(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends frames until the connection ends.
fn send<D: Disk>(feeding: &Feeding<D>, slave: &Slave, socket: &Socket) -> End {
    loop {
        if feeding.is_stopping.load(Ordering::Acquire) {
            return End::Stop;
        }
        if slave.has_ended.load(Ordering::Acquire) {
            return End::Closed;
        }
        if let Err(end) = send_next(feeding, slave, socket) {
            return end;
        }
    }
}

fn send_next<D: Disk>(feeding: &Feeding<D>, slave: &Slave, socket: &Socket) -> Result<(), End> {
    let mut feed = slave.feed.lock();
    let step = feed.step(feeding.log(), feeding.began.elapsed())?;
    let (at, body) = match step {
        FeedStep::Send { at, max_bytes } => {
            drop(feed); // reports are taken while this one reads the log and sends
            let Some(body) = feeding.store.log_slice(at, max_bytes)? else { return Ok(()) }; // removed: the next step says so
            (at, body)
        }
        FeedStep::Heartbeat { at } => {
            drop(feed);
            (at, bytes::Bytes::new())
        }
        FeedStep::Pause { until } => {
            let wait = until.saturating_sub(feeding.began.elapsed()).min(LONGEST_WAIT);
            slave.begun.wait_for(&mut feed, wait);
            return Ok(());
        }
        FeedStep::Wait { until } => {
            let wait = until.saturating_sub(feeding.began.elapsed()).min(LONGEST_WAIT);
            match feed.next() {
                None => drop(slave.begun.wait_for(&mut feed, wait)),
                Some(next) => {
                    drop(feed);
                    let end = feeding.store.wait_for_append(next, wait);
                    // All that was written is sent, and no more will be: waits end at once from now on.
                    if end <= next
                        && let Some(failed) = feeding.store.poisoned()
                    {
                        return Err(failed.into());
                    }
                }
            }
            return Ok(());
        }
    };
    slave.feed.lock().sent(body.len(), feeding.began.elapsed()); // before the slave can report it
    write_frame(socket, at, &body)?;
    slave.sent_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    Ok(())
}

fn write_frame(mut socket: &Socket, at: PhysicalOffset, body: &[u8]) -> io::Result<()> {
    let head: [u8; HEAD_BYTES] = FrameHead { at, body_bytes: body.len() as u32 }.encode();
    let mut parts = [IoSlice::new(&head), IoSlice::new(body)];
    let mut parts = &mut parts[..];
    while !parts.is_empty() {
        match socket.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        while parts.first().is_some_and(|part| part.is_empty()) {
            parts = &mut std::mem::take(&mut parts)[1..];
        }
    }
    Ok(())
}

impl<D: Disk> Feeding<D> {
    /// As many slaves as are waited for have the log up to here: shows it to readers, and answers senders, who may ask for it at once.
    fn reached(&self, reached: PhysicalOffset) {
        let Some(confirm) = &self.confirm else { return self.slaves.answer(reached) };
        confirm.reached(reached);
        self.slaves.answer(reached);
        self.store.dispatch_confirmed();
    }

    /// Whether one more connection may be taken. The oldest one that has not shown that it is a slave's makes room.
    fn make_room(&self) -> bool {
        let connected = self.slaves.all();
        if connected.len() < MAX_SLAVES {
            return true;
        }
        let Some(unknown) = connected.iter().find(|slave| !slave.has_reported()) else { return false };
        self.slaves.remove(unknown);
        let sockets = self.sockets.lock();
        let of_it = sockets.iter().filter(|(peer, _)| *peer == unknown.peer);
        of_it.for_each(|(_, socket)| drop(socket.shutdown(Shutdown::Both)));
        true
    }

    /// Says whether a slave that reports for the first time may be fed.
    fn admit_report(&self, slave: &Slave, end: PhysicalOffset, is_checked: bool) -> Result<(), End> {
        let address = slave.peer.ip().to_canonical();
        if !is_checked {
            self.past.check(address, end)?;
        }
        Ok(self.past.connected(address, &slave.identity().to_string(), end)?)
    }

    /// Logs the end of a slave's connection with the graver cause of its two threads. A repeated cause is logged at debug level only.
    fn tell_end(
        &self,
        peer: SocketAddr,
        was_slave: bool,
        reports: End,
        sent: io::Result<std::thread::Result<End>>,
    ) {
        let sent = match sent {
            Ok(Ok(end)) => end,
            Ok(Err(_)) => return error!(%peer, "sender thread of a slave panicked"),
            Err(error) => End::Socket(error),
        };
        let is_grave = |end: &End| {
            matches!(
                end,
                End::NoProof
                    | End::Log(_)
                    | End::Feed(_)
                    | End::Past(_)
                    | End::NoBeginning(_)
                    | End::File(_)
                    | End::NotTaken(_)
            )
        };
        let end = if is_grave(&sent) && !is_grave(&reports) { sent } else { reports };
        let cause = end.to_string();
        let mut causes = self.causes.lock();
        if causes.len() > MAX_SLAVES {
            causes.clear();
        }
        if causes.insert(peer.ip(), cause.clone()).as_ref() == Some(&cause) && (is_grave(&end) || !was_slave)
        {
            return debug!(%peer, cause, "slave disconnected again");
        }
        match end {
            End::Stop => info!(%peer, "slave disconnected, this master is stopping"),
            end if is_grave(&end) => error!(%peer, cause, "slave disconnected"),
            _ => warn!(%peer, cause, "slave disconnected"),
        }
    }

    fn log(&self) -> LogRange {
        LogRange {
            start: self.store.min_physical_offset(),
            end: self.store.max_physical_offset(),
            file_bytes: self.file_bytes,
        }
    }
}
