//! A readable record of who said what, for snapshots.

use std::{
    fmt::Write,
    sync::{Arc, Mutex},
};

use mast_core::codec::{self, Packet, Property, Version};

use crate::packet::Got;

/// A record that several clients share.
#[derive(Clone, Default)]
pub struct Transcript(Arc<Mutex<String>>);

impl Transcript {
    fn line(&self, text: std::fmt::Arguments<'_>) {
        let mut all = self.0.lock().expect("no test thread panicked");
        all.write_fmt(text).expect("writing to a string");
        all.push('\n');
    }

    /// A heading.
    pub fn note(&self, text: &str) {
        self.line(format_args!("-- {text}"));
    }

    pub(crate) fn sends(&self, name: &str, bytes: &[u8], version: Version) {
        let mut rest = bytes;
        while let Ok(Some(frame)) = codec::cut(rest, u32::MAX) {
            match codec::decode(&frame, version) {
                Ok(packet) => self.line(format_args!("{name} -> {}", describe(&packet))),
                Err(e) => {
                    self.line(format_args!("{name} -> wrong bytes {:02x?} ({e})", &rest[..frame.total]))
                }
            }
            rest = &rest[frame.total..];
        }
        if !rest.is_empty() {
            self.line(format_args!("{name} -> bytes {rest:02x?}"));
        }
    }

    pub(crate) fn answers(&self, name: &str, got: &Got) {
        self.line(format_args!("{name} <- {}", describe(&got.packet())));
    }

    pub(crate) fn closes(&self, name: &str) {
        self.line(format_args!("{name} <- end of connection"));
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        self.0.lock().expect("no test thread panicked").clone()
    }
}

/// A packet in words.
pub fn describe(packet: &Packet<'_>) -> String {
    let name = packet.packet_type().name().to_uppercase();
    let detail = match packet {
        Packet::Connect(p) => {
            let mut s = format!(" {} \"{}\"", p.version.name(), p.client_id);
            flag(&mut s, p.bridge, "bridge");
            flag(&mut s, p.clean_start, "clean");
            put(&mut s, format_args!(" keep alive {}", p.keep_alive));
            if let Some(user) = p.username {
                put(&mut s, format_args!(" user \"{user}\""));
            }
            if let Some(password) = p.password {
                put(&mut s, format_args!(" password {}", text(password)));
            }
            props(&mut s, p.props.iter());
            if let Some(will) = &p.will {
                put(
                    &mut s,
                    format_args!(" will \"{}\" q{} {}", will.topic, will.qos as u8, text(will.payload)),
                );
                flag(&mut s, will.retain, "retain");
                props(&mut s, will.props.iter());
            }
            s
        }
        Packet::ConnAck(p) => {
            let mut s = format!(" {:#04x}", p.code.0);
            flag(&mut s, p.session_present, "session present");
            props(&mut s, p.props.iter());
            s
        }
        Packet::Publish(p) => {
            let mut s = format!(" \"{}\" q{}", p.topic, p.qos as u8);
            if p.packet_id != 0 {
                put(&mut s, format_args!(" id {}", p.packet_id));
            }
            flag(&mut s, p.dup, "dup");
            flag(&mut s, p.retain, "retain");
            put(&mut s, format_args!(" {}", text(p.payload)));
            props(&mut s, p.props.iter());
            s
        }
        Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => {
            let mut s = format!(" id {} {:#04x}", p.packet_id, p.reason.0);
            props(&mut s, p.props.iter());
            s
        }
        Packet::Subscribe(p) => {
            let mut s = format!(" id {}", p.packet_id);
            for (filter, o) in p.filters.iter() {
                put(&mut s, format_args!(" \"{filter}\" q{}", o.qos as u8));
                flag(&mut s, o.no_local, "no-local");
                flag(&mut s, o.retain_as_published, "as-published");
                if o.retain_handling != 0 {
                    put(&mut s, format_args!(" retain-handling {}", o.retain_handling));
                }
            }
            props(&mut s, p.props.iter());
            s
        }
        Packet::SubAck(p) | Packet::UnsubAck(p) => {
            let mut s = format!(" id {} {:02x?}", p.packet_id, p.codes);
            props(&mut s, p.props.iter());
            s
        }
        Packet::Unsubscribe(p) => {
            let mut s = format!(" id {}", p.packet_id);
            for filter in p.filters.iter() {
                put(&mut s, format_args!(" \"{filter}\""));
            }
            props(&mut s, p.props.iter());
            s
        }
        Packet::PingReq | Packet::PingResp => String::new(),
        Packet::Disconnect(p) => {
            let mut s = format!(" {:#04x}", p.reason.0);
            props(&mut s, p.props.iter());
            s
        }
        Packet::Auth(p) => {
            let mut s = format!(" {:#04x}", p.reason.0);
            props(&mut s, p.props.iter());
            s
        }
    };
    name + &detail
}

fn put(s: &mut String, text: std::fmt::Arguments<'_>) {
    s.write_fmt(text).expect("writing to a string");
}

fn flag(s: &mut String, on: bool, word: &str) {
    if on {
        s.push(' ');
        s.push_str(word);
    }
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= 80 => format!("{text:?}"),
        _ => format!("{} bytes", bytes.len()),
    }
}

fn props<'a>(s: &mut String, all: impl Iterator<Item = Property<'a>>) {
    for property in all {
        // An assigned client id is drawn anew in every run.
        match property {
            Property::AssignedClientId(_) => s.push_str(" [AssignedClientId(…)]"),
            other => put(s, format_args!(" [{other:?}]")),
        }
    }
}
