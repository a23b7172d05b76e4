//! Reads file, environment and flags into one map of checked settings that remember their origin.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::{
    error::{ConfigError, Origin},
    keys::SECTIONS,
    kind::{Raw, Value},
    nearest::nearest,
    table::{Key, SectionDef, SectionValues},
};

/// A value that was set, and by whom.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub value: Value,
    pub origin: Origin,
}

/// Everything that was set, by full path (`["listener", "a", "tls", "cert"]`).
#[derive(Debug, Default)]
pub struct Layers {
    set: BTreeMap<Vec<String>, Setting>,
    /// Tables of the sections with names, also the empty ones: `["tenant", "acme"]`.
    named: BTreeSet<Vec<String>>,
    pub errors: Vec<ConfigError>,
}

impl Layers {
    /// Adds the text of a configuration file.
    pub fn add_file(&mut self, path: &Path, text: &str) {
        let origin = |at: usize| Origin::File { path: path.to_owned(), line: line_of(text, at) };
        match DeTable::parse(text) {
            Err(e) => self.errors.push(ConfigError::Syntax {
                origin: origin(e.span().map_or(0, |s| s.start)),
                reason: e.message().replace('\n', ", "),
            }),
            Ok(table) => self.add_table(&mut Vec::new(), table.get_ref(), &origin),
        }
    }

    fn add_table(&mut self, at: &mut Vec<String>, table: &DeTable<'_>, origin: &dyn Fn(usize) -> Origin) {
        for (name, value) in table {
            at.push(name.get_ref().to_string());
            let place = origin(name.span().start);
            let is_table_path = SECTIONS.iter().any(|s| s.holds_prefix(at));
            match value.get_ref() {
                DeValue::Table(inner) if is_table_path => {
                    if at.len() == 2 && at[0] == "listener" {
                        self.check_listener_name(&at[1], &place);
                    }
                    if is_named(at) {
                        self.named.insert(at.clone());
                    }
                    self.add_table(at, inner, origin);
                }
                DeValue::Array(items) if is_numbered(at) => {
                    self.add_tables(at, items, origin);
                }
                DeValue::Table(_) => self.errors.push(unknown(at, place)),
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                    if is_table_path && find_key(at).is_none() =>
                {
                    self.errors.push(ConfigError::NotATable { origin: place, key: at.join(".") });
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => self.add(at.clone(), &raw(value), place),
            }
            at.pop();
        }
    }

    /// An array of tables: the same as tables named "1", "2" and so on.
    fn add_tables(&mut self, at: &mut Vec<String>, items: &DeArray<'_>, origin: &dyn Fn(usize) -> Origin) {
        for (number, item) in (1..).zip(items.iter()) {
            let name = number.to_string();
            at.push(name);
            match item.get_ref() {
                DeValue::Table(table) => {
                    self.named.insert(at.clone());
                    self.add_table(at, table, origin);
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => {
                    let origin = origin(item.span().start);
                    self.errors.push(ConfigError::NotATable { origin, key: at.join(".") });
                }
            }
            at.pop();
        }
    }

    fn check_listener_name(&mut self, name: &str, origin: &Origin) {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 32 || !name.chars().all(good) {
            self.errors.push(ConfigError::Invalid {
                origin: origin.clone(),
                key: format!("listener.{name}"),
                problem: "a listener's name is 1 to 32 of a-z, 0-9, _ and -".into(),
            });
        }
    }

    /// Adds every `MAST__SECTION__KEY` variable. `MAST__` names that lead nowhere are errors; others are not ours.
    pub fn add_env<'a>(&mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, value) in variables {
            let Some(rest) = name.strip_prefix("MAST__") else { continue };
            let path: Vec<String> = rest.split("__").map(str::to_ascii_lowercase).collect();
            let origin = Origin::Env(name.to_owned());
            if path.len() > 2 && path[0] == "listener" {
                self.check_listener_name(&path[1], &origin);
            }
            self.add(path, &Raw::Untyped(value.to_owned()), origin);
        }
    }

    /// Adds a value from the command line.
    pub fn add_flag(&mut self, flag: &str, path: &[&str], value: &str) {
        let path = path.iter().map(|p| (*p).to_owned()).collect();
        self.add(path, &Raw::Untyped(value.to_owned()), Origin::Flag(flag.to_owned()));
    }

    fn add(&mut self, path: Vec<String>, raw: &Raw, origin: Origin) {
        let Some(key) = find_key(&path) else {
            self.errors.push(unknown(&path, origin));
            return;
        };
        match key.kind.parse(raw) {
            Some(value) => {
                self.set.insert(path, Setting { value, origin });
            }
            None => self.errors.push(ConfigError::WrongValue {
                origin,
                key: path.join("."),
                got: if key.secret() { "not acceptable".into() } else { raw.to_string() },
                accepts: key.kind.accepts(),
            }),
        }
    }

    /// The names that appear in a section with names, such as all listeners.
    pub fn names(&self, section: &str) -> Vec<String> {
        self.children(&[section])
    }

    /// The names of the tables below `path`.
    pub fn children(&self, path: &[&str]) -> Vec<String> {
        let below = |p: &Vec<String>, own: usize| {
            let inside = p.len() >= path.len() + own && path.iter().zip(p).all(|(a, b)| a == b);
            if inside { p.get(path.len()).cloned() } else { None }
        };
        // Of a value, the last part is its key.
        let set = self.set.keys().filter_map(|p| below(p, 2));
        let names: BTreeSet<String> = set.chain(self.named.iter().filter_map(|p| below(p, 1))).collect();
        names.into_iter().collect()
    }

    /// Whether a value was set.
    pub fn is_set(&self, path: &[&str]) -> bool {
        self.set.keys().any(|p| p.len() == path.len() && p.iter().zip(path).all(|(a, b)| a == b))
    }

    /// The tables of a section, those with names in the order of their names; numbers count as such.
    pub fn places(&self, section: &SectionDef) -> Vec<Vec<String>> {
        let mut places: Vec<Vec<String>> = vec![Vec::new()];
        for part in section.path {
            let mut longer = Vec::new();
            for place in places {
                let names = if *part == "*" {
                    let above: Vec<&str> = place.iter().map(String::as_str).collect();
                    let mut names = self.children(&above);
                    names.sort_by_key(|name| (name.parse::<u32>().unwrap_or(0), name.clone()));
                    names
                } else {
                    vec![(*part).to_owned()]
                };
                longer.extend(names.into_iter().map(|name| [&place[..], &[name]].concat()));
            }
            places = longer;
        }
        places
    }

    /// What was set at `path`, with its origin.
    pub fn get(&self, path: &[String]) -> Option<&Setting> {
        self.set.get(path)
    }

    /// Where `path` was set.
    pub fn origin(&self, path: &[&str]) -> Origin {
        let path: Vec<String> = path.iter().map(|p| (*p).to_owned()).collect();
        self.set.get(&path).map_or(Origin::Default, |s| s.origin.clone())
    }

    /// All values of the section at `path`: what was set, and defaults.
    pub fn section(&self, path: &[&str], keys: &'static [Key]) -> SectionValues {
        let mut full: Vec<String> = path.iter().map(|p| (*p).to_owned()).collect();
        let mut values = SectionValues::new();
        for key in keys {
            full.push(key.name.to_owned());
            let value = self.set.get(&full).map(|s| s.value.clone()).or_else(|| key.default_value());
            if let Some(value) = value {
                values.insert(key.name, value);
            }
            full.pop();
        }
        values
    }
}

fn raw(value: &Spanned<DeValue<'_>>) -> Raw {
    match value.get_ref() {
        DeValue::String(s) => Raw::Str(s.to_string()),
        DeValue::Integer(n) => {
            i128::from_str_radix(n.as_str(), n.radix()).map_or(Raw::Other("a number out of range"), Raw::Int)
        }
        DeValue::Boolean(b) => Raw::Bool(*b),
        DeValue::Array(items) => Raw::List(items.iter().map(raw).collect()),
        DeValue::Float(_) => Raw::Other("a fraction"),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

/// Whether this is a table of a section whose tables have names that the file chooses.
fn is_named(at: &[String]) -> bool {
    let named = |s: &&SectionDef| s.path.len() == at.len() && s.path.last() == Some(&"*");
    SECTIONS.iter().filter(named).any(|s| s.holds_prefix(at))
}

/// Whether its tables may stand as an array, numbered in their order.
fn is_numbered(at: &[String]) -> bool {
    match at {
        [section] => matches!(section.as_str(), "certificate" | "rule" | "ban"),
        [section, _, list] => section == "tenant" && list == "rule",
        _ => false,
    }
}

fn section_of(path: &[String]) -> Option<&'static SectionDef> {
    SECTIONS.iter().find(|s| s.is_at(path))
}

fn find_key(path: &[String]) -> Option<&'static Key> {
    let (name, section) = path.split_last()?;
    section_of(section)?.key(name)
}

/// Names the nearest valid key: of the same section first, then the same key elsewhere, then a section.
fn unknown(path: &[String], origin: Origin) -> ConfigError {
    let Some((name, parent)) = path.split_last() else {
        return ConfigError::UnknownKey { origin, key: String::new(), nearest: None };
    };
    let with_parent = |word: &str| {
        let mut full = parent.to_vec();
        full.push(word.to_owned());
        full.join(".")
    };
    let mut siblings: Vec<&str> = SECTIONS
        .iter()
        .filter(|s| s.path.len() == path.len() && s.holds_prefix(parent))
        .filter_map(|s| s.path.last().copied())
        .filter(|n| *n != "*")
        .collect();
    if parent.is_empty() {
        siblings.extend(SECTIONS.iter().map(|s| s.path[0]));
    }
    if let Some(section) = section_of(parent) {
        siblings.extend(section.keys.iter().map(|k| k.name));
    }
    let mut suggestion = nearest(name, siblings).map(with_parent);
    if suggestion.is_none() {
        let elsewhere = SECTIONS.iter().flat_map(|s| s.keys.iter().map(move |k| (s, k)));
        suggestion = elsewhere
            .filter(|(_, k)| k.name == name)
            .map(|(s, k)| format!("{}.{}", s.path.join("."), k.name))
            .next();
    }
    if suggestion.is_none() && !parent.is_empty() && section_of(parent).is_none() {
        suggestion = nearest(&parent[0], SECTIONS.iter().map(|s| s.path[0])).map(|section| {
            let mut full = path.to_vec();
            section.clone_into(&mut full[0]);
            full.join(".")
        });
    }
    ConfigError::UnknownKey {
        origin,
        key: path.join("."),
        nearest: suggestion.filter(|s| *s != path.join(".")),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count()
}
