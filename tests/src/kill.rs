//! kill -9 under load: publishers and subscribers of QoS 1 and 2 go on over any number of crashes of the broker,
//! keeping the protocol's promises on their side; then it is counted what the broker did not keep.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use mast_core::codec::{AckKind, Packet, PacketType};

use crate::{
    broker::{Broker, DEADLINE},
    client::{Client, Event, Out},
    connect::Connect,
};

const WINDOW: usize = 16;

/// What was seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Crashes.
    pub rounds: u32,
    /// Messages whose exchange the publishers completed.
    pub acknowledged: u32,
    /// Acknowledged and not delivered.
    pub lost: u32,
    /// QoS 2 messages that came more than once.
    pub duplicates: u32,
    /// First appearances behind a later message of the same publisher.
    pub reordered: u32,
    /// Sessions that were not found again.
    pub sessions_lost: u32,
    /// Retained values older than the last acknowledged one.
    pub stale_retained: u32,
    /// QoS 1 messages that came again, which is allowed.
    pub repeated: u32,
}

impl Report {
    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicates + self.reordered + self.sessions_lost + self.stale_retained == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// PUBLISH sent.
    Sent,
    /// PUBREC seen, PUBREL sent.
    Released,
}

struct Publisher {
    name: &'static str,
    topic: &'static str,
    qos: u8,
    next: u32,
    window: VecDeque<(u16, u32, Stage)>,
    acknowledged: BTreeSet<u32>,
    connected_before: bool,
    sessions_lost: u32,
}

impl Publisher {
    fn new(name: &'static str, topic: &'static str, qos: u8) -> Publisher {
        Publisher {
            name,
            topic,
            qos,
            next: 0,
            window: VecDeque::new(),
            acknowledged: BTreeSet::new(),
            connected_before: false,
            sessions_lost: 0,
        }
    }

    fn send(&self, client: &mut Client, id: u16, number: u32, dup: bool) {
        let payload = number.to_string();
        let (topic, qos) = (self.topic, self.qos);
        // QoS 1 is retained as well, so that the newest value of the store is checked too.
        client.send_publish(&Out {
            topic,
            payload: payload.as_bytes(),
            qos,
            retain: qos == 1,
            dup,
            id,
            ..Out::default()
        });
    }

    /// Publishes until the connection ends, or, when `finish` is set, until everything is acknowledged.
    fn run(&mut self, broker: &Broker, finish: &AtomicBool) {
        let Some(mut client) = connect(broker, self.name) else { return };
        self.sessions_lost += u32::from(self.connected_before && !client.connack().session_present());
        self.connected_before = true;
        for &(id, number, stage) in &self.window {
            match stage {
                Stage::Sent => self.send(&mut client, id, number, true),
                Stage::Released => client.ack(AckKind::PubRel, id),
            }
        }
        let mut quiet_since = Instant::now();
        loop {
            let finishing = finish.load(Ordering::Relaxed);
            if finishing && self.window.is_empty() {
                client.send(&Packet::PingReq);
                return;
            }
            while !finishing && self.window.len() < WINDOW {
                let id = (self.next % 60_000) as u16 + 1;
                self.send(&mut client, id, self.next, false);
                self.window.push_back((id, self.next, Stage::Sent));
                self.next += 1;
            }
            match client.read(Duration::from_millis(100)) {
                Event::Packet(got) => {
                    quiet_since = Instant::now();
                    let id = got.id();
                    // 0x92: our PUBREL was taken before the crash and its PUBCOMP lost; the exchange is over.
                    let over = got.ty() == PacketType::PubComp && got.reason() == 0x92;
                    assert!(got.reason() < 0x80 || over, "{}: {got:?}", self.name);
                    let at = self.window.iter().position(|(i, _, _)| *i == id);
                    let at = at.unwrap_or_else(|| panic!("{}: unexpected {got:?}", self.name));
                    match got.ty() {
                        PacketType::PubRec => {
                            self.window[at].2 = Stage::Released;
                            client.ack(AckKind::PubRel, id);
                        }
                        PacketType::PubAck | PacketType::PubComp => {
                            let (_, number, _) = self.window.remove(at).expect("just found");
                            self.acknowledged.insert(number);
                        }
                        other => panic!("{}: unexpected {other:?}", self.name),
                    }
                }
                Event::Closed => return,
                Event::Nothing => {
                    assert!(quiet_since.elapsed() < DEADLINE, "{}: no answer", self.name);
                }
            }
        }
    }
}

struct Subscriber {
    name: &'static str,
    filter: &'static str,
    qos: u8,
    /// QoS 2 ids between PUBLISH and PUBREL: our half of exactly once.
    begun: BTreeSet<u16>,
    seen: BTreeMap<u32, u32>,
    highest: Option<u32>,
    reordered: u32,
    connected_before: bool,
    sessions_lost: u32,
}

impl Subscriber {
    fn new(name: &'static str, filter: &'static str, qos: u8) -> Subscriber {
        Subscriber {
            name,
            filter,
            qos,
            begun: BTreeSet::new(),
            seen: BTreeMap::new(),
            highest: None,
            reordered: 0,
            connected_before: false,
            sessions_lost: 0,
        }
    }

    fn note(&mut self, payload: &[u8]) {
        let number = std::str::from_utf8(payload).ok().and_then(|t| t.parse().ok()).expect("a number");
        let count = self.seen.entry(number).or_default();
        *count += 1;
        if *count == 1 {
            self.reordered += u32::from(self.highest.is_some_and(|h| h > number));
            self.highest = self.highest.max(Some(number));
        }
    }

    /// Receives until the connection ends or `until` numbers were seen (0: no end).
    fn run(&mut self, broker: &Broker, until: &AtomicU32) {
        let Some(mut client) = connect(broker, self.name) else { return };
        if self.connected_before {
            self.sessions_lost += u32::from(!client.connack().session_present());
        } else {
            client.subscribe(self.filter, self.qos);
            self.connected_before = true;
        }
        let mut quiet_since = Instant::now();
        loop {
            let end = until.load(Ordering::Relaxed);
            if end > 0 && self.seen.len() >= end as usize && self.begun.is_empty() {
                return;
            }
            match client.read(Duration::from_millis(100)) {
                Event::Packet(got) => {
                    quiet_since = Instant::now();
                    self.take(&mut client, &got);
                }
                Event::Closed => return,
                // What is lost never comes: the count tells.
                Event::Nothing if end > 0 && quiet_since.elapsed() > Duration::from_secs(10) => return,
                Event::Nothing => {}
            }
        }
    }

    fn take(&mut self, client: &mut Client, got: &crate::packet::Got) {
        match got.ty() {
            PacketType::Publish => {
                let m = got.publish();
                match m.qos {
                    1 => {
                        if !m.retain {
                            self.note(&m.payload);
                        }
                        client.ack(AckKind::PubAck, m.id);
                    }
                    2 => {
                        if self.begun.insert(m.id) {
                            self.note(&m.payload);
                        }
                        client.ack(AckKind::PubRec, m.id);
                    }
                    other => panic!("{}: QoS {other}", self.name),
                }
            }
            PacketType::PubRel => {
                self.begun.remove(&got.id());
                client.ack(AckKind::PubComp, got.id());
            }
            PacketType::PingResp => {}
            other => panic!("{}: unexpected {other:?}", self.name),
        }
    }
}

/// Connects; `None` if the broker dies meanwhile.
fn connect(broker: &Broker, name: &str) -> Option<Client> {
    let tcp = std::net::TcpStream::connect_timeout(&broker.address(), DEADLINE).ok()?;
    tcp.set_nodelay(true).ok()?;
    let mut client = Connect::v5(name).lasting().keep_alive(600).start_on(tcp);
    match client.read(DEADLINE) {
        Event::Packet(got) => {
            assert_eq!((got.ty(), got.reason()), (PacketType::ConnAck, 0), "{name}: {got:?}");
            client.connack = Some(got);
            Some(client)
        }
        Event::Closed => None,
        Event::Nothing => panic!("{name}: no CONNACK"),
    }
}

/// Runs `rounds` crashes at class synced; `progress` hears of each.
pub fn run(rounds: u32, mut progress: impl FnMut(u32)) -> Report {
    let mut broker = Broker::with("[store]\ndurability = \"synced\"\n");
    let mut publishers = [Publisher::new("p1", "k/1", 1), Publisher::new("p2", "k/2", 2)];
    let mut subscribers = [Subscriber::new("s1", "k/1", 1), Subscriber::new("s2", "k/2", 2)];
    let mut report = Report { rounds, ..Report::default() };
    // The subscriptions stand before the first message.
    for s in &mut subscribers {
        let mut client = connect(&broker, s.name).expect("the broker runs");
        client.subscribe(s.filter, s.qos);
        s.connected_before = true;
        client.disconnect();
    }
    let mut random = 0x9E37_79B9u32;
    for round in 0..rounds {
        let never = AtomicU32::new(0);
        let going = AtomicBool::new(false);
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let load = Duration::from_millis(u64::from(30 + (random >> 16) % 400));
        std::thread::scope(|scope| {
            let (broker, never, going) = (&broker, &never, &going);
            for p in &mut publishers {
                scope.spawn(move || p.run(broker, going));
            }
            for s in &mut subscribers {
                scope.spawn(move || s.run(broker, never));
            }
            std::thread::sleep(load);
            broker.signal(rustix::process::Signal::KILL);
        });
        broker.crash();
        report.stale_retained += u32::from(stale(&broker, &publishers[0]));
        progress(round + 1);
    }
    finish(&broker, &mut publishers, &mut subscribers);
    count(&publishers, &subscribers, &mut report);
    report
}

/// Whether the retained value is older than the last that was acknowledged.
fn stale(broker: &Broker, publisher: &Publisher) -> bool {
    let Some(&last) = publisher.acknowledged.last() else { return false };
    let mut client = broker.client("reads the retained value");
    client.subscribe(publisher.topic, 0);
    let value: u32 = client.message().text().parse().expect("a number");
    value < last
}

fn finish(broker: &Broker, publishers: &mut [Publisher; 2], subscribers: &mut [Subscriber; 2]) {
    let finish = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for p in &mut *publishers {
            let finish = &finish;
            scope.spawn(move || p.run(broker, finish));
        }
    });
    for (p, s) in publishers.iter().zip(subscribers) {
        s.run(broker, &AtomicU32::new(p.next));
    }
}

fn count(publishers: &[Publisher; 2], subscribers: &[Subscriber; 2], report: &mut Report) {
    for (p, s) in publishers.iter().zip(subscribers) {
        report.acknowledged += p.acknowledged.len() as u32;
        report.lost += p.acknowledged.iter().filter(|n| !s.seen.contains_key(n)).count() as u32;
        report.reordered += s.reordered;
        report.sessions_lost += p.sessions_lost + s.sessions_lost;
        let again: u32 = s.seen.values().map(|n| n - 1).sum();
        if s.qos == 2 {
            report.duplicates += again;
        } else {
            report.repeated += again;
        }
    }
}
