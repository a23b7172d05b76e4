//! The API under requests made from its own description, sensible ones and others: none is answered with a 5xx, and
//! none that a tenant's token sends reads or changes what another tenant has. `tests/setup.sh` installs schemathesis.

use mast_tests::broker::{target_dir, workspace};
use mast_tests::{Api, Broker, Connect};
use serde_json::json;
use std::process::Command;

/// Stands in everything that the other tenant has.
const MARK: &str = "zebra";

fn broker() -> Broker {
    Broker::with(
        "[limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n[listener.main]\nbind = [\"{ip}\"]\nport = 1883\n\
         allow_anonymous = false\n",
    )
}

fn make(api: &Api, tenant: &str, user: &str) {
    api.post("/api/v1/tenants", &json!({ "name": tenant })).ok();
    let users = format!("/api/v1/tenants/{tenant}/users");
    api.post(&users, &json!({ "name": user, "password": "pw" })).ok();
}

/// Sends what schemathesis makes of the description.
fn attack(broker: &Broker, api: &Api, examples: u32) {
    let tool = target_dir().join("real-clients/schemathesis/bin/schemathesis");
    assert!(tool.exists(), "{} is missing: run tests/setup.sh first", tool.display());
    let url = format!("http://{}/api/v1/openapi.json", broker.admin());
    let output = Command::new(tool)
        .current_dir(broker.dir())
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", workspace().join("tests/schema"))
        .env("FOREIGN_MARK", MARK)
        .args(["run", &url, "--header", &format!("Authorization: Bearer {}", api.token())])
        .args(["--checks", "not_a_server_error,nothing_of_another_tenant", "--mode", "all"])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", &examples.to_string()])
        // It would end with the session that it uses.
        .args(["--seed", "1", "--request-timeout", "30", "--exclude-path-regex", "/listeners|/tokens/"])
        .output()
        .expect("schemathesis runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_tenants_token_gets_no_5xx_and_nothing_of_another_tenant() {
    let broker = broker();
    let api = Api::first(&broker);
    make(&api, "acme", "ann");
    let other = format!("{MARK}-corp");
    let user = format!("{MARK}-user");
    make(&api, &other, &user);
    let mut client = Connect::v5(&format!("{MARK}-client")).login(&user, "pw").lasting().open(&broker);
    assert!(client.subscribe(&format!("{MARK}/#"), 1) < 0x80);
    assert!(client.retain(&format!("{MARK}/kept"), MARK, 1) < 0x80);
    let before = everything(&api, &other);
    attack(&broker, &api.of_tenant("acme"), 20);
    client.ping();
    assert_eq!(everything(&api, &other), before, "nothing of the other tenant was changed");
    assert_eq!(broker.metric("mast_tenant_canary_total"), 0.0);
}

#[test]
fn a_global_token_gets_no_5xx() {
    let broker = broker();
    let api = Api::first(&broker);
    make(&api, "acme", "ann");
    // The first token would end with the first one that the requests make.
    let made = api.post("/api/v1/tokens", &json!({})).ok();
    let api = api.with(made["token"].as_str().expect("a token"));
    attack(&broker, &api, 10);
    api.get("/api/v1/tenants").ok();
}

/// What a tenant has, as a global token sees it.
fn everything(api: &Api, tenant: &str) -> Vec<String> {
    let paths = ["", "/users", "/sessions", "/subscriptions", "/retained?filter=%23&limit=1", "/rules"];
    paths.iter().map(|path| api.get(&format!("/api/v1/tenants/{tenant}{path}")).text).collect()
}
