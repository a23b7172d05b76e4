//! What went wrong with tenants in other brokers, restated for this one: each test is named for the incident that it
//! rules out, over TCP and HTTP against the built binary.

use mast_tests::{Api, Broker, Client, Connect, Version};
use serde_json::json;

/// A broker whose tenants are made by the API, with a tenant `acme` (user ann) and one `globex` (users ann and gus).
fn broker() -> (Broker, Api) {
    let broker = Broker::with(
        "[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n\
         [listener.acme]\nbind = [\"{ip}\"]\nport = 1883\ntenant = \"acme\"\nallow_anonymous = false\n\
         [listener.globex]\nbind = [\"{ip}\"]\nport = 1884\ntenant = \"globex\"\nallow_anonymous = false\n\
         [tenant.acme]\n[tenant.globex]\n",
    );
    let api = Api::first(&broker);
    for (tenant, user) in [("acme", "ann"), ("globex", "ann"), ("globex", "gus")] {
        let users = format!("/api/v1/tenants/{tenant}/users");
        api.post(&users, &json!({ "name": user, "password": tenant })).ok();
    }
    (broker, api)
}

fn acme(broker: &Broker, connect: Connect) -> Client {
    connect.login("ann", "acme").open(broker)
}

fn globex(broker: &Broker, user: &str, connect: Connect) -> Client {
    connect.login(user, "globex").open_on(mast_tests::ws::tcp(broker.at(1884)))
}

#[test]
fn incident_any_tenant_could_kick_or_hijack_a_session_by_its_client_id() {
    let (broker, api) = broker();
    let mut victim = acme(&broker, Connect::v5("device").lasting());
    assert!(victim.subscribe("t", 1) < 0x80);
    for version in [Version::V311, Version::V5] {
        for connect in [Connect::new(version, "device"), Connect::new(version, "device").lasting()] {
            let thief = globex(&broker, "ann", connect);
            assert!(!thief.connack().session_present());
            thief.disconnect();
        }
    }
    let token = api.of_tenant("globex");
    token.post("/api/v1/tenants/acme/sessions/device/disconnect", &json!({})).is(404, "missing");
    token.delete("/api/v1/tenants/acme/sessions/device").is(404, "missing");
    victim.ping();
    victim.disconnect();
    assert!(acme(&broker, Connect::v5("device").lasting()).connack().session_present());
}

#[test]
fn incident_users_rules_and_counters_of_a_deleted_tenant_came_back_with_its_name() {
    let broker = Broker::with(
        "[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n\
         allow_anonymous = false\n",
    );
    let api = Api::first(&broker);
    let make = || api.post("/api/v1/tenants", &json!({ "name": "fleet" })).ok();
    let user = |name: &str| {
        api.post("/api/v1/tenants/fleet/users", &json!({ "name": name, "password": "pw" })).ok();
        Connect::v5("c").login(name, "pw").lasting().open(&broker)
    };
    make();
    let rules = json!({ "rules": [
        { "name": "locked", "effect": "deny", "action": "publish", "topics": ["locked/#"] },
        { "name": "rest", "effect": "allow", "action": "all" },
    ] });
    api.put("/api/v1/tenants/fleet/rules", &rules).ok();
    let mut old = user("old");
    assert_eq!(old.publish("locked/x", "x", 1), 0x87);
    assert!(old.retain("kept", "x", 1) < 0x80);
    let token = api.of_tenant("fleet");
    api.delete("/api/v1/tenants/fleet");
    broker.until("the tenant to be gone", || api.get("/api/v1/tenants/fleet").status == 404);
    token.get("/api/v1/tenants/fleet").is(401, "token_unknown");
    make();
    assert!(Connect::v5("c").login("old", "pw").attempt(&broker).1.reason() >= 0x80);
    let mut new = user("new");
    assert!(!new.connack().session_present());
    assert!(new.publish("locked/x", "x", 1) < 0x80, "the rules are gone");
    assert!(new.subscribe("#", 1) < 0x80);
    new.assert_quiet();
    assert!(api.get("/api/v1/tenants/fleet/denied").items("topic").is_empty());
    assert_eq!(api.get("/api/v1/tenants/fleet/users").items("name"), ["new"]);
}

#[test]
fn incident_an_administrator_of_one_tenant_read_the_metrics_of_others() {
    let (broker, api) = broker();
    let (_a, _g) = (acme(&broker, Connect::v5("c")), globex(&broker, "gus", Connect::v5("c")));
    let token = api.of_tenant("acme");
    let own = token.get("/metrics");
    assert_eq!(own.status, 200, "{own:?}");
    assert!(own.text.contains("tenant=\"acme\"") && !own.text.contains("globex"), "{}", own.text);
    token.get("/api/v1/tenants/globex/usage").is(404, "missing");
}

#[test]
fn incident_an_administrator_of_one_tenant_read_payloads_of_others() {
    let (broker, api) = broker();
    let mut absent = globex(&broker, "gus", Connect::v5("absent").lasting());
    assert!(absent.subscribe("queued/#", 1) < 0x80);
    absent.disconnect();
    let mut p = globex(&broker, "ann", Connect::v5("p"));
    assert!(p.publish("queued/x", "secret", 1) < 0x80);
    assert!(p.retain("kept", "secret", 1) < 0x80);
    let token = api.of_tenant("acme");
    for path in [
        "sessions/absent",
        "sessions/absent/subscriptions",
        "sessions",
        "subscriptions",
        "retained?filter=%23",
        "retained/message?topic=kept",
        "denied",
    ] {
        let answer = token.get(&format!("/api/v1/tenants/globex/{path}"));
        answer.is(404, "missing");
        assert!(!answer.text.contains("secret") && !answer.text.contains("globex"), "{answer:?}");
    }
    assert!(token.get("/api/v1/tenants/acme/retained?filter=%23").items("topic").is_empty());
}

#[test]
fn incident_leaving_a_parameter_away_showed_the_users_of_all_tenants() {
    let (_broker, api) = broker();
    let token = api.of_tenant("acme");
    for path in ["/api/v1/tenants", "/api/v1/tokens", "/api/v1/audit"] {
        let answer = token.get(path);
        answer.ok();
        assert!(!answer.text.contains("globex") && !answer.text.contains("gus"), "{path}: {}", answer.text);
    }
    for path in
        ["/api/v1/users", "/api/v1/sessions", "/api/v1/tenants//users", "/api/v1/tenants/%2e%2e/users"]
    {
        let answer = token.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text.contains("gus"), "{answer:?}");
    }
    for path in
        ["/api/v1/tenants/*/users", "/api/v1/tenants/acme%00globex/users", "/api/v1/tenants/GLOBEX/users"]
    {
        token.get(path).is(404, "missing");
    }
}

#[test]
fn incident_a_user_of_a_tenant_was_marked_superuser_and_was_one_everywhere() {
    let (broker, api) = broker();
    api.patch("/api/v1/tenants/acme/users/ann", &json!({ "superuser": true })).ok();
    let node = json!({ "rules": [
        { "name": "nobody", "effect": "deny", "action": "all", "topics": ["node/#"] },
    ] });
    api.put("/api/v1/rules", &node).ok();
    let deny = json!({ "rules": [{ "name": "none", "effect": "deny", "action": "all" }] });
    for tenant in ["acme", "globex"] {
        api.put(&format!("/api/v1/tenants/{tenant}/rules"), &deny).ok();
    }
    let mut boss = acme(&broker, Connect::v5("c"));
    let mut namesake = globex(&broker, "ann", Connect::v5("c"));
    assert!(boss.publish("x", "x", 1) < 0x80, "rules of its tenant do not bind it");
    assert_eq!(boss.publish("node/x", "x", 1), 0x87, "those of the node do");
    assert_eq!(
        namesake.publish("x", "x", 1),
        0x87,
        "a user of another tenant with its name is somebody else"
    );
    assert!(boss.subscribe("#", 1) < 0x80);
    assert!(boss.publish("x", "own", 1) < 0x80);
    assert_eq!(boss.message().text(), "own");
    boss.assert_quiet();
    let token = api.of_tenant("acme");
    token.patch("/api/v1/tenants/globex/users/gus", &json!({ "superuser": true })).is(404, "missing");
}

#[test]
fn incident_a_name_that_is_denied_was_accepted_on_another_way() {
    let (broker, api) = broker();
    for name in ["_sys", "_other", "_global", "system", "mast", "", "a/b", "a b", "ä", &"x".repeat(65)] {
        let answer = api.post("/api/v1/tenants", &json!({ "name": name }));
        assert_eq!(answer.status, 422, "{name:?}: {answer:?}");
        let made = api.post("/api/v1/tokens", &json!({ "tenant": name }));
        assert!(made.status == 404 || made.status == 422, "{name:?}: {made:?}");
    }
    // No client makes a tenant by asking for it, and no login reaches one that is not there.
    for user in ["_sys/ann", "ann@globex", "globex/ann", "globex:ann"] {
        assert_eq!(Connect::v5("c").login(user, "globex").attempt(&broker).1.reason(), 0x86, "{user}");
    }
    assert_eq!(api.get("/api/v1/tenants").items("name"), ["acme", "default", "globex"]);
    // Nor does the store's own space answer as one.
    api.get("/api/v1/tenants/_sys/sessions").is(404, "missing");
    api.get("/api/v1/tenants/_sys/users").is(404, "missing");
}

#[test]
fn incident_rules_of_all_tenants_matched_across_tenants() {
    let (broker, api) = broker();
    let node = json!({ "rules": [
        { "name": "home", "effect": "allow", "action": "all", "topics": ["%t/#"] },
        { "name": "rest", "effect": "deny", "action": "all" },
    ] });
    api.put("/api/v1/rules", &node).ok();
    let (mut a, mut g) = (acme(&broker, Connect::v5("c")), globex(&broker, "ann", Connect::v5("c")));
    assert!(a.publish("acme/x", "x", 1) < 0x80);
    assert_eq!(a.publish("globex/x", "x", 1), 0x87);
    assert!(g.subscribe("globex/#", 1) < 0x80);
    assert_eq!(g.subscribe("acme/#", 1), 0x87);
    // A filter that is wider than what may be read is taken, and each delivery is judged.
    assert!(g.subscribe("#", 1) < 0x80);
    assert!(a.publish("acme/x", "x", 1) < 0x80);
    g.assert_quiet();
}

#[test]
fn incident_the_quota_was_not_asked_where_the_tenant_came_out_empty() {
    // A tenant that comes out empty is no tenant: there is nobody whose quota could be left unasked.
    let broker = Broker::with(
        "[tenants]\ndefault = \"\"\nnames = [\"acme\"]\n[listener.main]\nbind = [\"{ip}\"]\nport = 1883\nallow_anonymous = true\n",
    );
    Connect::v5("c").expect_refusal(&broker, 0x87);
    Connect::v311("c").expect_refusal(&broker, 5);
}
