//! Much at once: a consumer that stops reading, a thousand handshakes, a long queue over a restart. Nothing here
//! measures speed; what is counted is whether everything comes, in order, at bounded memory.

use std::time::{Duration, Instant};

use mast_core::codec::{AckKind, PacketType};
use mast_tests::{
    Broker, Client, Connect,
    broker::DEADLINE,
    client::{Event, Out},
    slow::{self, Plan},
};

const MIB: u64 = 1 << 20;

/// Publishes `n` numbered messages with up to 50 unacknowledged.
fn publish_numbers(p: &mut Client, topic: &str, range: std::ops::Range<u32>, size: usize) {
    let mut open = 0;
    for n in range {
        let mut payload = n.to_string().into_bytes();
        payload.resize(size, b' ');
        p.send_publish(&Out { topic, payload: &payload, qos: 1, ..Out::default() });
        open += 1;
        if open == 50 {
            for _ in 0..25 {
                assert!(p.expect(PacketType::PubAck).reason() < 0x80);
                open -= 1;
            }
        }
    }
    for _ in 0..open {
        assert!(p.expect(PacketType::PubAck).reason() < 0x80);
    }
}

/// Receives numbers in order and acknowledges them.
fn take_numbers(s: &mut Client, range: std::ops::Range<u32>) {
    for n in range {
        let m = s.expect_publish();
        assert_eq!(m.text().trim_end(), n.to_string());
        s.ack(AckKind::PubAck, m.id);
    }
}

#[test]
fn a_consumer_that_stops_reading_gets_everything_afterwards_and_costs_bounded_memory() {
    // The long form, with another pair's latency, is the command `slow_consumer`.
    for lasting in [true, false] {
        let plan =
            Plan { count: 50_000, size: 200, stop: Duration::ZERO, lasting, stopped: true, pair_rate: 0 };
        let seen = slow::run(&plan);
        assert_eq!((seen.lost, seen.reordered), (0, 0), "lasting {lasting}");
        assert!(seen.grown < 64 * MIB, "lasting {lasting}: {seen:?}");
    }
}

#[test]
fn a_storm_of_1024_parallel_connects_is_admitted() {
    let broker = Broker::start();
    let mut waiting: Vec<Client> = (0..1024)
        .map(|n| {
            let connect =
                if n % 2 == 0 { Connect::v5(&format!("c{n}")) } else { Connect::v311(&format!("c{n}")) };
            connect.start_on(broker.tcp())
        })
        .collect();
    for c in &mut waiting {
        let connack = c.recv();
        assert_eq!((connack.ty(), connack.reason()), (PacketType::ConnAck, 0), "{connack:?}");
    }
    waiting[7].subscribe("t", 1);
    waiting[1000].publish("t", "x", 1);
    assert_eq!(waiting[7].message().text(), "x");
    waiting.iter_mut().for_each(Client::ping);
    broker.until("the count of all", || broker.metric("mast_connects_total") == 1024.0);
}

#[test]
fn lasting_sessions_may_storm_too() {
    let mut broker = Broker::start();
    let storm = |broker: &Broker, present: bool| {
        let mut waiting: Vec<Client> =
            (0..1024).map(|n| Connect::v5(&format!("c{n}")).lasting().start_on(broker.tcp())).collect();
        for c in &mut waiting {
            let connack = c.recv();
            assert_eq!((connack.reason(), connack.session_present()), (0, present), "{connack:?}");
        }
        waiting
    };
    let mut first = storm(&broker, false);
    first.iter_mut().for_each(|c| {
        c.send_subscribe(&[("t", Default::default())], &[]);
    });
    first.iter_mut().for_each(|c| assert_eq!(c.expect(PacketType::SubAck).codes(), [0]));
    broker.crash();
    let mut second = storm(&broker, true);
    broker.client("p").publish("t", "x", 0);
    second.iter_mut().for_each(|c| assert_eq!(c.message().text(), "x"));
}

#[test]
fn a_restart_with_many_queued_messages_is_ready_soon_and_has_them_all() {
    let count: u32 = std::env::var("MAST_QUEUED").ok().and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let mut broker = Broker::with("[offline]\nmax_messages = 10000000\nmax_bytes = \"10GiB\"\n");
    let connect = Connect::v5("s").lasting();
    let mut s = connect.open(&broker);
    s.subscribe("t/#", 1);
    s.disconnect();
    publish_numbers(&mut broker.client("p"), "t/1", 0..count, 50);
    let start = Instant::now();
    broker.crash();
    println!("ready {:?} after kill -9 with {count} queued messages", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    let mut s = connect.open(&broker);
    take_numbers(&mut s, 0..count);
    s.assert_quiet();
}

#[test]
fn many_publishers_and_subscribers_lose_nothing_and_keep_each_publishers_order() {
    let broker = Broker::start();
    let mut readers: Vec<Client> = (0..4)
        .map(|n| {
            let connect = Connect::v5(&format!("s{n}"));
            let mut s = if n % 2 == 0 { connect.lasting().open(&broker) } else { connect.open(&broker) };
            s.subscribe("t/+", 2);
            s
        })
        .collect();
    let publishers: Vec<_> = (0..4)
        .map(|n| {
            let mut p = broker.client(&format!("p{n}"));
            std::thread::spawn(move || {
                for i in 0..250 {
                    p.publish(&format!("t/{n}"), i.to_string(), 1 + n % 2);
                }
            })
        })
        .collect();
    for s in &mut readers {
        let mut next = [0u32; 4];
        let end = Instant::now() + DEADLINE;
        while next.iter().sum::<u32>() < 1000 {
            let m = s.message();
            let n: usize = m.topic[2..].parse().expect("a number");
            assert_eq!(m.text(), next[n].to_string(), "{}", m.topic);
            next[n] += 1;
            assert!(Instant::now() < end);
        }
    }
    for p in publishers {
        p.join().expect("a publisher");
    }
    for s in &mut readers {
        s.assert_quiet();
        assert!(matches!(s.read(Duration::from_millis(1)), Event::Nothing));
    }
}
