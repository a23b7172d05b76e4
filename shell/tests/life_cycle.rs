//! The life of the process around an engine: ready, reload, drain. Signals reach the whole process, so this is
//! one test in a binary of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
};

use mast::{
    config::{Config, Place, Sources},
    serve::{Context, Engine, run},
};
use rustix::process::{Signal, getpid, kill_process};

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Started { listeners: usize },
    Reloaded { durability: String },
    Drained,
}

struct Recorder(mpsc::Sender<Seen>);

impl Engine for Recorder {
    fn reload(&mut self, config: &Arc<Config>) -> Vec<String> {
        let durability = config.store.durability.as_str().to_owned();
        self.0.send(Seen::Reloaded { durability }).expect("the test listens");
        vec![]
    }

    async fn drain(&mut self) {
        self.0.send(Seen::Drained).expect("the test listens");
    }

    async fn failed(&mut self) -> String {
        std::future::pending().await
    }
}

#[test]
fn signals_reload_and_drain_and_a_bad_reload_changes_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("mast.toml");
    // The file is never there half written.
    let write = |text: &str| {
        let new = dir.path().join("new");
        std::fs::write(&new, text).expect("write");
        std::fs::rename(&new, &file).expect("rename");
    };
    write("[node]\nlog_level = \"error\"\n");
    let variables = BTreeMap::from([
        ("STATE_DIRECTORY".to_owned(), dir.path().join("data").display().to_string()),
        ("MAST__ADMIN__BIND".to_owned(), String::new()),
    ]);
    let place = Place { variables, is_root: false };
    let sources = Sources { file: Some(file.clone()), place, port: Some(0), ..Sources::default() };
    let (sender, seen) = mpsc::channel();
    let broker = std::thread::spawn(move || {
        run(&sources, |context: Context| {
            let listeners = context.listeners.len();
            sender.send(Seen::Started { listeners }).expect("the test listens");
            Ok(Recorder(sender))
        })
    });
    let next = || seen.recv().expect("the broker lives");
    assert_eq!(next(), Seen::Started { listeners: 1 });
    assert!(dir.path().join("data").is_dir());
    write("[store]\ndurability = \"stored\"\n");
    kill_process(getpid(), Signal::HUP).expect("a signal");
    assert_eq!(next(), Seen::Reloaded { durability: "stored".into() });
    // The broken file brings no event; the good one after it shows that the broker went on. Whichever of the
    // two the first signal finds, nothing else than "memory" may come of it.
    write("[store]\ndurability = 7\n");
    kill_process(getpid(), Signal::HUP).expect("a signal");
    write("[store]\ndurability = \"memory\"\n");
    kill_process(getpid(), Signal::HUP).expect("a signal");
    assert_eq!(next(), Seen::Reloaded { durability: "memory".into() });
    kill_process(getpid(), Signal::TERM).expect("a signal");
    loop {
        match next() {
            // Signals may coalesce or not: the last file may be read twice.
            Seen::Reloaded { durability } => assert_eq!(durability, "memory"),
            Seen::Drained => break,
            other @ Seen::Started { .. } => panic!("{other:?}"),
        }
    }
    assert!(broker.join().expect("no panic").is_ok());
}
