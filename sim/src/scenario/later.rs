//! What was added to scenarios later: rights, enhanced authentication, clocks that are set, replays that are cut. Their draws are a
//! stream of their own, so that a seed without them means what it meant before.

use super::{
    AboutSpec, ClientSpec, Fault, FilterSpec, GrantSpec, Op, OrderedSpec, Role, RuleSpec, Scenario,
    TimedFault, TimedOp, TimedRules,
};
use crate::draw::Draw;
use crate::rights::PROTECTED;

/// Filters towards protected topics, and one that somebody may be denied as a whole.
const FILTERS: [&str; 7] = ["p/#", "p/0", "p/+", "p/c0/#", "p/c1/x", "b", "#"];
/// Users that rules name: the clients of every tenant.
const USERS: [&str; 4] = ["c0", "c1", "c2", "observer"];

/// Draws all of it, or none.
pub fn add(scenario: &mut Scenario, d: &mut Draw) {
    // Always the same number of draws, so that one feature does not decide about another.
    let (rights, auth, clock) = (d.chance(20), d.chance(20), d.chance(20));
    if rights {
        add_rights(scenario, d);
    }
    if auth {
        add_auth(scenario, d);
    }
    if clock {
        add_clock(scenario, d);
    }
    let mut own = Draw::new(scenario.seed, 80);
    if own.chance(30) {
        add_replays(scenario, &mut own);
    }
    let mut own = Draw::new(scenario.seed, 81);
    if own.chance(60) {
        for rights in &mut scenario.rights {
            rights.ordered = (0..own.below(7)).map(|_| ordered(&mut own)).collect();
        }
    }
    scenario.ops.sort_by_key(|op| op.at_ms);
    scenario.faults.sort_by_key(|fault| fault.at_ms);
}

fn add_rights(scenario: &mut Scenario, d: &mut Draw) {
    let calm_at_ms = scenario.calm_at_ms;
    let mut times: Vec<u64> = (0..d.range(0, 4)).map(|_| d.range(1_500, calm_at_ms)).collect();
    times.push(0);
    times.sort_unstable();
    scenario.rights =
        times.into_iter().map(|at_ms| TimedRules { at_ms, rules: rules(d), ordered: Vec::new() }).collect();
    for client in 0..scenario.topology.clients.len() {
        if scenario.topology.clients[client].role != Role::Any {
            continue;
        }
        for _ in 0..d.range(1, 4) {
            let op = Op::Subscribe { filters: vec![filter(d)], id: d.below(3) as u32 };
            scenario.ops.push(TimedOp { at_ms: d.range(700, calm_at_ms), client, op });
        }
        for _ in 0..d.range(4, 15) {
            let topic = if d.chance(80) { *d.pick(&PROTECTED) } else { "b" };
            let retain = d.chance(20);
            let op = Op::Publish {
                topic: topic.to_owned(),
                qos: d.below(3) as u8,
                retain,
                expiry_secs: 0,
                pad: 0,
                alias: d.chance(20),
                count: d.range(1, 3) as u32,
                clear: false,
            };
            scenario.ops.push(TimedOp { at_ms: d.range(1_000, calm_at_ms), client, op });
        }
    }
}

/// Topics that are written once, retained; subscriptions of all of them, and connections that end meanwhile.
fn add_replays(scenario: &mut Scenario, d: &mut Draw) {
    let calm_at_ms = scenario.calm_at_ms;
    let of_role = |spec: &ClientSpec| spec.role == Role::Any;
    let clients: Vec<usize> = (0..scenario.topology.clients.len())
        .filter(|client| of_role(&scenario.topology.clients[*client]))
        .collect();
    for topic in 0..d.range(4, 12) {
        for tenant in 0..scenario.topology.tenants {
            let of_tenant: Vec<usize> =
                clients.iter().copied().filter(|c| scenario.topology.clients[*c].tenant == tenant).collect();
            if of_tenant.is_empty() {
                continue;
            }
            let op = Op::Publish {
                topic: format!("r/{topic}"),
                qos: d.range(1, 2) as u8,
                retain: true,
                expiry_secs: 0,
                pad: 0,
                alias: false,
                count: 1,
                clear: false,
            };
            scenario.ops.push(TimedOp { at_ms: d.range(700, 2_500), client: *d.pick(&of_tenant), op });
        }
    }
    for client in clients {
        for _ in 0..d.range(1, 3) {
            let filter = FilterSpec {
                filter: "r/#".to_owned(),
                qos: d.range(1, 2) as u8,
                no_local: false,
                rap: false,
                retain_handling: if d.chance(80) { 0 } else { 1 },
            };
            let at_ms = d.range(1_500, calm_at_ms);
            let op = Op::Subscribe { filters: vec![filter], id: d.below(3) as u32 };
            scenario.ops.push(TimedOp { at_ms, client, op });
            for _ in 0..d.below(4) {
                let op = Op::Connect { clean: false, will: None };
                scenario.ops.push(TimedOp { at_ms: at_ms + d.range(1, 400), client, op });
            }
        }
    }
}

fn filter(d: &mut Draw) -> FilterSpec {
    FilterSpec {
        filter: (*d.pick(&FILTERS)).to_owned(),
        qos: d.below(3) as u8,
        no_local: d.chance(10),
        rap: d.chance(10),
        retain_handling: d.below(3) as u8,
    }
}

/// What the other promises need is open to all; the protected topics to whom the draws say.
fn rules(d: &mut Draw) -> Vec<RuleSpec> {
    let rule = |user: Option<&str>, grant, filter: &str| RuleSpec {
        user: user.map(str::to_owned),
        grant,
        filter: filter.to_owned(),
    };
    let mut rules: Vec<RuleSpec> =
        ["a/#", "b/#", "s/#", "r/#"].iter().map(|f| rule(None, GrantSpec::ReadWrite, f)).collect();
    rules.push(rule(None, GrantSpec::Read, "will/#"));
    rules.push(rule(None, GrantSpec::Read, "$SYS/#"));
    rules.push(rule(None, GrantSpec::Write, "will/%c"));
    if d.chance(60) {
        rules.push(rule(None, GrantSpec::ReadWrite, "p/%c/#"));
    }
    for user in USERS {
        for topic in PROTECTED.iter().chain(&["p/#"]) {
            if d.chance(35) {
                let grant =
                    *d.pick(&[GrantSpec::Read, GrantSpec::Write, GrantSpec::ReadWrite, GrantSpec::Deny]);
                rules.push(rule(Some(user), grant, topic));
            }
        }
        if d.chance(15) {
            rules.push(rule(Some(user), GrantSpec::Deny, "b"));
        }
        if d.chance(15) && user != "observer" {
            rules.push(rule(Some(user), GrantSpec::Deny, &format!("will/{user}")));
        }
    }
    rules
}

/// A rule about protected topics, and now and then one that denies another. Who may only receive could not
/// subscribe, so receiving alone is only ever denied.
fn ordered(d: &mut Draw) -> OrderedSpec {
    let allow = d.chance(50);
    let about = match d.below(if allow { 3 } else { 4 }) {
        0 => AboutSpec::Publish,
        1 => AboutSpec::Subscribe,
        2 => AboutSpec::All,
        _ => AboutSpec::Receive,
    };
    let filters =
        ["p/0", "p/1", "p/+", "p/#", "p/%c/#", "p/%u/x", "p/${home}/x", "p/${home}/+", "+/${home}/x"];
    let other = !allow && d.chance(8);
    OrderedSpec {
        node: d.chance(35),
        allow,
        about,
        user: d.chance(40).then(|| (*d.pick(&USERS)).to_owned()),
        group: d.chance(25).then(|| (*d.pick(&["even", "nobody"])).to_owned()),
        filter: if other { "b".to_owned() } else { (*d.pick(&filters)).to_owned() },
    }
}

fn add_auth(scenario: &mut Scenario, d: &mut Draw) {
    let calm_at_ms = scenario.calm_at_ms;
    for (client, spec) in scenario.topology.clients.iter_mut().enumerate() {
        // Observers are witnesses of wills: nobody keeps them out.
        if !spec.v5 || spec.role == Role::Observer || d.chance(40) {
            continue;
        }
        spec.auth_steps = d.range(1, 3) as u8;
        for _ in 0..d.below(6) {
            let at_ms = d.range(1_000, calm_at_ms);
            scenario.ops.push(TimedOp { at_ms, client, op: Op::Reauthenticate });
        }
    }
}

fn add_clock(scenario: &mut Scenario, d: &mut Draw) {
    for _ in 0..d.range(1, 4) {
        let by_ms = *d.pick(&[300, 2_000, 10_000, 3_600_000]);
        let by_ms = if d.chance(50) { by_ms } else { -by_ms };
        let at_ms = d.range(1_500, scenario.calm_at_ms);
        scenario.faults.push(TimedFault { at_ms, fault: Fault::SetClock { by_ms } });
    }
}
