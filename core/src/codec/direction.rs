//! Who may send what: the rules of one packet that depend on its sender. The decoder serves both directions.

use super::packet::Packet;
use super::property::prop_id;
use super::reason::Reason;
use super::version::Version;
use super::violation::Violation;

const SERVER_ONLY: Violation = Violation::protocol("a client sent a packet that only a server sends", "");
const CLIENT_ONLY: Violation = Violation::protocol("a server sent a packet that only a client sends", "");
const SUB_ID: Violation =
    Violation::protocol("a client's PUBLISH carries a subscription identifier", "MQTT-3.3.4-6");
const CLIENT_REASON: Violation = Violation::protocol("only a server sends this reason code", "MQTT-3.14.2-1");
const SERVER_REASON: Violation = Violation::protocol("only a client sends this reason code", "MQTT-3.14.2-1");
const SERVER_REFERENCE: Violation =
    Violation::protocol("a client's DISCONNECT carries a server reference", "");
const AUTH_SUCCESS: Violation = Violation::protocol("only a server ends authentication", "MQTT-3.15.2-1");
const AUTH_AGAIN: Violation = Violation::protocol("only a client starts re-authentication", "MQTT-3.15.2-1");
const SESSION_EXPIRY: Violation =
    Violation::protocol("a server's DISCONNECT carries a session expiry", "MQTT-3.14.2-2");
const DISCONNECT_V3: Violation = Violation::protocol("a server sent DISCONNECT before MQTT 5", "");

/// Checks what a server must refuse in a decoded packet because a client sent it.
///
/// # Errors
/// Packets that only a server sends; a client's PUBLISH with a subscription identifier; a server's reason
/// codes and properties in DISCONNECT and AUTH.
#[inline]
pub fn check_from_client(packet: &Packet<'_>) -> Result<(), Violation> {
    match packet {
        Packet::Publish(p) if p.props.has(prop_id::SUBSCRIPTION_ID) => Err(SUB_ID),
        Packet::Disconnect(p) if !p.reason.in_client_disconnect() => Err(CLIENT_REASON),
        Packet::Disconnect(p) if p.props.has(prop_id::SERVER_REFERENCE) => Err(SERVER_REFERENCE),
        Packet::Auth(p) if p.reason == Reason::SUCCESS => Err(AUTH_SUCCESS),
        Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => Err(SERVER_ONLY),
        Packet::Connect(_)
        | Packet::Publish(_)
        | Packet::PubAck(_)
        | Packet::PubRec(_)
        | Packet::PubRel(_)
        | Packet::PubComp(_)
        | Packet::Subscribe(_)
        | Packet::Unsubscribe(_)
        | Packet::PingReq
        | Packet::Disconnect(_)
        | Packet::Auth(_) => Ok(()),
    }
}

/// Checks what a client must refuse in a decoded packet because a server sent it.
///
/// # Errors
/// Packets that only a client sends; session expiry or the client's reason codes in DISCONNECT; any
/// DISCONNECT before MQTT 5; re-authentication started by the server.
pub fn check_from_server(packet: &Packet<'_>, version: Version) -> Result<(), Violation> {
    match packet {
        Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::PingReq => {
            Err(CLIENT_ONLY)
        }
        Packet::Disconnect(_) if !version.is_v5() => Err(DISCONNECT_V3),
        Packet::Disconnect(p) if p.reason == Reason::DISCONNECT_WITH_WILL => Err(SERVER_REASON),
        Packet::Disconnect(p) if p.props.has(prop_id::SESSION_EXPIRY) => Err(SESSION_EXPIRY),
        Packet::Auth(p) if p.reason == Reason::REAUTHENTICATE => Err(AUTH_AGAIN),
        Packet::ConnAck(_)
        | Packet::Publish(_)
        | Packet::PubAck(_)
        | Packet::PubRec(_)
        | Packet::PubRel(_)
        | Packet::PubComp(_)
        | Packet::SubAck(_)
        | Packet::UnsubAck(_)
        | Packet::PingResp
        | Packet::Disconnect(_)
        | Packet::Auth(_) => Ok(()),
    }
}
