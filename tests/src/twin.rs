//! Every test twice at once, as two tenants of one broker: `MAST_TWO_TENANTS=1`.
//!
//! A test then runs in two processes, with the same client ids and topics. The first owns the broker, which has
//! each listener twice: on an address of each process, with a tenant of its own. The second starts nothing: its
//! brokers are the first one's, and where a test starts, stops or reloads a broker, both meet and the first does
//! it. Whatever a test of one tenant expects must hold although the other tenant does the same.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::broker::DEADLINE;

/// Asks for two tenants.
const TWO: &str = "MAST_TWO_TENANTS";
/// Tells the second process where both meet.
const PLACE: &str = "MAST_TWIN_PLACE";

/// Which half of a test this process is.
#[derive(Debug)]
pub enum Half {
    /// The test runs once, as usual.
    Whole,
    /// Owns the broker; the other half has this address.
    First(Meeting, Ipv4Addr),
    /// Uses the broker of the first half.
    Second(Meeting),
}

/// Where both halves meet over one broker: files in a directory, numbered by meeting.
#[derive(Debug)]
pub struct Meeting {
    place: PathBuf,
    meetings: AtomicU32,
}

impl Meeting {
    fn at(place: PathBuf) -> Meeting {
        Meeting { place, meetings: AtomicU32::new(0) }
    }
}

/// What the first half tells of a broker.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its directory.
    pub dir: PathBuf,
    /// Its own address, with the administration endpoint.
    pub ip: Ipv4Addr,
    /// The address of the second half.
    pub second_ip: Ipv4Addr,
}

/// The second process, and the directory in which both meet.
struct Twin {
    child: Child,
    place: tempfile::TempDir,
}

static TWIN: OnceLock<Mutex<Twin>> = OnceLock::new();

/// The name that libtest knows the running test by.
fn test_name() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => {
            std::env::args().skip(1).find(|a| !a.starts_with('-')).expect("the test's name in the arguments")
        }
    }
}

fn second_process() -> &'static Mutex<Twin> {
    TWIN.get_or_init(|| {
        let place = tempfile::Builder::new().prefix("mast-twin-").tempdir().expect("a temporary directory");
        let child = Command::new(std::env::current_exe().expect("the test has a path"))
            .args([&test_name(), "--exact", "--nocapture"])
            .env(PLACE, place.path())
            .spawn()
            .expect("the test runs a second time");
        Mutex::new(Twin { child, place })
    })
}

static ALONE: AtomicBool = AtomicBool::new(false);

/// Says that a test runs once, as one tenant, also where two are asked for; `why` is for the reader. To be said
/// before its first broker.
pub fn runs_once(why: &str) {
    assert!(!why.is_empty());
    ALONE.store(true, Ordering::Relaxed);
}

/// Takes part as a half, if two tenants are asked for. `number` counts the test's brokers.
pub fn take_part(number: u32, second_ip: impl FnOnce() -> Ipv4Addr) -> Half {
    if let Some(place) = std::env::var_os(PLACE) {
        let place = Path::new(&place).join(number.to_string());
        return Half::Second(Meeting::at(place));
    }
    if std::env::var_os(TWO).is_none() || ALONE.load(Ordering::Relaxed) {
        return Half::Whole;
    }
    let twin = second_process().lock().unwrap_or_else(PoisonError::into_inner);
    let place = twin.place.path().join(number.to_string());
    std::fs::create_dir(&place).expect("a place to meet");
    Half::First(Meeting::at(place), second_ip())
}

/// Panics if the second process has failed; true if it has ended well.
fn second_ended() -> bool {
    let mut twin = second_process().lock().unwrap_or_else(PoisonError::into_inner);
    match twin.child.try_wait().expect("the child can be asked") {
        None => false,
        Some(status) if status.success() => true,
        Some(status) => panic!("as the second tenant the test failed ({status}); its report is above"),
    }
}

impl Meeting {
    fn wait_for(&self, file: &str, mut given_up: impl FnMut() -> bool) {
        let (path, end) = (self.place.join(file), Instant::now() + DEADLINE * 2);
        while !path.exists() {
            // What was written before the other half ended counts.
            if given_up() && !path.exists() {
                panic!("the other half of the test ended without {file}: the halves differ");
            }
            assert!(Instant::now() < end, "the other half of the test does not come to {file}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn tell(&self, file: &str, text: &str) {
        let unfinished = self.place.join(format!("{file}.unfinished"));
        std::fs::write(&unfinished, text).expect("the place to meet is writable");
        std::fs::rename(&unfinished, self.place.join(file)).expect("a file can be renamed");
    }

    /// The first half tells of its broker.
    pub fn introduce(&self, broker: &Shared) {
        let text = format!("{}\n{}\n{}", broker.dir.display(), broker.ip, broker.second_ip);
        self.tell("broker", &text);
    }

    /// The second half learns of it.
    pub fn introduced(&self) -> Shared {
        self.wait_for("broker", || false);
        let text = std::fs::read_to_string(self.place.join("broker")).expect("just seen");
        let mut lines = text.lines();
        let mut line = || lines.next().expect("three lines");
        let dir = PathBuf::from(line());
        let mut ip = || line().parse().expect("an address");
        Shared { dir, ip: ip(), second_ip: ip() }
    }

    /// The first half waits for the second, does it, and tells.
    pub fn lead<T>(&self, act: impl FnOnce() -> T) -> T {
        let meeting = self.meetings.fetch_add(1, Ordering::Relaxed);
        self.wait_for(&format!("{meeting}.here"), second_ended);
        let done = act();
        self.tell(&format!("{meeting}.done"), "");
        done
    }

    /// The second half comes, and waits until it is done.
    pub fn follow(&self) {
        let meeting = self.meetings.fetch_add(1, Ordering::Relaxed);
        self.tell(&format!("{meeting}.here"), "");
        self.wait_for(&format!("{meeting}.done"), || false);
    }

    /// The second half needs the broker no more.
    pub fn leave(&self) {
        self.tell("left", "");
    }

    /// The first half waits for that before it ends the broker.
    pub fn wait_until_left(&self) {
        self.wait_for("left", second_ended);
    }

    /// A fact for the second half, such as the process id.
    pub fn note(&self, name: &str, text: &str) {
        self.tell(name, text);
    }

    /// The fact that the first half noted last.
    pub fn noted(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.join(name)).expect("a fact that the first half noted")
    }
}

/// Ends the second process, because the first failed.
pub fn give_up() {
    if let Some(twin) = TWIN.get() {
        let mut twin = twin.lock().unwrap_or_else(PoisonError::into_inner);
        // An error: it has ended already.
        twin.child.kill().unwrap_or_default();
    }
}

/// The configuration with every listener twice, each with a tenant of its own. `{ip}` is the first half's address.
pub fn doubled(config: &str, second_ip: Ipv4Addr) -> String {
    let (mut first, mut second) = (String::new(), String::new());
    let mut in_listener = false;
    for line in config.lines() {
        if let Some(head) = line.strip_prefix('[') {
            let name = head.strip_prefix("listener.").and_then(|n| n.strip_suffix(']'));
            in_listener = name.is_some();
            if let Some(name) = name {
                let (name, part) = name.split_once('.').map_or((name, None), |(n, p)| (n, Some(p)));
                first.push_str(&format!("{line}\n"));
                match part {
                    Some(part) => second.push_str(&format!("[listener.{name}_second.{part}]\n")),
                    None => {
                        first.push_str("tenant = \"first\"\n");
                        second.push_str(&format!("[listener.{name}_second]\ntenant = \"second\"\n"));
                    }
                }
                continue;
            }
        }
        first.push_str(line);
        first.push('\n');
        if in_listener {
            second.push_str(&line.replace("{ip}", &second_ip.to_string()));
            second.push('\n');
        }
    }
    format!("{first}{second}[tenant.first]\n[tenant.second]\n")
}
