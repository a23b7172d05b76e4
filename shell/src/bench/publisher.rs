//! A publisher, and the thread that says when messages are due.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use mast_core::{
    codec::{Ack, Packet, Props, Publish, Reason},
    message::QoS,
    time::Mono,
};

use super::{Run, STAMP};
use crate::client::{
    ClientError,
    link::{Event, Link, parse, qos},
};

/// Bytes that one write takes, about.
const BATCH: usize = 64 * 1024;

/// Starts the thread that keeps time, where there is a rate. The runtime's timers are too coarse: a millisecond.
pub fn pace(run: &Arc<Run>) -> Result<Option<JoinHandle<()>>, ClientError> {
    let Some(rate) = run.args.rate else { return Ok(None) };
    let run = Arc::clone(run);
    let thread = std::thread::Builder::new().name("pacer".into()).spawn(move || keep_time(&run, rate));
    thread.map(Some).map_err(|e| ClientError::new(format!("cannot start a thread: {e}")))
}

fn keep_time(run: &Run, rate: u32) {
    let (mut next, count) = (0u64, run.publishers.len() as u64);
    while !run.over.load(Ordering::Relaxed) {
        let (publisher, seq) = ((next % count) as usize, next / count);
        let due = run.due(publisher, seq, rate);
        let now = run.clock.mono();
        if due > now {
            // In pieces, so that the end is noticed.
            std::thread::sleep(Duration::from_micros(due.micros_since(now)).min(Duration::from_millis(20)));
            continue;
        }
        let publisher = &run.publishers[publisher];
        publisher.due.fetch_add(1, Ordering::Relaxed);
        publisher.bell.notify_one();
        next += 1;
    }
}

struct Publisher<'a> {
    run: &'a Run,
    link: Link,
    number: usize,
    topic: String,
    payload: Vec<u8>,
    qos: QoS,
    window: usize,
    next: u64,
    /// When what is not acknowledged was due, by packet id.
    under_way: BTreeMap<u16, Mono>,
    next_id: u16,
}

/// Sends until the run is over and everything is acknowledged.
pub async fn run(run: Arc<Run>, link: Link, number: usize) -> Result<(), ClientError> {
    let mut payload = vec![b'.'; run.args.size];
    payload[..8].copy_from_slice(&run.id.to_be_bytes());
    payload[8..16].copy_from_slice(&(number as u64).to_be_bytes());
    let window = if run.args.rate.is_some() { u16::MAX } else { run.args.window };
    let mut publisher = Publisher {
        topic: format!("{}/{number}", run.root()),
        qos: qos(run.qos),
        window: usize::from(window.min(link.receive_maximum)),
        run: &run,
        link,
        number,
        payload,
        next: 0,
        under_way: BTreeMap::new(),
        next_id: 1,
    };
    let sent = publisher.send_all().await;
    sent.map_err(|e| ClientError { message: format!("publisher {number}: {}", e.message), code: e.code })?;
    publisher.link.disconnect(&mast_core::codec::PropsBuf::new()).await
}

impl Publisher<'_> {
    async fn send_all(&mut self) -> Result<(), ClientError> {
        let run = self.run;
        loop {
            let over = run.over.load(Ordering::Relaxed);
            let mut full = false;
            while !over && !full && self.is_due() {
                full = self.qos > QoS::AtMostOnce && self.under_way.len() >= self.window;
                if full || self.link.queued() >= BATCH {
                    break;
                }
                self.publish()?;
            }
            self.link.flush().await?;
            if over && self.under_way.is_empty() {
                return Ok(());
            }
            let goes_on = !over && !full && self.is_due();
            let bell = &run.publishers[self.number].bell;
            let event = tokio::select! {
                biased;
                event = self.link.next() => event,
                () = bell.notified() => continue,
                () = tokio::task::yield_now(), if goes_on => continue,
            };
            self.take(event)?;
            while self.link.has_packet() {
                let event = self.link.next().await;
                self.take(event)?;
            }
        }
    }

    fn is_due(&self) -> bool {
        self.run.args.rate.is_none()
            || self.next < self.run.publishers[self.number].due.load(Ordering::Relaxed)
    }

    fn publish(&mut self) -> Result<(), ClientError> {
        let due = match self.run.args.rate {
            Some(rate) => self.run.due(self.number, self.next, rate),
            None => self.run.clock.mono(),
        };
        self.payload[16..24].copy_from_slice(&self.next.to_be_bytes());
        self.payload[24..STAMP].copy_from_slice(&due.0.to_be_bytes());
        let mut packet_id = 0;
        if self.qos > QoS::AtMostOnce {
            while self.under_way.contains_key(&self.next_id) {
                self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            }
            packet_id = self.next_id;
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            self.under_way.insert(packet_id, due);
        }
        self.next += 1;
        self.run.publishers[self.number].sent.fetch_add(1, Ordering::Relaxed);
        self.link.queue(&Packet::Publish(Publish {
            dup: false,
            qos: self.qos,
            retain: false,
            topic: &self.topic,
            packet_id,
            props: Props::EMPTY,
            payload: &self.payload,
        }))
    }

    fn take(&mut self, event: Event) -> Result<(), ClientError> {
        let bytes = match event {
            Event::Packet(bytes) => bytes,
            Event::Closed(why) => return Err(ClientError::new(why)),
        };
        let ack = match parse(&bytes, self.link.version)? {
            Packet::PubRec(ack) if !ack.reason.is_error() => {
                let props = Props::EMPTY;
                let release = Ack { packet_id: ack.packet_id, reason: Reason::SUCCESS, props };
                return self.link.queue(&Packet::PubRel(release));
            }
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubComp(ack) => ack,
            other => {
                let name = other.packet_type().name();
                return Err(ClientError::new(format!("the broker sends {name} to a publisher")));
            }
        };
        let Some(due) = self.under_way.remove(&ack.packet_id) else { return Ok(()) };
        let mine = &self.run.publishers[self.number];
        if ack.reason.is_error() {
            mine.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        mine.acknowledged.fetch_add(1, Ordering::Relaxed);
        let latency = self.run.clock.mono().micros_since(due);
        self.run.acknowledgements.lock().unwrap_or_else(PoisonError::into_inner).record(latency);
        Ok(())
    }
}
