//! Hostile bytes: nothing panics, and what is accepted is understood completely.

mod codec_support;
#[path = "codec_support/model.rs"]
mod model;

use codec_support::one;
use mast_core::codec::*;
use model::model;
use proptest::prelude::*;

/// Decodes as every version; what passes is walked in full, encoded again and decodes to the same.
fn swallow(bytes: &[u8]) {
    for version in Version::ALL {
        let Ok(Some(frame)) = cut(bytes, u32::MAX) else { return };
        let Ok(packet) = decode(&frame, version) else { continue };
        let verdicts = [check_from_client(&packet), check_from_server(&packet, version)];
        assert!(!format!("{packet:?} {verdicts:?} {:?}", connect_version(&frame)).is_empty());
        let mut again = Vec::new();
        assert_eq!(packet.encode(version, &mut again), Ok(()));
        assert!(again.len() <= frame.total, "encoding is the shortest form");
        assert_eq!(one(&again, version), Ok(packet));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bodies_of_every_type(first in 0x10u8.., body in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = vec![first, body.len() as u8];
        bytes.extend(body);
        swallow(&bytes);
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        swallow(&bytes);
    }

    #[test]
    fn mutated_packets(
        model in model(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..4),
    ) {
        let Some(mut bytes) = model.bytes() else { return Ok(()) };
        for (at, value, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = value,
                1 => bytes[at] ^= 1 << (value & 7),
                _ => bytes[at] = bytes[at].wrapping_add(1),
            }
        }
        swallow(&bytes);
    }
}

#[test]
fn a_claimed_length_costs_nothing() {
    // Each claims far more than it brings; none may be accepted.
    for version in Version::ALL {
        for first in [0x10, 0x20, 0x30, 0x32, 0x82, 0xA2, 0x90, 0xB0, 0xE0, 0xF0, 0x40] {
            for body in
                [&[0xFF; 4][..], &[0, 1, 0xFF, 0xFF, 0xFF, 0x7F], &[0, 1, 0xFF, 0xFF, 0xFF, 0x7F, 0x26]]
            {
                assert!(decode(&Frame { first, body, total: 2 + body.len() }, version).is_err());
            }
        }
    }
}
