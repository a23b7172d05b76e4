//! Clients that others wrote: paho-mqtt, MQTT.js, mosquitto_pub and mosquitto_sub, a mosquitto bridge; over every
//! transport that each can speak. `tests/setup.sh` installs them.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use mast_tests::{
    Broker, Client, Connect,
    broker::{DEADLINE, target_dir, workspace},
    certs::{self, Authority},
    twin::runs_once,
    ws,
};

/// Something installed by the setup script.
fn installed(path: &str) -> PathBuf {
    let full = target_dir().join("real-clients").join(path);
    assert!(full.exists(), "{} is missing: run tests/setup.sh first", full.display());
    full
}

fn script(name: &str) -> PathBuf {
    workspace().join("tests/clients").join(name)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; run tests/setup.sh first"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A broker with a listener of every kind; mTLS on 8884 and 8085.
fn everywhere() -> Broker {
    let mut broker = Broker::prepared();
    let authority = Authority::new("ca");
    certs::write(broker.dir(), "server", &authority.server(broker.address().ip()));
    certs::write(broker.dir(), "client", &authority.client("device"));
    broker.write("ca.crt", &authority.pem);
    let pair = "cert = \"{dir}/server.crt\"\nkey = \"{dir}/server.key\"\n";
    let mutual = format!("{pair}client_ca = \"{{dir}}/ca.crt\"\nusername_from = \"cn\"\n");
    let listener = |name: &str, kind: &str, port: u16| {
        format!(
            "[listener.{name}]\nkind = \"{kind}\"\nbind = [\"{{ip}}\"]\nport = {port}\nallow_anonymous = true\n"
        )
    };
    broker.configure(
        &[
            listener("main", "mqtt", 1883),
            listener("ws", "ws", 8083),
            listener("tls", "mqtt", 8883),
            format!("[listener.tls.tls]\n{pair}"),
            listener("wss", "ws", 8084),
            format!("[listener.wss.tls]\n{pair}"),
            listener("mtls", "mqtt", 8884),
            format!("[listener.mtls.tls]\n{mutual}"),
            listener("mwss", "ws", 8085),
            format!("[listener.mwss.tls]\n{mutual}"),
            "[listener.local]\nkind = \"unix\"\nsocket = \"{dir}/mqtt.sock\"\nallow_anonymous = true\n"
                .to_owned(),
        ]
        .concat(),
    );
    broker.launch();
    broker
}

#[test]
fn paho_takes_the_tour_over_every_transport_and_version() {
    runs_once("its certificates are made anew by each process");
    let broker = everywhere();
    let dir = broker.dir();
    for version in ["3", "4", "5"] {
        for (transport, port, secure) in [
            ("tcp", 1883, 0),
            ("websockets", 8083, 0),
            ("tcp", 8883, 1),
            ("websockets", 8084, 1),
            ("tcp", 8884, 2),
            ("websockets", 8085, 2),
            ("unix", 0, 0),
        ] {
            println!("MQTT {version} over {transport}, port {port}");
            let mut command = Command::new(installed("venv/bin/python"));
            command.arg(script("paho_tour.py")).args(["--version", version, "--transport", transport]);
            if transport == "unix" {
                command.arg("--host").arg(dir.join("mqtt.sock"));
            } else {
                command.args(["--host", &broker.address().ip().to_string(), "--port", &port.to_string()]);
            }
            if secure > 0 {
                command.arg("--ca").arg(dir.join("ca.crt"));
            }
            if secure > 1 {
                command.arg("--cert").arg(dir.join("client.crt")).arg("--key").arg(dir.join("client.key"));
            }
            assert!(run(&mut command).stdout.ends_with(b"ok\n"));
        }
    }
}

#[test]
fn mqttjs_takes_the_tour_over_every_transport_and_version() {
    runs_once("its certificates are made anew by each process");
    let broker = everywhere();
    let dir = broker.dir();
    for version in ["3", "4", "5"] {
        for (scheme, port, secure) in [
            ("mqtt", 1883, 0),
            ("ws", 8083, 0),
            ("mqtts", 8883, 1),
            ("wss", 8084, 1),
            ("mqtts", 8884, 2),
            ("wss", 8085, 2),
        ] {
            println!("MQTT {version} over {scheme}, port {port}");
            let path = if scheme.starts_with("ws") { "/mqtt" } else { "" };
            let mut command = Command::new("node");
            command.env("NODE_PATH", installed("node/node_modules"));
            command.arg(script("mqttjs_tour.js"));
            command.args([format!("{scheme}://{}:{port}{path}", broker.address().ip()), version.to_owned()]);
            if secure > 0 {
                command.arg(dir.join("ca.crt"));
            }
            if secure > 1 {
                command.arg(dir.join("client.crt")).arg(dir.join("client.key"));
            }
            assert!(run(&mut command).stdout.ends_with(b"ok\n"));
        }
    }
}

/// Flags that lead a mosquitto client to the broker.
fn leads(broker: &Broker) -> Vec<Vec<String>> {
    let ip = broker.address().ip().to_string();
    let file = |name: &str| broker.dir().join(name).display().to_string();
    let to = |port: &str| vec!["-h".to_owned(), ip.clone(), "-p".to_owned(), port.to_owned()];
    let tls = |mut flags: Vec<String>| {
        flags.extend(["--cafile".to_owned(), file("ca.crt")]);
        flags
    };
    let own = ["--cert".to_owned(), file("client.crt"), "--key".to_owned(), file("client.key")];
    let mutual = [tls(to("8884")), own.to_vec()].concat();
    vec![to("1883"), tls(to("8883")), mutual, vec!["--unix".to_owned(), file("mqtt.sock")]]
}

#[test]
fn mosquitto_pub_and_sub_work_over_every_transport_and_version() {
    runs_once("its certificates are made anew by each process");
    let broker = everywhere();
    for version in ["mqttv31", "mqttv311", "mqttv5"] {
        for lead in leads(&broker) {
            for qos in ["0", "1", "2"] {
                // Line by line, or its SUBACK would be seen at its end only.
                let mut sub = Command::new("stdbuf")
                    .args(["-oL", "mosquitto_sub"])
                    .args(&lead)
                    .args([
                        "-V", version, "-q", qos, "-t", "a/#", "-C", "3", "-F", "%t %q %p", "-d", "-W", "60",
                    ])
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("mosquitto_sub runs: tests/setup.sh installs it");
                let mut lines =
                    BufReader::new(sub.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
                assert!(
                    lines.any(|l| l.contains("Subscribed") || l.contains("SUBACK")),
                    "{lead:?} {version}"
                );
                for n in 0..3 {
                    let topic = format!("a/{n}");
                    let mut publish = Command::new("mosquitto_pub");
                    run(publish.args(&lead).args(["-V", version, "-q", qos, "-t", &topic, "-m", "hello"]));
                }
                let got: Vec<String> = lines.filter(|l| l.starts_with("a/")).collect();
                assert_eq!(got, [0, 1, 2].map(|n| format!("a/{n} {qos} hello")), "{lead:?} {version}");
                assert!(sub.wait().expect("it ends").success());
            }
        }
    }
}

/// A mosquitto of our own; killed when dropped.
struct Mosquitto(Child);

impl Drop for Mosquitto {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().unwrap_or_default();
        self.0.wait().expect("a killed child can be reaped");
    }
}

fn bridge(broker: &Broker, version: &str, more: &str) -> (Mosquitto, SocketAddr) {
    // The broker's own address, another port.
    let address = broker.at(11_883);
    let config = broker.write(
        "mosquitto.conf",
        &format!(
            "listener {} {}\nallow_anonymous true\nconnection bridge\naddress {}\nbridge_protocol_version {version}\n\
             remote_clientid bridge\nlocal_clientid bridge-local\nnotifications false\ncleansession false\n\
             restart_timeout 1\nbridge_insecure true\n{more}\ntopic b/# both 2\n",
            address.port(),
            address.ip(),
            broker.address(),
        ),
    );
    let log = std::fs::File::create(broker.dir().join("mosquitto.log")).expect("a file");
    let child =
        Command::new("mosquitto").arg("-c").arg(config).arg("-v").stderr(log).stdin(Stdio::null()).spawn();
    (Mosquitto(child.expect("mosquitto runs: tests/setup.sh installs it")), address)
}

fn open_at(address: SocketAddr, id: &str) -> Client {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Ok(tcp) = std::net::TcpStream::connect(address) {
            drop(tcp);
            return Connect::v311(id).open_on(ws::tcp(address));
        }
        assert!(Instant::now() < end, "mosquitto does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn bridges_once(version: &str, more: &str) {
    let broker = Broker::start();
    let (mosquitto, address) = bridge(&broker, version, more);
    let mut far = open_at(address, "far");
    let mut near = Connect::v5("near").open(&broker);
    far.subscribe("b/#", 2);
    near.subscribe("b/#", 2);
    // Until the bridge stands, what is said on one side is not heard on the other.
    let end = Instant::now() + DEADLINE;
    loop {
        near.publish("b/ready", "?", 1);
        near.message();
        far.assert_quiet_but_publishes();
        if !far.waiting().is_empty() {
            break;
        }
        assert!(Instant::now() < end, "the bridge does not connect:\n{}", broker.log());
    }
    std::thread::sleep(Duration::from_millis(500));
    far.assert_quiet_but_publishes();
    far.waiting();
    near.assert_quiet_but_publishes();
    near.waiting();
    for qos in 0..3u8 {
        for n in 0..20 {
            near.publish("b/near", format!("{qos} {n}"), qos);
            far.publish("b/far", format!("{qos} {n}"), qos);
        }
        for (who, client) in [("near", &mut near), ("far", &mut far)] {
            let mut got: Vec<(String, String)> =
                client.messages(40).into_iter().map(|m| (m.topic.clone(), m.text().to_owned())).collect();
            for topic in ["b/near", "b/far"] {
                let numbers: Vec<String> =
                    got.iter().filter(|(t, _)| t == topic).map(|(_, p)| p.clone()).collect();
                assert_eq!(
                    numbers,
                    (0..20).map(|n| format!("{qos} {n}")).collect::<Vec<_>>(),
                    "{who} {topic}"
                );
            }
            got.sort();
            got.dedup();
            assert_eq!(got.len(), 40);
        }
    }
    // Retained messages keep their flag across the bridge.
    near.retain("b/kept", "kept", 1);
    near.message();
    far.message();
    let mut late = open_at(address, "late");
    late.subscribe("b/kept", 1);
    let kept = late.message();
    assert_eq!((kept.text(), kept.retain), ("kept", true));
    // No echo, no loop: nothing more comes on either side.
    std::thread::sleep(Duration::from_secs(1));
    near.assert_quiet();
    far.assert_quiet();
    drop(mosquitto);
}

#[test]
fn a_mosquitto_bridge_of_3_1_1_brings_everything_once() {
    bridges_once("mqttv311", "try_private true");
}

#[test]
fn a_mosquitto_bridge_of_3_1_brings_everything_once() {
    bridges_once("mqttv31", "try_private true");
}

#[test]
fn a_mosquitto_bridge_of_5_brings_everything_once() {
    bridges_once("mqttv50", "");
}
