//! Clients that are not let in: by client id, pattern, user and address, of one tenant or of all, for a time or for good.

use mast_tests::{Broker, Connect, ws};

/// Two tenants with a door each, and a common one with passwords.
fn broker(bans: &str) -> Broker {
    let mut broker = Broker::prepared();
    broker.add_user("ann", "pw");
    broker.add_user("eve", "pw");
    broker.configure(&config(bans));
    broker.launch();
    broker
}

fn config(bans: &str) -> String {
    let door = |tenant: &str, port: u16| {
        format!(
            "[listener.{tenant}]\nbind = [\"{{ip}}\"]\nport = {port}\ntenant = \"{tenant}\"\nallow_anonymous = true\n"
        )
    };
    format!(
        "[auth]\npassword_file = \"{{dir}}/users\"\n[tenant.acme]\n[tenant.globex]\n{bans}\n\
         [limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n\
         [listener.main]\nbind = [\"{{ip}}\"]\nport = 1883\n{}{}",
        door("acme", 1884),
        door("globex", 1885)
    )
}

fn code(broker: &Broker, connect: &Connect, port: u16) -> u8 {
    connect.attempt_on(ws::tcp(broker.at(port))).1.reason()
}

#[test]
fn a_ban_refuses_whom_it_is_about_in_the_words_of_the_version() {
    let broker = broker(
        "[[ban]]\nclient_id = \"bad\"\n[[ban]]\nclient_id = \"worse-*\"\n[[ban]]\nuser = \"eve\"\n\
         [[ban]]\ntenant = \"acme\"\nclient_id = \"c\"\n[[ban]]\nclient_id = \"old\"\nuntil = \"2020-01-01T00:00:00Z\"\n",
    );
    for id in ["bad", "worse-1"] {
        assert_eq!(code(&broker, &Connect::v5(id), 1884), 0x8A, "{id}");
        assert_eq!(code(&broker, &Connect::v311(id), 1885), 5, "{id}");
    }
    for id in ["bad1", "worse", "old"] {
        assert_eq!(code(&broker, &Connect::v5(id), 1884), 0, "{id}");
    }
    // Of one tenant alone.
    assert_eq!((code(&broker, &Connect::v5("c"), 1884), code(&broker, &Connect::v5("c"), 1885)), (0x8A, 0));
    // The right password does not help, and is not even looked at.
    let checks = || broker.metric_sum("mast_logins_total");
    let before = checks();
    Connect::v5("x").login("eve", "pw").expect_refusal(&broker, 0x8A);
    assert_eq!(checks(), before);
    Connect::v5("x").login("ann", "pw").open(&broker).ping();
    for (kind, count) in [("client_id", 3.0), ("client_id_pattern", 2.0), ("user", 1.0), ("address", 0.0)] {
        assert_eq!(broker.metric(&format!("mast_banned_total{{kind=\"{kind}\"}}")), count, "{kind}");
    }
}

#[test]
fn a_ban_that_comes_in_force_disconnects_and_one_that_goes_lets_in_again() {
    let broker = broker("");
    let mut staying = Connect::v5("staying").open_on(ws::tcp(broker.at(1884)));
    let mut by_id = Connect::v5("bad").open_on(ws::tcp(broker.at(1884)));
    let mut other = Connect::v5("bad").open_on(ws::tcp(broker.at(1885)));
    let mut by_user = Connect::v5("y").login("eve", "pw").open(&broker);
    let mut old = Connect::v311("worse-1").open_on(ws::tcp(broker.at(1885)));
    let bans = "[[ban]]\ntenant = \"acme\"\nclient_id = \"bad\"\n[[ban]]\nuser = \"eve\"\n[[ban]]\nclient_id = \"worse-*\"\n";
    broker.configure(&config(bans));
    assert!(broker.reload());
    by_id.expect_end(0x98);
    by_user.expect_end(0x98);
    assert!(old.expect_closed().is_empty());
    staying.ping();
    other.ping();
    assert_eq!(code(&broker, &Connect::v5("bad"), 1884), 0x8A);
    // By its address everybody.
    broker.configure(&config("[[ban]]\naddress = \"127.0.0.0/8\"\n"));
    assert!(broker.reload());
    staying.expect_end(0x98);
    other.expect_end(0x98);
    assert_eq!(code(&broker, &Connect::v5("anyone"), 1884), 0x8A);
    broker.configure(&config(""));
    assert!(broker.reload());
    assert_eq!(code(&broker, &Connect::v5("bad"), 1884), 0);
}

#[test]
fn a_ban_that_makes_no_sense_is_refused_by_its_key_and_changes_nothing() {
    let broker = broker("[[ban]]\nclient_id = \"bad\"\n");
    for (ban, words) in [
        ("client_id = \"a\"\nuser = \"b\"", "ban.1.client_id"),
        ("reason = \"x\"", "ban.1.client_id"),
        ("address = \"localhost\"", "ban.1.address"),
        ("user = \"a\"\nuntil = \"tomorrow\"", "ban.1.until"),
        ("user = \"a\"\ntenant = \"initech\"", "ban.1.tenant"),
    ] {
        broker.configure(&config(&format!("[[ban]]\n{ban}\n")));
        let before = broker.log().len();
        assert!(!broker.reload(), "{ban}");
        assert!(broker.log()[before..].contains(words), "{ban}: {}", &broker.log()[before..]);
        assert_eq!(code(&broker, &Connect::v5("bad"), 1884), 0x8A);
    }
}

#[test]
fn a_client_that_comes_and_goes_too_often_is_banned_for_a_while() {
    let broker = broker("[flapping]\nmax_connects = 3\nwindow = \"1h\"\nban = \"2s\"\n");
    for _ in 0..3 {
        assert_eq!(code(&broker, &Connect::v5("flapper"), 1884), 0);
    }
    assert_eq!(code(&broker, &Connect::v5("flapper"), 1884), 0x8A);
    assert_eq!(code(&broker, &Connect::v311("flapper"), 1884), 5);
    // Neither another tenant's client of this name, nor another client.
    assert_eq!(code(&broker, &Connect::v5("flapper"), 1885), 0);
    assert_eq!(code(&broker, &Connect::v5("steady"), 1884), 0);
    broker.until("the ban ends", || code(&broker, &Connect::v5("flapper"), 1884) == 0);
    assert!(broker.metric("mast_banned_total{kind=\"client_id\"}") >= 2.0);
}
