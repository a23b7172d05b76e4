//! One broker process with its own data directory and its own loopback address.
//!
//! Every broker of a test run listens on an address of its own in 127/8, so ports are fixed and no two tests
//! can collide, also over a restart.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::twin::{self, Half, Shared};

/// How long anything may take before a test fails. Generous: it decides about a hang, never about speed.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Port of the listener that every broker has unless its configuration names others.
pub const PORT: u16 = 1883;
const ADMIN_PORT: u16 = 18083;

/// A running broker; killed when dropped.
pub struct Broker {
    dir: PathBuf,
    /// Removes the directory at the end; the half of a test that does not own the broker leaves it.
    _owned: Option<TempDir>,
    half: Half,
    /// Address of the test's listeners.
    ip: Ipv4Addr,
    /// Address of the administration endpoint: `ip`, unless a test runs as two tenants.
    admin_ip: Ipv4Addr,
    child: Option<Child>,
    env: Vec<(String, String)>,
    files: Option<u32>,
}

fn fresh_ip() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // 22 bits of process id and 2 of a counter are enough for brokers that live at the same time: the counter
    // continues into the process id's bits, whose neighbours are other, mostly short-lived, processes.
    let n = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
    let n = n % (253 * 254 * 254);
    Ipv4Addr::new(127, (n / (254 * 254)) as u8 + 2, (n / 254 % 254) as u8, (n % 254) as u8 + 1)
}

/// The binary under test: `MAST_BIN`, else `mast` beside the test's own profile directory, else built.
pub fn binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os("MAST_BIN") {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "MAST_BIN names no file: {}", path.display());
            return path;
        }
        let target = target_dir();
        for profile in ["ci", "release"] {
            let path = target.join(profile).join("mast");
            if path.is_file() {
                return path;
            }
        }
        build(&target)
    })
}

/// The directory that cargo builds into.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the test has a path");
    // target/<profile>/deps/<test> or target/<profile>/<binary>
    let profile = exe.ancestors().nth(1).expect("the test sits in a directory");
    let profile =
        if profile.ends_with("deps") { profile.parent().expect("target directory") } else { profile };
    profile.parent().expect("target directory").to_owned()
}

fn build(target: &Path) -> PathBuf {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--profile", "ci", "-p", "mast", "--target-dir"])
        .arg(target)
        .current_dir(workspace())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the broker does not build");
    target.join("ci").join("mast")
}

/// The top of the source tree.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate sits in the workspace").to_owned()
}

impl Broker {
    /// A broker with the default configuration and one anonymous listener.
    pub fn start() -> Broker {
        Broker::with("")
    }

    /// A broker with a configuration. `{ip}` stands for its address and `{dir}` for its directory; without a
    /// listener of its own it gets one.
    pub fn with(config: &str) -> Broker {
        let mut broker = Broker::prepared();
        broker.configure(config);
        broker.launch();
        broker
    }

    /// A broker that is not running yet, so that files can be put beside it.
    pub fn prepared() -> Broker {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let half = twin::take_part(NUMBER.fetch_add(1, Ordering::Relaxed), fresh_ip);
        let (env, files, child) = (Vec::new(), None, None);
        if let Half::Second(meeting) = &half {
            let Shared { dir, ip: admin_ip, second_ip: ip } = meeting.introduced();
            return Broker { dir, _owned: None, half, ip, admin_ip, child, env, files };
        }
        let owned = tempfile::Builder::new().prefix("mast-test-").tempdir().expect("a temporary directory");
        let (dir, ip) = (owned.path().to_owned(), fresh_ip());
        if let Half::First(meeting, second_ip) = &half {
            meeting.introduce(&Shared { dir: dir.clone(), ip, second_ip: *second_ip });
        }
        let broker = Broker { dir, _owned: Some(owned), half, ip, admin_ip: ip, child, env, files };
        broker.configure("");
        broker
    }

    fn is_second(&self) -> bool {
        matches!(self.half, Half::Second(_))
    }

    /// Does something to the broker: where the test runs as two tenants, once both are here, and once.
    fn once<T: Default>(&mut self, act: impl FnOnce(&mut Broker) -> T) -> T {
        match std::mem::replace(&mut self.half, Half::Whole) {
            Half::Whole => act(self),
            Half::First(meeting, second_ip) => {
                let done = meeting.lead(|| act(self));
                if let Some(child) = &self.child {
                    meeting.note("pid", &child.id().to_string());
                }
                self.half = Half::First(meeting, second_ip);
                done
            }
            Half::Second(meeting) => {
                meeting.follow();
                self.half = Half::Second(meeting);
                T::default()
            }
        }
    }

    /// Sets an environment variable for the next start.
    pub fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Limits the number of files that it may open from the next start on.
    pub fn limit_files(&mut self, files: u32) {
        self.files = Some(files);
    }

    /// Replaces the configuration file; effective at the next start or [`Broker::reload`].
    pub fn configure(&self, config: &str) {
        let mut text = config.to_owned();
        if !text.contains("[listener.") {
            text.push_str(&format!("\n[listener.main]\nbind = [\"{{ip}}\"]\nport = {PORT}\n"));
        }
        if let Half::First(_, second_ip) = &self.half {
            text = twin::doubled(&text, *second_ip);
        }
        text = text.replace("{ip}", &self.ip.to_string());
        text = text.replace("{dir}", &self.dir.display().to_string());
        self.write("mast.toml", &text);
    }

    /// Writes a file into the broker's directory and gives its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        // What the second half writes is for itself: the broker reads what the first one writes.
        let path = self.dir.join(if self.is_second() { format!("second-{name}") } else { name.to_owned() });
        std::fs::write(&path, text).expect("the broker's directory is writable");
        path
    }

    /// Adds a user to the password file `users` in the broker's directory, as an operator would.
    pub fn add_user(&self, user: &str, password: &str) {
        if self.is_second() {
            return;
        }
        let file = self.dir().join("users");
        if !file.exists() {
            self.write("users", "");
        }
        let status = Command::new(binary()).args(["passwd", "-b"]).arg(file).args([user, password]).status();
        assert!(status.expect("mast passwd runs").success());
    }

    /// The broker's directory: configuration, log, data.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Starts it and waits until it is ready.
    pub fn launch(&mut self) {
        self.spawn();
        self.wait_ready();
    }

    /// Starts it without waiting.
    pub fn spawn(&mut self) {
        self.once(Broker::start_process);
    }

    fn start_process(&mut self) {
        assert!(self.child.is_none(), "the broker runs already");
        let log = self.open_log();
        let mut command = match self.files {
            None => Command::new(binary()),
            Some(n) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={n}:{n}")).arg(binary());
                command
            }
        };
        command
            .arg("-c")
            .arg(self.dir.join("mast.toml"))
            .arg("--data-dir")
            .arg(self.data_dir())
            .env("MAST__NODE__LOG_FORMAT", "text")
            .env("MAST__ADMIN__BIND", format!("{}:{ADMIN_PORT}", self.admin_ip))
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log's handle"))
            .stderr(log);
        self.child = Some(command.spawn().expect("the broker's binary runs"));
    }

    fn open_log(&self) -> File {
        let path = self.dir.join("broker.log");
        OpenOptions::new().create(true).append(true).open(path).expect("a log file")
    }

    /// Waits until `/readyz` says yes.
    pub fn wait_ready(&mut self) {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.try_exit() {
                panic!("the broker ended at start ({status}):\n{}", self.log());
            }
            if self.http("/readyz").is_some_and(|(status, _)| status == 200) {
                return;
            }
            assert!(Instant::now() < end, "the broker does not become ready:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn try_exit(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("the child can be asked")
    }

    /// Waits for it to end by itself.
    pub fn wait_exit(&mut self) -> ExitStatus {
        assert!(!self.is_second(), "only the half that owns the broker sees how it ends");
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.try_exit() {
                self.child = None;
                return status;
            }
            assert!(Instant::now() < end, "the broker does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// kill -9, now.
    pub fn kill(&mut self) {
        self.once(Broker::kill_process);
    }

    fn kill_process(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended already, and then `wait` says so too.
            child.kill().unwrap_or_default();
            child.wait().expect("a killed child can be reaped");
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the broker takes a signal");
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.once(|broker| {
            kill_process(broker.pid(), Signal::TERM).expect("the broker takes a signal");
            broker.wait_exit()
        })
    }

    /// kill -9 and a new start on the same data.
    pub fn crash(&mut self) {
        self.kill();
        self.launch();
    }

    /// SIGTERM and a new start on the same data.
    pub fn restart(&mut self) {
        let status = self.terminate();
        assert!(status.success(), "SIGTERM: {status}\n{}", self.log());
        self.launch();
    }

    /// SIGHUP, and waits until the log tells of the `reloaded` or `failed` outcome.
    pub fn reload(&self) -> bool {
        let before = self.log().len();
        match &self.half {
            Half::Whole => self.signal(Signal::HUP),
            Half::First(meeting, _) => meeting.lead(|| self.signal(Signal::HUP)),
            Half::Second(meeting) => meeting.follow(),
        }
        let mut outcome = None;
        self.until("the reload's outcome in the log", || {
            let log = self.log();
            let new = &log[before..];
            if new.contains("the configuration was reloaded") {
                outcome = Some(true);
            } else if new.contains("the reload failed") {
                outcome = Some(false);
            }
            outcome.is_some()
        });
        outcome.expect("just seen")
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        match &self.half {
            Half::Second(meeting) => meeting.noted("pid").parse().expect("a process id"),
            Half::Whole | Half::First(..) => self.child.as_ref().expect("the broker runs").id(),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.id() as i32).expect("a process id")
    }

    /// The whole log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("broker.log")).unwrap_or_default()
    }

    /// A file of the process's directory in /proc.
    pub fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.pid().as_raw_nonzero());
        std::fs::read_to_string(path).expect("the broker runs")
    }

    /// Resident memory in bytes.
    pub fn rss(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("VmRSS");
        let kb: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
        kb * 1024
    }

    /// Address of the default listener.
    pub fn address(&self) -> SocketAddr {
        self.at(PORT)
    }

    /// Its address with another port.
    pub fn at(&self, port: u16) -> SocketAddr {
        (self.ip, port).into()
    }

    /// A plain TCP connection to the default listener.
    pub fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address(), DEADLINE);
        let stream = stream.unwrap_or_else(|e| panic!("connect: {e}\n{}", self.log()));
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream
    }

    /// GET of the administration endpoint: status and body. `None` while nobody answers.
    pub fn http(&self, path: &str) -> Option<(u16, String)> {
        self.http_with(path, "")
    }

    /// The same with more header lines, each ended by CR LF.
    pub fn http_with(&self, path: &str, headers: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&(self.admin_ip, ADMIN_PORT).into(), DEADLINE).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        let ask = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(ask.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let body = answer.split_once("\r\n\r\n")?.1.to_owned();
        Some((status, body))
    }

    /// Where administration is.
    pub fn admin(&self) -> SocketAddr {
        self.at(ADMIN_PORT)
    }

    /// Value of a metric, by its name with labels as the endpoint prints them; 0 if absent.
    pub fn metric(&self, name: &str) -> f64 {
        let (status, body) = self.http("/metrics").expect("the metrics endpoint answers");
        assert_eq!(status, 200, "{body}");
        let line = body.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|v| v.trim().parse().ok()).unwrap_or(0.0)
    }

    /// Sum of a metric over all its labels.
    pub fn metric_sum(&self, name: &str) -> f64 {
        let (status, body) = self.http("/metrics").expect("the metrics endpoint answers");
        assert_eq!(status, 200, "{body}");
        let lines = body.lines().filter_map(|l| l.strip_prefix(name));
        lines
            .filter(|l| l.starts_with(['{', ' ']))
            .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until `done` holds.
    pub fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !done() {
            assert!(Instant::now() < end, "waited in vain for {what}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        match &self.half {
            Half::First(..) if std::thread::panicking() => twin::give_up(),
            Half::First(meeting, _) => meeting.wait_until_left(),
            // One that panics does not say that it left well: the first half sees it end.
            Half::Second(meeting) if !std::thread::panicking() => meeting.leave(),
            Half::Second(_) | Half::Whole => {}
        }
        self.kill_process();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the broker's last log lines, newest first ---\n{}", tail.join("\n"));
        }
    }
}
