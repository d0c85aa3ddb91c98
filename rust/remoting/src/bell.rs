//! A descriptor that becomes readable when somebody rings.

use std::os::fd::{AsFd, BorrowedFd};
use std::{fmt, io};

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};

    pub(super) struct Bell(pub(super) OwnedFd);

    impl Bell {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn ring(&self) {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes()); // fails only if it is ringing already
        }

        pub(super) fn silence(&self) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]); // fails when nobody rang
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;

    pub(super) struct Bell(pub(super) UnixStream, UnixStream);

    impl Bell {
        pub(super) fn new() -> io::Result<Self> {
            let (ear, mouth) = UnixStream::pair()?;
            ear.set_nonblocking(true)?;
            mouth.set_nonblocking(true)?;
            Ok(Self(ear, mouth))
        }

        pub(super) fn ring(&self) {
            let _ = (&self.1).write(&[1]); // fails only if it is ringing already
        }

        pub(super) fn silence(&self) {
            while (&self.0).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        }
    }
}

/// A descriptor that becomes readable when somebody rings. Rings before the next [`silence`](Self::silence) count as one.
pub struct Bell(system::Bell);

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}

impl Bell {
    /// Makes a bell that does not ring.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        system::Bell::new().map(Self)
    }

    /// Makes the descriptor readable. Never waits.
    pub fn ring(&self) {
        self.0.ring();
    }

    /// Makes it unreadable until the next ring.
    pub fn silence(&self) {
        self.0.silence();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}
