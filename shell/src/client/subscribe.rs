//! `mast sub`.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    pin::Pin,
    time::Duration,
};

use clap::Args;
use mast_core::{
    codec::{FiltersBuf, NamesBuf, Packet, Publish, Reason, SubOptions, Subscribe, Unsubscribe},
    message::QoS,
    topic::matches,
};

use super::{
    ClientError, EXIT_TIMEOUT,
    args::{ClientArgs, Target},
    format::{self, Output},
    link::{Event, Link, parse, qos},
    properties::{self, PacketProps},
};

/// Time between two attempts after the connection was lost.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true)]
pub struct SubArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// End after so many messages.
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds, with exit code 27.
    #[arg(short = 'W', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    wait: Option<u64>,
    /// End when the subscriptions are acknowledged.
    #[arg(short = 'E')]
    exit_after_subscribe: bool,
    /// Format of a message: text with %t %p %q %r %l %m %x %X %j %J %I %U and others, @Y @m @d @H @M @S (UTC), \n.
    #[arg(short = 'F', value_name = "FORMAT", allow_hyphen_values = true)]
    format: Option<String>,
    /// No line feed behind a message.
    #[arg(short = 'N')]
    no_line_feed: bool,
    /// Skip retained messages.
    #[arg(short = 'R')]
    skip_retained: bool,
    /// Print retained messages only, and end with the first that is not.
    #[arg(long)]
    retained_only: bool,
    /// Remove each retained message that arrives from the broker.
    #[arg(long)]
    remove_retained: bool,
    /// Leave the retain flag as it was published (MQTT 5).
    #[arg(long)]
    retain_as_published: bool,
    /// When to get retained messages: always, new or never (MQTT 5).
    #[arg(long, value_parser = ["always", "new", "never"], default_value = "always")]
    retain_handling: String,
    /// Skip messages of these topics.
    #[arg(short = 'T', long = "filter-out", value_name = "FILTER")]
    filter_out: Vec<String>,
    /// Unsubscribe from these filters first.
    #[arg(short = 'U', long = "unsubscribe", value_name = "FILTER")]
    unsubscribe: Vec<String>,
    /// Print the topic before the message.
    #[arg(short, long)]
    verbose: bool,
}

/// Why a session ended in order.
#[derive(PartialEq, Eq)]
enum End {
    Done,
    /// The connection is gone; try again.
    Lost,
}

struct Session<'a, W> {
    args: &'a SubArgs,
    props: &'a PacketProps,
    output: &'a Output,
    out: &'a mut W,
    seen: &'a mut u64,
    /// QoS 2 messages between PUBLISH and PUBREL.
    half: BTreeMap<u16, Vec<u8>>,
    aliases: HashMap<u16, String>,
    /// Acknowledgements of SUBSCRIBE and UNSUBSCRIBE that are missing.
    missing: u32,
    next_removal: u16,
}

/// Runs until it is done, or until `stop`; messages go to `out`.
pub async fn run(
    mut args: SubArgs,
    out: &mut impl Write,
    stop: impl Future<Output = ()>,
) -> Result<(), ClientError> {
    let target = args.client.normalise()?;
    if args.client.topics.is_empty() && args.unsubscribe.is_empty() {
        return Err(ClientError::usage("a topic is needed: -t, -L, or -U"));
    }
    let props = properties::parse(&args.client.properties)?;
    let format = args.format.as_deref().map(format::parse).transpose()?;
    let output = Output { format, verbose: args.verbose, line_feed: !args.no_line_feed };
    let wait = args.wait.map(Duration::from_secs);
    let work = reconnecting(&args, &target, &props, &output, out, stop);
    match wait {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(ClientError { message: "timed out".to_owned(), code: EXIT_TIMEOUT })),
    }
}

async fn reconnecting(
    args: &SubArgs,
    target: &Target,
    props: &PacketProps,
    output: &Output,
    out: &mut impl Write,
    stop: impl Future<Output = ()>,
) -> Result<(), ClientError> {
    tokio::pin!(stop);
    let id = args.client.client_id("sub")?;
    let (mut seen, mut connected) = (0, false);
    loop {
        let opened = tokio::select! {
            opened = Link::open(&args.client, target, &id, props) => opened,
            () = stop.as_mut() => return Ok(()),
        };
        match opened {
            Ok(link) => {
                connected = true;
                let mut session = Session {
                    args,
                    props,
                    output,
                    out: &mut *out,
                    seen: &mut seen,
                    half: BTreeMap::new(),
                    aliases: HashMap::new(),
                    missing: 0,
                    next_removal: 3,
                };
                if session.run(link, stop.as_mut()).await? == End::Done {
                    return Ok(());
                }
            }
            // What fails at first will fail again; what worked before is worth waiting for.
            Err(e) if !connected || e.code != 1 => return Err(e),
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stop.as_mut() => return Ok(()),
        }
    }
}

impl<W: Write> Session<'_, W> {
    async fn run(
        &mut self,
        mut link: Link,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<End, ClientError> {
        self.subscribe(&mut link).await?;
        loop {
            // What is printed shows at once, but a burst is written in one go.
            if !link.has_packet() {
                self.out.flush().map_err(|e| output_gone(&e))?;
            }
            let event = tokio::select! {
                event = link.next() => event,
                () = stop.as_mut() => {
                    // An orderly end: the broker does not publish the will.
                    link.disconnect(&self.props.disconnect).await?;
                    return Ok(End::Done);
                }
            };
            let bytes = match event {
                Event::Packet(bytes) => bytes,
                Event::Closed(why) => {
                    if !self.args.client.quiet {
                        eprintln!("mast: {why}");
                    }
                    return Ok(End::Lost);
                }
            };
            if self.packet(&mut link, bytes).await? {
                self.out.flush().map_err(|e| output_gone(&e))?;
                link.disconnect(&self.props.disconnect).await?;
                return Ok(End::Done);
            }
        }
    }

    async fn subscribe(&mut self, link: &mut Link) -> Result<(), ClientError> {
        let args = self.args;
        let too_long = |e: mast_core::codec::EncodeError| ClientError::usage(e.to_string());
        if !args.unsubscribe.is_empty() {
            let mut names = NamesBuf::new();
            for filter in &args.unsubscribe {
                names.push(filter).map_err(too_long)?;
            }
            let props = self.props.unsubscribe.as_props();
            link.send(&Packet::Unsubscribe(Unsubscribe { packet_id: 1, props, filters: names.as_names() }))
                .await?;
            self.missing += 1;
        }
        if !args.client.topics.is_empty() {
            let mut options = SubOptions::new(qos(args.client.qos));
            if link.version.is_v5() {
                options.retain_as_published = args.retain_as_published;
                options.retain_handling = match args.retain_handling.as_str() {
                    "new" => 1,
                    "never" => 2,
                    _ => 0,
                };
            }
            let mut filters = FiltersBuf::new();
            for filter in &args.client.topics {
                filters.push(filter, options).map_err(too_long)?;
            }
            let props = self.props.subscribe.as_props();
            link.send(&Packet::Subscribe(Subscribe { packet_id: 2, props, filters: filters.as_filters() }))
                .await?;
            self.missing += 1;
        }
        Ok(())
    }

    /// Handles one packet; true when the work is done.
    async fn packet(&mut self, link: &mut Link, bytes: Vec<u8>) -> Result<bool, ClientError> {
        match parse(&bytes, link.version)? {
            Packet::SubAck(ack) => {
                let refused: Vec<_> = ack.codes.iter().filter(|c| **c >= 0x80).collect();
                if let (Some(first), false) = (refused.first(), self.args.client.quiet) {
                    let all = if refused.len() == ack.codes.len() { "All" } else { "Some" };
                    eprintln!("{all} subscription requests were denied: {}", Reason(**first).name());
                }
                if let (Some(first), true) = (refused.first(), refused.len() == ack.codes.len()) {
                    return Err(ClientError { message: String::new(), code: **first });
                }
                Ok(self.acknowledged())
            }
            Packet::UnsubAck(_) => Ok(self.acknowledged()),
            Packet::Publish(message) => match message.qos {
                QoS::AtMostOnce => self.deliver(link, &message).await,
                QoS::AtLeastOnce => {
                    let done = self.deliver(link, &message).await?;
                    link.acknowledge(Packet::PubAck, message.packet_id).await?;
                    Ok(done)
                }
                QoS::ExactlyOnce => {
                    let id = message.packet_id;
                    self.half.entry(id).or_insert(bytes);
                    link.acknowledge(Packet::PubRec, id).await?;
                    Ok(false)
                }
            },
            Packet::PubRel(ack) => {
                let id = ack.packet_id;
                let mut done = false;
                if let Some(bytes) = self.half.remove(&id)
                    && let Packet::Publish(message) = parse(&bytes, link.version)?
                {
                    done = self.deliver(link, &message).await?;
                }
                link.acknowledge(Packet::PubComp, id).await?;
                Ok(done)
            }
            Packet::ConnAck(_)
            | Packet::PubAck(_)
            | Packet::PubRec(_)
            | Packet::PubComp(_)
            | Packet::PingResp
            | Packet::Disconnect(_)
            | Packet::Auth(_)
            | Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq => Ok(false),
        }
    }

    fn acknowledged(&mut self) -> bool {
        self.missing = self.missing.saturating_sub(1);
        self.missing == 0 && self.args.exit_after_subscribe
    }

    /// Prints a message, unless it is to be skipped; true when it was the last one.
    async fn deliver(&mut self, link: &mut Link, message: &Publish<'_>) -> Result<bool, ClientError> {
        let mut message = *message;
        let aliased;
        if let Some(alias) = message.props.topic_alias() {
            if message.topic.is_empty() {
                aliased = self.aliases.get(&alias).cloned().unwrap_or_default();
                message.topic = &aliased;
            } else {
                self.aliases.insert(alias, message.topic.to_owned());
            }
        }
        if self.args.retained_only && !message.retain {
            return Ok(true);
        }
        let skip = (self.args.skip_retained && message.retain)
            || self.args.filter_out.iter().any(|f| matches(f, message.topic));
        if skip {
            return Ok(false);
        }
        if self.args.remove_retained && message.retain {
            self.remove(link, message.topic).await?;
        }
        let written = self.output.write(self.out, &message, now());
        written.map_err(|e| output_gone(&e))?;
        *self.seen += 1;
        Ok(self.args.count.is_some_and(|count| *self.seen >= count))
    }

    /// Clears a retained message.
    async fn remove(&mut self, link: &mut Link, topic: &str) -> Result<(), ClientError> {
        let packet_id = self.next_removal;
        self.next_removal = self.next_removal.checked_add(1).unwrap_or(3);
        let props = mast_core::codec::Props::EMPTY;
        let (qos, payload) = (QoS::AtLeastOnce, &[][..]);
        let clear = Publish { dup: false, qos, retain: true, topic, packet_id, props, payload };
        link.send(&Packet::Publish(clear)).await
    }
}

/// The reader of our output has gone: the end, quietly.
fn output_gone(e: &std::io::Error) -> ClientError {
    let message = if e.kind() == std::io::ErrorKind::BrokenPipe { String::new() } else { e.to_string() };
    ClientError { message, code: 1 }
}

/// Time since 1970, for %I and %U.
#[expect(clippy::disallowed_methods, reason = "a command line client, no part of the broker")]
fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
