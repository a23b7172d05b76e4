//! Replays the committed fuzz corpora through the bodies of their targets, on the stable toolchain.

use std::fs;
use std::path::Path;

#[test]
fn every_corpus_file_passes_its_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, body) in mast_sim::fuzz::targets() {
        let mut files: Vec<_> = fs::read_dir(corpus.join(name))
            .expect("the target has a corpus")
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus of {name} is empty");
        for file in files {
            let data = fs::read(&file).unwrap();
            println!("{}", file.display());
            body(&data);
        }
    }
}
