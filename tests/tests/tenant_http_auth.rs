//! An HTTP server that says who a client is: in mast's own wire and in that of EMQX; whatever goes wrong, nobody is let
//! in.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mast_tests::{
    Broker, Connect,
    certs::Authority,
    http::{Answer, Request, Server},
    ws,
};
use serde_json::{Value, json};

const USERS: &str = "[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n";

/// A broker with two tenants that asks a server; `section` is more of `[http_auth]`, `more` other sections.
fn broker(url: &str, section: &str, more: &str) -> Broker {
    let mut broker = Broker::prepared();
    broker.add_user("ann", "pw");
    broker.configure(&format!(
        "[auth]\npassword_file = \"{{dir}}/users\"\n[tenant.acme]\n[tenant.globex]\n\
         [http_auth]\nurl = \"{url}\"\n{section}\n{USERS}{more}\n\
         [listener.main]\nbind = [\"{{ip}}\"]\nport = 1883\nauthenticators = [\"http\", \"password\"]\n\
         [listener.acme]\nbind = [\"{{ip}}\"]\nport = 1884\ntenant = \"acme\"\nauthenticators = [\"http\"]\n"
    ));
    broker.launch();
    broker
}

fn body(request: &Request) -> Value {
    serde_json::from_str(&request.body).expect("JSON")
}

/// Lets in whoever has the password `good`, as of the tenant that is named before the dot of the user's name.
fn by_name(request: &Request) -> Answer {
    let asked = body(request);
    let user = asked["username"].as_str().unwrap_or_default();
    let tenant = user.split('.').next().unwrap_or_default();
    Answer::ok(match asked["password"].as_str() {
        Some("good") => json!({ "result": "allow", "tenant": tenant, "client_id": "dev-*" }),
        Some("other") => json!({ "result": "ignore" }),
        _ if user == "ann" => json!({ "result": "ignore" }),
        _ => json!({ "result": "deny" }),
    })
}

#[test]
fn a_server_names_the_tenant_and_is_told_what_is_known_of_the_client() {
    let server = Server::start(by_name);
    let broker = broker(&server.url("/mqtt?x=1"), "headers = [\"X-Key: abc\"]", "");
    let mut a = Connect::v5("dev-1").login("acme.u", "good").open(&broker);
    let mut g = Connect::v311("dev-1").login("globex.u", "good").open(&broker);
    assert!(g.subscribe("#", 1) < 0x80);
    assert!(a.publish("t", "of acme", 1) < 0x80);
    g.assert_quiet();
    let seen = server.seen();
    assert!(seen[0].line.starts_with("POST /mqtt?x=1 "), "{:?}", seen[0]);
    assert!(seen[0].head.contains("x-key: abc"), "{:?}", seen[0]);
    let source = body(&seen[0])["remote_addr"].clone();
    assert!(source.as_str().is_some_and(|s| s.starts_with("127.")), "{source}");
    let expected = json!({
        "client_id": "dev-1", "username": "acme.u", "password": "good", "remote_addr": source,
        "protocol_version": "5", "clean_start": true, "listener": "main", "certificate_cn": null,
    });
    assert_eq!(body(&seen[0]), expected);
    assert_eq!(body(&seen[1])["protocol_version"], "3.1.1");
    // What the server says of client ids and tenants holds.
    Connect::v5("x-1").login("acme.u", "good").expect_refusal(&broker, 0x85);
    Connect::v5("dev-1").login("initech.u", "good").expect_refusal(&broker, 0x87);
    let at_door = |user: &str| Connect::v5("dev-2").login(user, "good").attempt_on(ws::tcp(broker.at(1884)));
    assert_eq!((at_door("acme.u").1.reason(), at_door("globex.u").1.reason()), (0, 0x87));
}

#[test]
fn a_denial_refuses_and_ignorance_asks_the_next_of_the_chain() {
    let server = Server::start(by_name);
    let broker = broker(&server.url("/"), "", "");
    Connect::v5("c").login("acme.u", "bad").expect_refusal(&broker, 0x86);
    Connect::v311("c").login("acme.u", "bad").expect_refusal(&broker, 4);
    // The password file knows this one.
    Connect::v5("c").login("ann", "pw").open(&broker).ping();
    Connect::v5("c").login("ann", "wrong").expect_refusal(&broker, 0x86);
    // Nobody knows this one.
    Connect::v5("c").login("eve", "other").expect_refusal(&broker, 0x86);
    assert_eq!(broker.metric("mast_http_auth_total{reason=\"refused\"}"), 2.0);
}

#[test]
fn the_wire_of_emqx_is_spoken_as_well() {
    let server = Server::start(|request| {
        let asked = body(request);
        Answer::ok(match asked["username"].as_str() {
            Some("super") => {
                json!({ "result": "allow", "is_superuser": true, "client_attrs": { "tenant": "acme" } })
            }
            Some("plain") => {
                json!({ "result": "allow", "client_attrs": { "tenant": "acme", "site": "x" }, "acl": [] })
            }
            Some("none") => json!({ "result": "allow", "is_superuser": false }),
            Some("empty") => return Answer::with(204, ""),
            _ => json!({ "result": "deny" }),
        })
    });
    let rules = "[[rule]]\neffect = \"allow\"\ntopics = [\"site/${site}\"]\n[[tenant.acme.rule]]\neffect = \"deny\"\n";
    let broker = broker(&server.url("/"), "wire = \"emqx\"", rules);
    let mut c = Connect::v5("c").login("super", "x").open(&broker);
    assert!(c.publish("anything", "x", 1) < 0x80, "rules of the tenant don't apply");
    let mut c = Connect::v5("d").login("plain", "x").open(&broker);
    assert!(c.publish("site/x", "x", 1) < 0x80);
    assert_eq!(c.publish("site/y", "x", 1), 0x87);
    // No tenant is named, and the listener has none.
    Connect::v5("e").login("none", "x").expect_refusal(&broker, 0x87);
    Connect::v5("e").login("empty", "x").expect_refusal(&broker, 0x87);
    // Each with an id of its own: a session is its user's alone.
    let at_door = |user: &str| Connect::v5(user).login(user, "x").attempt_on(ws::tcp(broker.at(1884)));
    assert_eq!((at_door("none").1.reason(), at_door("empty").1.reason()), (0, 0));
    let asked = body(&server.seen()[0]);
    assert_eq!((&asked["clientid"], &asked["proto_ver"]), (&json!("c"), &json!(5)));
}

#[test]
fn whatever_goes_wrong_at_the_server_lets_nobody_in() {
    let server = Server::start(|request| match body(request)["username"].as_str().unwrap_or_default() {
        "error" => Answer::with(500, json!({ "result": "allow", "tenant": "acme" })),
        "moved" => Answer::with(302, json!({ "result": "allow", "tenant": "acme" })),
        "text" => Answer::ok("allow"),
        "cut" => Answer { status: None, ..Answer::ok("") },
        "long" => Answer::ok(format!("{{\"result\":\"allow\",\"x\":\"{}\"}}", "x".repeat(100_000))),
        "tenant" => Answer::ok(json!({ "result": "allow", "tenant": "a/b" })),
        "expired" => Answer::ok(json!({ "result": "allow", "tenant": "acme", "expires_at": 1 })),
        "late" => Answer {
            after: Duration::from_secs(2),
            ..Answer::ok(json!({ "result": "allow", "tenant": "acme" }))
        },
        _ => Answer::ok(json!({ "result": "allow", "tenant": "acme" })),
    });
    let broker = broker(&server.url("/"), "timeout = \"500ms\"", "");
    for user in ["error", "moved", "text", "cut", "long", "tenant", "expired", "late"] {
        println!("{user}");
        Connect::v5("c").login(user, "x").expect_refusal(&broker, 0x88);
        Connect::v311("c").login(user, "x").expect_refusal(&broker, 3);
    }
    assert_eq!(broker.metric("mast_http_auth_total{reason=\"unavailable\"}"), 16.0);
    Connect::v5("c").login("fine", "x").open(&broker).ping();
    drop(server);
    // Remembered; another one is not.
    Connect::v5("c").login("fine", "x").open(&broker).ping();
    Connect::v5("c").login("finer", "x").expect_refusal(&broker, 0x88);
}

#[test]
fn only_a_yes_to_exactly_the_same_is_remembered() {
    let (denies, server) = {
        let denies = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&denies);
        let server = Server::start(move |_| {
            let result = if now.load(Ordering::SeqCst) { "deny" } else { "allow" };
            Answer::ok(json!({ "result": result, "tenant": "acme" }))
        });
        (denies, server)
    };
    let broker = broker(&server.url("/"), "cache_ttl = \"10m\"", "");
    let good = || Connect::v5("c").login("u", "p");
    good().open(&broker).ping();
    good().open(&broker).ping();
    assert_eq!(server.seen().len(), 1);
    assert_eq!(broker.metric("mast_http_auth_total{reason=\"cached\"}"), 1.0);
    // Everything that is told counts.
    Connect::v5("c").login("u", "q").open(&broker).ping();
    Connect::v5("c").login("v", "p").open(&broker).ping();
    Connect::v5("d").login("u", "p").open(&broker).ping();
    Connect::v311("c").login("u", "p").open(&broker).ping();
    good().resume().open(&broker).ping();
    Connect::v5("c").login("u", "p").attempt_on(ws::tcp(broker.at(1884)));
    assert_eq!(server.seen().len(), 7);
    // A denial is not remembered, nor does it undo what was.
    denies.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        Connect::v5("e").login("u", "p").expect_refusal(&broker, 0x86);
    }
    assert_eq!(server.seen().len(), 9);
    good().open(&broker).ping();
    // A reload forgets.
    assert!(broker.reload());
    good().expect_refusal(&broker, 0x86);
}

#[test]
fn the_server_is_asked_over_tls_if_its_authority_is_known() {
    let (authority, stranger) = (Authority::new("ca"), Authority::new("other"));
    let answers = |_: &Request| Answer::ok(json!({ "result": "allow", "tenant": "acme" }));
    let ip = std::net::Ipv4Addr::LOCALHOST.into();
    let good = Server::start_tls(&authority.server(ip), answers);
    let bad = Server::start_tls(&stranger.server(ip), answers);
    for (server, code) in [(&good, 0), (&bad, 0x88)] {
        let mut broker = Broker::prepared();
        broker.write("ca.crt", &authority.pem);
        broker.configure(&format!(
            "[tenant.acme]\n[http_auth]\nurl = \"{}\"\nca_file = \"{{dir}}/ca.crt\"\n{USERS}\
             [listener.main]\nbind = [\"{{ip}}\"]\nport = 1883\n",
            server.url("/")
        ));
        broker.launch();
        assert_eq!(Connect::v5("c").login("u", "p").attempt(&broker).1.reason(), code);
    }
}

#[test]
fn the_connection_ends_with_what_the_server_said() {
    let server = Server::start(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        Answer::ok(json!({ "result": "allow", "tenant": "acme", "expires_at": now.as_secs() + 3 }))
    });
    let broker = broker(&server.url("/"), "", "");
    let mut c = Connect::v5("c").login("u", "p").open(&broker);
    c.ping();
    c.expect_end(0x87);
}
