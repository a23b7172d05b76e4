//! CONNECT: version, flags, and the fields that the flags announce.

use super::frame::Frame;
use super::packet::{Connect, Will};
use super::props::Props;
use super::props_check::Place;
use super::reader::Reader;
use super::reason::Reason;
use super::version::Version;
use super::violation::Violation;
use crate::message::QoS;

const UNSUPPORTED: Violation =
    Violation::new(Reason::UNSUPPORTED_PROTOCOL_VERSION, "unknown protocol name or version", "MQTT-3.1.2-2");
const RESERVED: Violation = Violation::malformed("the reserved CONNECT flag is set", "MQTT-3.1.2-3");
const WILL_QOS_THREE: Violation = Violation::malformed("will QoS is 3", "MQTT-3.1.2-12");
const WILL_QOS_ALONE: Violation = Violation::malformed("will QoS without will flag", "MQTT-3.1.2-11");
const WILL_RETAIN_ALONE: Violation = Violation::malformed("will retain without will flag", "MQTT-3.1.2-13");
const PASSWORD_ALONE: Violation =
    Violation::malformed("password without user name before MQTT 5", "MQTT-3.1.2-22");

/// Mosquitto's mark of a bridge, on the level of 3.1 and 3.1.1.
pub(super) const BRIDGE: u8 = 0x80;

/// The CONNECT flags byte (MQTT 5, 3.1.2.3).
pub(super) mod flag {
    pub(in crate::codec) const RESERVED: u8 = 0x01;
    pub(in crate::codec) const CLEAN_START: u8 = 0x02;
    pub(in crate::codec) const WILL: u8 = 0x04;
    pub(in crate::codec) const WILL_RETAIN: u8 = 0x20;
    pub(in crate::codec) const PASSWORD: u8 = 0x40;
    pub(in crate::codec) const USERNAME: u8 = 0x80;
}

/// The version that a CONNECT asks for, also when the rest of it is bad: it decides the form of the CONNACK
/// that refuses it. `None` for other packets and unknown versions.
#[must_use]
pub fn connect_version(frame: &Frame<'_>) -> Option<Version> {
    if frame.first >> 4 != 1 {
        return None;
    }
    version(&mut Reader::new(frame.body)).ok().map(|(version, _)| version)
}

/// Protocol name and level; the flag says "bridge".
fn version(r: &mut Reader<'_>) -> Result<(Version, bool), Violation> {
    let name = r.bin()?;
    let level = r.u8()?;
    let bridge = level & BRIDGE != 0;
    match (name, level & !BRIDGE) {
        (b"MQIsdp", 3) => Ok((Version::V31, bridge)),
        (b"MQTT", 4) => Ok((Version::V311, bridge)),
        (b"MQTT", 5) if !bridge => Ok((Version::V5, false)),
        _ => Err(UNSUPPORTED),
    }
}

fn check_flags(flags: u8, version: Version) -> Result<(), Violation> {
    if flags & flag::RESERVED != 0 {
        return Err(RESERVED);
    }
    if flags & flag::WILL == 0 {
        if flags >> 3 & 3 != 0 {
            return Err(WILL_QOS_ALONE);
        }
        if flags & flag::WILL_RETAIN != 0 {
            return Err(WILL_RETAIN_ALONE);
        }
    }
    if flags & flag::PASSWORD != 0 && flags & flag::USERNAME == 0 && !version.is_v5() {
        return Err(PASSWORD_ALONE);
    }
    Ok(())
}

pub(super) fn connect<'a>(r: &mut Reader<'a>) -> Result<Connect<'a>, Violation> {
    let (version, bridge) = version(r)?;
    let flags = r.u8()?;
    check_flags(flags, version)?;
    let keep_alive = r.u16()?;
    let props = if version.is_v5() { Props::read(r, Place::Connect)? } else { Props::EMPTY };
    let client_id = r.str()?;
    let will = if flags & flag::WILL == 0 { None } else { Some(will(r, flags, version)?) };
    // In 3.1 a flag may announce a user name or password that isn't there: the length decides (3.1, section 3.1).
    let present = |r: &Reader<'_>| version != Version::V31 || !r.is_empty();
    let username = if flags & flag::USERNAME != 0 && present(r) { Some(r.str()?) } else { None };
    let password = if flags & flag::PASSWORD != 0 && present(r) { Some(r.bin()?) } else { None };
    r.end()?;
    let clean_start = flags & flag::CLEAN_START != 0;
    Ok(Connect { version, bridge, clean_start, keep_alive, props, client_id, will, username, password })
}

fn will<'a>(r: &mut Reader<'a>, flags: u8, version: Version) -> Result<Will<'a>, Violation> {
    let qos = QoS::from_bits(flags >> 3 & 3).ok_or(WILL_QOS_THREE)?;
    let props = if version.is_v5() { Props::read(r, Place::Will)? } else { Props::EMPTY };
    Ok(Will { qos, retain: flags & flag::WILL_RETAIN != 0, props, topic: r.str()?, payload: r.bin()? })
}
