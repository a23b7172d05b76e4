//! Many tenants on one broker: what they cost at rest, at a start, and per message beside a single tenant.

use std::{
    sync::Barrier,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use mast_core::codec::{AckKind, PacketType};

use crate::{
    broker::Broker,
    client::{Client, Out},
    connect::Connect,
};

const SECRET: &str = "many tenants share this secret of tokens";
/// Connections that are opened at the same time.
const OPENERS: usize = 4;
/// Publisher and subscriber pairs that measure the cost of messages.
const PAIRS: usize = 50;
/// Messages that a pair has under way.
const WINDOW: usize = 20;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Tenants; the first is the default one.
    pub tenants: usize,
    /// Persistent sessions of each, with one subscription.
    pub sessions: usize,
    /// Messages of each pair and run.
    pub messages: usize,
    /// Runs of each kind, alternating.
    pub passes: usize,
}

/// What was seen. Bytes of resident memory, CPU seconds of the broker per million messages of QoS 1.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Start to readiness without any session.
    pub first_start: Duration,
    /// Start to readiness after kill -9, with all sessions.
    pub restart: Duration,
    /// With all tenants and no session.
    pub rss_empty: u64,
    /// With all sessions, none connected.
    pub rss_absent: u64,
    /// With all sessions connected and idle.
    pub rss_connected: u64,
    /// All pairs in one tenant, by pass.
    pub one: Vec<f64>,
    /// Each pair in a tenant of its own, by pass.
    pub many: Vec<f64>,
}

impl Seen {
    /// Cost in many tenants beside that in one; the median of the passes.
    pub fn ratio(&self) -> f64 {
        let mut ratios: Vec<f64> = self.many.iter().zip(&self.one).map(|(many, one)| many / one).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

#[derive(serde::Serialize)]
struct Claims {
    sub: String,
    tenant: String,
    exp: u64,
}

fn tenant(n: usize) -> String {
    format!("tenant-{n}")
}

fn login(connect: Connect, n: usize) -> Connect {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock behind 1970").as_secs();
    let claims = Claims { sub: "device".to_owned(), tenant: tenant(n), exp: now + 86_400 };
    let key = EncodingKey::from_secret(SECRET.as_bytes()).expect("a secret");
    let token = encode(&Header::new(Algorithm::HS256), &claims, &key).expect("a token");
    connect.login("device", &token).keep_alive(0)
}

fn start(plan: &Plan) -> (Broker, Duration) {
    let names: Vec<String> = (0..plan.tenants).map(|n| format!("\"{}\"", tenant(n))).collect();
    let mut broker = Broker::prepared();
    broker.write("secret", SECRET);
    broker.configure(&format!(
        "[tenants]\nnames = [{}]\ndefault = \"{}\"\n\
         [jwt]\nalgorithms = [\"HS256\"]\nsecret_file = \"{{dir}}/secret\"\n",
        names.join(", "),
        tenant(0)
    ));
    let begin = Instant::now();
    broker.launch();
    (broker, begin.elapsed())
}

/// Opens every session; `subscribe` = for the first time.
fn open_all(broker: &Broker, plan: &Plan, subscribe: bool) -> Vec<Client> {
    let open = |opener: usize| {
        let mut clients = Vec::new();
        for at in (opener..plan.tenants * plan.sessions).step_by(OPENERS) {
            let id = format!("session-{}", at % plan.sessions);
            let mut client = login(Connect::v5(&id).lasting(), at / plan.sessions).open(broker);
            assert_eq!(client.connack().session_present(), !subscribe, "{id}");
            if subscribe {
                assert_eq!(client.subscribe(&format!("to/{id}/#"), 1), 1);
            }
            clients.push(client);
        }
        clients
    };
    std::thread::scope(|scope| {
        let openers: Vec<_> = (0..OPENERS).map(|n| scope.spawn(move || open(n))).collect();
        openers.into_iter().flat_map(|o| o.join().expect("all sessions open")).collect()
    })
}

/// CPU time of the broker so far, in seconds.
fn cpu(broker: &Broker) -> f64 {
    let stat = broker.proc("stat");
    let behind_name = stat.rsplit(')').next().expect("a process has a name");
    let ticks = |n: usize| -> f64 {
        let field = behind_name.split_whitespace().nth(n).expect("a field of stat");
        field.parse().expect("a number of ticks")
    };
    // utime and stime, in hundredths of a second.
    (ticks(11) + ticks(12)) / 100.0
}

fn work(publisher: &mut Client, subscriber: &mut Client, topic: &str, messages: usize) {
    for _ in 0..messages / WINDOW {
        for _ in 0..WINDOW {
            publisher.send_publish(&Out { topic, payload: &[b'x'; 64], qos: 1, ..Out::default() });
        }
        for _ in 0..WINDOW {
            let message = subscriber.expect_publish();
            subscriber.ack(AckKind::PubAck, message.id);
        }
        for _ in 0..WINDOW {
            assert!(publisher.expect(PacketType::PubAck).reason() < 0x80);
        }
    }
}

/// CPU seconds per million messages; pair `n` is in tenant `n` or, if not `spread`, all are in the first.
fn cost(broker: &Broker, plan: &Plan, spread: bool) -> f64 {
    let (ready, done) = (Barrier::new(PAIRS + 1), Barrier::new(PAIRS + 1));
    std::thread::scope(|scope| {
        for pair in 0..PAIRS {
            let (ready, done) = (&ready, &done);
            scope.spawn(move || {
                let place = if spread { pair % plan.tenants } else { 0 };
                let open = |what: &str| login(Connect::v5(&format!("{what}-{pair}")), place).open(broker);
                let (mut publisher, mut subscriber) = (open("publisher"), open("subscriber"));
                let topic = format!("pair/{pair}");
                assert_eq!(subscriber.subscribe(&topic, 1), 1);
                work(&mut publisher, &mut subscriber, &topic, WINDOW * 5);
                ready.wait();
                work(&mut publisher, &mut subscriber, &topic, plan.messages);
                done.wait();
            });
        }
        ready.wait();
        let before = cpu(broker);
        done.wait();
        (cpu(broker) - before) * 1e6 / (PAIRS * plan.messages) as f64
    })
}

/// Measures with a broker of its own.
pub fn run(plan: &Plan) -> Seen {
    let (mut broker, first_start) = start(plan);
    let mut seen = Seen { first_start, rss_empty: broker.rss(), ..Seen::default() };
    for client in open_all(&broker, plan, true) {
        client.disconnect();
    }
    broker.kill();
    let begin = Instant::now();
    broker.launch();
    seen.restart = begin.elapsed();
    seen.rss_absent = broker.rss();
    let connected = open_all(&broker, plan, false);
    seen.rss_connected = broker.rss();
    for _ in 0..plan.passes {
        seen.one.push(cost(&broker, plan, false));
        seen.many.push(cost(&broker, plan, true));
    }
    drop(connected);
    seen
}
