//! Any packet survives encoding and decoding, in any pieces; predicted lengths hold; both PUBLISH writers agree.

mod codec_support;
#[path = "codec_support/model.rs"]
mod model;

use codec_support::one;
use mast_core::codec::*;
use mast_core::message::QoS;
use model::model;
use proptest::prelude::*;

/// Frames of a stream that arrives cut at `cuts`.
fn frames(stream: &[u8], cuts: &[usize]) -> Vec<(u8, Vec<u8>)> {
    let mut buffer = Vec::new();
    let mut out = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&stream.len()]) {
        buffer.extend_from_slice(&stream[from..to]);
        from = to;
        let mut done = 0;
        while let Some(frame) = cut(&buffer[done..], u32::MAX).unwrap() {
            assert_eq!(needed(&buffer[done..]), Some(frame.total));
            out.push((frame.first, frame.body.to_vec()));
            done += frame.total;
        }
        buffer.drain(..done);
    }
    assert!(buffer.is_empty());
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_decodes_to_the_same(model in model()) {
        model.with(|packet| {
            let mut out = Vec::new();
            let Ok(()) = packet.encode(model.version, &mut out) else {
                prop_assert!(model.kind == PacketType::Auth && !model.version.is_v5());
                return Ok(());
            };
            prop_assert_eq!(packet.encoded_len(model.version), out.len());
            prop_assert_eq!(one(&out, model.version), Ok(packet));
            Ok(())
        })?;
    }

    #[test]
    fn a_stream_may_be_cut_anywhere(
        models in prop::collection::vec(model(), 1..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let packets: Vec<_> = models.iter().filter_map(model::Model::bytes).collect();
        let stream = packets.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = frames(&stream, &[]);
        prop_assert_eq!(whole.len(), packets.len());
        prop_assert_eq!(frames(&stream, &cuts), whole);
    }

    #[test]
    fn every_truncation_of_a_body_is_refused_or_valid_by_itself(model in model()) {
        let Some(bytes) = model.bytes() else { return Ok(()) };
        let frame = cut(&bytes, u32::MAX).unwrap().unwrap();
        for len in 0..frame.body.len() {
            let shorter = Frame { first: frame.first, body: &frame.body[..len], total: frame.total };
            if let Ok(packet) = decode(&shorter, model.version) {
                let mut again = Vec::new();
                prop_assert!(packet.encode(model.version, &mut again).is_ok());
                prop_assert_eq!(one(&again, model.version), Ok(packet));
            }
        }
    }

    #[test]
    fn both_writers_of_publish_agree(
        topic in "[a-z/é]{1,40}",
        (dup, retain) in any::<(bool, bool)>(),
        qos in 0..3u8,
        packet_id in 1..=u16::MAX,
        alias in prop::option::of(1..=u16::MAX),
        expiry in any::<Option<u32>>(),
        sub_ids in prop::collection::vec(1..=268_435_455u32, 0..4),
        user in prop::collection::vec(("[a-z]{0,60}", "[a-z]{0,60}"), 0..4),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        version in (0..3usize).prop_map(|i| Version::ALL[i]),
    ) {
        let mut list = PropsBuf::new();
        if let Some(alias) = alias {
            list.push(&Property::TopicAlias(alias)).unwrap();
        }
        if let Some(seconds) = expiry {
            list.push(&Property::MessageExpiry(seconds)).unwrap();
        }
        for &id in &sub_ids {
            list.push(&Property::SubscriptionId(id)).unwrap();
        }
        let mut forwarded = PropsBuf::new();
        for (name, value) in &user {
            list.push(&Property::UserProperty(name, value)).unwrap();
            forwarded.push(&Property::UserProperty(name, value)).unwrap();
        }
        let qos = QoS::from_bits(qos).unwrap();
        let packet = Packet::Publish(Publish {
            dup, qos, retain, topic: &topic, packet_id, props: list.as_props(), payload: &payload,
        });
        let head = PublishHead {
            dup, qos, retain, topic: &topic, packet_id, alias, expiry, sub_ids: &sub_ids,
            props: forwarded.as_props().raw(), payload_len: payload.len(),
        };
        let (mut whole, mut pieces) = (Vec::new(), Vec::new());
        packet.encode(version, &mut whole).unwrap();
        put_publish_head(&head, version, &mut pieces).unwrap();
        pieces.extend_from_slice(&payload);
        prop_assert_eq!(publish_len(&head, version), whole.len());
        prop_assert_eq!(pieces, whole);
        let mut kept = Vec::new();
        list.as_props().forwardable(&mut kept);
        prop_assert_eq!(kept, forwarded.as_props().raw());
    }
}
