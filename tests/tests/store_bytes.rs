//! The journal's bytes: what is written reads back, and nothing that is not ours is taken for ours.

use mast::store::record::{GroupWriter, Record, align, decode, read_group};
use mast::store::segment::{HEADER, HeaderError, SegmentHeader};
use mast::store::sidecar::{Logged, SegmentIndex};
use mast_core::ids::{SessionUid, TenantId};
use mast_core::rng::Rng;
use mast_core::time::Wall;
use mast_tests::contract::{ACME, expiring, message};

const SALT: u64 = 0x1234_5678_9ABC_DEF1;

fn group(first: u64, base: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = GroupWriter::begin(&mut out, SALT, base);
    writer.append("acme", &expiring(ACME, "t/ü", b"payload", Some(Wall(9))), true, false, None);
    writer.append("acme", &message(ACME, "t", b""), true, true, Some(&[SessionUid(7), SessionUid(8)]));
    writer.put(b"key", b"value");
    writer.delete(b"gone");
    writer.finish(first, first - 1, Wall(5));
    out
}

#[test]
fn a_group_reads_back_as_it_was_written() {
    let raw = group(10, 0);
    let group = read_group(&raw, SALT, 0).expect("it is whole");
    assert_eq!((group.header.first, group.header.synced, group.header.wall), (10, 9, Wall(5)));
    assert_eq!((group.consumed, group.end() as usize), (4, align(raw.len())));
    let parts: Vec<_> = group.parts().collect();
    let Record::Append(first) = &parts[0].2 else { panic!("{parts:?}") };
    assert_eq!(*first.to_message(ACME), *expiring(ACME, "t/ü", b"payload", Some(Wall(9))));
    let Record::Append(second) = &parts[1].2 else { panic!("{parts:?}") };
    assert!(second.log && second.retain);
    assert_eq!(second.spill_uids().collect::<Vec<_>>(), [SessionUid(7), SessionUid(8)]);
    assert!(matches!(parts[2], (_, 12, Record::Put { key: b"key", value: b"value" })));
    assert!(matches!(parts[3], (_, 13, Record::Delete { key: b"gone" })));
}

#[test]
fn a_group_found_at_another_place_or_under_another_salt_is_not_ours() {
    let mut raw = vec![0; 64];
    raw.extend(group(10, 64));
    assert!(read_group(&raw, SALT, 64).is_some());
    assert!(read_group(&raw, SALT + 2, 64).is_none());
    assert!(read_group(&raw[64..], SALT, 0).is_none(), "moved to another offset");
}

#[test]
fn any_flipped_bit_makes_a_group_invalid() {
    let raw = group(10, 0);
    let len = read_group(&raw, SALT, 0).map_or(0, |g| 40 + g.records.len());
    for bit in 0..len * 8 {
        let mut bad = raw.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(read_group(&bad, SALT, 0).is_none(), "bit {bit}");
    }
    for cut in 0..len {
        assert!(read_group(&raw[..cut], SALT, 0).is_none(), "cut at {cut}");
    }
}

#[test]
fn a_resealed_group_is_the_same_group_elsewhere() {
    let raw = group(10, 0);
    let original = read_group(&raw, SALT, 0).expect("it is whole");
    let mut copy = vec![0; 4096];
    original.reseal(99, 0, 3, &mut copy);
    let there = read_group(&copy, 99, 4096).expect("it is whole");
    assert_eq!(there.header.first, 10);
    let text = |g: &mast::store::record::Group<'_>| {
        g.parts().map(|(_, seq, record)| format!("{seq} {record:?}")).collect::<Vec<_>>()
    };
    assert_eq!(text(&there), text(&original));
}

#[test]
fn a_moved_append_keeps_its_sequence_and_uses_up_none() {
    let raw = group(10, 0);
    let original = read_group(&raw, SALT, 0).expect("it is whole");
    let (_, body) = original.bodies().next().expect("a record");
    let mut out = Vec::new();
    let mut writer = GroupWriter::begin(&mut out, SALT, 0);
    writer.moved(10, body);
    writer.finish(50, 49, Wall(6));
    let once = read_group(&out, SALT, 0).expect("it is whole");
    assert_eq!(once.consumed, 0);
    let (_, again) = once.bodies().next().expect("a record");
    let mut out = Vec::new();
    let mut writer = GroupWriter::begin(&mut out, SALT, 0);
    writer.moved(10, again);
    writer.finish(60, 59, Wall(7));
    let twice = read_group(&out, SALT, 0).expect("it is whole");
    let (_, seq, record) = twice.parts().next().expect("a record");
    let Record::Append(view) = record else { panic!("{record:?}") };
    assert_eq!((seq, view.moved, view.message.topic), (10, Some(10), "t/ü"));
}

#[test]
fn random_bytes_are_decoded_without_panic() {
    let mut rng = Rng::new(1);
    for _ in 0..200_000 {
        let len = rng.below(80) as usize;
        let mut raw: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        if let Some(first) = raw.first_mut() {
            *first = 1 + (*first % 5);
        }
        if let Some(Record::Append(view)) = decode(&raw) {
            assert!(view.to_message(TenantId(0)).size() <= raw.len());
        }
    }
}

#[test]
fn a_segment_header_reads_back_and_tells_damage_from_another_format() {
    let header =
        SegmentHeader { id: 3, salt: SALT, base: 100, prev_id: 2, prev_end: 4096, wall: Wall(8), gap: true };
    let raw = header.encode();
    assert_eq!(raw.len() as u64, HEADER);
    assert_eq!(SegmentHeader::decode(&raw), Ok(header));
    let mut other = raw.clone();
    other[8] = 2;
    assert_eq!(SegmentHeader::decode(&other), Err(HeaderError::Format(2)));
    let mut bad = raw;
    bad[30] ^= 1;
    assert_eq!(SegmentHeader::decode(&bad), Err(HeaderError::Damaged));
}

#[test]
fn an_index_file_reads_back_and_any_damage_makes_it_void() {
    let header =
        SegmentHeader { id: 3, salt: SALT, base: 100, prev_id: 0, prev_end: 0, wall: Wall(8), gap: false };
    let logged = |seq, expires, moved| Logged { seq, offset: 4200, size: 77, topic: 0, expires, moved };
    let index = SegmentIndex {
        end: 9000,
        next: 140,
        wall: Wall(99),
        topics: vec![("acme".into(), "t/1".into())],
        entries: vec![logged(100, None, false), logged(5, Some(Wall(1)), true)],
    };
    let raw = index.encode(&header);
    assert_eq!(SegmentIndex::decode(&raw, &header), Some(index));
    assert_eq!(SegmentIndex::decode(&raw, &SegmentHeader { salt: 1, ..header }), None);
    for at in 0..raw.len() {
        let mut bad = raw.clone();
        bad[at] ^= 0x10;
        assert_eq!(SegmentIndex::decode(&bad, &header), None, "byte {at}");
        assert_eq!(SegmentIndex::decode(&raw[..at], &header), None, "cut at {at}");
    }
}
