//! Ordered rules as the API takes them, and their way to those that shards judge by.

use super::problem::Problem;
use super::records::Object;
use mast_core::authz::{Action, Conditions, Effect, Network, OrderedRule, QosSet, RuleList, Template};
use mast_core::message::QoS;
use mast_core::topic::{Limits, check_filter};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rules in one list at most, and entries in one condition.
const RULES_MAX: usize = 1000;
const ENTRIES_MAX: usize = 100;
/// In place of a tenant's name, for the rules of the node: no tenant can have this one.
pub const NODE: &str = "_global";

/// Whether a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleEffect {
    Allow,
    Deny,
}

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    Publish,
    /// Subscribing, and receiving what comes of it.
    Subscribe,
    Receive,
    All,
}

/// A rule. The first one of a list that matches decides. A condition that is empty holds for everybody; of several
/// entries one must hold, of attributes all. Texts may hold `%c`, `%u`, `%t` and `${attribute}`, patterns also `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Its name, for those who may know.
    pub name: String,
    pub effect: RuleEffect,
    pub action: RuleAction,
    /// Topic filters; none: every topic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<String>,
    /// Patterns of tenants; for rules of the node alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// Patterns of user names; the empty one is for clients without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Patterns of client ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_ids: Vec<String>,
    /// Patterns of groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Networks, such as 10.0.0.0/8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Attributes and patterns of their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// QoS of a publish or a SUBSCRIBE; none: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qos: Vec<u8>,
    /// RETAIN of a publish; absent: either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<bool>,
}

/// A list of rules as it is kept: of a tenant, or of the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RulesObject {
    /// The tenant, or [`NODE`].
    pub of: String,
    pub rules: Vec<RuleSpec>,
}

impl Object for RulesObject {
    const KIND: &'static str = "rules";

    fn name(&self) -> Vec<String> {
        vec![self.of.clone()]
    }

    fn tenant(&self) -> Option<&str> {
        (self.of != NODE).then_some(&*self.of)
    }
}

fn refused(rule: &str, what: impl std::fmt::Display) -> Problem {
    Problem::invalid(format!("rule \"{rule}\": {what}"), "correct it and send the whole list again")
}

fn templates(rule: &str, texts: &[String]) -> Result<Vec<Template>, Problem> {
    if texts.len() > ENTRIES_MAX {
        return Err(refused(rule, format_args!("a condition has at most {ENTRIES_MAX} entries")));
    }
    let parse = |text: &String| match Template::parse(text) {
        Ok(template) if text.len() <= 65_535 => Ok(template),
        Ok(_) => Err(refused(rule, "a text is longer than 65535 bytes")),
        Err(error) => Err(refused(rule, error)),
    };
    texts.iter().map(parse).collect()
}

fn build_one(spec: &RuleSpec, number: usize, of: &str) -> Result<OrderedRule, Problem> {
    let name = spec.name.as_str();
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        let what = format!("rule {} needs a name of 1 to 128 bytes without control characters", number + 1);
        return Err(Problem::invalid(what, "name it: denials name the rule that denied"));
    }
    if of != NODE && !spec.tenants.is_empty() {
        return Err(refused(name, "only rules of the node have patterns of tenants"));
    }
    let topics = templates(name, &spec.topics)?;
    for topic in &topics {
        let limits = Limits { max_bytes: 65_535, max_levels: 65_535, max_plus: u16::MAX };
        check_filter(&topic.sample(), &limits)
            .map_err(|_| refused(name, format_args!("\"{}\" is no topic filter", topic.sample())))?;
    }
    let network =
        |text: &String| Network::parse(text).map_err(|e| refused(name, format_args!("{text}: {e}")));
    let level =
        |n: &u8| QoS::from_bits(*n).filter(|_| *n < 3).ok_or_else(|| refused(name, "qos is 0, 1 or 2"));
    let levels = spec.qos.iter().map(level).collect::<Result<Vec<QoS>, Problem>>()?;
    let mut attributes = Vec::new();
    for (attribute, text) in &spec.attributes {
        let template = templates(name, std::slice::from_ref(text))?.pop();
        attributes.extend(template.map(|template| (Box::from(attribute.as_str()), template)));
    }
    Ok(OrderedRule {
        name: name.into(),
        origin: format!("{of}, rule {} of the API", number + 1).into(),
        effect: match spec.effect {
            RuleEffect::Allow => Effect::Allow,
            RuleEffect::Deny => Effect::Deny,
        },
        action: match spec.action {
            RuleAction::Publish => Action::Publish,
            RuleAction::Subscribe => Action::Subscribe,
            RuleAction::Receive => Action::Receive,
            RuleAction::All => Action::All,
        },
        topics,
        conditions: Conditions {
            tenants: templates(name, &spec.tenants)?,
            users: templates(name, &spec.users)?,
            client_ids: templates(name, &spec.client_ids)?,
            groups: templates(name, &spec.groups)?,
            sources: spec.sources.iter().map(network).collect::<Result<_, _>>()?,
            attributes,
        },
        qos: if levels.is_empty() { QosSet::ANY } else { QosSet::of(&levels) },
        retain: spec.retain,
    })
}

/// Checks a list and makes it what shards judge by. A rule that would never be asked is refused: whoever wrote it meant
/// something else.
pub fn build(of: &str, specs: &[RuleSpec]) -> Result<Arc<RuleList>, Problem> {
    if specs.len() > RULES_MAX {
        let what = format!("a list has at most {RULES_MAX} rules");
        return Err(Problem::invalid(what, "placeholders and patterns make one rule of many"));
    }
    let rules = specs.iter().enumerate().map(|(n, spec)| build_one(spec, n, of));
    let list = RuleList::new(rules.collect::<Result<Vec<_>, _>>()?);
    if let Some((hidden, by)) = list.hidden().first() {
        let name = |n: &u32| specs.get(*n as usize).map_or("", |spec| spec.name.as_str());
        let what = format!(
            "rule \"{}\" is never asked: rule \"{}\" before it decides in its place",
            name(hidden),
            name(by)
        );
        return Err(Problem::invalid(what, "put the narrower rule first, or leave it out"));
    }
    Ok(Arc::new(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(rules: serde_json::Value) -> Result<Arc<RuleList>, Problem> {
        build("acme", &serde_json::from_value::<Vec<RuleSpec>>(rules).unwrap_or_else(|e| panic!("{e}")))
    }

    #[test]
    fn a_list_is_built_and_what_makes_no_sense_is_refused_by_name() {
        let good = list(json!([
            { "name": "own", "effect": "allow", "action": "all", "topics": ["d/%c/#"], "qos": [0, 1] },
            { "name": "rest", "effect": "deny", "action": "publish", "users": ["guest-*"] },
        ]));
        assert_eq!(good.unwrap_or_else(|p| panic!("{p:?}")).rules().len(), 2);
        let rule = |more: serde_json::Value| {
            let mut rule = json!({ "name": "r", "effect": "allow", "action": "all" });
            if let (Some(rule), Some(more)) = (rule.as_object_mut(), more.as_object()) {
                rule.extend(more.clone());
            }
            list(json!([rule]))
        };
        for bad in [
            json!({ "topics": ["a/#/b"] }),
            json!({ "topics": ["%x"] }),
            json!({ "sources": ["10.0.0.0/99"] }),
            json!({ "qos": [3] }),
            json!({ "tenants": ["a"] }),
            json!({ "name": "" }),
        ] {
            assert!(rule(bad.clone()).is_err(), "{bad}");
        }
        let shadow = list(json!([
            { "name": "all", "effect": "allow", "action": "all" },
            { "name": "late", "effect": "deny", "action": "publish", "topics": ["x"] },
        ]));
        let problem = shadow.err().unwrap_or_else(|| panic!("a hidden rule was taken"));
        assert!(problem.what.contains("\"late\"") && problem.what.contains("\"all\""), "{}", problem.what);
    }
}
