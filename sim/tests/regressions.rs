//! Every scenario that once showed a bug, shrunken, holds now.

use mast_sim::scenario::Scenario;
use mast_sim::world::run;
use std::path::Path;

#[test]
fn scenarios_that_once_failed_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder is in the repository")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("readable");
        let scenario: Scenario = serde_json::from_str(&text).expect("a scenario");
        if let Some(failure) = run(&scenario).failure {
            panic!("{}: {}: {}\n{}", path.display(), failure.oracle, failure.how, failure.tail.join("\n"));
        }
    }
}
