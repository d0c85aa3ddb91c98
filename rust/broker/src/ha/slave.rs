//! A slave's connection to its master: one thread that reads the log, appends it and reports.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rocketpy_env::{Disk, EnvError};
use rocketpy_ha::{
    Diverged, Epochs, FROM_THE_FIRST_FILE, Follow, FollowConfig, FollowEnd, FollowStep, GREETING,
    GREETING_HEAD_BYTES, Greeting, Relation, encode_report,
};
use rocketpy_model::PhysicalOffset;
use rocketpy_remoting::{ClientTls, Socket};
use rocketpy_store::{FlushError, FlushMode, ReplicateError, Store, StoreError, whole_records};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::follow_figures::{FollowFigures, Followed};
use super::past::Past;
use super::{MASTER, SLAVE, reportable_end};
use crate::RoleOrder;
use crate::role::{OwnLog, RoleCell};

/// Timeout for connecting. A stop waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before the next try to reach the master. Each answer that gives nothing doubles it, up to [`LONGEST_PAUSE`]; a master that is not
/// there may be back at any moment.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// Maximum wait for the answer to a greeting. A stop ends it.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait of the thread before it looks whether the slave stops.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Pause before bytes that the store does not take now are given to it again. The socket is not read meanwhile.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Size of one read.
const READ_BYTES: usize = 1 << 20;

/// A slave's thread.
#[doc(alias = "HAClient")]
#[derive(Debug)]
pub(crate) struct Slaving<D: Disk> {
    shared: Arc<Following<D>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Following<D: Disk> {
    store: Arc<Store<D>>,
    past: Arc<Past<D>>,
    own: Own,
    config: FollowConfig,
    state: Mutex<State>,
    /// Notified when the master's address changes, and at the stop.
    changed: Condvar,
    began: Instant,
    /// Whether bytes have come on the connection that is there.
    is_following: AtomicBool,
    figures: FollowFigures,
}

/// Identity and settings of a slave.
#[derive(Debug)]
pub(super) struct Own {
    /// Where it answers requests.
    pub(super) address: String,
    /// Length of the files of its log.
    pub(super) file_bytes: u64,
    pub(super) flush: FlushMode,
    pub(super) flush_timeout: Duration,
    /// Says why the master is not followed, though it is reached.
    pub(super) not_followed: Arc<Mutex<Option<String>>>,
    /// Records whether this log is a beginning of the master's.
    pub(super) role: Arc<RoleCell>,
    /// How long it stays away from a master that it left.
    pub(super) stay_away: Duration,
    /// TLS to its master; `None`: the connection is plain.
    pub(super) tls: Option<Arc<ClientTls>>,
    /// How the end of its log is cut off that was promised to nobody; `None`: it is not.
    pub(super) cutting: Option<Cutting>,
}

/// Has the process stop the broker, cut its log and start it again.
#[derive(Debug)]
pub(super) struct Cutting {
    pub(super) orders: watch::Sender<Option<RoleOrder>>,
    /// The role of the broker, which it keeps.
    pub(super) order: RoleOrder,
}

#[derive(Debug, Default)]
struct State {
    /// `host:port` of the master's port for slaves.
    master: Option<String>,
    /// Replication address of a master that this slave left for a promotion, and until when it does not go back.
    left: Option<(String, Instant)>,
    /// Whether it is RocketPy's: it is greeted, and gives an empty slave its whole log.
    is_own: bool,
    is_stopping: bool,
    /// Of the connection that is there.
    socket: Option<TcpStream>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Follow(#[from] FollowEnd),
    #[error("connection broke: {0}")]
    Socket(#[from] io::Error),
    #[error(
        "master closed the connection before it sent data: either it is the master of another log (see its log messages), or haMasterAddress \
         is not its port for slaves (haListenPort)"
    )]
    Refused,
    #[error("TLS handshake with the master failed (haUseTLS): {0}")]
    NoTls(#[source] io::Error),
    #[error("master closed the connection")]
    Closed,
    #[error(
        "commit log files have {master} bytes at the master and {own} at this slave: set mappedFileSizeCommitLog={master} at this slave and \
         give it an empty folder"
    )]
    FileBytes { master: u64, own: u64 },
    #[error("cannot append the master's records: {0}")]
    NotTaken(#[from] ReplicateError),
    #[error("cannot flush the master's records: {0}")]
    Flush(#[from] FlushError),
    #[error("cannot read the master's answer to the greeting")]
    NoGreeting,
    #[error(
        "master did not prove the secret of haTokenFile or innerClientAuthenticationCredentials (a master with authenticationEnabled=false has only the first)"
    )]
    NoProof,
    #[error(
        "master requires a secret: set haTokenFile at this slave too, or authenticationEnabled with innerClientAuthenticationCredentials"
    )]
    NoToken,
    #[error("master rejected this slave: {0}")]
    NotFed(String),
    #[error("master rejected this slave: {0}")]
    OtherLog(String),
    #[error(transparent)]
    Diverged(#[from] Diverged),
    #[error(
        "records of this slave after {at} were never acknowledged and its master does not have them: cutting them off after a backup"
    )]
    Cuts { at: PhysicalOffset },
    #[error("cannot read the log of this slave: {0}")]
    Log(#[from] StoreError),
    #[error("cannot save the epochs of the master's log: {0}")]
    File(#[from] EnvError),
    #[error("this slave is stopping")]
    Stop,
}

impl<D: Disk> Slaving<D> {
    /// Starts the thread. It connects once it knows its master ([`Self::set_master`]).
    ///
    /// # Errors
    /// There are no threads.
    pub(crate) fn start(
        store: Arc<Store<D>>,
        past: Arc<Past<D>>,
        own: Own,
        config: FollowConfig,
    ) -> io::Result<Self> {
        // A restart does not lead back to a master that was left: the stay away begins anew, by a clock that nobody can set.
        let left = past.left_master().map(|address| (address, Instant::now() + own.stay_away));
        let state = Mutex::new(State { left, ..State::default() });
        let shared = Arc::new(Following {
            store,
            past,
            own,
            config,
            state,
            changed: Condvar::new(),
            began: Instant::now(),
            is_following: AtomicBool::new(false),
            figures: FollowFigures::default(),
        });
        if let Some((address, _)) = &shared.state.lock().left {
            shared.tell_left(address);
        }
        let owner = shared.clone();
        let thread = Builder::new().name("rocketpy-ha".to_owned()).spawn(move || owner.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Says where the master's port for slaves is, as `host:port`, and whether it is RocketPy's. A connection to another one ends.
    pub(crate) fn set_master(&self, address: &str, is_own: bool) {
        let mut state = self.shared.state.lock();
        if state.left.as_ref().is_some_and(|(left, until)| left == address && Instant::now() < *until) {
            return;
        }
        if state.left.take().is_some() {
            self.shared.past.follows_again();
            *self.shared.own.not_followed.lock() = None;
        }
        state.is_own = is_own;
        if state.master.as_deref() == Some(address) {
            return;
        }
        info!(address, "master's replication address set");
        state.master = Some(address.to_owned());
        state.disconnect();
        self.shared.changed.notify_all();
    }

    /// Does not follow a master whose log files have another size, and says why.
    pub(crate) fn reject_master(&self, master: &str, file_bytes: u64) {
        let own = &self.shared.own;
        let cause = End::FileBytes { master: file_bytes, own: own.file_bytes };
        let before = own.not_followed.lock().replace(cause.to_string());
        if before.is_none_or(|before| before != cause.to_string()) {
            error!(master, %cause, "replication from the master stopped");
        }
        let mut state = self.shared.state.lock();
        state.master = None;
        state.disconnect();
    }

    /// Says where a master's port for slaves is, of which nothing else is known, while none is. Who was the slave of a master of
    /// RocketPy takes it only if `is_only`: there is no way to find that one.
    pub(crate) fn set_first_master(&self, address: &str, is_only: bool) {
        let is_open = self.shared.past.is_untold() || is_only;
        if is_open && self.shared.state.lock().master.is_none() {
            self.set_master(address, false);
        }
    }

    /// Leaves the master, and does not go back to it for a while unless another one is known meanwhile. On return no report goes to it any more:
    /// it acknowledges nothing that counts on this slave.
    ///
    /// # Durability
    /// On return a restart of this slave does not lead back to that master either.
    ///
    /// # Errors
    /// The file cannot be written: a restart would forget it.
    pub(crate) fn leave_master(&self) -> Result<(), EnvError> {
        let mut state = self.shared.state.lock();
        let left = state.master.take().or_else(|| state.left.take().map(|(master, _)| master));
        state.left = left.clone().map(|left| (left, Instant::now() + self.shared.own.stay_away));
        state.disconnect();
        assert!(state.master.is_none(), "a slave that left its master follows nobody");
        drop(state);
        self.shared.own.role.set_log(OwnLog::Unchecked);
        let Some(left) = left else { return Ok(()) };
        self.shared.tell_left(&left);
        self.shared.past.note_left_master(left)
    }

    /// Whether it is connected to its master and gets its log.
    pub(crate) fn is_following(&self) -> bool {
        self.shared.is_following.load(Ordering::Acquire)
    }

    /// State of the connection to the master.
    pub(crate) fn followed(&self) -> Followed {
        let master = self.shared.state.lock().master.clone();
        self.shared.figures.get(master, self.is_following())
    }

    /// Notes how far the master has flushed its log.
    pub(crate) fn set_master_flushed(&self, offset: i64) {
        self.shared.figures.set_master_flushed(offset);
    }

    /// Whether it left its master a moment ago, and knows no other.
    pub(crate) fn has_left_master(&self) -> bool {
        self.shared.state.lock().left.as_ref().is_some_and(|(_, until)| Instant::now() < *until)
    }

    /// Ends the thread. What it has appended is part of the log. Blocks.
    pub(crate) fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        let mut state = self.shared.state.lock();
        state.is_stopping = true;
        state.disconnect();
        drop(state);
        self.shared.changed.notify_all();
        let _ = thread.join(); // its panic is in the log
    }
}

impl<D: Disk> Drop for Slaving<D> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    fn disconnect(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _ = socket.shutdown(std::net::Shutdown::Both); // it may be gone already
        }
    }
}

impl<D: Disk> Following<D> {
    /// Says why no master is followed.
    fn tell_left(&self, master: &str) {
        let seconds = self.own.stay_away.as_secs();
        *self.own.not_followed.lock() = Some(format!(
            "left {master} because another slave was being promoted: follows the next master that it finds, or the same one after {seconds} s"
        ));
    }

    fn run(&self) {
        let (mut told, mut pause) = (String::new(), RETRY_PAUSE);
        loop {
            let master = {
                let mut state = self.state.lock();
                while state.master.is_none() && !state.is_stopping {
                    self.changed.wait(&mut state);
                }
                state.socket = None;
                if state.is_stopping {
                    return;
                }
                state.master.clone().expect("the wait is over")
            };
            let mut has_heard = false;
            let followed = self.follow(&master, &mut has_heard);
            self.is_following.store(false, Ordering::Release);
            self.figures.disconnected();
            let end = match followed {
                Ok(never) => match never {},
                Err(End::Stop) => return,
                Err(_) if self.is_stopping() => return, // which ends the connection
                Err(end) => end,
            };
            if matches!(end, End::Diverged(_) | End::OtherLog(_)) {
                self.own.role.set_log(OwnLog::Diverged);
                if let Err(error) = self.past.note_diverged() {
                    warn!(%error, "divergence of the logs not saved");
                }
            }
            if !matches!(end, End::Socket(_) | End::Closed) {
                *self.own.not_followed.lock() = Some(end.to_string());
            }
            if has_heard || matches!(end, End::Socket(_) | End::Closed) {
                pause = RETRY_PAUSE;
            }
            if has_heard {
                told = String::new(); // the same cause is news
            }
            let reason = end.kind();
            if std::mem::replace(&mut told, reason.clone()) != reason {
                match end {
                    End::Socket(_) | End::Closed | End::Refused => {
                        warn!(master, cause = %end, "no connection to the master, retrying");
                    }
                    _ => error!(master, cause = %end, "replication from the master stopped, retrying"),
                }
            }
            self.pause(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits, unless the slave stops or gets another master.
    fn pause(&self, pause: Duration) {
        let mut state = self.state.lock();
        if !state.is_stopping {
            self.changed.wait_for(&mut state, pause);
        }
    }

    fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    /// Follows the log of a master until something ends that.
    fn follow(&self, master: &str, has_heard: &mut bool) -> Result<std::convert::Infallible, End> {
        let socket = self.connect(master)?;
        self.make_durable()?; // the first report is of what is
        let (end, is_own) = (self.store.max_physical_offset(), self.state.lock().is_own);
        let mut regains_at = None;
        if is_own {
            regains_at = Some(self.greet(&socket)?);
            self.own.role.set_log(OwnLog::Followed);
        } else if self.past.has_secret() {
            return Err(End::NoProof);
        } else {
            self.past.adopt_untold(end)?;
        }
        let mut follow = Follow::new(self.config, end, self.began.elapsed());
        let is_empty = end == self.store.min_physical_offset();
        if is_empty && is_own {
            follow = follow.asking_for_all();
        }
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if self.is_stopping() {
                return Err(End::Stop);
            }
            match follow.step(self.reportable_end(), self.began.elapsed())? {
                FollowStep::AskForAll => {
                    (&socket).write_all(&FROM_THE_FIRST_FILE.to_be_bytes())?;
                    follow.reported(follow.end(), self.began.elapsed());
                }
                FollowStep::Report { end } => {
                    (&socket).write_all(&encode_report(end))?;
                    follow.reported(end, self.began.elapsed());
                    self.figures.reported();
                }
                FollowStep::Wait { until } => {
                    let wait = until
                        .saturating_sub(self.began.elapsed())
                        .clamp(Duration::from_millis(1), LONGEST_WAIT);
                    socket.set_read_timeout(Some(wait))?;
                    match (&socket).read(&mut buffer) {
                        Ok(0) => return Err(if *has_heard { End::Closed } else { End::Refused }),
                        Ok(count) => {
                            self.figures.heard(count);
                            self.take(&mut follow, &buffer[..count], &socket)?;
                            if regains_at.take_if(|end| *end <= self.reportable_end()).is_some() {
                                self.past.regained();
                            }
                            if !std::mem::replace(has_heard, true) {
                                self.is_following.store(true, Ordering::Release);
                                *self.own.not_followed.lock() = None;
                                self.own.role.set_log(OwnLog::Followed);
                                info!(master, end = %follow.end(), "replication from the master started");
                            }
                        }
                        Err(error) if super::is_time_out(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Finds out whether the own log is a beginning of the master's, and takes over its epochs. Returns where the master's log ends.
    fn greet(&self, mut socket: &Socket) -> Result<PhysicalOffset, End> {
        let own = self.past.greeting(&self.store, &self.own.address, self.own.file_bytes)?;
        socket.set_read_timeout(Some(GREETING_TIMEOUT))?;
        socket.write_all(&GREETING.to_be_bytes())?;
        socket.write_all(&own.encode())?;
        let mut head = [0; GREETING_HEAD_BYTES];
        socket.read_exact(&mut head)?;
        let mut body = vec![0; Greeting::length(head).ok_or(End::NoGreeting)?];
        socket.read_exact(&mut body)?;
        let master = Greeting::decode(&body).ok_or(End::NoGreeting)?;
        let parts = |who| [who, own.nonce.as_bytes(), master.nonce.as_bytes()];
        if !self.past.is_proved(&parts(MASTER), master.proof.as_deref()) {
            return Err(End::NoProof);
        }
        let proof = self.past.prove(&parts(SLAVE));
        if proof.is_none() && master.proof.is_some() {
            return Err(End::NoToken);
        }
        if master.file_bytes != 0 && master.file_bytes != own.file_bytes {
            return Err(End::FileBytes { master: master.file_bytes, own: own.file_bytes });
        }
        if let Relation::Diverged(diverged) = own.relation(&master.epochs, master.end) {
            return Err(self.end_of_diverged(diverged, &master.epochs));
        }
        if let Some(refusal) = master.refusal {
            return Err(if master.is_other_log { End::OtherLog(refusal) } else { End::NotFed(refusal) });
        }
        self.past.adopt_of_master(&master.epochs, master.end)?;
        if let Some(proof) = proof {
            socket.write_all(proof.as_bytes())?;
        }
        Ok(master.end)
    }

    /// Has the end of the own log cut off, if nobody was promised anything of it.
    fn end_of_diverged(&self, diverged: Diverged, master: &Epochs) -> End {
        let Diverged { at, .. } = diverged;
        match &self.own.cutting {
            Some(Cutting { orders, order })
                if orders.receiver_count() > 0 && self.past.is_unpromised_behind(at, master) =>
            {
                orders.send_replace(Some(RoleOrder { cut_at: Some(at), ..*order }));
                End::Cuts { at }
            }
            _ => diverged.into(),
        }
    }

    fn connect(&self, master: &str) -> Result<Socket, End> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for address in master.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_write_timeout(Some(self.config.silence_limit))?;
                    let mut state = self.state.lock();
                    if state.is_stopping {
                        return Err(End::Stop);
                    }
                    if state.master.as_deref() != Some(master) {
                        return Err(End::Closed); // it has changed meanwhile
                    }
                    state.socket = Some(socket.try_clone()?);
                    self.figures.connected();
                    drop(state); // a stop ends the handshake
                    return self.secure(socket, master);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed.into())
    }

    /// Completes a TLS handshake with the master, where one is wanted.
    fn secure(&self, socket: TcpStream, master: &str) -> Result<Socket, End> {
        let Some(tls) = &self.own.tls else { return Ok(Socket::plain(socket)) };
        Socket::connect(socket, tls, master, GREETING_TIMEOUT).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                End::NoTls(error)
            }
            _ => End::Socket(error),
        })
    }

    /// How far the master may count on this slave.
    fn reportable_end(&self) -> PhysicalOffset {
        reportable_end(&self.store, self.own.flush)
    }

    /// Under SYNC_FLUSH, makes durable what is appended: a report says that it is.
    fn make_durable(&self) -> Result<(), End> {
        if self.own.flush == FlushMode::Async {
            return Ok(());
        }
        let (end, began) = (self.store.max_physical_offset(), Instant::now());
        loop {
            match self.store.wait_flushed(end, LONGEST_WAIT) {
                Err(error)
                    if error.retryable()
                        && began.elapsed() < self.own.flush_timeout
                        && !self.is_stopping() => {}
                flushed => return Ok(flushed?),
            }
        }
    }

    /// Appends what is whole of the bytes that came.
    fn take(&self, follow: &mut Follow, bytes: &[u8], socket: &Socket) -> Result<(), End> {
        let heard = follow.heard(bytes, self.began.elapsed());
        self.append(follow, socket)?;
        heard?;
        self.make_durable()
    }

    fn append(&self, follow: &mut Follow, socket: &Socket) -> Result<(), End> {
        let mut is_told = false;
        loop {
            let whole = whole_records(follow.pending());
            if whole == 0 {
                return Ok(());
            }
            let appended = self.store.append_replicated(follow.end(), &follow.pending()[..whole]);
            let taken = self.store.max_physical_offset() - follow.end();
            follow.appended(taken as usize); // an error may come after some of the records
            match appended {
                Ok(_) if std::mem::take(&mut is_told) => {
                    info!("replication from the master continues");
                    *self.own.not_followed.lock() = None;
                }
                Ok(_) => {}
                Err(error) if error.retryable() && !self.is_stopping() => {
                    if !std::mem::replace(&mut is_told, true) {
                        warn!(%error, "replication from the master paused, retrying");
                        *self.own.not_followed.lock() = Some(error.to_string());
                    }
                    self.pause(BUSY_PAUSE);
                    self.stay(follow, socket)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets the master know that this slave is there, though it does not listen.
    fn stay(&self, follow: &mut Follow, mut socket: &Socket) -> Result<(), End> {
        let now = self.began.elapsed();
        follow.was_busy(now);
        if let FollowStep::Report { end } = follow.step(self.reportable_end(), now)? {
            socket.write_all(&encode_report(end))?;
            follow.reported(end, now);
            self.figures.reported();
        }
        Ok(())
    }
}

impl End {
    /// Key by which an end is compared with the previous one.
    fn kind(&self) -> String {
        match self {
            Self::Socket(_) | Self::Closed => "no connection".to_owned(),
            other => other.to_string(),
        }
    }
}
