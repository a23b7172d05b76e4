//! `mast doctor` and `mast bench` from outside.

mod support;

use std::path::Path;

use support::{Broker, run, text};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn bench(broker: &Broker, arguments: &[&str]) -> serde_json::Value {
    let port = broker.port.to_string();
    let mut all = vec!["bench", "-h", "127.0.0.1", "-p", &port, "--json"];
    all.extend(arguments);
    let output = run(&broker.dir, &all);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stderr), text(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn bench_counts_and_measures_what_comes() {
    let dir = dir();
    let broker = Broker::start(dir.path(), "");
    for (arguments, per_message) in [
        (&["-q", "1", "--rate", "500", "--duration", "1"][..], 1),
        (&["-q", "2", "--rate", "200", "--duration", "1", "--pattern", "fan", "--subscribers", "3"], 3),
        (
            &[
                "-V",
                "5",
                "-q",
                "1",
                "--window",
                "8",
                "--duration",
                "0.5",
                "--pattern",
                "shared",
                "--subscribers",
                "2",
            ],
            1,
        ),
        (&["-q", "1", "--rate", "300", "--duration", "1", "--publishers", "3", "--subscribers", "3"], 1),
    ] {
        let report = bench(&broker, arguments);
        let number = |name: &str| report[name].as_u64().unwrap_or(u64::MAX);
        assert!(number("sent") > 50, "{arguments:?} {report}");
        assert_eq!(number("acknowledged"), number("sent"), "{arguments:?} {report}");
        assert_eq!(number("received"), number("sent") * per_message, "{arguments:?} {report}");
        assert_eq!((number("missing"), number("duplicates"), number("out_of_order")), (0, 0, 0), "{report}");
        assert!(report["delivery_micros"]["p99.9"].as_u64() <= report["delivery_micros"]["max"].as_u64());
    }
    let report = bench(&broker, &["-q", "0", "--subscribers", "0", "--duration", "0.2"]);
    assert!(report["sent"].as_u64() > Some(0) && report["received"].as_u64() == Some(0), "{report}");
}

#[test]
fn bench_tells_when_the_broker_is_not_there_and_when_it_is_used_wrongly() {
    let dir = dir();
    let port = support::free_port().to_string();
    assert_eq!(run(dir.path(), &["bench", "-h", "127.0.0.1", "-p", &port]).status.code(), Some(1));
    for wrong in [&["bench", "--size", "8"][..], &["bench", "--rate", "0"], &["bench", "--duration", "-1"]] {
        assert_eq!(run(dir.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}

fn doctor(dir: &Path, config: &str) -> (i32, String) {
    std::fs::write(dir.join("doctor.toml"), config).expect("write");
    let output = run(dir, &["doctor", "-c", "doctor.toml"]);
    (output.status.code().unwrap_or(-1), text(&output.stdout))
}

/// A configuration whose ports nobody else uses.
fn quiet(more: &str) -> String {
    let port = support::free_port();
    format!(
        "[node]\ndata_dir = \"data\"\n[admin]\nbind = []\n[listener.main]\nbind = [\"127.0.0.1\"]\nport = {port}\n{more}"
    )
}

#[test]
fn doctor_finds_nothing_wrong_where_nothing_is() {
    let dir = dir();
    let (code, out) = doctor(dir.path(), &quiet(""));
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("is free") && out.contains("will be made at the first start"), "{out}");
    assert!(!dir.path().join("data").exists(), "looking makes nothing");
}

#[test]
fn doctor_names_the_holder_of_a_port_and_open_doors_and_wrong_keys() {
    let dir = dir();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = socket.local_addr().expect("address").port();
    let config = format!(
        "[node]\ndata_dir = \"data\"\n[admin]\nbind = []\n[listener.main]\nbind = [\"127.0.0.1\"]\nport = {port}\n"
    );
    let (code, out) = doctor(dir.path(), &config);
    assert_eq!(code, 1);
    assert!(
        out.contains(&format!("(process {})", std::process::id())) && out.contains("listener.main"),
        "{out}"
    );
    let open = quiet("allow_anonymous = true\n").replace("127.0.0.1\"]\nport", "0.0.0.0\"]\nport");
    let (_, out) = doctor(dir.path(), &open);
    assert!(out.contains("everybody who reaches listener main may connect"), "{out}");
    let (code, out) = doctor(dir.path(), "[mqtt]\nmax_qso = 1\n");
    assert!(code == 1 && out.contains("did you mean `mqtt.max_qos`?"), "{out}");
}

#[test]
fn doctor_reads_the_dates_of_certificates_and_finds_keys_that_do_not_match() {
    let dir = dir();
    let write = |name: &str, years: (i32, i32)| {
        let key = rcgen::KeyPair::generate().expect("key");
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let certificate = params.self_signed(&key).expect("certificate");
        std::fs::write(dir.path().join(format!("{name}.pem")), certificate.pem()).expect("write");
        std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).expect("write");
    };
    write("old", (2020, 2021));
    write("good", (2020, 2990));
    let config = |cert: &str, key: &str| {
        quiet(&format!("secure = true\n[tls]\ncert = \"{cert}.pem\"\nkey = \"{key}.key\"\n"))
    };
    let (code, out) = doctor(dir.path(), &config("old", "old"));
    assert!(code == 1 && out.contains("ended"), "{out}");
    let (code, out) = doctor(dir.path(), &config("good", "good"));
    assert!(code == 0 && out.contains("until"), "{out}");
    let (code, out) = doctor(dir.path(), &config("good", "old"));
    assert!(code == 1 && out.contains("good.pem"), "{out}");
}

#[test]
fn doctor_reads_the_store_through_and_names_what_is_damaged() {
    let dir = dir();
    let mut broker = Broker::start(dir.path(), "");
    let (code, out) = doctor(dir.path(), &quiet(""));
    assert!(code == 0 && out.contains("is in use"), "{out}");
    broker.signal(rustix::process::Signal::TERM);
    assert_eq!(broker.wait().code(), Some(0));
    let (code, out) = doctor(dir.path(), &quiet(""));
    assert!(code == 0 && out.contains("all intact"), "{out}");
    let store = dir.path().join("data/store");
    let files = std::fs::read_dir(&store).expect("the store").flatten();
    let names: Vec<_> = files.filter_map(|f| f.file_name().into_string().ok()).collect();
    let journal = names.iter().find(|n| mast::store::segment::id_of(n).is_some()).expect("a journal file");
    std::fs::write(store.join(journal), b"nonsense").expect("write");
    let (code, out) = doctor(dir.path(), &quiet(""));
    assert!(code == 1 && out.contains(journal.as_str()), "{out}");
}
