//! Administration over HTTP against the running broker: what was answered holds, also after a kill; a tenant's token
//! sees that tenant alone; bad input changes nothing and never gives a 5xx.

use mast_tests::{Api, Broker, Client, Connect};
use serde_json::json;

/// A broker whose one listener takes users of every tenant.
fn broker() -> Broker {
    Broker::with(
        "[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n\
         allow_anonymous = false\n",
    )
}

fn with_tenant(api: &Api, name: &str, user: &str) {
    assert_eq!(api.post("/api/v1/tenants", &json!({ "name": name })).ok()["state"], "serving");
    let users = format!("/api/v1/tenants/{name}/users");
    api.post(&users, &json!({ "name": user, "password": "pw" })).ok();
}

fn login(broker: &Broker, user: &str, id: &str) -> Client {
    Connect::v5(id).login(user, "pw").lasting().open(broker)
}

fn refused(broker: &Broker, user: &str, id: &str) -> u8 {
    Connect::v5(id).login(user, "pw").attempt(broker).1.reason()
}

#[test]
fn the_first_token_is_told_once_and_ends_with_the_first_token_that_is_made() {
    let mut broker = broker();
    let first = Api::first(&broker);
    let file = broker.data_dir().join("bootstrap-token");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).expect("the file").permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(broker.log().contains(first.token()) && broker.log().contains("Authorization: Bearer"));
    first.get("/api/v1/tenants").ok();
    broker.crash();
    first.get("/api/v1/tenants").ok();
    let made = first.post("/api/v1/tokens", &json!({ "description": "ops" })).ok();
    let ops = first.with(made["token"].as_str().expect("a token"));
    first.get("/api/v1/tenants").is(401, "token_unknown");
    assert!(!file.exists());
    broker.crash();
    ops.get("/api/v1/tenants").ok();
    assert!(!file.exists(), "a first token is made once in the life of a data directory");
    ops.delete(&format!("/api/v1/tokens/{}", made["id"].as_str().expect("an id"))).is(409, "last_token");
}

#[test]
fn tokens_are_needed_and_their_scope_binds() {
    let broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    with_tenant(&api, "globex", "gus");
    for path in ["/api/v1/tenants", "/api/v1/openapi.json", "/api/v1/tenants/acme/users", "/api/v1/audit"] {
        api.with("").get(path).is(401, "token_missing");
        api.with("mast_wrong").get(path).is(401, "token_unknown");
    }
    let made = api.post("/api/v1/tokens", &json!({ "read_only": true })).ok();
    let reader = api.with(made["token"].as_str().expect("a token"));
    reader.get("/api/v1/tenants/acme/users").ok();
    reader.post("/api/v1/tenants", &json!({ "name": "x" })).is(403, "read_only");
    reader.delete("/api/v1/tenants/acme/users/ann").is(403, "read_only");
    let acme = api.of_tenant("acme");
    assert_eq!(acme.get("/api/v1/tenants").items("name"), ["acme"]);
    assert_eq!(acme.get("/api/v1/tokens").items("tenant"), ["acme"]);
    acme.post("/api/v1/tenants", &json!({ "name": "x" })).is(403, "scope");
    acme.delete("/api/v1/tenants/acme").is(403, "scope");
    // A tenant of others is as good as none, down to the body.
    let _there = login(&broker, "gus", "c1");
    for path in
        ["", "/users", "/users/gus", "/sessions", "/sessions/c1", "/subscriptions", "/retained", "/usage"]
    {
        let foreign = acme.get(&format!("/api/v1/tenants/globex{path}"));
        let missing = acme.get(&format!("/api/v1/tenants/nobody{path}"));
        foreign.is(404, "missing");
        assert_eq!(foreign.text, missing.text, "{path}");
    }
    acme.delete("/api/v1/tenants/globex/users/gus").is(404, "missing");
    acme.post("/api/v1/tokens", &json!({ "tenant": "globex" })).is(404, "missing");
    let own = acme.post("/api/v1/tokens", &json!({})).ok();
    assert_eq!(own["tenant"], "acme", "a tenant's token makes tokens for that tenant");
    let foreign = api.get("/api/v1/audit").ok().to_string();
    assert!(foreign.contains("user/globex/gus") && foreign.contains("user/acme/ann"));
    let own = acme.get("/api/v1/audit").ok().to_string();
    assert!(own.contains("user/acme/ann") && !own.contains("globex"), "{own}");
    assert!(!foreign.contains("argon2") && !foreign.contains("digest"), "no secrets in the audit");
    let short = api.post("/api/v1/tokens", &json!({ "expires_in": 1 })).ok();
    let short = api.with(short["token"].as_str().expect("a token"));
    broker.until("the token to expire", || short.get("/api/v1/tenants").status == 401);
}

#[test]
fn tenants_and_users_come_and_go_while_running_and_survive_a_kill() {
    let mut broker = broker();
    let api = Api::first(&broker);
    assert!(refused(&broker, "ann", "c1") >= 0x80);
    with_tenant(&api, "acme", "ann");
    let mut ann = login(&broker, "ann", "c1");
    assert!(ann.subscribe("t", 1) < 0x80);
    assert!(ann.publish("t", "x", 1) < 0x80);
    assert_eq!(ann.message().text(), "x");
    broker.crash();
    let mut ann = login(&broker, "ann", "c1");
    assert!(ann.connack().session_present(), "the session of a tenant of the store is restored");
    let users = "/api/v1/tenants/acme/users";
    assert_eq!(api.get(users).items("name"), ["ann"]);
    assert!(!api.get(users).text.contains("argon2"), "hashes are not told");
    // Ready hashes, patterns, and what cannot be used.
    let hash = "$2b$04$abcdefghijklmnopqrstuuyMIeC0V6N3k5qcyQl0h1YtEOL8hbnyu";
    api.post(users, &json!({ "name": "bea", "hash": hash })).ok();
    api.post(users, &json!({ "name": "cleo", "password": "pw", "client_id": "%u-*" })).ok();
    login(&broker, "cleo", "cleo-1").ping();
    assert_eq!(refused(&broker, "cleo", "c1"), 0x85);
    api.patch(&format!("{users}/ann"), &json!({ "enabled": false })).ok();
    assert_eq!(refused(&broker, "ann", "c2"), 0x86);
    api.patch(&format!("{users}/ann"), &json!({ "enabled": true, "password": "new" })).ok();
    assert_eq!(refused(&broker, "ann", "c2"), 0x86);
    Connect::v5("c2").login("ann", "new").open(&broker).ping();
    ann.ping();
    api.delete(&format!("{users}/ann")).ok();
    broker.crash();
    assert!(
        Connect::v5("c2").login("ann", "new").attempt(&broker).1.reason() >= 0x80,
        "deleted stays deleted"
    );
    assert_eq!(api.get(users).items("name"), ["bea", "cleo"]);
}

#[test]
fn an_update_that_read_an_older_state_is_refused() {
    let broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    let path = "/api/v1/tenants/acme/users/ann";
    let read = api.get(path);
    let revision = read.ok()["revision"].to_string();
    assert!(read.headers.contains(&format!("etag: \"{revision}\"")), "{}", read.headers);
    let change = |text: &str| {
        let body = json!({ "attributes": { "site": text } }).to_string();
        api.send("PATCH", path, &format!("If-Match: \"{revision}\"\r\n"), body.as_bytes())
    };
    change("a").ok();
    change("b").is(412, "changed_meanwhile");
    assert_eq!(api.get(path).ok()["attributes"]["site"], "a");
}

#[test]
fn what_the_file_sets_the_api_does_not_change() {
    let mut broker = Broker::prepared();
    broker.add_user("ann", "pw");
    broker.configure("[tenant.filed]\npassword_file = \"{dir}/users\"\n");
    broker.launch();
    let api = Api::first(&broker);
    assert_eq!(api.get("/api/v1/tenants/filed").ok()["owner"], "file");
    api.post("/api/v1/tenants", &json!({ "name": "filed" })).is(409, "exists");
    let refused = api.delete("/api/v1/tenants/filed");
    refused.is(409, "owned_by_file");
    assert!(refused.text.contains("[tenant.filed]") && refused.text.contains("mast.toml"), "{refused:?}");
    let refused = api.post("/api/v1/tenants/filed/users", &json!({ "name": "bob", "password": "x" }));
    refused.is(409, "owned_by_file");
    assert!(refused.text.contains("tenant.filed.password_file"), "{refused:?}");
    // The default tenant has no section: its users are nobody's yet.
    api.post("/api/v1/tenants/default/users", &json!({ "name": "bob", "password": "pw" })).ok();
    Connect::v5("c").login("bob", "pw").open(&broker).ping();
}

#[test]
fn bad_input_is_refused_with_its_reason_and_changes_nothing() {
    let broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    let long = "x".repeat(65);
    for name in ["", "a b", "ü", "_sys", "system", "_other", long.as_str()] {
        api.post("/api/v1/tenants", &json!({ "name": name })).is(422, "invalid");
    }
    api.post("/api/v1/tenants", &json!({ "name": "acme" })).is(409, "exists");
    api.post("/api/v1/tenants", &json!({ "name": "b", "colour": 1 })).is(400, "body");
    api.send("POST", "/api/v1/tenants", "", b"{").is(400, "body");
    api.send("POST", "/api/v1/tenants", "", b"\xff\xfe").is(400, "body");
    api.send("POST", "/api/v1/tenants", "", &vec![b' '; 2 << 20]).is(413, "body_too_large");
    api.get("/api/v1/tenants?limit=0").is(422, "invalid");
    api.get("/api/v1/tenants?limit=x").is(400, "query");
    api.get("/api/v1/tenants?colour=red").is(400, "query");
    api.get("/api/v1/tenants/acme/sessions?after=zzz").is(422, "invalid");
    api.get("/api/v1/tenants/%ff").is(400, "path");
    api.send("PUT", "/api/v1/tenants", "", b"{}").is(405, "method");
    api.get("/api/v1/nothing").is(404, "no_such_path");
    api.get("/api/v1/tenants/acme/retained?filter=a%23").is(422, "invalid");
    api.get("/api/v1/tenants/acme/retained/message?topic=%23").is(422, "invalid");
    let users = "/api/v1/tenants/acme/users";
    let bad = [
        json!({ "name": "b" }),
        json!({ "name": "", "password": "x" }),
        json!({ "name": "b", "password": "" }),
        json!({ "name": "b", "hash": "plain" }),
        json!({ "name": "b", "password": "x", "hash": "$2b$04$" }),
        json!({ "name": "b\u{0}c", "password": "x" }),
        json!({ "name": "b*", "password": "x", "client_id": "%u" }),
        json!({ "name": "b", "password": "x", "attributes": { "site": "a/#" } }),
    ];
    for body in bad {
        api.post(users, &body).is(422, "invalid");
    }
    assert_eq!(api.get("/api/v1/tenants").items("name"), ["acme", "default"]);
    assert_eq!(api.get(users).items("name"), ["ann"]);
}

#[test]
fn sessions_are_listed_read_disconnected_and_deleted() {
    let broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    with_tenant(&api, "globex", "gus");
    let mut clients: Vec<Client> = (0..5).map(|n| login(&broker, "ann", &format!("c{n}"))).collect();
    let _foreign = login(&broker, "gus", "c0");
    clients.remove(4).disconnect();
    let base = "/api/v1/tenants/acme/sessions";
    broker.until("a session without its client", || {
        api.get(&format!("{base}?connected=false")).items("client") == ["c4"]
    });
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("{base}?limit=2{after}"));
        all.extend(page.items("client"));
        match page.json()["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    all.sort_unstable();
    assert_eq!(all, ["c0", "c1", "c2", "c3", "c4"]);
    assert_eq!(api.get(&format!("{base}?client_prefix=c3")).items("client"), ["c3"]);
    assert_eq!(api.get(&format!("{base}?user=gus")).items("client"), Vec::<String>::new());
    let client = &mut clients[0];
    assert!(client.subscribe("a/+", 1) < 0x80 && client.subscribe("b", 0) < 0x80);
    let one = api.get(&format!("{base}/c0")).ok();
    assert_eq!(
        (&one["user"], &one["connected"], &one["subscriptions"]),
        (&json!("ann"), &json!(true), &json!(2))
    );
    assert!(one["connection"]["address"].as_str().is_some_and(|a| a.starts_with("127.")), "{one}");
    assert_eq!(api.get(&format!("{base}/c0/subscriptions")).items("filter"), ["a/+", "b"]);
    assert_eq!(api.get("/api/v1/tenants/acme/subscriptions").items("filter"), ["a/+", "b"]);
    let first = api.get("/api/v1/tenants/acme/subscriptions?limit=1");
    assert_eq!(first.items("filter"), ["a/+"]);
    let next = first.json()["next"].as_str().expect("more").replace('+', "%2B");
    let second = api.get(&format!("/api/v1/tenants/acme/subscriptions?limit=1&after={next}"));
    assert_eq!(second.items("filter"), ["b"]);
    api.delete(&format!("{base}/c0")).is(409, "connected");
    api.send("POST", &format!("{base}/c0/disconnect"), "", b"").ok();
    clients[0].expect_end(0x98);
    broker.until("the session to be let go", || api.delete(&format!("{base}/c0")).status == 204);
    api.get(&format!("{base}/c0")).is(404, "missing");
    assert_eq!(api.get("/api/v1/tenants/globex/sessions").items("client"), ["c0"]);
    let usage = api.get("/api/v1/tenants/acme/usage").ok();
    assert_eq!((&usage["connections"], &usage["sessions"]), (&json!(3), &json!(4)));
}

#[test]
fn retained_messages_are_listed_read_and_deleted() {
    let mut broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    with_tenant(&api, "globex", "gus");
    for (user, text) in [("ann", "of acme"), ("gus", "of globex")] {
        let mut client = login(&broker, user, "p");
        for topic in ["r/1", "r/2", "s"] {
            assert!(client.retain(topic, text, 1) < 0x80);
        }
    }
    let base = "/api/v1/tenants/acme/retained";
    assert_eq!(api.get(&format!("{base}?filter=r/%2B&limit=1")).items("topic"), ["r/1"]);
    assert_eq!(api.get(&format!("{base}?filter=r/%2B&limit=1&after=r/1")).items("topic"), ["r/2"]);
    let one = api.get(&format!("{base}/message?topic=r/1")).ok();
    assert_eq!((&one["payload"], &one["size"]), (&json!("b2YgYWNtZQ=="), &json!(7)));
    api.delete(&format!("{base}/message?topic=r/1")).ok();
    api.delete(&format!("{base}/message?topic=r/1")).is(404, "missing");
    broker.crash();
    assert_eq!(api.get(base).items("topic"), ["r/2", "s"]);
    assert_eq!(api.get("/api/v1/tenants/globex/retained").items("topic"), ["r/1", "r/2", "s"]);
}

#[test]
fn the_description_of_the_api_needs_a_token() {
    let broker = broker();
    let api = Api::first(&broker);
    let document = api.get("/api/v1/openapi.json").ok();
    assert!(document["openapi"].as_str().is_some_and(|v| v.starts_with("3.1")));
    assert!(document["paths"]["/api/v1/tenants/{tenant}/users"]["post"].is_object());
}

#[test]
fn rules_are_in_force_when_the_answer_comes_and_denials_name_them() {
    let mut broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    with_tenant(&api, "globex", "gus");
    let rules = "/api/v1/tenants/acme/rules";
    assert_eq!(api.get(rules).ok(), json!({ "rules": [], "revision": 0 }));
    let list = json!({ "rules": [
        { "name": "own", "effect": "allow", "action": "all", "topics": ["d/%u/#", "s/${site}/#"] },
        { "name": "rest", "effect": "deny", "action": "all" },
    ] });
    let mut ann = login(&broker, "ann", "c1");
    assert!(ann.publish("other", "x", 1) < 0x80);
    let revision = api.put(rules, &list).ok()["revision"].to_string();
    assert_eq!(ann.publish("other", "x", 1), 0x87);
    assert!(ann.publish("d/ann/x", "x", 1) < 0x80);
    assert!(
        login(&broker, "gus", "c1").publish("other", "x", 1) < 0x80,
        "of the other tenant nothing changed"
    );
    let denied = api.get("/api/v1/tenants/acme/denied");
    assert_eq!((denied.items("topic"), denied.items("client")), (vec!["other".into()], vec!["c1".into()]));
    assert!(denied.text.contains("rest"), "{denied:?}");
    assert!(api.get("/api/v1/tenants/globex/denied").items("topic").is_empty());
    broker.crash();
    let mut ann = login(&broker, "ann", "c1");
    assert_eq!(ann.publish("other", "x", 1), 0x87, "rules survive a kill");
    // Attributes and superusers.
    assert_eq!(ann.publish("s/north/x", "x", 1), 0x87);
    api.patch("/api/v1/tenants/acme/users/ann", &json!({ "attributes": { "site": "north" } })).ok();
    let mut ann = login(&broker, "ann", "c1");
    assert!(ann.publish("s/north/x", "x", 1) < 0x80);
    api.patch("/api/v1/tenants/acme/users/ann", &json!({ "superuser": true })).ok();
    let mut ann = login(&broker, "ann", "c1");
    assert!(ann.publish("other", "x", 1) < 0x80);
    // What cannot be used changes nothing.
    let shadow = json!({ "rules": [
        { "name": "all", "effect": "allow", "action": "all" },
        { "name": "late", "effect": "deny", "action": "publish" },
    ] });
    api.put(rules, &shadow).is(422, "invalid");
    api.put(
        rules,
        &json!({ "rules": [{ "name": "x", "effect": "allow", "action": "all", "topics": ["a/#/b"] }] }),
    )
    .is(422, "invalid");
    api.put(rules, &json!({ "rules": [{ "name": "x", "effect": "maybe", "action": "all" }] }))
        .is(400, "body");
    assert_eq!(api.get(rules).ok()["revision"].to_string(), revision);
    let acme = api.of_tenant("acme");
    acme.get("/api/v1/rules").is(403, "scope");
    acme.get("/api/v1/tenants/globex/rules").is(404, "missing");
    // Rules of the node come first, and bind superusers too where they deny.
    let node =
        json!({ "rules": [{ "name": "no-x", "effect": "deny", "action": "publish", "topics": ["x/#"] }] });
    api.put("/api/v1/rules", &node).ok();
    assert_eq!(ann.publish("x/1", "x", 1), 0x87);
    api.delete("/api/v1/rules").ok();
    assert!(ann.publish("x/1", "x", 1) < 0x80);
    api.delete(rules).ok();
    api.delete(rules).is(404, "missing");
}

#[test]
fn listeners_open_and_close_while_running_and_are_there_after_a_kill() {
    let mut broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    assert_eq!(api.get("/api/v1/listeners").items("owner"), ["file"]);
    api.delete("/api/v1/listeners/main").is(409, "owned_by_file");
    let ip = broker.address().ip().to_string();
    let door = |name: &str, port: u16| json!({ "name": name, "kind": "mqtt", "bind": [ip], "port": port, "tenant": "acme", "allow_anonymous": true });
    let open = |broker: &Broker| std::net::TcpStream::connect(broker.at(1999)).is_ok();
    assert!(!open(&broker));
    api.post("/api/v1/listeners", &door("extra", 1999)).ok();
    api.post("/api/v1/listeners", &door("extra", 1998)).is(409, "exists");
    api.post("/api/v1/listeners", &door("main", 1998)).is(409, "exists");
    api.post("/api/v1/listeners", &door("taken", 1883)).is(409, "cannot_listen");
    api.post("/api/v1/listeners", &door("none", 0)).is(422, "invalid");
    let mut missing = door("tls", 1997);
    missing["tls"] = json!({ "cert": "/nowhere.crt", "key": "/nowhere.key" });
    api.post("/api/v1/listeners", &missing).is(422, "invalid");
    assert!(open(&broker));
    broker.crash();
    let stream = std::net::TcpStream::connect(broker.at(1999)).expect("the listener is there again");
    let mut anonymous = Connect::v5("anon").open_on(stream);
    anonymous.ping();
    assert_eq!(api.get("/api/v1/tenants/acme/sessions").items("client"), ["anon"]);
    assert_eq!(api.get("/api/v1/listeners").items("owner"), ["store", "file"]);
    let on = api.get("/api/v1/authenticators").ok();
    assert!(
        on["items"]
            .as_array()
            .is_some_and(|all| all.iter().any(|a| a["name"] == "password" && a["on"] == true))
    );
    api.delete("/api/v1/listeners/extra").ok();
    broker.until("the listener to be closed", || !open(&broker));
    anonymous.ping();
    api.delete("/api/v1/listeners/extra").is(404, "missing");
}

#[test]
fn limits_are_set_by_name_hold_at_once_and_survive_a_kill() {
    let mut broker = broker();
    let api = Api::first(&broker);
    with_tenant(&api, "acme", "ann");
    with_tenant(&api, "globex", "gus");
    let base = "/api/v1/tenants/acme/limits";
    let names = api.get(base).items("name");
    assert!(names.iter().any(|n| n == "connections"), "{names:?}");
    let limit = format!("{base}/connections");
    assert_eq!(api.get(&limit).ok()["value"], serde_json::Value::Null);
    api.put(&limit, &json!({ "value": 1 })).ok();
    let mut ann = login(&broker, "ann", "c1");
    assert_eq!(refused(&broker, "ann", "c2"), 0x97);
    login(&broker, "gus", "c2").ping();
    broker.crash();
    let mut again = login(&broker, "ann", "c1");
    assert_eq!(refused(&broker, "ann", "c2"), 0x97);
    api.put(&limit, &json!({ "value": 1, "observe": true })).ok();
    login(&broker, "ann", "c2").ping();
    again.ping();
    api.put(&limit, &json!({ "value": -1 })).is(400, "body");
    api.put(&format!("{base}/max_qos"), &json!({ "value": 3 })).is(422, "invalid");
    api.put(&format!("{base}/nothing"), &json!({ "value": 3 })).is(404, "missing");
    api.of_tenant("acme").put(&limit, &json!({ "value": 9 })).is(403, "scope");
    api.delete(&limit).ok();
    api.delete(&limit).is(404, "missing");
    drop(std::mem::replace(&mut ann, again));
}

#[test]
fn the_metrics_of_a_tenant_are_for_its_token_and_tenants_beyond_the_bound_are_summed_up() {
    let broker = Broker::with("[limits]\nmax_tenant_labels = 2\n");
    let api = Api::first(&broker);
    for name in ["acme", "globex", "initech"] {
        api.post("/api/v1/tenants", &json!({ "name": name })).ok();
    }
    let own = api.of_tenant("initech").get("/metrics");
    assert_eq!(own.status, 200);
    assert!(own.text.contains("mast_tenant_connections{tenant=\"initech\"} 0"), "{}", own.text);
    assert!(!own.text.contains("acme") && !own.text.contains("mast_connects_total"), "{}", own.text);
    broker.until("the counters of all tenants", || {
        let text = broker.http("/metrics").unwrap_or_default().1;
        text.contains("tenant=\"acme\"")
            && text.contains("tenant=\"_other\"")
            && !text.contains("tenant=\"initech\"")
    });
    assert!(api.get("/metrics").text.contains("tenant=\"_other\""), "a global token sees all");
}
