//! A connection whose work threads outside of the runtime may do: the thread that makes a call then writes the request and reads the answer
//! itself, where both happen at once. Each is otherwise a wake of another thread, which takes longer than the work.
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::bell::Bell;
use crate::driver::Driver;
use crate::helper::Helper;

/// How long a thread waits for the socket before it waits as others do, for the task.
const WAIT: Duration = Duration::from_millis(1);
/// How often it looks whether it has its answer: those of others may come without an end, and it notices nothing else meanwhile.
const LOOKS: usize = 64;

/// The task of a connection of a client.
pub(crate) struct SharedDriver(Arc<Shared>);

type TcpDriver = Driver<tokio::net::TcpStream, ()>;

struct Shared {
    /// `None` when the task has ended. Only the task waits for the lock, the standard library's: a thread that sleeps in
    /// `parking_lot`'s table at a fork harms the child.
    driver: Mutex<Option<TcpDriver>>,
    /// The same socket, for threads that wait for it.
    socket: TcpStream,
    /// A thread waits for the socket.
    is_awaited: AtomicBool,
    /// Rings for that thread when the task has read.
    has_read: Bell,
}

/// Who reads what a thread waits for.
#[derive(Clone, Copy)]
enum Source {
    /// The thread itself, or the task before it.
    Socket,
    /// The task: the thread has found that it must not.
    Task,
}

impl SharedDriver {
    /// # Errors
    /// The process has no file descriptors left.
    pub(crate) fn new(
        stream: tokio::net::TcpStream,
        driver: impl FnOnce(tokio::net::TcpStream) -> TcpDriver,
    ) -> io::Result<Self> {
        let socket = TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        let driver = driver(stream);
        let connection = Arc::clone(driver.connection());
        let (is_awaited, has_read) = (AtomicBool::new(false), Bell::new()?);
        let shared = Arc::new(Shared { driver: Mutex::new(Some(driver)), socket, is_awaited, has_read });
        let helper: Arc<dyn Helper> = shared.clone();
        connection.outbox().set_helper(Arc::downgrade(&helper));
        Ok(Self(shared))
    }
}

impl Future for SharedDriver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &*self.0;
        let mut driver = shared.lock();
        let Some(driver) = &mut *driver else { return Poll::Ready(()) };
        let frames = driver.frames();
        let polled = Pin::new(&mut *driver).poll(cx);
        if driver.frames() != frames {
            shared.tell();
        }
        polled
    }
}

/// The connection ends with its task, whoever helps it at that moment: no call is begun on it afterwards.
impl Drop for SharedDriver {
    fn drop(&mut self) {
        let driver = self.0.lock().take();
        drop(driver);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<TcpDriver>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `help` with the driver, unless another thread uses it or the task has ended.
    fn help<T>(&self, help: impl FnOnce(&mut TcpDriver) -> T) -> Option<T> {
        let mut driver = match self.driver.try_lock() {
            Ok(driver) => driver,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        driver.as_mut().map(help)
    }

    /// Tells the thread that waits for the socket, if there is one, that something was read.
    fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.is_awaited.load(Ordering::Relaxed) {
            self.has_read.ring();
        }
    }

    /// Waits until something can be read, and reads it, or until the task has read. False at the end of the time.
    fn wait(&self, source: &mut Source, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut polled =
            [PollFd::new(&self.has_read, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
        let count = match source {
            Source::Task => 1,
            Source::Socket => 2,
        };
        let is_over = match poll(&mut polled[..count], Some(&left)) {
            Ok(count) => count == 0,
            Err(error) => error != Errno::INTR, // else the caller would call again at once, without an end
        };
        if is_over {
            return false;
        }
        let [has_read, has_come] = polled.map(|polled| !polled.revents().is_empty());
        if has_read {
            self.has_read.silence();
        } else if has_come {
            let was_read =
                self.help(|driver| driver.read_for_task(|bytes| (&self.socket).read(bytes))).unwrap_or(false);
            if !was_read {
                *source = Source::Task;
            }
        }
        true
    }
}

impl Helper for Shared {
    fn write(&self, waker: &Waker) -> bool {
        self.help(|driver| driver.write_for_task(waker)).unwrap_or(false)
    }

    fn read(&self, is_answered: &mut dyn FnMut() -> bool) {
        if self.is_awaited.swap(true, Ordering::Acquire) {
            return;
        }
        fence(Ordering::SeqCst); // Before the first look: the task looks at `is_awaited` after it answers.
        let end = Instant::now() + WAIT;
        let mut source = Source::Socket;
        for _ in 0..LOOKS {
            if is_answered() || !self.wait(&mut source, end) {
                break;
            }
        }
        self.is_awaited.store(false, Ordering::Release);
    }
}
