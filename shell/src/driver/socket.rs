//! A stream socket before and after it is registered with a shard's runtime.

use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdUnix;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A socket that no runtime knows: as it travels between threads.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// Unix domain.
    Unix(StdUnix),
}

/// A socket of this thread's runtime.
#[derive(Debug)]
pub enum Registered {
    /// TCP.
    Tcp(TcpStream),
    /// Unix domain.
    Unix(UnixStream),
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes; the socket may have more.
    Bytes(usize),
    /// So many bytes, and less than asked for: nothing more is there now.
    Last(usize),
    /// Nothing is there now.
    Nothing,
    /// The peer will send no more.
    End,
}

impl Socket {
    /// Registers with the runtime of the calling thread.
    ///
    /// # Errors
    /// The runtime's, for example when it is out of memory for the registration.
    pub fn register(self) -> io::Result<Registered> {
        match self {
            Socket::Tcp(s) => TcpStream::from_std(s).map(Registered::Tcp),
            Socket::Unix(s) => UnixStream::from_std(s).map(Registered::Unix),
        }
    }
}

fn recv(fd: impl rustix::fd::AsFd, room: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::net::recv(&fd, &mut *room, rustix::net::RecvFlags::empty()) {
            Ok((n, _)) => return Ok(n),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

impl Registered {
    /// Takes the socket out of the runtime again.
    ///
    /// # Errors
    /// The runtime's.
    pub fn unregister(self) -> io::Result<Socket> {
        match self {
            Registered::Tcp(s) => s.into_std().map(Socket::Tcp),
            Registered::Unix(s) => s.into_std().map(Socket::Unix),
        }
    }

    /// Whether a read is worth trying; arms the waker otherwise.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Registered::Tcp(s) => s.poll_read_ready(cx),
            Registered::Unix(s) => s.poll_read_ready(cx),
        }
    }

    /// Whether a write is worth trying; arms the waker otherwise.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Registered::Tcp(s) => s.poll_write_ready(cx),
            Registered::Unix(s) => s.poll_write_ready(cx),
        }
    }

    /// Reads once. A short read tells that the socket is empty, which saves the call that would find out.
    ///
    /// # Errors
    /// The socket's.
    pub fn read(&self, room: &mut [u8]) -> io::Result<Got> {
        let mut got = Got::Nothing;
        let full = room.len();
        let mut once = |result: Result<usize, Errno>| -> io::Result<()> {
            match result {
                Ok(0) => {
                    got = Got::End;
                    Ok(())
                }
                Ok(n) if n < full => {
                    got = Got::Last(n);
                    // Clears the readiness: it comes back with the next segment.
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Ok(n) => {
                    got = Got::Bytes(n);
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        };
        let result = match self {
            Registered::Tcp(s) => s.try_io(Interest::READABLE, || once(recv(s, room))),
            Registered::Unix(s) => s.try_io(Interest::READABLE, || once(recv(s, room))),
        };
        match result {
            Ok(()) => Ok(got),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(got),
            Err(error) => Err(error),
        }
    }

    /// Writes once.
    ///
    /// # Errors
    /// The socket's; `WouldBlock` when it takes nothing now.
    pub fn write(&self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, chunks) {
            (Registered::Tcp(s), [one]) => s.try_write(one),
            (Registered::Tcp(s), _) => s.try_write_vectored(chunks),
            (Registered::Unix(s), [one]) => s.try_write(one),
            (Registered::Unix(s), _) => s.try_write_vectored(chunks),
        }
    }

    /// True if the connection is over in both directions: reset, or both have said FIN. A FIN of the peer alone
    /// does not count, since bytes may lie before it.
    pub fn is_dead(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        // Hang-up and errors are reported unasked.
        let mut fds = match self {
            Registered::Tcp(s) => [PollFd::new(s, PollFlags::empty())],
            Registered::Unix(s) => [PollFd::new(s, PollFlags::empty())],
        };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A look that fails tells nothing.
        poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Sends a FIN.
    ///
    /// # Errors
    /// The socket's, for example when the peer was faster.
    pub fn finish(&self) -> io::Result<()> {
        match self {
            Registered::Tcp(s) => rustix::net::shutdown(s, rustix::net::Shutdown::Write),
            Registered::Unix(s) => rustix::net::shutdown(s, rustix::net::Shutdown::Write),
        }
        .map_err(Into::into)
    }
}

impl Socket {
    /// Ends both directions.
    ///
    /// # Errors
    /// The socket's.
    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(s) => s.shutdown(Shutdown::Both),
            Socket::Unix(s) => s.shutdown(Shutdown::Both),
        }
    }
}
