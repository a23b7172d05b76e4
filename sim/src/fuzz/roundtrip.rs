//! Target `roundtrip`: valid packets, encoded, cut and decoded again; both writers of PUBLISH agree.

use super::build::Source;
use mast_core::codec::*;

/// Encodes the packets that `data` chooses into one stream, which decodes to the same packets however it is cut.
pub fn roundtrip(data: &[u8]) {
    let mut source = Source::new(data);
    let version = source.pick(&[Version::V5, Version::V311, Version::V31]);
    let split = source.byte();
    source.packet(version, |packet| {
        let mut stream = Vec::new();
        assert_eq!(packet.encode(version, &mut stream), Ok(()));
        let len = stream.len();
        assert_eq!(packet.encoded_len(version), len);
        // The same packet follows, and a part of it.
        stream.extend_from_within(..);
        stream.extend_from_within(..len / 2);
        let frame = cut(&stream, len as u32).expect("no violation").expect("a whole frame");
        assert_eq!(frame.total, len);
        assert_eq!(decode(&frame, version).as_ref(), Ok(packet));
        assert_eq!(cut(&stream[len..], u32::MAX), Ok(Some(frame)));
        let part = usize::from(split) % len;
        assert_eq!(cut(&stream[..part], u32::MAX), Ok(None));
        assert_eq!(cut(&stream, len as u32 - 1).unwrap_err().reason, Reason::PACKET_TOO_LARGE);
        if let Packet::Publish(publish) = packet {
            forward(publish, version);
        }
    });
}

/// A received PUBLISH sent on: the hot path writes what the general encoder writes.
fn forward(publish: &Publish<'_>, version: Version) {
    let mut raw = Vec::new();
    publish.props.forwardable(&mut raw);
    let forwarded = Props::parse(&raw, Place::Publish).expect("a part of valid properties is valid");
    assert!(forwarded.forwardable_is_all());
    assert_eq!(forwarded.is_empty(), raw.is_empty());
    if publish.props.forwardable_is_all() {
        assert_eq!(publish.props.raw(), raw);
    }
    let sub_ids: Vec<u32> = publish.props.subscription_ids().collect();
    let head = PublishHead {
        dup: publish.dup,
        qos: publish.qos,
        retain: publish.retain,
        topic: publish.topic,
        packet_id: publish.packet_id,
        alias: publish.props.topic_alias(),
        expiry: publish.props.message_expiry(),
        sub_ids: &sub_ids,
        props: &raw,
        payload_len: publish.payload.len(),
    };
    let mut sent = Vec::new();
    assert_eq!(put_publish_head(&head, version, &mut sent), Ok(()));
    sent.extend_from_slice(publish.payload);
    assert_eq!(publish_len(&head, version), sent.len());
    let frame = cut(&sent, u32::MAX).expect("no violation").expect("a whole frame");
    let Ok(Packet::Publish(again)) = decode(&frame, version) else { panic!("not a PUBLISH: {sent:?}") };
    assert_eq!(Publish { props: Props::EMPTY, ..again }, Publish { props: Props::EMPTY, ..*publish });
    assert_eq!(again.props.topic_alias(), head.alias);
    assert_eq!(again.props.message_expiry(), head.expiry);
    assert!(again.props.subscription_ids().eq(sub_ids.iter().copied()));
    let mut kept = Vec::new();
    again.props.forwardable(&mut kept);
    assert_eq!(kept, raw);
}
