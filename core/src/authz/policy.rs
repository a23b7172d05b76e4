//! What of all rules stands for one tenant, in the order in which it is asked.

use super::mosquitto::Acl;
use super::ordered::RuleList;
use super::principal::{Layer, Principal, Verdict};
use crate::conn::identity::Claims;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// A client, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// Its tenant's name.
    pub tenant: &'a str,
    /// Its user name; `None` = anonymous.
    pub user: Option<&'a str>,
    /// Its client id.
    pub client_id: &'a str,
    /// What its proof says besides.
    pub claims: &'a Claims,
}

/// The rules of a tenant: first the node's, then its own, then its list in mosquitto's form; then the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy<'a> {
    /// Rules of the node's operator, which nobody overrides.
    pub node: Option<&'a RuleList>,
    /// The tenant's ordered rules.
    pub tenant: Option<&'a RuleList>,
    /// The list that stands behind them. It knows its own default, which is no.
    pub list: Option<&'a Acl>,
    /// What no rule decides is allowed, where no list stands.
    pub allow_otherwise: bool,
}

impl Policy<'_> {
    /// Whether there are no rules at all.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.node.is_none() && self.tenant.is_none() && self.list.is_none_or(Acl::is_open)
    }

    /// The rules of one client. To be kept with its session until rules change.
    #[must_use]
    pub fn resolve(&self, who: &Who<'_>) -> Principal {
        if self.is_open() {
            return Principal::new(Vec::new(), Verdict::OPEN);
        }
        let mut rules = Vec::new();
        if let Some(node) = self.node {
            node.resolve(Layer::Node, who, &mut rules);
        }
        if who.claims.superuser {
            // What a rule of the node denies stays denied.
            return Principal::new(rules, Verdict { allowed: true, layer: Layer::Superuser, rule: None });
        }
        if let Some(tenant) = self.tenant {
            tenant.resolve(Layer::Tenant, who, &mut rules);
        }
        let otherwise = match self.list.filter(|list| !list.is_open()) {
            Some(list) => list.resolve_into(who, &mut rules),
            None => Verdict { allowed: self.allow_otherwise, layer: Layer::NoRule, rule: None },
        };
        Principal::new(rules, otherwise)
    }

    /// What decided, in words for the client.
    #[must_use]
    pub fn reason(&self, verdict: Verdict) -> String {
        let mut out = String::new();
        let name = |list: Option<&RuleList>| {
            let rule = verdict.rule.and_then(|n| list?.rules().get(n as usize));
            rule.map_or_else(|| String::from("a rule that is gone"), |r| alloc::format!("rule {}", r.name))
        };
        match verdict.layer {
            Layer::Open => out.push_str("there are no rules"),
            Layer::Reserved => out.push_str("the topic is the broker's own"),
            Layer::Node => {
                out.push_str(&name(self.node));
                out.push_str(" of the node");
            }
            Layer::Tenant => out.push_str(&name(self.tenant)),
            Layer::List => {
                out.push_str("access control list");
                let rule = verdict.rule.and_then(|n| self.list?.rules().get(n as usize));
                if let Some(rule) = rule {
                    // Writing to a String cannot fail.
                    let written = write!(out, ", line {}", rule.line);
                    debug_assert!(written.is_ok());
                }
            }
            Layer::Superuser => out.push_str("superuser"),
            Layer::NoRule => out.push_str("no rule matches"),
        }
        out
    }
}
