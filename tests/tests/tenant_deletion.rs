//! Deleting a tenant: its clients go, everything that was kept of it goes, the others notice nothing, and whoever gets
//! the name next starts empty; also when the broker is killed in the middle.

use mast_tests::{Api, Broker, Client, Connect, Property};
use serde_json::json;

fn broker() -> Broker {
    Broker::with(
        "[node]\nshards = 2\n[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n\
         [listener.main]\nbind = [\"{ip}\"]\nport = 1883\nallow_anonymous = false\n",
    )
}

fn make(api: &Api, name: &str, user: &str) {
    api.post("/api/v1/tenants", &json!({ "name": name })).ok();
    api.post(&format!("/api/v1/tenants/{name}/users"), &json!({ "name": user, "password": "pw" })).ok();
}

fn login(broker: &Broker, user: &str, id: &str) -> Client {
    Connect::v5(id).login(user, "pw").lasting().open(broker)
}

/// Sessions online and offline, subscriptions plain and shared, queued and retained messages, a will that waits.
fn fill(broker: &Broker, user: &str) -> Client {
    let mut away = login(broker, user, "away");
    assert!(away.subscribe("q/#", 1) < 0x80 && away.subscribe("$share/g/s/#", 1) < 0x80);
    away.disconnect();
    let delay = Property::WillDelay(3600);
    let will = Connect::v5("dying").login(user, "pw").lasting();
    let will = will.will_with("q/will", "dead", 1, true, &[delay]);
    will.open(broker).reset();
    let mut online = login(broker, user, "online");
    assert!(online.subscribe("#", 1) < 0x80);
    for n in 0..20 {
        assert!(online.publish(&format!("q/{n}"), "queued", 1) < 0x80);
        assert!(online.publish(&format!("s/{n}"), "shared", 1) < 0x80);
        assert!(online.retain(&format!("r/{n}"), "kept", 1) < 0x80);
    }
    online
}

fn gone(broker: &Broker, api: &Api, name: &str) {
    let path = format!("/api/v1/tenants/{name}");
    broker.until("the tenant to be gone", || api.get(&path).status == 404);
}

/// A tenant made anew has nothing of the one before, though clients and users have the same names.
fn assert_empty(broker: &Broker, api: &Api, name: &str, user: &str) {
    assert!(Connect::v5("away").login(user, "pw").attempt(broker).1.reason() >= 0x80, "the user is gone");
    make(api, name, user);
    for path in ["sessions", "subscriptions", "retained"] {
        let answer = api.get(&format!("/api/v1/tenants/{name}/{path}"));
        assert_eq!(answer.ok()["items"], json!([]), "{path}");
    }
    let usage = api.get(&format!("/api/v1/tenants/{name}/usage")).ok();
    for count in ["connections", "sessions", "subscriptions", "log_messages", "published"] {
        assert_eq!(usage[count], 0, "{count} in {usage}");
    }
    let mut away = login(broker, user, "away");
    assert!(!away.connack().session_present());
    assert!(away.subscribe("#", 1) < 0x80);
    away.assert_quiet();
}

#[test]
fn a_deleted_tenant_leaves_nothing_and_others_notice_nothing() {
    let broker = broker();
    let api = Api::first(&broker);
    make(&api, "acme", "ann");
    make(&api, "globex", "gus");
    let acme = api.of_tenant("acme");
    let mut gone_client = fill(&broker, "ann");
    let mut stays = fill(&broker, "gus");
    stays.messages(60);
    let answer = api.delete("/api/v1/tenants/acme");
    assert_eq!((answer.status, answer.ok()["state"].as_str()), (202, Some("ending")));
    gone_client.waiting();
    gone_client.expect_end(0x98);
    gone(&broker, &api, "acme");
    acme.get("/api/v1/tenants").is(401, "token_unknown");
    stays.ping();
    stays.assert_quiet();
    assert_eq!(api.get("/api/v1/tenants/globex/sessions").items("client").len(), 3);
    assert_eq!(api.get("/api/v1/tenants/globex/retained?filter=r/%23").items("topic").len(), 20);
    assert_empty(&broker, &api, "acme", "ann");
    let mut away = login(&broker, "gus", "away");
    assert!(away.connack().session_present());
    // The backlog, and its copies for the group whose other members are none.
    assert_eq!(away.messages(40).len(), 40);
}

#[test]
fn a_kill_in_the_middle_only_makes_the_deletion_begin_again() {
    for pause in [0, 2, 10, 40] {
        let mut broker = broker();
        let api = Api::first(&broker);
        make(&api, "acme", "ann");
        drop(fill(&broker, "ann"));
        assert_eq!(api.delete("/api/v1/tenants/acme").status, 202);
        std::thread::sleep(std::time::Duration::from_millis(pause));
        broker.crash();
        gone(&broker, &api, "acme");
        assert_empty(&broker, &api, "acme", "ann");
        broker.crash();
        let mut online = login(&broker, "ann", "online");
        assert!(online.subscribe("#", 1) < 0x80);
        online.assert_quiet();
    }
}
