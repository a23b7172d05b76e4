//! A subscriber: checks and measures what comes.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use mast_core::{
    codec::{Ack, FiltersBuf, Packet, Props, Publish, Reason, SubOptions, Subscribe},
    message::QoS,
    time::Mono,
};

use super::{Pattern, Run, STAMP};
use crate::client::{
    ClientError,
    link::{Event, Link, parse, qos},
};

/// Subscribes and waits for the SUBACK.
pub async fn subscribe(run: &Run, mut link: Link, number: usize) -> Result<Link, ClientError> {
    let root = run.root();
    let filter = match run.args.pattern {
        Pattern::Pairs => format!("{root}/{}", number % run.publishers.len()),
        Pattern::Fan => format!("{root}/+"),
        Pattern::Shared => format!("$share/bench/{root}/+"),
    };
    let mut filters = FiltersBuf::new();
    let pushed = filters.push(&filter, SubOptions::new(qos(run.qos)));
    pushed.map_err(|e| ClientError::usage(format!("{filter}: {e}")))?;
    let filters = filters.as_filters();
    link.send(&Packet::Subscribe(Subscribe { packet_id: 1, props: Props::EMPTY, filters })).await?;
    let failed = |why: &str| ClientError::new(format!("subscriber {number}: {why}"));
    match link.next().await {
        Event::Closed(why) => Err(failed(&why)),
        Event::Packet(bytes) => match parse(&bytes, link.version)? {
            Packet::SubAck(ack) if ack.codes.first().is_some_and(|code| *code < 0x80) => Ok(link),
            Packet::SubAck(_) => Err(failed("the broker refuses the subscription")),
            other => Err(failed(&format!("SUBSCRIBE is answered with {}", other.packet_type().name()))),
        },
    }
}

/// Receives until it is stopped.
pub async fn run(run: Arc<Run>, mut link: Link, number: usize) -> Result<(), ClientError> {
    let failed = |e: ClientError| ClientError { message: format!("subscriber {number}: {}", e.message), ..e };
    let mut begun = BTreeSet::new();
    loop {
        let mut event = link.next().await;
        loop {
            let bytes = match event {
                Event::Packet(bytes) => bytes,
                Event::Closed(why) => return Err(failed(ClientError::new(why))),
            };
            take(&run, &mut link, number, &bytes, &mut begun).map_err(failed)?;
            if !link.has_packet() {
                break;
            }
            event = link.next().await;
        }
        link.flush().await.map_err(failed)?;
    }
}

fn take(
    run: &Run,
    link: &mut Link,
    number: usize,
    bytes: &[u8],
    begun: &mut BTreeSet<u16>,
) -> Result<(), ClientError> {
    let answer = |packet_id| Ack { packet_id, reason: Reason::SUCCESS, props: Props::EMPTY };
    match parse(bytes, link.version)? {
        Packet::Publish(publish) => {
            let id = publish.packet_id;
            match publish.qos {
                QoS::AtMostOnce => record(run, number, &publish),
                QoS::AtLeastOnce => {
                    record(run, number, &publish);
                    link.queue(&Packet::PubAck(answer(id)))?;
                }
                QoS::ExactlyOnce => {
                    if begun.insert(id) {
                        record(run, number, &publish);
                    }
                    link.queue(&Packet::PubRec(answer(id)))?;
                }
            }
            Ok(())
        }
        Packet::PubRel(ack) => {
            begun.remove(&ack.packet_id);
            link.queue(&Packet::PubComp(answer(ack.packet_id)))
        }
        other => {
            let name = other.packet_type().name();
            Err(ClientError::new(format!("the broker sends {name} to a subscriber")))
        }
    }
}

fn record(run: &Run, number: usize, publish: &Publish<'_>) {
    let now = run.clock.mono();
    let word = |at: usize| {
        let bytes = publish.payload.get(at..at + 8)?;
        bytes.try_into().ok().map(u64::from_be_bytes)
    };
    let mut received = run.subscribers[number].lock().unwrap_or_else(PoisonError::into_inner);
    let stamp = (word(0), word(8), word(16), word(STAMP - 8));
    let (Some(id), Some(publisher), Some(seq), Some(due)) = stamp else {
        received.foreign += 1;
        return;
    };
    let at = if run.args.pattern == Pattern::Pairs { 0 } else { publisher as usize };
    if id != run.id || at >= received.ledgers.len() || publish.payload.len() != run.args.size {
        received.foreign += 1;
        return;
    }
    received.ledgers[at].record(seq);
    let latency = now.micros_since(Mono(due));
    received.latency.record(latency);
    received.recent.record(latency);
    run.last_received.fetch_max(now.0, Ordering::Relaxed);
}
