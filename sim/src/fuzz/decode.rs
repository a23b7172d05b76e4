//! Target `decode`: arbitrary bytes, once as a stream and once as one frame, decoded as every version.

use mast_core::codec::{
    Frame, Packet, Version, check_from_client, check_from_server, connect_version, cut,
    decode as decode_frame, needed,
};

/// Never panics on hostile bytes; whatever decodes encodes again and decodes to the same.
pub fn decode(data: &[u8]) {
    for version in Version::ALL {
        stream(data, version);
        // Without a length to get right, mutations reach the bodies sooner.
        if let [first, body @ ..] = data {
            one(&Frame { first: *first, body, total: data.len() + 1 }, version);
        }
    }
}

fn stream(data: &[u8], version: Version) {
    let mut rest = data;
    while let Ok(Some(frame)) = cut(rest, 1 << 20) {
        assert_eq!(needed(rest), Some(frame.total));
        assert!(frame.body.len() + 2 <= frame.total && frame.total <= rest.len());
        one(&frame, version);
        rest = &rest[frame.total..];
    }
}

fn one(frame: &Frame<'_>, version: Version) {
    let named = connect_version(frame);
    match decode_frame(frame, version) {
        Ok(packet) => accepted(&packet, named, version),
        Err(violation) => assert!(violation.reason.is_error() && !violation.why.is_empty()),
    }
}

fn accepted(packet: &Packet<'_>, named: Option<Version>, version: Version) {
    if let Packet::Connect(connect) = packet {
        assert_eq!(named, Some(connect.version));
    }
    for verdict in [check_from_client(packet), check_from_server(packet, version)] {
        assert!(verdict.err().is_none_or(|violation| violation.reason.is_error()));
    }
    assert!(!format!("{packet:?}").is_empty());
    let mut again = Vec::new();
    assert_eq!(packet.encode(version, &mut again), Ok(()));
    assert_eq!(packet.encoded_len(version), again.len());
    let frame = cut(&again, u32::MAX).ok().flatten().expect("an encoded packet is one frame");
    assert_eq!(frame.total, again.len());
    assert_eq!(decode_frame(&frame, version).as_ref(), Ok(packet));
}
