//! The sockets of a listener: bound early, so that an address that is taken is known at once; listening late, so that
//! clients are refused until somebody can serve them. Says what to do when one cannot be had.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::config::{Endpoint, Listener};

/// An address that cannot be listened on, why, and the way out.
#[derive(Debug, thiserror::Error)]
#[error("listener {listener}: cannot listen on {address}: {problem}")]
pub struct BindError {
    pub listener: String,
    pub address: String,
    pub problem: String,
}

/// The bound sockets of one listener; all are non-blocking. They take connections from [`Bound::listen`] on.
#[derive(Debug)]
pub enum Bound {
    Tcp(Vec<TcpListener>),
    Unix(BoundUnix),
}

/// A unix socket whose file goes when it is dropped.
#[derive(Debug)]
pub struct BoundUnix {
    pub socket: UnixListener,
    path: PathBuf,
    /// Device and inode: a successor's file at the same path stays.
    identity: Option<(u64, u64)>,
}

impl Drop for BoundUnix {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // A file that cannot be removed is found to be stale at the next start.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

impl Bound {
    /// The addresses in use, as they are logged.
    pub fn addresses(&self) -> Vec<String> {
        match self {
            Bound::Tcp(sockets) => {
                sockets.iter().filter_map(|s| s.local_addr().ok()).map(|a| a.to_string()).collect()
            }
            Bound::Unix(unix) => vec![unix.path.display().to_string()],
        }
    }
}

/// Lets clients in.
///
/// # Errors
/// A socket cannot listen: another process that bound the same address was first.
pub fn listen(listener: &Listener, bound: &Bound, backlog: u32) -> Result<(), BindError> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    match bound {
        Bound::Unix(unix) => SockRef::from(&unix.socket)
            .listen(backlog)
            .map_err(|e| error(listener, &unix.path.display().to_string(), unix_problem(&e))),
        Bound::Tcp(sockets) => sockets.iter().try_for_each(|socket| {
            SockRef::from(socket).listen(backlog).map_err(|e| {
                let address = socket.local_addr();
                let shown = address.as_ref().map_or_else(ToString::to_string, ToString::to_string);
                let problem = address.map_or_else(|_| e.to_string(), |a| tcp_problem(&e, listener, a));
                error(listener, &shown, problem)
            })
        }),
    }
}

/// Binds all sockets of a listener. With port 0 all addresses get the same free port.
pub fn open(listener: &Listener) -> Result<Bound, BindError> {
    match &listener.endpoint {
        Endpoint::Unix { path, mode } => unix(path, *mode)
            .map(Bound::Unix)
            .map_err(|e| error(listener, &path.display().to_string(), unix_problem(&e))),
        Endpoint::Tcp { addresses, optional_v6 } => {
            let mut sockets: Vec<TcpListener> = Vec::new();
            for address in addresses {
                let mut wanted = *address;
                if wanted.port() == 0 {
                    let first = sockets.first().and_then(|s| s.local_addr().ok());
                    wanted.set_port(first.map_or(0, |a| a.port()));
                }
                match bound(wanted) {
                    Ok(socket) => sockets.push(socket),
                    // A machine without IPv6 is no reason not to start, unless it was asked for by name.
                    Err(e) if *optional_v6 && wanted.is_ipv6() && !sockets.is_empty() && no_ipv6(&e) => {}
                    Err(e) => {
                        return Err(error(listener, &wanted.to_string(), tcp_problem(&e, listener, wanted)));
                    }
                }
            }
            Ok(Bound::Tcp(sockets))
        }
    }
}

/// One TCP listener, listening.
pub fn tcp(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = bound(address)?;
    SockRef::from(&socket).listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

/// One non-blocking TCP socket with SO_REUSEADDR, bound; an IPv6 address takes no IPv4 connections.
fn bound(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// One non-blocking unix socket, bound. The socket appears at `path` with its permissions already set; a file left
/// by a process that is gone is replaced, one that answers or is no socket is not.
pub fn unix(path: &Path, mode: u32) -> io::Result<BoundUnix> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket is in the way",
            ));
        }
        match UnixStream::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e),
        }
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    match std::fs::remove_file(&temporary) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(&temporary)?)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&temporary, path)?;
    socket.set_nonblocking(true)?;
    Ok(BoundUnix { socket: socket.into(), path: path.to_owned(), identity: identity(path) })
}

fn no_ipv6(e: &io::Error) -> bool {
    // EAFNOSUPPORT has no kind of its own.
    e.kind() == io::ErrorKind::AddrNotAvailable || e.raw_os_error() == Some(97)
}

fn error(listener: &Listener, address: &str, problem: String) -> BindError {
    BindError { listener: listener.name.clone(), address: address.to_owned(), problem }
}

fn tcp_problem(e: &io::Error, listener: &Listener, address: SocketAddr) -> String {
    let port = address.port();
    let key = format!("listener.{}.port", listener.name);
    match e.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another process listens there (`ss -ltnp sport = :{port}` names it); stop it, or choose another port \
             with --port or {key}"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "no permission; ports below 1024 need CAP_NET_BIND_SERVICE, or choose a higher one with {key}"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; correct listener.{}.bind", listener.name)
        }
        _ => e.to_string(),
    }
}

fn unix_problem(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::AddrInUse => "another process listens there; stop it or choose another path".into(),
        io::ErrorKind::AlreadyExists => format!("{e}; remove it or choose another path"),
        io::ErrorKind::NotFound => "the directory does not exist; create it".into(),
        io::ErrorKind::PermissionDenied => "no permission to create a file in this directory".into(),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(endpoint: Endpoint) -> Listener {
        Listener {
            name: "main".into(),
            endpoint,
            ws: None,
            tls: None,
            proxy: None,
            max_connections: 0,
            allow_anonymous: true,
            tenant: None,
            authenticators: Vec::new(),
        }
    }

    fn loopback(port: u16) -> Listener {
        let addresses = vec![([127, 0, 0, 1], port).into(), (std::net::Ipv6Addr::LOCALHOST, port).into()];
        listener(Endpoint::Tcp { addresses, optional_v6: true })
    }

    #[test]
    fn a_taken_port_is_named_with_the_way_out() {
        let first = tcp(([127, 0, 0, 1], 0).into(), 16).expect("a free port");
        let port = first.local_addr().expect("address").port();
        let error = open(&loopback(port)).expect_err("the port is taken").to_string();
        assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
        assert!(error.contains("--port") && error.contains("listener.main.port"), "{error}");
    }

    #[test]
    fn clients_are_refused_until_the_listener_listens() {
        let settings = loopback(0);
        let bound = open(&settings).expect("free ports");
        let Bound::Tcp(sockets) = &bound else { panic!("not TCP") };
        let address = sockets[0].local_addr().expect("address");
        let refused = std::net::TcpStream::connect(address).expect_err("nobody listens yet");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // Another process that had bound the address as well listens first.
        let rival = super::bound(address).expect("bound as well");
        listen(&settings, &bound, 16).expect("listens");
        std::net::TcpStream::connect(address).expect("connects");
        let late = listen(&settings, &Bound::Tcp(vec![rival]), 16).expect_err("taken").to_string();
        assert!(late.contains("another process listens there"), "{late}");
    }

    #[test]
    fn port_zero_gives_all_addresses_the_same_port() {
        let bound = open(&loopback(0)).expect("free ports");
        let Bound::Tcp(sockets) = &bound else { panic!("not TCP") };
        let ports: Vec<_> = sockets.iter().filter_map(|s| s.local_addr().ok()).map(|a| a.port()).collect();
        assert!(ports.iter().all(|p| *p != 0 && *p == ports[0]), "{ports:?}");
    }

    #[test]
    fn a_unix_socket_has_its_mode_replaces_a_stale_file_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("mast.sock");
        drop(UnixListener::bind(&path).expect("bind"));
        assert!(path.exists(), "a stale file");
        let bound = unix(&path, 0o600).expect("the stale file is replaced");
        assert_eq!(std::fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).expect_err("nobody listens yet");
        let (bound, settings) = (Bound::Unix(bound), loopback(0));
        listen(&settings, &bound, 16).expect("listens");
        UnixStream::connect(&path).expect("connect");
        let second = unix(&path, 0o600).expect_err("the socket is alive");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").expect("write");
        let endpoint = Endpoint::Unix { path: path.clone(), mode: 0o660 };
        let error = open(&listener(endpoint)).expect_err("in the way").to_string();
        assert!(error.contains("no socket is in the way"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
    }
}
