//! The rules in use: ordered ones from the configuration, and access control lists from files.

use std::{fmt::Write, path::PathBuf, sync::Arc};

use mast_core::{
    authz::{Acl, Layer, Rule, RuleList, Subject, Verdict},
    ids::TenantId,
    tenant::{registry::Registry, rules::Rules},
};

use super::{
    acl_file::{self, AclFileError},
    state::of,
};
use crate::config::{Config, DefaultAccess, RuleLists};

/// A list and the file that it was read from.
#[derive(Debug, Clone)]
struct ListFile {
    acl: Arc<Acl>,
    path: PathBuf,
}

/// All rules of the node and its tenants.
#[derive(Debug)]
pub struct Rights {
    ordered: RuleLists,
    shared: Option<ListFile>,
    /// By tenant, in the order of their names.
    lists: Vec<(String, ListFile)>,
    allow_otherwise: bool,
}

impl Rights {
    /// Reads the files that the configuration names.
    pub fn read(config: &Config) -> Result<Self, AclFileError> {
        let read = |path: &PathBuf| Ok(ListFile { acl: Arc::new(acl_file::read(path)?), path: path.clone() });
        let mut lists = Vec::new();
        for (name, tenant) in &config.tenant_sections {
            if let Some(path) = &tenant.acl_file {
                lists.push((name.clone(), read(path)?));
            }
        }
        Ok(Self {
            ordered: config.rules.clone(),
            shared: config.auth.acl_file.as_ref().map(read).transpose()?,
            lists,
            allow_otherwise: config.auth.default_access == DefaultAccess::Allow,
        })
    }

    /// The list that tenants without their own share.
    pub fn shared(&self) -> Acl {
        self.shared.as_ref().map_or_else(Acl::allow_all, |file| Acl::clone(&file.acl))
    }

    /// As shards take them. Those of a tenant that the node does not have (yet) are nobody's.
    pub fn rules(&self, registry: &Registry) -> Rules {
        let mut rules = Rules::shared(self.shared.as_ref().map(|file| Arc::clone(&file.acl)));
        rules.set_node(self.ordered.node.clone());
        rules.set_allow_otherwise(self.allow_otherwise);
        for (tenant, file) in &self.lists {
            if let Some(id) = registry.id(tenant) {
                rules.give(id, Arc::clone(&file.acl));
            }
        }
        for (tenant, list) in &self.ordered.tenants {
            if let Some(id) = registry.id(tenant) {
                rules.give_ordered(id, Arc::clone(list));
            }
        }
        rules
    }

    /// What decided, and where that stands, for the operator.
    pub fn explain(&self, tenant: &str, verdict: Verdict) -> String {
        let rule = |list: Option<&Arc<RuleList>>| {
            let rule = verdict.rule.and_then(|n| list?.rules().get(n as usize));
            rule.map_or_else(String::new, |r| format!("rule \"{}\" ({})", r.name, r.origin))
        };
        match verdict.layer {
            Layer::Open => "there are no rules: everything is allowed".into(),
            Layer::Reserved => "$SYS topics are the broker's own".into(),
            Layer::Node => format!("{} of the node", rule(self.ordered.node.as_ref())),
            Layer::Tenant => rule(self.ordered.tenants.get(tenant)),
            Layer::Superuser => "a superuser, and no rule of the node matches".into(),
            Layer::List => {
                let file = self.list_of(tenant);
                let line = verdict.rule.and_then(|n| file?.acl.rules().get(n as usize)).map(|r| r.line);
                match (file, line) {
                    (Some(file), Some(line)) => format!("{}:{line}", file.path.display()),
                    (Some(file), None) => file.path.display().to_string(),
                    (None, _) => "an access control list".into(),
                }
            }
            Layer::NoRule => match (self.list_of(tenant), verdict.allowed) {
                (Some(file), _) => format!("no rule matches, and no line of {}", file.path.display()),
                (None, true) => "no rule matches, and auth.default_access is \"allow\"".into(),
                (None, false) => "no rule matches".into(),
            },
        }
    }

    fn list_of(&self, tenant: &str) -> Option<&ListFile> {
        let own = self.lists.iter().find(|(name, _)| name == tenant).map(|(_, file)| file);
        own.or(self.shared.as_ref())
    }

    /// Remarks for the log, such as rules that are never asked.
    pub fn remarks(&self, remarks: &mut Vec<String>) {
        if let Some(node) = &self.ordered.node {
            remark_order("of the node", node, remarks);
            if let Some(rule) = node.decides_all().and_then(|n| node.rules().get(n as usize)) {
                remarks.push(format!(
                    "rule \"{}\" of the node ({}) decides everything for everybody: the rules and access control \
                     lists of tenants are never asked",
                    rule.name, rule.origin
                ));
            }
        }
        for (tenant, list) in &self.ordered.tenants {
            remark_order(&format!("of tenant {tenant}"), list, remarks);
            let all = list.decides_all().and_then(|n| list.rules().get(n as usize));
            if let (Some(rule), Some(file)) = (all, self.list_of(tenant)) {
                remarks.push(format!(
                    "rule \"{}\" of tenant {tenant} ({}) decides everything: {} is never asked",
                    rule.name,
                    rule.origin,
                    file.path.display()
                ));
            }
        }
        if let Some(file) = &self.shared {
            remark_list(&of(None), &file.acl, remarks);
        }
        for (tenant, file) in &self.lists {
            remark_list(&of(Some(tenant)), &file.acl, remarks);
        }
    }
}

/// Names the rules that another one hides; all behind it in one remark.
fn remark_order(whose: &str, list: &RuleList, remarks: &mut Vec<String>) {
    let rules = list.rules();
    let mut by_rule: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
    for (hidden, by) in list.hidden() {
        by_rule.entry(by).or_default().push(hidden);
    }
    for (by, hidden) in by_rule {
        let (Some(rule), Some(first)) =
            (rules.get(by as usize), hidden.first().and_then(|n| rules.get(*n as usize)))
        else {
            continue;
        };
        let mut text = if hidden.len() == 1 {
            format!("rule \"{}\" {whose} ({}) is never asked", first.name, first.origin)
        } else {
            let n = hidden.len();
            format!("{n} rules {whose}, such as \"{}\" ({}), are never asked", first.name, first.origin)
        };
        // Writing to a String cannot fail.
        let written = write!(text, ": rule \"{}\" before decides in their place", rule.name);
        debug_assert!(written.is_ok());
        remarks.push(text);
    }
}

fn remark_list(of: &str, acl: &Acl, remarks: &mut Vec<String>) {
    let literal =
        |r: &&Rule| r.subject != Subject::Pattern && (r.filter.contains("%c") || r.filter.contains("%u"));
    for rule in acl.rules().iter().filter(literal) {
        let line = rule.line;
        remarks.push(format!(
            "line {line} of the access control list{of} is a `topic` line with %c or %u, which stand for names in \
             `pattern` lines only"
        ));
    }
    if acl.rules().is_empty() {
        remarks.push(format!("the access control list{of} is empty: every topic is refused"));
    }
}

/// The rules of one tenant, for one question.
pub fn policy_of<'a>(
    rules: &'a Rules,
    registry: &Registry,
    tenant: &str,
) -> Option<mast_core::authz::Policy<'a>> {
    let id: TenantId = registry.id(tenant)?;
    Some(rules.of(id).unwrap_or_default())
}
