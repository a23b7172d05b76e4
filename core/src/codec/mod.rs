//! MQTT packets on the wire: 3.1, 3.1.1 and 5, both directions.
//!
//! Two steps: [`cut`] finds a frame in the received bytes, [`decode`] turns it into a [`Packet`] that borrows
//! everything. Decoding allocates nothing, so a claimed length costs nothing. The decoder is strict: what the
//! specification forbids and one packet alone shows is a [`Violation`] with its reason code. What needs more
//! than the packet is checked elsewhere: who may send it in [`check_from_client`], topic syntax in the `topic`
//! module, order of packets in the connection.
//!
//! Writing goes through [`Packet::encode`]; deliveries and acknowledgements, the hot paths, through
//! [`put_publish_head`] and [`put_ack`].

mod decode;
mod decode_connect;
mod direction;
mod encode;
mod filters;
mod frame;
mod packet;
mod property;
mod props;
mod props_buf;
mod props_check;
mod publish_out;
mod reader;
mod reason;
mod sink;
mod version;
mod violation;

pub use decode::decode;
pub use decode_connect::connect_version;
pub use direction::{check_from_client, check_from_server};
pub use filters::{Filters, FiltersBuf, Names, NamesBuf, SubOptions};
pub use frame::{Frame, Header, MAX_REMAINING, cut, header, needed};
pub use packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, PacketType, Publish, SubAck, Subscribe, Unsubscribe,
    Will,
};
pub use property::{Property, prop_id};
pub use props::Props;
pub use props_buf::PropsBuf;
pub use props_check::Place;
pub use publish_out::{AckKind, PublishHead, publish_len, put_ack, put_publish_head};
pub use reason::Reason;
pub use version::Version;
pub use violation::{EncodeError, Violation};
