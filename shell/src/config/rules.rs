//! The keys of rules: who may do what, for the node (`[[rule]]`) and for tenants (`[[tenant.<name>.rule]]`).

use std::{collections::BTreeMap, sync::Arc};

use mast_core::{
    authz::{Action, Conditions, Effect, Network, OrderedRule, QosSet, RuleList, Template},
    message::QoS,
};

use super::{
    invalid,
    kind::{Kind, Switch},
    layers::Layers,
    table::{choice, section},
};
use crate::auth::is_filter;

/// Longest name of a rule, bytes.
const MAX_NAME: usize = 64;

choice! {
    /// What a rule says.
    RuleEffect { Allow = "allow", Deny = "deny" }
}

choice! {
    /// What a rule is about.
    RuleAction { Publish = "publish", Subscribe = "subscribe", Receive = "receive", All = "all" }
}

choice! {
    /// What holds where no rule matches.
    DefaultAccess { Deny = "deny", Allow = "allow" }
}

section! {
    /// Rules for all tenants, which come before those of a tenant, as an array of tables (`[[rule]]`) in the order in
    /// which they are asked; the first one that matches decides. In topics and patterns `%c` stands for the client id,
    /// `%u` for the user, `%t` for the tenant, `${name}` for an attribute, `%%` for a percent sign; patterns may contain
    /// `*`. The whole meaning is in docs/rights.md.
    RuleKeys {
        /// Name of the rule. Empty: its number.
        name: Option<String> = "", Kind::Text;
        /// What the rule says; must be there.
        effect: RuleEffect = "deny", Kind::Choice(RuleEffect::WORDS);
        /// What it is about: `publish` (wills too), `subscribe` (and receiving what comes of it), `receive` alone, or `all`.
        action: RuleAction = "all", Kind::Choice(RuleAction::WORDS);
        /// Topic filters, one of which must match. Empty: every topic, those that begin with `$` as well.
        topics: Vec<String> = "", Kind::List;
        /// Patterns of tenants; only for rules of the node. Empty: all.
        tenants: Vec<String> = "", Kind::List;
        /// Patterns of user names; "" is for clients without a user name. Empty: all clients.
        users: Vec<String> = "", Kind::List;
        /// Patterns of client ids. Empty: all.
        client_ids: Vec<String> = "", Kind::List;
        /// Patterns of groups, one of which the user must be in. Empty: no group is asked for.
        groups: Vec<String> = "", Kind::List;
        /// Networks, such as "10.0.0.0/8", in one of which the client's address must be. Empty: anywhere.
        sources: Vec<String> = "", Kind::List;
        /// Attributes that the client must all have, such as "site=berlin".
        attributes: Vec<String> = "", Kind::List;
        /// QoS of a publish, or QoS that SUBSCRIBE asks for, such as [0, 1]. Empty: any.
        qos: Vec<String> = "", Kind::Qos;
        /// RETAIN of a publish; `auto` is both. For `action = "publish"` alone.
        retain: Switch = "auto", Kind::Switch;
    }
}

/// All rules of the configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleLists {
    /// Of the node; `None`: none are configured.
    pub node: Option<Arc<RuleList>>,
    /// Of tenants that have some, by name.
    pub tenants: BTreeMap<String, Arc<RuleList>>,
}

/// Reads the rules of the node and of all tenants.
pub(super) fn rules(layers: &mut Layers, tenants: &[String]) -> RuleLists {
    let mut lists = RuleLists { node: list(layers, &["rule"], tenants), ..RuleLists::default() };
    for tenant in tenants {
        if let Some(list) = list(layers, &["tenant", tenant, "rule"], tenants) {
            lists.tenants.insert(tenant.clone(), list);
        }
    }
    lists
}

/// The list at `path`; `None` if nothing stands there.
fn list(layers: &mut Layers, path: &[&str], tenants: &[String]) -> Option<Arc<RuleList>> {
    let mut numbers = Vec::new();
    for name in layers.children(path) {
        match name.parse::<u32>() {
            Ok(number) => numbers.push((number, name)),
            Err(_) => {
                let what = format!("rules have numbers, or stand as [[{}]]", path.join("."));
                invalid(layers, &[path, &[&name]].concat(), what);
            }
        }
    }
    numbers.sort_unstable();
    let mut rules: Vec<OrderedRule> = Vec::new();
    for (_, name) in &numbers {
        let place = [path, &[name]].concat();
        let keys = match RuleKeys::build(&layers.section(&place, RuleKeys::KEYS)) {
            Ok(keys) => keys,
            Err(key) => {
                let at = [&place[..], &[key]].concat();
                invalid(layers, &at, "the value does not fit its key".into());
                continue;
            }
        };
        match rule(layers, &place, &keys, tenants) {
            Err((key, problem)) => invalid(layers, &[&place[..], &[key]].concat(), problem),
            Ok(rule) if rules.iter().any(|r| r.name == rule.name) => {
                let what = format!("\"{}\" is the name of a rule before it", rule.name);
                invalid(layers, &[&place[..], &["name"]].concat(), what);
            }
            Ok(rule) => rules.push(rule),
        }
    }
    (!numbers.is_empty()).then(|| Arc::new(RuleList::new(rules)))
}

type Problem = (&'static str, String);

/// One rule; the error is a key and what is wrong with it.
fn rule(
    layers: &Layers,
    place: &[&str],
    keys: &RuleKeys,
    tenants: &[String],
) -> Result<OrderedRule, Problem> {
    let set = |key| layers.is_set(&[place, &[key]].concat());
    if !set("effect") {
        return Err(("effect", "must be there: \"allow\" or \"deny\"".into()));
    }
    let number = place.last().copied().unwrap_or_default();
    let name = keys.name.as_deref().unwrap_or(number);
    if name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(("name", format!("a name has up to {MAX_NAME} bytes and no control characters")));
    }
    let action = match keys.action {
        RuleAction::Publish => Action::Publish,
        RuleAction::Subscribe => Action::Subscribe,
        RuleAction::Receive => Action::Receive,
        RuleAction::All => Action::All,
    };
    let retain = match keys.retain {
        Switch::Auto => None,
        Switch::On => Some(true),
        Switch::Off => Some(false),
    };
    if retain.is_some() && action != Action::Publish {
        return Err(("retain", "only a publish has RETAIN: set action = \"publish\"".into()));
    }
    if !keys.qos.is_empty() && action == Action::Receive {
        return Err(("qos", "it is asked of publishes and of SUBSCRIBE, not of deliveries".into()));
    }
    if !keys.tenants.is_empty() && place.first() == Some(&"tenant") {
        return Err(("tenants", "the rules of a tenant are for that tenant: leave it away".into()));
    }
    for tenant in keys.tenants.iter().filter(|t| !t.contains(['*', '%', '$'])) {
        if !tenants.contains(tenant) {
            let what = format!("no tenant \"{tenant}\"; there are: {}", tenants.join(", "));
            return Err(("tenants", what));
        }
    }
    let origin = layers.origin(&[place, &["effect"]].concat());
    Ok(OrderedRule {
        name: name.into(),
        origin: format!("{origin}, {}", place.join(".")).into(),
        effect: match keys.effect {
            RuleEffect::Allow => Effect::Allow,
            RuleEffect::Deny => Effect::Deny,
        },
        action,
        topics: keys.topics.iter().map(|t| topic(t)).collect::<Result<_, _>>().map_err(|e| ("topics", e))?,
        conditions: conditions(keys)?,
        qos: qos(&keys.qos),
        retain,
    })
}

fn topic(text: &str) -> Result<Template, String> {
    let template = Template::parse(text).map_err(|e| format!("\"{text}\": {e}"))?;
    if text.starts_with("$share/") {
        return Err(format!("\"{text}\": name the filter behind the group; it counts for groups as well"));
    }
    if text.is_empty() || !is_filter(&template.sample()) {
        return Err(format!(
            "\"{text}\" is no topic filter: + and # stand alone in their level, # at the end"
        ));
    }
    Ok(template)
}

fn conditions(keys: &RuleKeys) -> Result<Conditions, Problem> {
    let patterns = |key, texts: &[String]| {
        let parsed = texts.iter().map(|t| Template::parse(t).map_err(|e| (key, format!("\"{t}\": {e}"))));
        parsed.collect::<Result<Vec<_>, Problem>>()
    };
    let mut sources = Vec::new();
    for text in &keys.sources {
        sources.push(Network::parse(text).map_err(|e| ("sources", format!("\"{text}\": {e}")))?);
    }
    let mut attributes = Vec::new();
    for text in &keys.attributes {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(("attributes", format!("\"{text}\" is not like \"name=value\"")));
        };
        let value = Template::parse(value).map_err(|e| ("attributes", format!("\"{text}\": {e}")))?;
        attributes.push((name.into(), value));
    }
    Ok(Conditions {
        tenants: patterns("tenants", &keys.tenants)?,
        users: patterns("users", &keys.users)?,
        client_ids: patterns("client_ids", &keys.client_ids)?,
        groups: patterns("groups", &keys.groups)?,
        sources,
        attributes,
    })
}

/// What is none of the three levels was refused before.
fn qos(levels: &[String]) -> QosSet {
    let level = |text: &String| text.parse().ok().and_then(QoS::from_bits);
    if levels.is_empty() {
        return QosSet::ANY;
    }
    QosSet::of(&levels.iter().filter_map(level).collect::<Vec<_>>())
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
