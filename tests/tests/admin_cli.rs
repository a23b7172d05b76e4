//! The commands that administrate a running broker.

use mast_tests::broker::binary;
use mast_tests::{Api, Broker, Connect};
use std::io::Write;
use std::process::{Command, Stdio};

fn broker() -> Broker {
    Broker::with("[listener.main]\nbind = [\"{ip}\"]\nport = 1883\nallow_anonymous = false\n")
}

/// Runs a command; status, standard output, standard error.
fn mast(broker: &Broker, token: &str, args: &[&str], input: &str) -> (bool, String, String) {
    let mut child = Command::new(binary())
        .args(args)
        .args(["--address", &broker.admin().to_string()])
        .env("MAST_TOKEN", token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mast runs");
    child.stdin.take().expect("stdin").write_all(input.as_bytes()).expect("input");
    let output = child.wait_with_output().expect("an end");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn tenants_users_and_rules_are_made_and_shown_from_the_command_line() {
    let broker = broker();
    let api = Api::first(&broker);
    let run = |args: &[&str], input: &str| {
        let (good, out, err) = mast(&broker, api.token(), args, input);
        assert!(good, "{args:?}: {err}");
        out
    };
    run(&["tenant", "create", "acme", "--description", "the first"], "");
    assert!(run(&["tenant", "list"], "").contains("acme     serving  store  the first"));
    run(&["user", "create", "ann", "-t", "acme", "--attribute", "site=north"], "pw\n");
    let mut ann = Connect::v5("c1").login("ann", "pw").lasting().open(&broker);
    assert!(ann.subscribe("a/#", 1) < 0x80 && ann.retain("a/kept", "text", 1) < 0x80);
    assert!(run(&["session", "list", "-t", "acme"], "").contains("c1      ann   true"));
    assert!(run(&["session", "subscriptions", "c1", "-t", "acme"], "").contains("a/#"));
    assert_eq!(run(&["retained", "get", "a/kept", "-t", "acme"], ""), "text");
    let rules = r#"{"rules": [{"name": "a", "effect": "allow", "action": "all", "topics": ["a/#"]}]}"#;
    run(&["rule", "set", "-", "-t", "acme"], rules);
    assert_eq!(ann.publish("b", "x", 1), 0x87);
    assert!(run(&["rule", "denied", "-t", "acme"], "").contains("publish  b"));
    run(&["user", "disable", "ann", "-t", "acme"], "");
    run(&["session", "disconnect", "c1", "-t", "acme"], "");
    ann.waiting();
    ann.expect_end(0x98);
    let json = run(&["user", "show", "ann", "-t", "acme", "--json"], "");
    assert!(json.contains("\"enabled\":false"), "{json}");
    assert!(run(&["audit"], "").contains("user/acme/ann"));
    let token = run(&["token", "create", "-t", "acme"], "");
    let token = token.lines().find_map(|line| line.strip_prefix("token: ")).expect("a token");
    let (good, _, err) = mast(&broker, token, &["tenant", "create", "x"], "");
    assert!(!good && err.contains("this token is for one tenant alone") && err.contains("(scope)"), "{err}");
    run(&["tenant", "delete", "acme", "--wait"], "");
    let (good, _, err) = mast(&broker, api.token(), &["tenant", "show", "acme"], "");
    assert!(!good && err.contains("(missing)"), "{err}");
}
