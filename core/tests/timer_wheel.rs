//! The timer wheel against an ordered map.

use mast_core::time::Mono;
use mast_core::timer::Wheel;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Not later than this after the earliest timer is a wake-up asked for.
const TICK: u64 = 1 << 14;

#[derive(Clone, Debug)]
enum Op {
    /// A timer at so many µs from now, or before now.
    Insert(i64),
    /// A timer at the same time as the last one.
    InsertAgain,
    /// Time passes.
    Pass(u64),
    /// Time passes to the wake-up the wheel asks for.
    Wake,
}

/// Spans of every magnitude from a microsecond to centuries, so that all levels and their edges occur.
fn span() -> impl Strategy<Value = u64> {
    (0u32..54, any::<u64>(), 0u64..3)
        .prop_map(|(bits, low, near)| ((1u64 << bits) - 1 + near).max(low & ((1 << bits) - 1)))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => span().prop_map(|s| Op::Insert(s as i64)),
        4 => Just(Op::InsertAgain),
        1 => span().prop_map(|s| Op::Insert(-(s as i64))),
        2 => Just(Op::Wake),
        2 => span().prop_map(Op::Pass),
        // Short steps while many timers are near.
        3 => (0u64..100_000).prop_map(Op::Pass),
        3 => (0i64..3_000_000).prop_map(Op::Insert),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_wheel_fires_what_is_due_in_order_and_nothing_else(
        ops in prop::collection::vec(op(), 1..120), start in span(),
    ) {
        let mut now = start;
        let mut wheel = Wheel::new(Mono(start));
        let mut model: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        let (mut next, mut again) = (0, start);
        for op in ops {
            match op {
                Op::Insert(_) | Op::InsertAgain => {
                    let at = if let Op::Insert(delta) = op { now.saturating_add_signed(delta) } else { again };
                    again = at;
                    wheel.insert(Mono(at), next);
                    model.insert((at, next), next);
                    next += 1;
                    prop_assert_eq!(wheel.len(), model.len());
                    continue;
                }
                Op::Pass(span) => now = now.saturating_add(span),
                Op::Wake => now = wheel.next_wake().map_or(now, |w| now.max(w.0)),
            }
            let mut fired = Vec::new();
            wheel.expire(Mono(now), &mut fired);
            let later = model.split_off(&(now.saturating_add(1), 0));
            let due: Vec<_> = model.iter().map(|((at, _), item)| (Mono(*at), *item)).collect();
            prop_assert_eq!(fired, due);
            model = later;
            prop_assert_eq!(wheel.len(), model.len());
            prop_assert_eq!(wheel.is_empty(), model.is_empty());
            let earliest = model.keys().next().map(|(at, _)| *at);
            let wake = wheel.next_wake().map(|w| w.0);
            prop_assert_eq!(wake.is_some(), earliest.is_some());
            if let (Some(wake), Some(earliest)) = (wake, earliest) {
                prop_assert!(wake >= earliest && wake <= earliest.saturating_add(TICK), "{} {}", wake, earliest);
            }
        }
    }
}

#[test]
fn timers_inserted_in_the_past_fire_at_the_next_expire() {
    let mut wheel = Wheel::new(Mono(1_000_000));
    wheel.insert(Mono(5), 'a');
    wheel.insert(Mono(3), 'b');
    let mut fired = Vec::new();
    wheel.expire(Mono(1_000_000), &mut fired);
    assert_eq!(fired, [(Mono(3), 'b'), (Mono(5), 'a')]);
    assert_eq!(wheel.next_wake(), None);
}

/// The later ones are put where the first has not yet come down to.
#[test]
fn timers_of_the_same_time_fire_in_the_order_of_insertion() {
    let at = Mono(5_000_000_000);
    let mut wheel = Wheel::new(Mono(0));
    let mut fired = Vec::new();
    for (n, left) in [4_000_000_000, 60_000_000, 500_000, 20_000, 10, 0].into_iter().enumerate() {
        // Something must be due for the wheel to move.
        wheel.insert(Mono(at.0 - left), 100 + n);
        wheel.insert(at, n);
        wheel.expire(Mono(at.0 - left), &mut fired);
    }
    let order: Vec<usize> = fired.iter().map(|(_, n)| *n).collect();
    assert_eq!(order, [100, 101, 102, 103, 104, 0, 1, 2, 3, 4, 105, 5]);
}

#[test]
fn a_timer_at_the_end_of_time_does_not_fire_before_it() {
    let mut wheel = Wheel::new(Mono(0));
    wheel.insert(Mono::NEVER, ());
    let mut fired = Vec::new();
    wheel.expire(Mono(u64::MAX - 1), &mut fired);
    assert!(fired.is_empty());
    assert_eq!(wheel.next_wake(), Some(Mono::NEVER));
    wheel.expire(Mono::NEVER, &mut fired);
    assert_eq!(fired.len(), 1);
}

/// A jump over years takes as many steps as there are levels, not ticks: this would not end otherwise.
#[test]
fn a_huge_jump_costs_no_more_than_its_timers() {
    let mut wheel = Wheel::new(Mono(0));
    let mut fired = Vec::new();
    for n in 0..1000u64 {
        wheel.insert(Mono((n + 1) << 50), n);
    }
    for n in 0..1000u64 {
        wheel.expire(Mono((n + 1) << 50), &mut fired);
        assert_eq!(fired.len() as u64, n + 1);
    }
}

/// Re-armed keep-alives: 90 s each, over ten minutes, each on time to the tick.
#[test]
fn lazily_rearmed_keep_alives_fire_within_a_tick() {
    let mut wheel = Wheel::new(Mono(0));
    for n in 0..500u64 {
        wheel.insert(Mono(90_000_000 + n * 7_919), n);
    }
    let (mut wakes, mut fires) = (0, 0);
    while let Some(wake) = wheel.next_wake().filter(|w| w.0 < 600_000_000) {
        wakes += 1;
        let mut fired = Vec::new();
        wheel.expire(wake, &mut fired);
        assert!(!fired.is_empty(), "no wake-up is for nothing");
        for (at, n) in fired {
            assert!(wake.micros_since(at) <= TICK);
            fires += 1;
            wheel.insert(at.after_micros(90_000_000), n);
        }
    }
    assert_eq!(wheel.len(), 500);
    assert_eq!(fires, 500 * 6);
    assert!(wakes < fires);
}
