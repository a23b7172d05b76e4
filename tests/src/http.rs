//! A small HTTP server for tests: what it is asked goes to a function, and is remembered.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{broker::DEADLINE, certs::Pair};

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The first line.
    pub line: String,
    /// The headers, as they came, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

/// An answer; without a status the connection is closed without a word.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: Option<u16>,
    /// Body.
    pub body: String,
    /// How long it takes.
    pub after: Duration,
}

impl Answer {
    /// 200 with a body.
    pub fn ok(body: impl ToString) -> Answer {
        Answer::with(200, body)
    }

    /// A status with a body.
    pub fn with(status: u16, body: impl ToString) -> Answer {
        Answer { status: Some(status), body: body.to_string(), after: Duration::ZERO }
    }
}

type Answers = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

/// See the module. It ends when it is dropped.
pub struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    scheme: &'static str,
}

impl Server {
    /// A server without TLS on a free port of loopback.
    pub fn start(answers: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Server {
        Server::run(None, Arc::new(answers))
    }

    /// One with TLS.
    pub fn start_tls(pair: &Pair, answers: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Server {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert], key)
            .expect("a certificate");
        Server::run(Some(Arc::new(config)), Arc::new(answers))
    }

    fn run(tls: Option<Arc<ServerConfig>>, answers: Answers) -> Server {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = socket.local_addr().expect("an address");
        let (seen, over) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(AtomicBool::new(false)));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (requests, ends) = (Arc::clone(&seen), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            for stream in socket.incoming().map_while(Result::ok) {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (requests, answers, tls) = (Arc::clone(&requests), Arc::clone(&answers), tls.clone());
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
                    match tls.map(|config| ServerConnection::new(config).expect("TLS")) {
                        None => serve(stream, &requests, &*answers),
                        Some(tls) => serve(StreamOwned::new(tls, stream), &requests, &*answers),
                    }
                });
            }
        });
        Server { address, seen, over, thread: Some(thread), scheme }
    }

    /// Its address with a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}://localhost:{}{path}", self.scheme, self.address.port())
    }

    /// What it was asked so far.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread; if that fails it has ended already.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_default();
        }
    }
}

/// One request on one connection.
fn serve(mut stream: impl Read + Write, seen: &Mutex<Vec<Request>>, answers: &dyn Fn(&Request) -> Answer) {
    let Some(request) = read(&mut stream) else { return };
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
    let answer = answers(&request);
    std::thread::sleep(answer.after);
    if let Some(status) = answer.status {
        let body = &answer.body;
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        // The other end may have given up.
        stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).unwrap_or_default();
    }
}

fn read(stream: &mut impl Read) -> Option<Request> {
    let mut all = Vec::new();
    let mut block = [0; 4096];
    loop {
        if let Some(end) = all.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
            let length = head.lines().find_map(|l| l.strip_prefix("content-length:"));
            let length: usize = length.map_or(Some(0), |l| l.trim().parse().ok())?;
            if all.len() >= end + 4 + length {
                let line = String::from_utf8_lossy(&all[..end]).lines().next()?.to_owned();
                let body = String::from_utf8_lossy(&all[end + 4..end + 4 + length]).into_owned();
                return Some(Request { line, head, body });
            }
        }
        match stream.read(&mut block) {
            Ok(0) | Err(_) => return None,
            Ok(n) => all.extend_from_slice(&block[..n]),
        }
    }
}
