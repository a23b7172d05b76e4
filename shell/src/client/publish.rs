//! `mast pub`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clap::Args;
use mast_core::{
    codec::{Packet, Publish},
    message::QoS,
};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use super::{
    ClientError,
    args::ClientArgs,
    link::{Event, Link, explain, parse, qos},
    properties::{self, PacketProps},
};

/// QoS 1 and 2 messages under way at a time, where the broker takes as many.
const WINDOW: u16 = 20;

#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true)]
pub struct PubArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// The message.
    #[arg(short, long, group = "source", allow_hyphen_values = true)]
    message: Option<String>,
    /// Send a file as the message.
    #[arg(short, long, group = "source")]
    file: Option<PathBuf>,
    /// Send each line of standard input as a message.
    #[arg(short = 'l', long, group = "source")]
    stdin_line: bool,
    /// Send all of standard input as one message.
    #[arg(short = 's', long, group = "source")]
    stdin_file: bool,
    /// Send an empty message.
    #[arg(short, long, group = "source")]
    null_message: bool,
    /// Retain the message.
    #[arg(short, long)]
    retain: bool,
    /// Send the message so many times.
    #[arg(long, default_value_t = 1, conflicts_with = "stdin_line", value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Seconds between two repetitions.
    #[arg(long, default_value_t = 0.0)]
    repeat_delay: f64,
}

/// Runs until everything is sent and acknowledged. `input` is standard input.
pub async fn run(mut args: PubArgs, input: impl AsyncBufRead + Unpin) -> Result<(), ClientError> {
    let target = args.client.normalise()?;
    let [topic] = args.client.topics.as_slice() else {
        return Err(ClientError::usage("one topic is needed: -t, or in -L"));
    };
    if topic.is_empty() || topic.contains(['+', '#']) {
        return Err(ClientError::usage(format!(
            "\"{topic}\" is no topic to publish to: it is empty or has wildcards"
        )));
    }
    let delay = Duration::try_from_secs_f64(args.repeat_delay)
        .map_err(|_| ClientError::usage("--repeat-delay takes seconds"))?;
    let props = properties::parse(&args.client.properties)?;
    let mut source = Source::open(&args, input, delay).await?;
    let id = args.client.client_id("pub")?;
    let link = Link::open(&args.client, &target, &id, &props).await?;
    if args.client.qos > link.max_qos {
        return Err(ClientError::new(format!("the broker takes QoS {} at most", link.max_qos)));
    }
    let mut flow =
        Flow { args: &args, topic, props: &props, link, under_way: BTreeMap::new(), next_id: 1, worst: 0 };
    flow.run(&mut source).await?;
    let (worst, link) = (flow.worst, flow.link);
    link.disconnect(&props.disconnect).await?;
    if worst == 0 { Ok(()) } else { Err(ClientError { message: String::new(), code: worst }) }
}

/// Where messages come from.
enum Source<R> {
    Lines { input: R, line: Vec<u8>, ended: bool },
    Whole { message: Vec<u8>, left: u64, delay: Duration, sent_any: bool },
}

impl<R: AsyncBufRead + Unpin> Source<R> {
    async fn open(args: &PubArgs, mut input: R, delay: Duration) -> Result<Self, ClientError> {
        if args.stdin_line {
            return Ok(Self::Lines { input, line: Vec::new(), ended: false });
        }
        let message = if let Some(text) = &args.message {
            text.clone().into_bytes()
        } else if let Some(path) = &args.file {
            std::fs::read(path).map_err(|e| ClientError::new(format!("{}: {e}", path.display())))?
        } else if args.stdin_file {
            let mut all = Vec::new();
            input
                .read_to_end(&mut all)
                .await
                .map_err(|e| ClientError::new(format!("standard input: {e}")))?;
            all
        } else if args.null_message {
            Vec::new()
        } else {
            return Err(ClientError::usage("a message is needed: -m, -f, -l, -s or -n"));
        };
        Ok(Self::Whole { message, left: args.repeat, delay, sent_any: false })
    }

    /// The next message; `None` at the end. Dropping the future loses nothing, except that a delay starts anew.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        match self {
            Self::Lines { ended: true, .. } => Ok(None),
            Self::Lines { input, line, ended } => {
                let read = input.read_until(b'\n', line).await;
                read.map_err(|e| ClientError::new(format!("standard input: {e}")))?;
                let mut message = std::mem::take(line);
                if message.last() == Some(&b'\n') {
                    message.pop();
                } else {
                    *ended = true;
                }
                Ok((!*ended || !message.is_empty()).then_some(message))
            }
            Self::Whole { left: 0, .. } => Ok(None),
            Self::Whole { message, left, delay, sent_any } => {
                if *sent_any && !delay.is_zero() {
                    tokio::time::sleep(*delay).await;
                }
                *sent_any = true;
                *left -= 1;
                Ok(Some(if *left == 0 { std::mem::take(message) } else { message.clone() }))
            }
        }
    }
}

struct Flow<'a> {
    args: &'a PubArgs,
    topic: &'a str,
    props: &'a PacketProps,
    link: Link,
    /// Packet ids without their last acknowledgement.
    under_way: BTreeMap<u16, ()>,
    next_id: u16,
    /// The highest reason code of a refused publish.
    worst: u8,
}

impl Flow<'_> {
    async fn run<R: AsyncBufRead + Unpin>(&mut self, source: &mut Source<R>) -> Result<(), ClientError> {
        let window = usize::from(self.link.receive_maximum.min(WINDOW));
        let mut more = true;
        while more || !self.under_way.is_empty() {
            let may_send = more && self.under_way.len() < window;
            tokio::select! {
                message = source.next(), if may_send => match message? {
                    Some(message) => self.publish(&message).await?,
                    None => more = false,
                },
                event = self.link.next() => match event {
                    Event::Packet(bytes) => self.acknowledged(&bytes).await?,
                    Event::Closed(why) => return Err(ClientError::new(why)),
                },
            }
        }
        Ok(())
    }

    async fn publish(&mut self, payload: &[u8]) -> Result<(), ClientError> {
        let qos = qos(self.args.client.qos);
        let packet_id = if qos == QoS::AtMostOnce { 0 } else { self.take_id() };
        let props = self.props.publish.as_props();
        let (topic, retain) = (self.topic, self.args.retain);
        self.link
            .send(&Packet::Publish(Publish { dup: false, qos, retain, topic, packet_id, props, payload }))
            .await
    }

    fn take_id(&mut self) -> u16 {
        while self.under_way.contains_key(&self.next_id) {
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        }
        let id = self.next_id;
        self.under_way.insert(id, ());
        self.next_id = id.checked_add(1).unwrap_or(1);
        id
    }

    async fn acknowledged(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match parse(bytes, self.link.version)? {
            Packet::PubRec(ack) if !ack.reason.is_error() => {
                return self.link.acknowledge(Packet::PubRel, ack.packet_id).await;
            }
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubComp(ack) => {
                self.under_way.remove(&ack.packet_id);
                if ack.reason.is_error() {
                    self.worst = self.worst.max(ack.reason.0);
                    if !self.args.client.quiet {
                        let why = explain(ack.reason, ack.props);
                        eprintln!("Warning: Publish {} failed: {why}.", ack.packet_id);
                    }
                }
            }
            Packet::ConnAck(_)
            | Packet::Publish(_)
            | Packet::PubRel(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Disconnect(_)
            | Packet::Auth(_)
            | Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq => {}
        }
        Ok(())
    }
}
