//! The statements of the MQTT specifications and the tests that show them.
//!
//! The lists stand in `tests/mqtt5-server-statements.tsv` and `tests/mqtt311-server-statements.tsv`, the tests say
//! `covers!["MQTT-3.1.0-1", "v311:MQTT-3.1.0-1"]` (the second form is MQTT 3.1.1, whose numbers mean other things),
//! and `tests/excused.tsv` names what has no test, with the reason. From these [`document`] writes
//! `docs/conformance.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::{Path, PathBuf},
};

/// Fewer than this many statements may be excused.
pub const MAX_EXCUSED: usize = 10;

/// One statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// `MQTT-3.1.0-1` or `v311:MQTT-3.1.0-1`.
    pub id: String,
    /// `client`, `server` or `both`.
    pub role: String,
    /// What it says, in our words.
    pub says: String,
}

/// A test that shows statements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// Path of the file in the workspace.
    pub file: String,
    /// The function's name.
    pub name: String,
}

/// Everything that is known.
#[derive(Debug, Default)]
pub struct Registry {
    /// In the order of the lists, MQTT 5 first.
    pub statements: Vec<Statement>,
    /// Statement id -> tests.
    pub tests: BTreeMap<String, BTreeSet<Test>>,
    /// Statement id -> reason.
    pub excused: BTreeMap<String, String>,
    /// What does not fit together.
    pub problems: Vec<String>,
}

impl Registry {
    /// Reads lists and test sources of a workspace.
    pub fn read(workspace: &Path) -> Registry {
        let mut registry = Registry::default();
        let dir = workspace.join("tests");
        registry.add_statements(&read(&dir.join("mqtt5-server-statements.tsv")), "");
        registry.add_statements(&read(&dir.join("mqtt311-server-statements.tsv")), "v311:");
        for line in read(&dir.join("excused.tsv")).lines().skip(1) {
            match line.split_once('\t') {
                Some((id, reason)) if !reason.trim().is_empty() => {
                    registry.excused.insert(id.to_owned(), reason.to_owned());
                }
                _ => registry.problems.push(format!("excused.tsv: no reason in {line:?}")),
            }
        }
        for path in [dir.join("tests"), workspace.join("core/tests")].iter().flat_map(|d| sources(d)) {
            let file = path.strip_prefix(workspace).unwrap_or(&path).display().to_string();
            registry.scan(&file, &read(&path));
        }
        registry.judge();
        registry
    }

    fn add_statements(&mut self, list: &str, prefix: &str) {
        for line in list.lines().skip(1) {
            let mut fields = line.split('\t');
            if let (Some(id), Some(role), Some(says)) = (fields.next(), fields.next(), fields.next()) {
                let (role, says) = (role.to_owned(), says.to_owned());
                self.statements.push(Statement { id: format!("{prefix}{id}"), role, says });
            }
        }
    }

    /// Finds the tags in one source file. A tag belongs to the last function that began above it.
    pub fn scan(&mut self, file: &str, source: &str) {
        let mut test = None;
        let mut armed = false;
        let mut in_tags = false;
        for line in source.lines().map(str::trim) {
            if line == "#[test]" {
                armed = true;
            } else if let Some(rest) = line.strip_prefix("fn ") {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                test = armed.then(|| Test { file: file.to_owned(), name });
                armed = false;
            } else if in_tags || line.starts_with("covers![") {
                in_tags = !line.ends_with("];");
                match &test {
                    Some(test) => {
                        for id in line.split('"').skip(1).step_by(2) {
                            self.tests.entry(id.to_owned()).or_default().insert(test.clone());
                        }
                    }
                    None => self.problems.push(format!("{file}: tags outside a test: {line}")),
                }
            }
        }
    }

    fn judge(&mut self) {
        let known: BTreeSet<&str> = self.statements.iter().map(|s| s.id.as_str()).collect();
        let mut problems = Vec::new();
        for id in self.tests.keys().chain(self.excused.keys()) {
            if !known.contains(id.as_str()) {
                problems.push(format!("{id} is no statement of the lists"));
            }
        }
        for statement in &self.statements {
            let (tested, excused) =
                (self.tests.contains_key(&statement.id), self.excused.contains_key(&statement.id));
            match (tested, excused) {
                (false, false) => problems.push(format!("{} has no test: {}", statement.id, statement.says)),
                (true, true) => problems.push(format!("{} is excused and tested", statement.id)),
                (true, false) | (false, true) => {}
            }
        }
        if self.excused.len() >= MAX_EXCUSED {
            problems.push(format!("{} statements are excused", self.excused.len()));
        }
        self.problems.extend(problems);
    }
}

/// The text of `docs/conformance.md`.
pub fn document(registry: &Registry) -> String {
    let mut out = String::from(
        "# Conformance\n\nGenerated from the statement lists and the tags of the tests in `tests/tests`; a test \
         fails when this file differs. Every statement of the MQTT 5 and MQTT 3.1.1 specifications that concerns a \
         server stands here with its tests; of a statement that binds a client, the tests show how the broker \
         reacts to it or relies on it. `MAST_REGENERATE=1 cargo test -p mast-tests --test conformance_guard` \
         writes this file anew.\n",
    );
    let tested = registry.statements.iter().filter(|s| registry.tests.contains_key(&s.id)).count();
    put(
        &mut out,
        format_args!(
            "\n{} statements, {tested} tested, {} excused.\n",
            registry.statements.len(),
            registry.excused.len()
        ),
    );
    for (title, v311) in [("MQTT 5", false), ("MQTT 3.1.1", true)] {
        for (heading, client) in [("server and both", false), ("client", true)] {
            put(
                &mut out,
                format_args!(
                    "\n## {title}: statements for {heading}\n\n| statement | it says | tests |\n| --- | --- | --- |\n"
                ),
            );
            for statement in &registry.statements {
                let is_v311 = statement.id.starts_with("v311:");
                if is_v311 == v311 && (statement.role == "client") == client {
                    row(&mut out, registry, statement);
                }
            }
        }
    }
    out
}

fn row(out: &mut String, registry: &Registry, statement: &Statement) {
    let id = statement.id.trim_start_matches("v311:");
    let says = statement.says.replace('|', "\\|");
    let shown = match (registry.tests.get(&statement.id), registry.excused.get(&statement.id)) {
        (Some(tests), _) => tests.iter().map(link).collect::<Vec<_>>().join("<br>"),
        (None, Some(reason)) => format!("excused: {reason}"),
        (None, None) => "none".to_owned(),
    };
    put(out, format_args!("| {id} | {says} | {shown} |\n"));
}

fn link(test: &Test) -> String {
    let stem = Path::new(&test.file).file_stem().unwrap_or_default().to_string_lossy();
    format!("[{stem}](../{}): `{}`", test.file, test.name)
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("the tests' directory");
    let mut found: Vec<PathBuf> = entries
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "rs"))
        .collect();
    found.sort();
    found
}
