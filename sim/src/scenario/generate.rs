//! Scenarios from seeds. Whole features are drawn on or off per run (a swarm), so that each gets runs in
//! which nothing else is in its way; small bounds are drawn often, so that the rare paths are walked.

use super::{
    ClientSpec, Fault, FilterSpec, Knobs, Op, Role, Scenario, TimedFault, TimedOp, Topology, WillSpec,
    WorldKnobs,
};
use super::{later, limits};
use crate::draw::Draw;

/// What a run has.
#[derive(Clone, Copy, Debug)]
struct Swarm {
    crash: bool,
    store_trouble: bool,
    vanish: bool,
    slow: bool,
    shared: bool,
    retain: bool,
    expiry: bool,
    alias: bool,
    wills: bool,
    garbage: bool,
    takeover: bool,
    qos0: bool,
    qos2: bool,
    old_version: bool,
    small: bool,
    big: bool,
}

pub(crate) const TOPICS: [&str; 8] = ["a", "a/b", "a/c", "a/b/c", "b/x", "b/x/y", "b", "s/1"];
const FILTERS: [&str; 11] = ["a", "a/b", "a/+", "a/#", "#", "b/x", "+/x", "b/+/y", "b/#", "s/#", "+"];
const GROUPS: [&str; 4] = ["$share/g/s/#", "$share/g/a/#", "$share/h/a/+", "$share/g/b/x"];

/// The scenario of a seed, with at most `shards` shards.
#[must_use]
pub fn generate(seed: u64, shards: u16) -> Scenario {
    let mut draw = Draw::new(seed, 77);
    let d = &mut draw;
    let swarm = Swarm {
        crash: d.chance(40),
        store_trouble: d.chance(25),
        vanish: d.chance(30),
        slow: d.chance(50),
        shared: d.chance(40),
        retain: d.chance(50),
        expiry: d.chance(25),
        alias: d.chance(40),
        wills: d.chance(40),
        garbage: d.chance(15),
        takeover: d.chance(40),
        qos0: d.chance(60),
        qos2: d.chance(70),
        old_version: d.chance(50),
        small: d.chance(60),
        big: d.chance(15),
    };
    // What was added later has draws of its own, so that seeds mean what they meant.
    let mut later = Draw::new(seed, 78);
    let calm_at_ms = d.range(4_000, 30_000);
    let clients = clients(d, swarm);
    let ops = ops(d, swarm, &clients, calm_at_ms);
    let shards = d.range(1, u64::from(shards.max(1))) as u16;
    let mut knobs = knobs(d, swarm);
    // Drawn apart, so that all else of a seed stays what it was before there was this choice.
    knobs.offline_refuse_new = knobs.offline_messages < 1_000 && Draw::new(seed, 79).chance(50);
    let mut scenario = Scenario {
        seed,
        topology: Topology { shards, tenants: 3, one_shard: Vec::new(), clients },
        knobs,
        world: world(d, &mut later, swarm),
        ops,
        faults: faults(d, swarm, calm_at_ms),
        calm_at_ms,
        rights: Vec::new(),
        limits: Vec::new(),
    };
    // It costs a tenth of a run.
    scenario.world.foreign = Draw::new(seed, 80).chance(50);
    later::add(&mut scenario, &mut later);
    limits::add(&mut scenario, &mut Draw::new(seed, 90));
    scenario
}

fn knobs(d: &mut Draw, swarm: Swarm) -> Knobs {
    let small = |d: &mut Draw, little: &[u64], usual: u64| {
        if swarm.small && d.chance(70) { *d.pick(little) } else { usual }
    };
    Knobs {
        receive_maximum: small(d, &[1, 2, 5, 10], 64) as u16,
        max_inflight_out: small(d, &[1, 2, 4, 10], 64) as u16,
        topic_alias_max: d.range(0, 5) as u16,
        topic_alias_out_max: d.range(0, 5) as u16,
        out_high_water: small(d, &[128, 512, 2048], 256 * 1024) as usize,
        queue_messages: small(d, &[1, 2, 4, 8], 1000) as usize,
        queue_bytes: small(d, &[200, 1000, 10_000], 1024 * 1024) as usize,
        step_budget: small(d, &[1, 2, 8, 64], 4096) as u32,
        gate_deadline_ms: *d.pick(&[2_000, 5_000, 15_000]),
        cursor_flush_ms: *d.pick(&[50, 200, 1_000]),
        stall_ms: *d.pick(&[5_000, 30_000]),
        durability: if d.chance(80) { 2 } else { d.below(2) as u8 },
        offline_messages: if d.chance(15) { d.range(1, 20) } else { 10_000 },
        share_strategy: d.below(5) as u8,
        share_absence_ms: *d.pick(&[500, 2_000, 30_000]),
        offline_refuse_new: false,
        sys_interval_ms: if d.chance(20) { 1_000 } else { 0 },
    }
}

fn world(d: &mut Draw, later: &mut Draw, swarm: Swarm) -> WorldKnobs {
    WorldKnobs {
        net_delay_us: *d.pick(&[10, 1_000, 20_000, 200_000]),
        chunk: *d.pick(&[1, 7, 64, 1_000, 65_536]),
        // Large messages through a tiny socket are millions of events and nothing new.
        socket_buffer: (*d.pick(&[64, 500, 4_096, 65_536])).max(if swarm.big { 4_096 } else { 0 }),
        partial_write: *d.pick(&[0, 10, 80]),
        peer_delay_us: *d.pick(&[0, 50, 2_000, 50_000]),
        store_delay_us: *d.pick(&[10, 500, 10_000, 100_000]),
        sync_us: *d.pick(&[10, 2_000, 20_000, 300_000]),
        auth_us: *d.pick(&[0, 1_000, 50_000]),
        keeps_unneeded: later.chance(50),
        foreign: true,
    }
}

fn clients(d: &mut Draw, swarm: Swarm) -> Vec<ClientSpec> {
    let names = d.range(2, 4);
    let workers = if swarm.shared { d.range(1, 3) } else { 0 };
    let mut clients = Vec::new();
    for tenant in 0..3 {
        // Equal names in all tenants.
        for name in 0..names {
            clients.push(client(d, swarm, tenant, format!("c{name}"), Role::Any));
        }
        for worker in 0..workers {
            clients.push(client(d, swarm, tenant, format!("w{worker}"), Role::Worker));
        }
        clients.push(ClientSpec {
            tenant,
            name: "observer".to_owned(),
            v5: true,
            expiry_secs: 100_000,
            receive_maximum: 0,
            alias_maximum: 0,
            max_packet: 0,
            keep_alive: 0,
            role: Role::Observer,
            reconnect_ms: 100,
            auth_steps: 0,
        });
    }
    clients
}

fn client(d: &mut Draw, swarm: Swarm, tenant: u8, name: String, role: Role) -> ClientSpec {
    let v5 = !(swarm.old_version && d.chance(50));
    let long = if v5 { 100_000 } else { 7 * 24 * 3600 };
    let expiry_secs = match d.below(10) {
        0 | 1 => 0,
        2 if v5 => d.range(1, 5) as u32,
        _ => long,
    };
    ClientSpec {
        tenant,
        name,
        v5,
        expiry_secs,
        receive_maximum: if v5 && d.chance(40) { d.range(1, 5) as u16 } else { 0 },
        alias_maximum: if v5 && swarm.alias { d.range(0, 4) as u16 } else { 0 },
        max_packet: if v5 && d.chance(10) { d.range(90, 200) as u32 } else { 0 },
        keep_alive: if d.chance(20) { d.range(1, 10) as u16 } else { 0 },
        role,
        reconnect_ms: if d.chance(60) { d.range(10, 2_000) } else { 0 },
        auth_steps: 0,
    }
}

fn ops(d: &mut Draw, swarm: Swarm, clients: &[ClientSpec], calm_at_ms: u64) -> Vec<TimedOp> {
    let mut ops = Vec::new();
    for (client, spec) in clients.iter().enumerate() {
        let begin = if spec.role == Role::Observer { 0 } else { d.below(1_000) };
        let will = (swarm.wills && spec.role == Role::Any && d.chance(50)).then(|| will(d, swarm));
        ops.push(TimedOp { at_ms: begin, client, op: Op::Connect { clean: false, will } });
        match spec.role {
            Role::Observer => {
                let filters = vec![FilterSpec {
                    filter: "will/#".to_owned(),
                    qos: 2,
                    no_local: false,
                    rap: false,
                    retain_handling: 2,
                }];
                ops.push(TimedOp { at_ms: 500, client, op: Op::Subscribe { filters, id: 0 } });
            }
            Role::Worker => {
                let name: u64 = spec.name.bytes().map(u64::from).sum();
                let filter = GROUPS[((name + u64::from(spec.tenant)) % 2) as usize].to_owned();
                let qos = d.range(1, 2) as u8;
                let filters =
                    vec![FilterSpec { filter, qos, no_local: false, rap: false, retain_handling: 0 }];
                ops.push(TimedOp { at_ms: begin + 400, client, op: Op::Subscribe { filters, id: 0 } });
                for _ in 0..d.range(0, 6) {
                    let at_ms = d.range(1_000, calm_at_ms);
                    ops.push(TimedOp { at_ms, client, op: disturbance(d, swarm, spec) });
                }
            }
            // None are generated: the fuzzer's.
            Role::Stranger => {}
            Role::Any => {
                for at_ms in [begin + 300, begin + 900] {
                    ops.push(TimedOp { at_ms, client, op: subscribe(d, swarm) });
                }
                for _ in 0..d.range(5, 40) {
                    let at_ms = d.range(1_000, calm_at_ms);
                    ops.push(TimedOp { at_ms, client, op: op(d, swarm, spec) });
                }
            }
        }
    }
    ops.sort_by_key(|op| op.at_ms);
    ops
}

fn will(d: &mut Draw, swarm: Swarm) -> WillSpec {
    WillSpec {
        qos: d.below(3) as u8,
        retain: swarm.retain && d.chance(30),
        delay_secs: if d.chance(40) { d.range(1, 5) as u32 } else { 0 },
    }
}

fn subscribe(d: &mut Draw, swarm: Swarm) -> Op {
    let mut filters: Vec<FilterSpec> = Vec::new();
    for _ in 0..d.range(1, 3) {
        let mixed = swarm.shared && d.chance(10);
        let filter = if mixed { "$share/mixed/a/#" } else { *d.pick(&FILTERS) };
        if filters.iter().any(|f| f.filter == filter) {
            continue;
        }
        filters.push(FilterSpec {
            filter: filter.to_owned(),
            qos: if d.chance(20) { 0 } else { d.range(1, 2) as u8 },
            no_local: !mixed && d.chance(15),
            rap: d.chance(20),
            retain_handling: d.below(3) as u8,
        });
    }
    Op::Subscribe { filters, id: if d.chance(30) { d.range(1, 300) as u32 } else { 0 } }
}

fn publish(d: &mut Draw, swarm: Swarm) -> Op {
    let qos = match d.below(3) {
        0 if swarm.qos0 => 0,
        2 if swarm.qos2 => 2,
        _ => 1,
    };
    let retain = swarm.retain && d.chance(30);
    Op::Publish {
        topic: (*d.pick(&TOPICS)).to_owned(),
        qos,
        retain,
        expiry_secs: if swarm.expiry && d.chance(30) { d.range(1, 10) as u32 } else { 0 },
        pad: if swarm.big && d.chance(30) { d.range(1_000, 10_000) } else { d.below(60) } as usize,
        alias: swarm.alias && d.chance(50),
        count: if d.chance(30) { d.range(2, 30) } else { d.range(1, 2) } as u32,
        clear: retain && d.chance(15),
    }
}

/// Everything but publishing and subscribing.
fn disturbance(d: &mut Draw, swarm: Swarm, spec: &ClientSpec) -> Op {
    let connect = |d: &mut Draw| Op::Connect {
        clean: (!spec.v5 && spec.expiry_secs == 0) || d.chance(10),
        will: (swarm.wills && spec.role == Role::Any && d.chance(50)).then(|| will(d, swarm)),
    };
    match d.below(12) {
        0 | 1 => Op::Cut,
        2 => Op::Disconnect { with_will: d.chance(20) },
        3 if swarm.vanish => Op::Vanish,
        4 | 5 if swarm.slow => Op::StopReading { ms: d.range(10, 8_000) },
        6 | 7 if swarm.slow => Op::StopAcking { ms: d.range(10, 8_000) },
        8 if swarm.garbage => Op::Garbage { seed: d.bits() },
        9 if swarm.takeover => connect(d),
        10 => Op::Ping,
        _ => connect(d),
    }
}

fn op(d: &mut Draw, swarm: Swarm, spec: &ClientSpec) -> Op {
    match d.below(20) {
        0..=11 => publish(d, swarm),
        12 | 13 => subscribe(d, swarm),
        14 => Op::Unsubscribe { filters: vec![(*d.pick(&FILTERS)).to_owned()] },
        _ => disturbance(d, swarm, spec),
    }
}

fn faults(d: &mut Draw, swarm: Swarm, calm_at_ms: u64) -> Vec<TimedFault> {
    let mut faults = Vec::new();
    if swarm.crash {
        for _ in 0..d.range(1, 3) {
            let fault = Fault::Crash { power: d.chance(50), down_ms: d.range(1, 5_000) };
            faults.push(TimedFault { at_ms: d.range(1_500, calm_at_ms), fault });
        }
    }
    if swarm.store_trouble {
        for _ in 0..d.range(1, 3) {
            let ms = d.range(10, 3_000);
            let fault = match d.below(4) {
                0 => Fault::StoreFull { ms },
                1 => Fault::StoreDown { ms },
                2 => Fault::StoreSilent { ms },
                _ => Fault::SlowSync { ms: ms * 3 },
            };
            faults.push(TimedFault { at_ms: d.range(1_500, calm_at_ms), fault });
        }
    }
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}
