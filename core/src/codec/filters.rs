//! The lists in SUBSCRIBE and UNSUBSCRIBE: validated once, walked in place, and builders for senders.

use super::reader::{Reader, text};
use super::sink::Sink;
use super::version::Version;
use super::violation::{EncodeError, Violation};
use crate::message::QoS;
use alloc::vec::Vec;
use core::fmt;

const RESERVED_OPTIONS: Violation =
    Violation::malformed("reserved subscription option bits are set", "MQTT-3.8.3-5");
const QOS_THREE: Violation = Violation::protocol("subscription QoS is 3", "");
const RETAIN_HANDLING_THREE: Violation = Violation::protocol("retain handling is 3", "");
const NO_LOCAL_SHARED: Violation = Violation::protocol("no local on a shared subscription", "MQTT-3.8.3-4");
const NO_FILTER_SUBSCRIBE: Violation = Violation::protocol("SUBSCRIBE without a filter", "MQTT-3.8.3-2");
const NO_FILTER_UNSUBSCRIBE: Violation = Violation::protocol("UNSUBSCRIBE without a filter", "MQTT-3.10.3-2");

/// Options of one subscription (MQTT 5, 3.8.3.1). In 3.x only `qos` exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubOptions {
    /// Maximum QoS of deliveries.
    pub qos: QoS,
    /// Don't deliver the client's own messages.
    pub no_local: bool,
    /// Keep the RETAIN flag as published.
    pub retain_as_published: bool,
    /// Retained messages: 0 at every subscribe, 1 only for a new subscription, 2 never.
    pub retain_handling: u8,
}

impl SubOptions {
    /// Plain options with a maximum QoS.
    #[must_use]
    pub const fn new(qos: QoS) -> SubOptions {
        SubOptions { qos, no_local: false, retain_as_published: false, retain_handling: 0 }
    }

    /// Options from their byte; `None` for reserved bits, QoS 3 or retain handling 3.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<SubOptions> {
        SubOptions::parse(bits, Version::V5).ok()
    }

    /// The options byte of MQTT 5.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.qos as u8
            | (self.no_local as u8) << 2
            | (self.retain_as_published as u8) << 3
            | (self.retain_handling & 3) << 4
    }

    fn parse(bits: u8, version: Version) -> Result<SubOptions, Violation> {
        // Before MQTT 5 all but the QoS is reserved (3.1.1, [MQTT-3.8.3-4]).
        let reserved = if version.is_v5() { 0xC0 } else { 0xFC };
        if bits & reserved != 0 {
            return Err(RESERVED_OPTIONS);
        }
        let qos = QoS::from_bits(bits & 3).ok_or(QOS_THREE)?;
        let retain_handling = bits >> 4 & 3;
        if retain_handling == 3 {
            return Err(RETAIN_HANDLING_THREE);
        }
        Ok(SubOptions { qos, no_local: bits & 4 != 0, retain_as_published: bits & 8 != 0, retain_handling })
    }
}

fn read_filter<'a>(r: &mut Reader<'a>, version: Version) -> Result<(&'a str, SubOptions), Violation> {
    let filter = r.str()?;
    let options = SubOptions::parse(r.u8()?, version)?;
    if options.no_local && filter.starts_with("$share/") {
        return Err(NO_LOCAL_SHARED);
    }
    Ok((filter, options))
}

/// The filters of a SUBSCRIBE with their options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Filters<'a> {
    raw: &'a [u8],
    count: usize,
}

impl<'a> Filters<'a> {
    /// Validates everything left in `r`: strings, options, No Local on `$share/`, at least one entry.
    pub(super) fn read(r: &Reader<'a>, version: Version) -> Result<Filters<'a>, Violation> {
        let raw = r.rest();
        let mut walk = Reader::new(raw);
        let mut count = 0;
        while !walk.is_empty() {
            read_filter(&mut walk, version)?;
            count += 1;
        }
        if count == 0 { Err(NO_FILTER_SUBSCRIBE) } else { Ok(Filters { raw, count }) }
    }

    /// Number of filters.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True without filters; a decoded SUBSCRIBE has some.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The filters with their options, in order. Filter syntax is not checked.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, SubOptions)> + use<'a> {
        let mut walk = Reader::new(self.raw);
        // The bytes were validated; the walk ends at their end.
        core::iter::from_fn(move || read_filter(&mut walk, Version::V5).ok())
    }

    pub(super) fn write(&self, version: Version, s: &mut impl Sink) {
        if version.is_v5() {
            return s.bytes(self.raw);
        }
        for (filter, options) in self.iter() {
            s.str(filter);
            s.u8(options.qos as u8);
        }
    }
}

impl fmt::Debug for Filters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Collects the filters of a SUBSCRIBE.
#[derive(Clone, Debug, Default)]
pub struct FiltersBuf {
    raw: Vec<u8>,
    count: usize,
}

impl FiltersBuf {
    /// An empty list.
    #[must_use]
    pub const fn new() -> FiltersBuf {
        FiltersBuf { raw: Vec::new(), count: 0 }
    }

    /// Appends a filter.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for a filter over 65,535 bytes; nothing is appended.
    pub fn push(&mut self, filter: &str, options: SubOptions) -> Result<(), EncodeError> {
        push_str(filter, &mut self.raw)?;
        self.raw.push(options.to_bits());
        self.count += 1;
        Ok(())
    }

    /// The list so far, for a packet.
    #[must_use]
    pub fn as_filters(&self) -> Filters<'_> {
        Filters { raw: &self.raw, count: self.count }
    }
}

/// The filters of an UNSUBSCRIBE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Names<'a> {
    raw: &'a [u8],
    count: usize,
}

impl<'a> Names<'a> {
    /// Validates everything left in `r`: strings, at least one entry.
    pub(super) fn read(r: &Reader<'a>) -> Result<Names<'a>, Violation> {
        let raw = r.rest();
        let mut walk = Reader::new(raw);
        let mut count = 0;
        while !walk.is_empty() {
            text(walk.bin()?)?;
            count += 1;
        }
        if count == 0 { Err(NO_FILTER_UNSUBSCRIBE) } else { Ok(Names { raw, count }) }
    }

    /// Number of filters.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True without filters; a decoded UNSUBSCRIBE has some.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The filters, in order. Filter syntax is not checked.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut walk = Reader::new(self.raw);
        core::iter::from_fn(move || walk.str().ok())
    }

    pub(super) fn write(&self, s: &mut impl Sink) {
        s.bytes(self.raw);
    }
}

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Collects the filters of an UNSUBSCRIBE.
#[derive(Clone, Debug, Default)]
pub struct NamesBuf {
    raw: Vec<u8>,
    count: usize,
}

impl NamesBuf {
    /// An empty list.
    #[must_use]
    pub const fn new() -> NamesBuf {
        NamesBuf { raw: Vec::new(), count: 0 }
    }

    /// Appends a filter.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for a filter over 65,535 bytes; nothing is appended.
    pub fn push(&mut self, filter: &str) -> Result<(), EncodeError> {
        push_str(filter, &mut self.raw)?;
        self.count += 1;
        Ok(())
    }

    /// The list so far, for a packet.
    #[must_use]
    pub fn as_names(&self) -> Names<'_> {
        Names { raw: &self.raw, count: self.count }
    }
}

fn push_str(text: &str, raw: &mut Vec<u8>) -> Result<(), EncodeError> {
    let len = u16::try_from(text.len()).map_err(|_| EncodeError::TooLong)?;
    raw.extend_from_slice(&len.to_be_bytes());
    raw.extend_from_slice(text.as_bytes());
    Ok(())
}
