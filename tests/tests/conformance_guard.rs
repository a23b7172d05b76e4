//! The guard of `docs/conformance.md`: every statement has a test or an excuse, and the document says so.

use mast_tests::{
    broker::workspace,
    registry::{Registry, Test, document},
};

#[test]
fn every_statement_is_tested_or_excused_and_the_document_is_current() {
    let workspace = workspace();
    let registry = Registry::read(&workspace);
    assert!(
        registry.problems.is_empty(),
        "{} problems:\n{}",
        registry.problems.len(),
        registry.problems.join("\n")
    );
    let path = workspace.join("docs/conformance.md");
    let text = document(&registry);
    if std::env::var_os("MAST_REGENERATE").is_some() {
        std::fs::write(&path, &text).expect("docs are writable");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/conformance.md is old: run this test with MAST_REGENERATE=1 and commit it"
    );
}

#[test]
fn the_scanner_gives_tags_to_their_test_and_notes_lost_ones() {
    let mut registry = Registry::default();
    let source = "fn helper() {}\ncovers![\"MQTT-9\"];\n#[test]\nfn a_test() {\n    covers![\"MQTT-1\", \"v311:MQTT-2\"];\n}";
    registry.scan("f.rs", source);
    let test = Test { file: "f.rs".into(), name: "a_test".into() };
    assert!(registry.tests["MQTT-1"].contains(&test) && registry.tests["v311:MQTT-2"].contains(&test));
    assert!(!registry.tests.contains_key("MQTT-9"));
    assert_eq!(registry.problems.len(), 1);
}

#[test]
fn every_bug_case_that_needs_no_cluster_has_a_test_of_its_name() {
    let tests = workspace().join("tests");
    let cases = std::fs::read_to_string(tests.join("bug-cases.tsv")).expect("the cases");
    let sources: String =
        ["bug_cases_access.rs", "bug_cases_delivery.rs", "bug_cases_protocol.rs", "bug_cases_transport.rs"]
            .map(|file| std::fs::read_to_string(tests.join("tests").join(file)).expect("a source"))
            .concat();
    for case in cases.lines().skip(1) {
        let mut fields = case.split('\t');
        let (id, area) = (fields.next().expect("an id"), fields.nth(1).expect("an area"));
        let function = format!("fn {}_", id.to_lowercase().replace('-', "_"));
        assert!(area == "cluster" || sources.contains(&function), "{id} has no test");
    }
}
