//! Target `session_script`: bytes become a scenario with several clients of both versions, a stranger that sends
//! raw bytes, and a node that crashes; the world runs it, and its oracles judge.

use super::build::Source;
use crate::scenario::{
    ClientSpec, Fault, FilterSpec, Knobs, Op, Role, Scenario, TimedFault, TimedOp, Topology, WillSpec,
    WorldKnobs,
};
use crate::world::run;
use mast_core::codec::{Connect, Packet, Property, PropsBuf, Version};

/// Operations of a script; what comes behind them is not looked at.
const MOST_OPS: usize = 48;
/// The tenant of the stranger.
const STRANGE_TENANT: u8 = 2;

const TOPICS: [&str; 8] = ["a", "a/b", "a/c", "a/b/c", "b/x", "b", "s/1", "s/2"];
const FILTERS: [&str; 8] = ["a", "a/b", "a/+", "a/#", "#", "+/x", "s/#", "$share/mixed/a/#"];
/// Pauses between operations, ms.
const PAUSES: [u64; 8] = [0, 0, 1, 20, 100, 400, 2_000, 6_000];
const VERSIONS: [Version; 3] = [Version::V5, Version::V311, Version::V31];

/// Runs the script that `data` is.
///
/// # Panics
/// When a promise is broken; the message has the scenario as `mast-sim --replay` takes it.
pub fn session_script(data: &[u8]) {
    let scenario = scenario_of(data);
    let Some(failure) = run(&scenario).failure else { return };
    let json = serde_json::to_string(&scenario).unwrap_or_default();
    let tail = failure.tail.join("\n");
    panic!("{}: {}\n{tail}\nscenario: {json}", failure.oracle, failure.how);
}

/// The scenario that `data` is; every input is one.
#[must_use]
pub fn scenario_of(data: &[u8]) -> Scenario {
    let mut source = Source::new(data);
    let s = &mut source;
    let seed = u64::from(s.byte());
    let shards = 1 + u16::from(s.byte() % 3);
    let knobs = knobs(s);
    let world = world(s);
    let clients = clients(s);
    let (ops, faults, end) = script(s, &clients);
    Scenario {
        seed,
        topology: Topology { shards, tenants: 3, one_shard: Vec::new(), clients },
        knobs,
        world,
        ops,
        faults,
        calm_at_ms: end + 1_000,
        rights: Vec::new(),
        limits: Vec::new(),
    }
}

fn knobs(s: &mut Source<'_>) -> Knobs {
    let (windows, queues, rest) = (s.byte(), s.byte(), s.byte());
    let of = |byte: u8, shift: u8, from: [u64; 4]| from[usize::from(byte >> shift) & 3];
    Knobs {
        receive_maximum: of(windows, 0, [64, 1, 2, 10]) as u16,
        max_inflight_out: of(windows, 2, [64, 1, 2, 10]) as u16,
        topic_alias_max: of(windows, 4, [4, 0, 1, 2]) as u16,
        topic_alias_out_max: of(windows, 6, [4, 0, 1, 2]) as u16,
        out_high_water: of(queues, 0, [256 * 1024, 128, 512, 2048]) as usize,
        queue_messages: of(queues, 2, [1000, 1, 2, 8]) as usize,
        queue_bytes: of(queues, 4, [1024 * 1024, 200, 1000, 10_000]) as usize,
        step_budget: of(queues, 6, [4096, 1, 2, 64]) as u32,
        gate_deadline_ms: of(rest, 0, [15_000, 2_000, 5_000, 5_000]),
        cursor_flush_ms: 200,
        stall_ms: 5_000,
        durability: of(rest, 2, [2, 2, 1, 0]) as u8,
        offline_messages: of(rest, 4, [10_000, 10_000, 1, 4]),
        share_strategy: of(rest, 6, [0, 2, 3, 4]) as u8,
        share_absence_ms: 500,
        sys_interval_ms: 0,
        offline_refuse_new: rest >> 4 & 3 > 1 && windows & 1 == 1,
    }
}

fn world(s: &mut Source<'_>) -> WorldKnobs {
    let (net, store) = (s.byte(), s.byte());
    let of = |byte: u8, shift: u8, from: [u64; 4]| from[usize::from(byte >> shift) & 3];
    WorldKnobs {
        net_delay_us: of(net, 0, [10, 1_000, 20_000, 200_000]),
        chunk: of(net, 2, [65_536, 1, 7, 64]) as usize,
        socket_buffer: of(net, 4, [65_536, 64, 500, 4_096]) as usize,
        partial_write: of(net, 6, [0, 0, 10, 80]) as u8,
        peer_delay_us: of(store, 0, [0, 50, 2_000, 50_000]),
        store_delay_us: of(store, 2, [10, 500, 10_000, 100_000]),
        sync_us: of(store, 4, [10, 2_000, 20_000, 300_000]),
        auth_us: of(store, 6, [0, 0, 1_000, 50_000]),
        keeps_unneeded: false,
        foreign: true,
    }
}

/// Three clients and a witness of wills in one tenant, a member of a group beside them if wanted, a namesake in
/// the second tenant, a stranger in the third.
fn clients(s: &mut Source<'_>) -> Vec<ClientSpec> {
    let mut clients: Vec<ClientSpec> = ["c0", "c1", "c2"].iter().map(|name| client(s, 0, name)).collect();
    clients.push(client(s, 1, "c0"));
    let plain = |tenant, name: &str, role| ClientSpec {
        tenant,
        name: name.to_owned(),
        v5: true,
        expiry_secs: 100_000,
        receive_maximum: 0,
        alias_maximum: 0,
        max_packet: 0,
        keep_alive: 0,
        role,
        reconnect_ms: if role == Role::Stranger { 0 } else { 100 },
        auth_steps: 0,
    };
    clients.push(plain(STRANGE_TENANT, "stranger", Role::Stranger));
    clients.push(plain(0, "observer", Role::Observer));
    for worker in 0..s.byte() % 3 {
        clients.push(plain(0, &format!("w{worker}"), Role::Worker));
    }
    clients
}

fn client(s: &mut Source<'_>, tenant: u8, name: &str) -> ClientSpec {
    let (kind, limits) = (s.byte(), s.byte());
    let v5 = kind & 1 == 0;
    let expiry_secs = match kind >> 1 & 3 {
        0 | 1 => 7 * 24 * 3600,
        2 => 0,
        _ if v5 => 3,
        _ => 7 * 24 * 3600,
    };
    ClientSpec {
        tenant,
        name: name.to_owned(),
        v5,
        expiry_secs,
        receive_maximum: if v5 { u16::from(limits & 3) } else { 0 },
        alias_maximum: if v5 { u16::from(limits >> 2 & 3) } else { 0 },
        max_packet: if v5 && limits >> 4 & 7 == 1 { 120 } else { 0 },
        keep_alive: if limits >> 7 == 1 { 4 } else { 0 },
        role: Role::Any,
        reconnect_ms: if kind >> 3 & 1 == 1 { 50 } else { 0 },
        auth_steps: 0,
    }
}

/// Operations, faults, and when the last of them is, ms.
fn script(s: &mut Source<'_>, clients: &[ClientSpec]) -> (Vec<TimedOp>, Vec<TimedFault>, u64) {
    let (mut ops, mut faults) = (beginning(clients), Vec::new());
    let begun = ops.len();
    let mut at_ms = 600;
    while !s.is_empty() && ops.len() + faults.len() < begun + MOST_OPS {
        let (what, whose) = (s.byte(), s.byte());
        at_ms += PAUSES[usize::from(whose >> 5)];
        let stranger = clients.iter().position(|c| c.role == Role::Stranger).unwrap_or(0);
        let client = usize::from(whose & 31) % clients.len();
        let (client, op) = match what % 16 {
            12 => {
                faults.push(TimedFault { at_ms, fault: fault(s) });
                continue;
            }
            13 | 14 => (stranger, raw(s)),
            15 => (stranger, hello(s)),
            kind if client == stranger => (stranger, strange(s, kind)),
            kind => match clients[client].role {
                Role::Observer => continue,
                Role::Worker => (client, disturbance(s, kind, &clients[client])),
                Role::Any | Role::Stranger => (client, op(s, kind, &clients[client])),
            },
        };
        ops.push(TimedOp { at_ms, client, op });
    }
    ops.sort_by_key(|op| op.at_ms);
    (ops, faults, at_ms)
}

/// All but the stranger connect; witness and members subscribe.
fn beginning(clients: &[ClientSpec]) -> Vec<TimedOp> {
    let mut ops = Vec::new();
    for (client, spec) in clients.iter().enumerate() {
        let filter = match spec.role {
            Role::Stranger => continue,
            Role::Any => None,
            Role::Observer => Some(("will/#", 2)),
            Role::Worker => Some(("$share/g/s/#", 1 + spec.name.ends_with('1') as u8)),
        };
        let clean = !spec.v5 && spec.expiry_secs == 0;
        ops.push(TimedOp { at_ms: client as u64, client, op: Op::Connect { clean, will: None } });
        if let Some((filter, qos)) = filter {
            let filters = vec![FilterSpec {
                filter: filter.to_owned(),
                qos,
                no_local: false,
                rap: false,
                retain_handling: 2,
            }];
            ops.push(TimedOp { at_ms: 500, client, op: Op::Subscribe { filters, id: 0 } });
        }
    }
    ops
}

fn op(s: &mut Source<'_>, kind: u8, spec: &ClientSpec) -> Op {
    match kind {
        0..=3 => publish(s),
        4 | 5 => subscribe(s),
        6 => Op::Unsubscribe { filters: vec![s.pick(&FILTERS[..7]).to_owned()] },
        _ => disturbance(s, kind, spec),
    }
}

fn publish(s: &mut Source<'_>) -> Op {
    let (what, how) = (s.byte(), s.byte());
    let retain = what >> 5 & 1 == 1;
    Op::Publish {
        topic: TOPICS[usize::from(what & 7)].to_owned(),
        qos: (what >> 3 & 3) % 3,
        retain,
        expiry_secs: if what >> 6 == 3 { 2 } else { 0 },
        pad: [0, 30, 200, 1_000][usize::from(how & 3)],
        alias: how >> 2 & 1 == 1,
        count: [1, 2, 4, 8][usize::from(how >> 3 & 3)],
        clear: retain && how >> 5 == 7,
    }
}

fn subscribe(s: &mut Source<'_>) -> Op {
    let (what, how) = (s.byte(), s.byte());
    let filter = FILTERS[usize::from(what & 7)];
    let spec = FilterSpec {
        filter: filter.to_owned(),
        qos: (what >> 3 & 3) % 3,
        no_local: what >> 5 & 1 == 1 && !filter.starts_with("$share"),
        rap: what >> 6 & 1 == 1,
        retain_handling: how & 3,
    };
    let retain_handling = spec.retain_handling % 3;
    let mut filters = vec![FilterSpec { retain_handling, ..spec }];
    if how >> 2 & 1 == 1 && filter != "b/x" {
        filters.push(FilterSpec { filter: "b/x".to_owned(), ..filters[0].clone() });
    }
    Op::Subscribe { filters, id: u32::from(how >> 3) }
}

/// Everything but publishing and subscribing.
fn disturbance(s: &mut Source<'_>, kind: u8, spec: &ClientSpec) -> Op {
    let with = s.byte();
    let ms = [50, 500, 3_000, 7_000][usize::from(with & 3)];
    match kind {
        7 if with >> 7 == 1 => Op::Ping,
        7 => Op::Disconnect { with_will: with & 1 == 1 },
        8 => Op::Cut,
        9 if with & 1 == 1 => Op::Vanish,
        9 => Op::Garbage { seed: u64::from(with) },
        10 if with >> 7 == 1 => Op::StopReading { ms },
        10 => Op::StopAcking { ms },
        _ => {
            let will = (with >> 1 & 1 == 1 && spec.role == Role::Any).then(|| WillSpec {
                qos: (with >> 2 & 3) % 3,
                retain: with >> 4 & 1 == 1,
                delay_secs: u32::from(with >> 5 & 1) * 3,
            });
            Op::Connect { clean: (!spec.v5 && spec.expiry_secs == 0) || with & 1 == 1, will }
        }
    }
}

fn fault(s: &mut Source<'_>) -> Fault {
    let with = s.byte();
    let ms = [10, 300, 2_000, 5_000][usize::from(with >> 3 & 3)];
    match with & 7 {
        0..=2 => Fault::Crash { power: with >> 5 & 1 == 1, down_ms: ms },
        3 => Fault::StoreFull { ms },
        4 => Fault::StoreDown { ms },
        5 => Fault::StoreSilent { ms },
        _ => Fault::SlowSync { ms },
    }
}

/// A chunk of bytes, or a whole packet of any type.
fn raw(s: &mut Source<'_>) -> Op {
    let how = s.byte();
    let bytes = if how & 1 == 1 {
        let mut bytes = Vec::new();
        let version = VERSIONS[usize::from(how >> 1 & 3) % 3];
        // Too long for its own length field: a packet that no client could send either.
        if s.packet(version, |packet| packet.encode(version, &mut bytes)).is_err() {
            bytes.clear();
        }
        bytes
    } else {
        let mut bytes = s.binary();
        bytes.truncate(255);
        bytes
    };
    Op::Raw { bytes, anew: how >> 7 == 1 }
}

/// A CONNECT that will be accepted.
fn hello(s: &mut Source<'_>) -> Op {
    let how = s.byte();
    let version = VERSIONS[usize::from(how & 3) % 3];
    let mut props = PropsBuf::new();
    if version.is_v5() {
        let expiry = [0, 2, 100, u32::MAX][usize::from(how >> 2 & 3)];
        for property in [Property::SessionExpiry(expiry), Property::TopicAliasMaximum(3)] {
            props.push(&property).expect("numbers fit");
        }
    }
    let connect = Packet::Connect(Connect {
        version,
        bridge: how >> 4 & 1 == 1 && !version.is_v5(),
        clean_start: how >> 5 & 1 == 0,
        keep_alive: 0,
        props: props.as_props(),
        client_id: if how >> 6 & 1 == 1 { "x" } else { "c0" },
        will: None,
        username: None,
        password: None,
    });
    let mut bytes = Vec::new();
    connect.encode(version, &mut bytes).expect("a short CONNECT");
    Op::Raw { bytes, anew: true }
}

/// What a stranger does besides sending.
fn strange(s: &mut Source<'_>, kind: u8) -> Op {
    match kind {
        0..=7 => raw(s),
        8 | 9 => Op::Cut,
        _ => Op::StopReading { ms: u64::from(s.byte()) * 20 },
    }
}
