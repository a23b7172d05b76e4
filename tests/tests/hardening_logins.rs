//! The hardening list, H14 to H17: passwords and rules. The hashes themselves are tested in the shell.

use std::time::{Duration, Instant};

use mast_tests::{Broker, Client, Connect, twin::runs_once, ws};

fn password_broker(config: &str) -> Broker {
    let mut broker = Broker::prepared();
    broker.add_user("a", "pa");
    broker.configure(&format!(
        "[auth]\npassword_file = \"{{dir}}/users\"\n{config}\n[listener.main]\nbind = [\"{{ip}}\"]\nport = 1883\n\
         [listener.open]\nbind = [\"{{ip}}\"]\nport = 1884\nallow_anonymous = true\n"
    ));
    broker.launch();
    broker
}

#[test]
fn h14_an_unknown_user_costs_the_same_check_as_a_known_one() {
    let broker = password_broker("[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n");
    let median = |user: &str| {
        let mut times: Vec<Duration> = (0..9)
            .map(|n| {
                let start = Instant::now();
                Connect::v5("c").login(user, &format!("wrong {n}")).expect_refusal(&broker, 0x86);
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[4]
    };
    let (known, unknown) = (median("a"), median("nobody"));
    // Without a check of its own an unknown user would be refused hundreds of times faster.
    assert!(unknown * 5 > known && known * 5 > unknown, "known {known:?}, unknown {unknown:?}");
}

#[test]
fn h15_a_flood_of_logins_is_bounded_and_hinders_nobody_else() {
    let broker = password_broker(
        "hash_parallel = 1\nhash_queue = 2\n[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n",
    );
    let waiting: Vec<Client> = (0..40)
        .map(|n| Connect::v5(&format!("c{n}")).login(&format!("u{n}"), "x").start_on(broker.tcp()))
        .collect();
    let mut open = Connect::v5("open").open_on(ws::tcp(broker.at(1884)));
    let start = Instant::now();
    open.ping();
    assert!(start.elapsed() < Duration::from_secs(10));
    let codes: Vec<u8> = waiting.into_iter().map(|mut c| c.recv().reason()).collect();
    assert!(codes.iter().all(|c| [0x86, 0x97, 0x9F].contains(c)), "{codes:02x?}");
    assert!(codes.contains(&0x97), "{codes:02x?}");

    let broker = password_broker("[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 1\n");
    let waiting: Vec<Client> =
        (0..40).map(|_| Connect::v5("c").login("a", "x").start_on(broker.tcp())).collect();
    let codes: Vec<u8> = waiting.into_iter().map(|mut c| c.recv().reason()).collect();
    assert!(codes.contains(&0x9F), "{codes:02x?}");
    // A name that nobody tries is not concerned.
    assert_eq!(Connect::v5("c").login("other", "x").attempt(&broker).1.reason(), 0x86);
}

#[test]
fn h16_broken_files_refuse_the_start_and_a_reload_keeps_the_old_ones() {
    runs_once("the broker does not start");
    let broker = password_broker("[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n");
    Connect::v5("c").login("a", "pa").open(&broker).ping();
    let good = std::fs::read_to_string(broker.dir().join("users")).expect("the file");
    broker.write("users", &format!("{good}broken line\n"));
    assert!(!broker.reload());
    Connect::v5("c").login("a", "pa").open(&broker).ping();
    broker.write("users", "");
    assert!(broker.reload());
    Connect::v5("c").login("a", "pa").expect_refusal(&broker, 0x86);
    // Without authentication configured, an address that others can reach is refused.
    let mut open = Broker::prepared();
    open.configure("[listener.main]\nbind = [\"0.0.0.0\"]\nport = 0\n");
    open.spawn();
    assert_eq!(open.wait_exit().code(), Some(78), "{}", open.log());
}

#[test]
fn h17_placeholders_stand_for_one_level_and_never_for_a_wildcard() {
    let mut broker = Broker::prepared();
    broker.write("acl", "pattern readwrite dev/%c/#\n");
    broker.configure("[auth]\nacl_file = \"{dir}/acl\"\n");
    broker.launch();
    let mut one = broker.client("one");
    assert!(one.publish("dev/one/x", "x", 1) < 0x80);
    assert_eq!(one.publish("dev/two/x", "x", 1), 0x87);
    for id in ["+", "#", "one/x", "+/+"] {
        let (mut c, connack) = Connect::v5(id).attempt(&broker);
        if connack.reason() == 0 {
            assert_eq!(c.publish("dev/one/x", "x", 1), 0x87, "{id}");
            assert_eq!(c.subscribe("dev/one/#", 1), 0x87, "{id}");
        }
    }
}
