//! A consumer that stops reading while much is published for it: whether it gets everything in order afterwards, what
//! it costs the broker's memory meanwhile, and what it costs others.

use std::{
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use mast_core::codec::{AckKind, PacketType};

use crate::{
    broker::{Broker, binary},
    client::{Client, Out},
    connect::Connect,
};

/// Messages that are sent before memory is looked at first: whatever exists once exists then.
const WARM: u32 = 1000;
/// Unacknowledged messages of the publisher.
const WINDOW: u32 = 50;

/// What a round does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Messages for the consumer, QoS 1.
    pub count: u32,
    /// Bytes of each payload.
    pub size: usize,
    /// Time that publishing is spread over, and that the consumer stands still at least; 0 = as fast as it goes.
    pub stop: Duration,
    /// The consumer's session outlives its connection.
    pub lasting: bool,
    /// The consumer stands still; else it reads all the time.
    pub stopped: bool,
    /// Messages a second of another pair, measured from when they are due; 0 = no pair.
    pub pair_rate: u32,
}

/// What a round saw.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// By how much the broker's resident memory grew while the messages were published and the consumer stood still, at
    /// most.
    pub grown: u64,
    /// Messages that did not come.
    pub lost: u32,
    /// Messages that came behind a later one.
    pub reordered: u32,
    /// The other pair: 99 % of its messages came within so many µs.
    pub pair_p99: u64,
    /// Messages of the other pair that are missing, double or out of order.
    pub pair_faults: u64,
    /// Time that publishing took.
    pub publishing: Duration,
}

fn number(n: u32, size: usize) -> Vec<u8> {
    let mut payload = n.to_string().into_bytes();
    payload.resize(size.max(payload.len()), b' ');
    payload
}

/// Publishes numbers with a window of unacknowledged ones, evenly over `time`.
fn publish(p: &mut Client, range: std::ops::Range<u32>, size: usize, time: Duration) {
    let (begin, start, count) = (Instant::now(), range.start, range.end - range.start);
    let mut open = 0;
    for n in range {
        if open == WINDOW {
            for _ in 0..WINDOW / 2 {
                assert!(p.expect(PacketType::PubAck).reason() < 0x80);
                open -= 1;
            }
        }
        let due = begin + time.mul_f64(f64::from(n - start) / f64::from(count));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        p.send_publish(&Out { topic: "slow", payload: &number(n, size), qos: 1, ..Out::default() });
        open += 1;
    }
    for _ in 0..open {
        assert!(p.expect(PacketType::PubAck).reason() < 0x80);
    }
}

/// Reads numbers until `count` came or nothing comes; acknowledges each.
fn take(s: &mut Client, count: u32, seen: &mut Seen) {
    let (mut got, mut next) = (0, 0);
    while got < count {
        let message = s.expect_publish();
        s.ack(AckKind::PubAck, message.id);
        let n: u32 = message.text().trim_end().parse().expect("a number");
        if n < next {
            seen.reordered += 1;
        }
        seen.lost += n.saturating_sub(next);
        next = next.max(n + 1);
        got += 1;
    }
    s.assert_quiet();
}

fn start_pair(broker: &Broker, plan: &Plan) -> Option<Child> {
    (plan.pair_rate > 0).then(|| {
        let address = broker.address();
        Command::new(binary())
            .args(["bench", "--json", "-q", "1", "-t", "pair"])
            .args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()])
            .args(["--rate", &plan.pair_rate.to_string()])
            .args(["--duration", &plan.stop.as_secs_f64().to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("mast bench runs")
    })
}

/// A whole number behind `"key":` in JSON, after `from`.
fn field(json: &str, from: &str, key: &str) -> u64 {
    let rest = &json[json.find(from).unwrap_or_else(|| panic!("{from} in {json}"))..];
    let at = rest.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key} in {json}")) + key.len() + 3;
    let digits: String = rest[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{key} in {json}"))
}

/// One round with a broker of its own.
pub fn run(plan: &Plan) -> Seen {
    let broker = Broker::with("[limits]\nstall_timeout = \"1h\"\n");
    let connect = Connect::v5("s").keep_alive(3600);
    let mut consumer = if plan.lasting { connect.lasting() } else { connect }.open(&broker);
    assert_eq!(consumer.subscribe("slow", 1), 1);
    let mut publisher = Connect::v5("p").keep_alive(3600).open(&broker);
    let mut seen = Seen::default();
    publish(&mut publisher, 0..WARM, plan.size, Duration::ZERO);
    let pair = start_pair(&broker, plan);
    let before = broker.rss();
    let begin = Instant::now();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = broker.rss();
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                most = most.max(broker.rss());
            }
            most
        });
        let reader = (!plan.stopped).then(|| {
            let consumer = &mut consumer;
            scope.spawn(move || {
                let mut seen = Seen::default();
                take(consumer, plan.count, &mut seen);
                seen
            })
        });
        publish(&mut publisher, WARM..plan.count, plan.size, plan.stop);
        seen.publishing = begin.elapsed();
        std::thread::sleep(plan.stop.saturating_sub(begin.elapsed()));
        over.store(true, Ordering::Relaxed);
        seen.grown = most.join().expect("the watcher ends").saturating_sub(before);
        if let Some(reader) = reader {
            let read = reader.join().expect("the consumer gets everything");
            (seen.lost, seen.reordered) = (read.lost, read.reordered);
        }
    });
    if plan.stopped {
        take(&mut consumer, plan.count, &mut seen);
    }
    if let Some(pair) = pair {
        let out = pair.wait_with_output().expect("mast bench ends").stdout;
        let json = String::from_utf8(out).expect("text");
        seen.pair_p99 = field(&json, "\"delivery_micros\"", "p99");
        let faults = ["missing", "duplicates", "out_of_order"];
        seen.pair_faults = faults.iter().map(|key| field(&json, "{", key)).sum();
    }
    seen
}
