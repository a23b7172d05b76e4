//! A broker of the built binary in a directory of its own, and a raw MQTT client.

// Each test binary uses its part of this.
#![allow(dead_code)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use mast_core::{
    codec::{
        Connect, FiltersBuf, Packet, Property, Props, PropsBuf, Publish, SubOptions, Subscribe, Version,
        Will, cut,
    },
    message::QoS,
};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Broker {
    child: Child,
    pub dir: PathBuf,
    pub port: u16,
    pub admin: u16,
    log: Arc<Mutex<String>>,
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    socket.local_addr().expect("address").port()
}

/// The binary, with nothing of this environment.
pub fn mast(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mast"));
    command.env_clear().env("HOME", dir).current_dir(dir);
    command
}

pub fn run(dir: &Path, arguments: &[&str]) -> Output {
    mast(dir).args(arguments).output().expect("the binary runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Broker {
    /// Starts with this configuration (`[node]`, `[admin]` and the port are given) and waits until it is ready.
    pub fn start(dir: &Path, config: &str) -> Broker {
        let admin = free_port();
        let file = dir.join("mast.toml");
        let text = format!(
            "[node]\ndata_dir = \"data\"\nshards = 2\n[admin]\nbind = [\"127.0.0.1:{admin}\"]\n{config}"
        );
        std::fs::write(&file, text).expect("write");
        let mut child = mast(dir)
            .args(["-c", "mast.toml", "--port", "0", "--log-level", "debug"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let log = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let (sender, ports) = std::sync::mpsc::channel();
        let collected = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if line.contains("listening")
                    && let Some((_, address)) = line.split_once("\"address\":\"")
                    && let Some((address, _)) = address.split_once('"')
                    && let Some((_, port)) = address.rsplit_once(':')
                {
                    sender.send(port.parse::<u16>().unwrap_or_default()).unwrap_or_default();
                }
                let mut log = collected.lock().expect("the log");
                log.push_str(&line);
                log.push('\n');
            }
        });
        let port = ports.recv_timeout(PATIENCE);
        let broker = Broker { child, dir: dir.to_owned(), port: port.unwrap_or_default(), admin, log };
        assert!(broker.port != 0, "{}", broker.log());
        broker.until("ready", || broker.get("/readyz").starts_with("HTTP/1.1 200"));
        broker
    }

    /// Writes another configuration and reloads it.
    pub fn reload(&self, config: &str) {
        let admin = self.admin;
        let text = format!(
            "[node]\ndata_dir = \"data\"\nshards = 2\n[admin]\nbind = [\"127.0.0.1:{admin}\"]\n{config}"
        );
        std::fs::write(self.dir.join("new"), text).expect("write");
        std::fs::rename(self.dir.join("new"), self.dir.join("mast.toml")).expect("rename");
        self.signal(rustix::process::Signal::HUP);
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .expect("a signal");
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the broker ends")
    }

    pub fn log(&self) -> String {
        self.log.lock().expect("the log").clone()
    }

    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        for _ in 0..PATIENCE.as_millis() / 20 {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("never: {what}\n{}", self.log());
    }

    /// GET over HTTP; headers and all.
    pub fn get(&self, path: &str) -> String {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.admin)) else { return String::new() };
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let done = socket.write_all(request.as_bytes()).and_then(|()| socket.read_to_string(&mut answer));
        if done.is_ok() { answer } else { String::new() }
    }

    /// A metric by its name with labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|v| v.parse().ok()).unwrap_or_default()
    }

    pub fn client(&self) -> Client {
        Client::to(self.port)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// What a CONNECT says.
#[derive(Clone, Default)]
pub struct Hello<'a> {
    pub v3: bool,
    pub id: &'a str,
    pub keep_session: bool,
    pub keep_alive: u16,
    pub user: Option<&'a str>,
    pub will: Option<&'a [u8]>,
}

pub struct Client {
    pub socket: TcpStream,
    input: Vec<u8>,
    version: Version,
}

impl Client {
    pub fn to(port: u16) -> Client {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Client { socket, input: Vec::new(), version: Version::V5 }
    }

    pub fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes).expect("encode");
        // The peer may have closed: the test reads what it said.
        self.socket.write_all(&bytes).unwrap_or_default();
    }

    /// Sends CONNECT and gives the bytes of what comes.
    pub fn hello(&mut self, hello: &Hello<'_>) -> Vec<u8> {
        self.version = if hello.v3 { Version::V311 } else { Version::V5 };
        let mut props = PropsBuf::new();
        if hello.keep_session && !hello.v3 {
            props.push(&Property::SessionExpiry(1000)).expect("fits");
        }
        let will = hello.will.map(|payload| Will {
            qos: QoS::AtMostOnce,
            retain: false,
            props: Props::EMPTY,
            topic: "will",
            payload,
        });
        self.send(&Packet::Connect(Connect {
            version: self.version,
            bridge: false,
            clean_start: !hello.keep_session,
            keep_alive: hello.keep_alive,
            props: props.as_props(),
            client_id: hello.id,
            will,
            username: hello.user,
            password: None,
        }));
        self.packet().unwrap_or_default()
    }

    /// The reason code of the CONNACK; 256 if none came.
    pub fn connack(&mut self, hello: &Hello<'_>) -> u16 {
        let bytes = self.hello(hello);
        if bytes.first() == Some(&0x20) { bytes.get(3).map_or(256, |c| u16::from(*c)) } else { 256 }
    }

    pub fn subscribe(&mut self, filter: &str, qos: QoS) {
        let mut filters = FiltersBuf::new();
        filters.push(filter, SubOptions::new(qos)).expect("fits");
        let filters = filters.as_filters();
        self.send(&Packet::Subscribe(Subscribe { packet_id: 1, props: Props::EMPTY, filters }));
        let answer = self.packet().expect("SUBACK");
        assert_eq!(answer.first(), Some(&0x90), "{answer:x?}");
    }

    pub fn publish(&mut self, topic: &str, payload: &[u8], qos: QoS) {
        let packet_id = if qos == QoS::AtMostOnce { 0 } else { 7 };
        let props = Props::EMPTY;
        self.send(&Packet::Publish(Publish {
            dup: false,
            qos,
            retain: false,
            topic,
            packet_id,
            props,
            payload,
        }));
    }

    /// The next packet, whole; `None` at the end of the stream.
    pub fn packet(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(frame) = cut(&self.input, u32::MAX).expect("a packet") {
                let total = frame.total;
                return Some(self.input.drain(..total).collect());
            }
            let mut block = [0; 4096];
            match self.socket.read(&mut block) {
                Ok(0) => return None,
                Ok(n) => self.input.extend_from_slice(&block[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("the broker says nothing"),
                Err(_) => return None,
            }
        }
    }

    pub fn half_close(&self) {
        self.socket.shutdown(Shutdown::Write).expect("shutdown");
    }
}
