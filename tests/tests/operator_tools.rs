//! What an operator has when something is wrong: salvage of a damaged store, warnings about certificates, one start
//! that is refused.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use mast_tests::{
    Broker, Connect,
    broker::binary,
    certs::{self, Authority},
    ws,
};

fn mast(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(binary()).current_dir(dir).args(arguments).output().expect("mast runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn journal(store: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(store).expect("the store").flatten().map(|f| f.path());
    let mut segments: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "seg")).collect();
    segments.sort();
    segments
}

/// Flips a bit of a payload in the file that holds it, and drops the index file, so that a start reads the journal.
fn damage(store: &Path, payload: &str) -> PathBuf {
    for path in journal(store) {
        let mut bytes = std::fs::read(&path).expect("a segment");
        if let Some(at) = bytes.windows(payload.len()).position(|w| w == payload.as_bytes()) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).expect("writable");
            std::fs::remove_file(path.with_extension("idx")).unwrap_or_default();
            return path;
        }
    }
    panic!("{payload} is in no segment")
}

#[test]
fn a_broker_starts_from_what_a_salvage_copied_of_a_damaged_store() {
    let mut broker = Broker::with("[store]\nsegment_size = \"1MiB\"\n");
    let mut away = Connect::v5("away").lasting().open(&broker);
    assert!(away.subscribe("t/#", 1) < 0x80);
    away.disconnect();
    let mut c = Connect::v5("c").open(&broker);
    c.retain("kept", "retained", 1);
    let payload = |i: u32| format!("<{i:02}>{}", "x".repeat(100_000));
    for i in 0..30 {
        assert!(c.publish(&format!("t/{i}"), payload(i), 1) < 0x80);
    }
    assert!(broker.terminate().success());
    let store = broker.data_dir().join("store");
    assert!(journal(&store).len() >= 3);
    let segment = damage(&store, "<07>");
    let name = segment.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();

    // The start is refused, the file named, and nobody was ever told that clients may come.
    let before = broker.log().len();
    broker.spawn();
    assert_eq!(broker.wait_exit().code(), Some(1), "{}", broker.log());
    let log = broker.log()[before..].to_owned();
    assert!(log.contains(&name) && !log.contains("listening"), "{log}");

    let dir = broker.dir().to_owned();
    std::fs::rename(broker.data_dir(), dir.join("damaged")).expect("moved");
    let salvage = mast(&dir, &["salvage", "--data-dir", "damaged", "--to", "data"]);
    let report = said(&salvage);
    assert!(salvage.status.success(), "{report}");
    assert!(report.contains("copied: ") && report.contains(&name), "{report}");
    broker.launch();
    let mut away = Connect::v5("away").lasting().open(&broker);
    assert!(away.connack().session_present());
    let got = away.messages(29);
    let expected: Vec<String> = (0..30).filter(|i| *i != 7).map(payload).collect();
    assert!(got.iter().map(|m| &m.payload[..]).eq(expected.iter().map(String::as_bytes)));
    let mut c = Connect::v5("d").open(&broker);
    assert!(c.subscribe("kept", 1) < 0x80);
    assert_eq!(c.message().payload, b"retained");
}

#[test]
fn a_salvage_says_what_is_wrong_with_its_directories() {
    let mut broker = Broker::start();
    let dir = broker.dir().to_owned();
    let running = mast(&dir, &["salvage", "--data-dir", "data", "--to", "new"]);
    assert_eq!(running.status.code(), Some(1), "{}", said(&running));
    assert!(said(&running).contains("in use"), "{}", said(&running));
    assert!(broker.terminate().success());
    let nothing = mast(&dir, &["salvage", "--data-dir", "nowhere", "--to", "new2"]);
    assert!(
        nothing.status.code() == Some(1) && said(&nothing).contains("no store in it"),
        "{}",
        said(&nothing)
    );
    let full = mast(&dir, &["salvage", "--data-dir", "data", "--to", "data"]);
    assert_eq!(full.status.code(), Some(1), "{}", said(&full));
}

#[test]
fn a_client_certificate_that_is_refused_is_a_warning_that_says_why() {
    let mut broker = Broker::prepared();
    let (authority, stranger) = (Authority::new("ca"), Authority::new("other"));
    certs::write(broker.dir(), "s", &authority.server(broker.address().ip()));
    broker.write("ca.crt", &authority.pem);
    broker.configure(
        "[tls]\ncert = \"{dir}/s.crt\"\nkey = \"{dir}/s.key\"\nclient_ca = \"{dir}/ca.crt\"\n\
         username_from = \"cn\"\n[listener.tls]\nbind = [\"{ip}\"]\nport = 8883\nsecure = true\n",
    );
    broker.launch();
    for (pair, why) in [
        (authority.client_between("device", 2020, 2021), "expired"),
        (authority.client_between("device", 2900, 2901), "not valid yet"),
        (stranger.client("device"), "UnknownIssuer"),
    ] {
        let before = broker.log().len();
        let config = certs::client_config(&authority.pem, Some(&pair));
        let warned = |log: &str| {
            log.lines().any(|l| l.contains("WARN") && l.contains("client certificate: ") && l.contains(why))
        };
        // Lines about clients have a rate, so the first of these may be held back.
        broker.until(why, || {
            let mut stream = certs::connect(&config, ws::tcp(broker.at(8883)));
            let asked = stream.write_all(&Connect::v5("c").bytes()).and_then(|()| stream.flush());
            asked.and_then(|()| stream.read(&mut [0; 64])).map(|n| assert_eq!(n, 0)).unwrap_or_default();
            std::thread::sleep(Duration::from_millis(100));
            warned(&broker.log()[before..])
        });
    }
}

#[test]
fn doctor_warns_of_certificates_that_have_ended_or_are_near_their_end() {
    let broker = Broker::prepared();
    let authority = Authority::new("ca");
    let write = |name: &str, days: i64| {
        certs::write(broker.dir(), name, &authority.server_for_days(broker.address().ip(), days));
    };
    let config = |name: &str| {
        format!(
            "[admin]\nbind = []\n[tls]\ncert = \"{{dir}}/{name}.crt\"\nkey = \"{{dir}}/{name}.key\"\n\
             [listener.tls]\nbind = [\"{{ip}}\"]\nport = 8883\nsecure = true\nallow_anonymous = true\n"
        )
    };
    for (days, code, words) in [(-1, 1, "ended"), (10, 0, "ends soon"), (400, 0, "until")] {
        write("s", days);
        broker.configure(&config("s"));
        let output = mast(broker.dir(), &["doctor", "-c", "mast.toml", "--data-dir", "data"]);
        assert!(said(&output).contains(words), "{days}: {}", said(&output));
        assert_eq!(output.status.code(), Some(code), "{days}: {}", said(&output));
    }
}

#[test]
fn a_taken_port_ends_the_start_before_the_store_is_touched() {
    let mut broker = Broker::prepared();
    let taken = TcpListener::bind(broker.address()).expect("a free port");
    broker.spawn();
    assert_eq!(broker.wait_exit().code(), Some(1));
    assert!(broker.log().contains("another process listens there"), "{}", broker.log());
    assert!(!broker.data_dir().join("store").exists());
    drop(taken);
    broker.launch();
    TcpStream::connect(broker.address()).expect("open now");
}

#[test]
fn flags_before_config_check_count_and_unused_certificates_are_remarked() {
    let broker = Broker::prepared();
    certs::write(broker.dir(), "s", &Authority::new("ca").server(broker.address().ip()));
    broker.configure("[tls]\ncert = \"{dir}/s.crt\"\nkey = \"{dir}/s.key\"\n[listener.main]\nport = 1883\n");
    let check = mast(broker.dir(), &["-c", "mast.toml", "config", "check"]);
    assert!(check.status.success(), "{}", said(&check));
    assert!(said(&check).contains("no listener uses the certificate of tls.cert"), "{}", said(&check));
    broker.configure("[mqtt]\nmax_qso = 1\n");
    let check = mast(broker.dir(), &["-c", "mast.toml", "config", "check"]);
    assert_eq!(check.status.code(), Some(78), "{}", said(&check));
    let help = mast(broker.dir(), &["bench", "-h"]);
    assert!(help.status.success() && said(&help).contains("--publishers"), "{}", said(&help));
}
