//! Tests of the whole way from text to a checked configuration.

use std::path::Path;

use super::*;
use crate::config::kind::Switch;

fn place() -> Place {
    Place { variables: [("HOME".to_owned(), "/home/x".to_owned())].into(), is_root: false }
}

fn load_with(text: &str, env: &[(&str, &str)], port: Option<u16>) -> Result<(Config, Layers), ConfigErrors> {
    let mut sources = Sources { place: place(), port, ..Sources::default() };
    sources.place.variables.extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    sources.check(Some((Path::new("mast.toml"), text)))
}

fn load(text: &str) -> Config {
    load_with(text, &[], None).map(|(c, _)| c).unwrap_or_else(|e| panic!("{e}"))
}

fn mistakes(text: &str) -> String {
    match load_with(text, &[], None) {
        Ok(_) => panic!("accepted: {text}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn an_empty_file_is_a_complete_configuration_on_loopback() {
    let config = load("");
    let names: Vec<_> = config.listeners.iter().map(|l| (l.name.as_str(), l.scheme())).collect();
    assert_eq!(names, [("mqtt", "mqtt"), ("ws", "ws")]);
    assert!(config.listeners.iter().all(|l| l.local_only() && l.allow_anonymous));
    let Endpoint::Tcp { addresses, .. } = &config.listeners[0].endpoint else { panic!("not TCP") };
    let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["127.0.0.1:1883", "[::1]:1883"]);
    assert_eq!(config.data_dir, Path::new("/home/x/.local/state/mast"));
    assert_eq!(config.tenants, ["default"]);
    assert_eq!(config.store.durability, Durability::Synced);
}

#[test]
fn authentication_opens_all_interfaces_and_ends_anonymous_access() {
    let config = load("[auth]\npassword_file = \"/etc/passwd.mast\"");
    assert!(config.listeners.iter().all(|l| !l.local_only() && !l.allow_anonymous));
}

#[test]
fn a_certificate_adds_the_secure_default_listeners() {
    let config = load("[tls]\ncert = \"c.pem\"\nkey = \"k.pem\"");
    let schemes: Vec<_> = config.listeners.iter().map(Listener::scheme).collect();
    assert_eq!(schemes, ["mqtt", "ws", "mqtts", "wss"]);
}

#[test]
fn the_port_flag_moves_the_plain_listener_and_opens_no_other_by_default() {
    let (config, _) = load_with("", &[], Some(2883)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.listeners.len(), 1);
    let Endpoint::Tcp { addresses, .. } = &config.listeners[0].endpoint else { panic!("not TCP") };
    assert_eq!(addresses[0].port(), 2883);
    let text =
        "[listener.a]\n[listener.a.tls]\ncert='c'\nkey='k'\n[listener.b]\nkind='ws'\n[listener.c]\nport=1";
    let (config, _) = load_with(text, &[], Some(2883)).unwrap_or_else(|e| panic!("{e}"));
    let ports = config.listeners.iter().map(|l| match &l.endpoint {
        Endpoint::Tcp { addresses, .. } => addresses[0].port(),
        Endpoint::Unix { .. } => 0,
    });
    assert_eq!(ports.collect::<Vec<_>>(), [8883, 8083, 2883]);
}

#[test]
fn an_unknown_key_names_file_line_key_and_the_nearest_valid_one() {
    assert_eq!(
        mistakes("[mqtt]\n\nmax_paket_size = 5\n"),
        "mast.toml:3: unknown key `mqtt.max_paket_size`; did you mean `mqtt.max_packet_size`?"
    );
    assert_eq!(mistakes("[mqqt]\nmax_qos = 1\n"), "mast.toml:1: unknown key `mqqt`; did you mean `mqtt`?");
    assert_eq!(
        mistakes("[listener.a]\ntls = { cret = \"x\" }"),
        "mast.toml:2: unknown key `listener.a.tls.cret`; did you mean `listener.a.tls.cert`?"
    );
    assert_eq!(
        mistakes("[node]\npassword_file = \"x\""),
        "mast.toml:2: unknown key `node.password_file`; did you mean `auth.password_file`?"
    );
}

#[test]
fn a_wrong_value_names_the_key_what_it_got_and_what_it_accepts() {
    assert_eq!(
        mistakes("[mqtt]\nmax_qos = 3"),
        "mast.toml:2: `mqtt.max_qos` is 3; it takes a whole number from 0 to 2"
    );
    assert_eq!(
        mistakes("[store]\ndurability = \"always\""),
        "mast.toml:2: `store.durability` is \"always\"; it takes one of \"memory\", \"stored\", \"synced\""
    );
    assert!(
        mistakes("[node]\nshards = 1.5").contains("`node.shards` is a fraction; it takes a whole number")
    );
    assert_eq!(mistakes("mqtt = 3"), "mast.toml:1: `mqtt` is a section, not a value");
    assert!(mistakes("[mqtt\n").starts_with("mast.toml:1: not valid TOML"));
}

#[test]
fn all_mistakes_are_reported_at_once() {
    assert_eq!(mistakes("[mqtt]\nmax_qos = 3\nzzzzzzzzz = 1\n[node]\nshards = \"x\"").lines().count(), 3);
}

#[test]
fn environment_wins_over_file_and_flags_over_both() {
    let env = [("MAST__MQTT__MAX_QOS", "1"), ("MAST__LISTENER__MAIN__PROXY__TRUSTED", "10.0.0.0/8, ::1/128")];
    let text = "[mqtt]\nmax_qos = 0\nmax_inflight = 9\n[listener.main]\nallow_anonymous = true";
    let (config, layers) = load_with(text, &env, None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((config.mqtt.max_qos, config.mqtt.max_inflight), (1, 9));
    assert_eq!(layers.origin(&["mqtt", "max_qos"]), Origin::Env("MAST__MQTT__MAX_QOS".into()));
    let shown = reference::show(&layers, true);
    assert!(shown.contains("# env MAST__MQTT__MAX_QOS"), "{shown}");
    assert!(shown.contains("# mast.toml:3"), "{shown}");

    let flag = FlagValue { flag: "--log-level", path: &["node", "log_level"], value: "debug".into() };
    let mut sources = Sources { place: place(), flags: vec![flag], ..Sources::default() };
    sources.place.variables.insert("MAST__NODE__LOG_LEVEL".into(), "error".into());
    let (config, _) = sources.check(None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.node.log_level, LogLevel::Debug);
}

#[test]
fn a_misspelled_environment_variable_is_an_error() {
    let error = load_with("", &[("MAST__MQTT__MAX_QUS", "1")], None).map(|_| ()).expect_err("accepted");
    assert_eq!(
        error.to_string(),
        "env MAST__MQTT__MAX_QUS: unknown key `mqtt.max_qus`; did you mean `mqtt.max_qos`?"
    );
    assert!(load_with("", &[("MAST_HOME", "x")], None).is_ok(), "one underscore is not ours");
}

#[test]
fn a_secret_is_never_shown() {
    let (_, layers) = load_with("[admin]\ntoken = \"hunter2\"", &[], None).unwrap_or_else(|e| panic!("{e}"));
    let shown = reference::show(&layers, true);
    assert!(!shown.contains("hunter2") && shown.contains("token = \"********\""), "{shown}");
    assert!(!mistakes("[admin]\ntoken = [\"hunter2\"]").contains("hunter2"));
}

#[test]
fn an_open_address_without_authentication_is_refused_with_the_way_out() {
    let error = mistakes("[listener.a]\nbind = \"0.0.0.0\"");
    assert!(error.contains("mast.toml:2") && error.contains("auth.allow_anonymous = true"), "{error}");
    let config = load("[auth]\nallow_anonymous = true\n[listener.a]\nbind = \"0.0.0.0\"");
    assert!(config.listeners[0].allow_anonymous);
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (text, words) in [
        ("[listener.a]\nsecure = true", "needs both cert and key"),
        ("[listener.a]\nkind = \"unix\"", "needs the path of its socket"),
        ("[listener.a]\nbind = [\"localhost\"]", "is not an IP address"),
        ("[listener.a]\nproxy = { mode = \"required\" }", "networks of the proxies"),
        ("[listener.a]\nproxy = { mode = \"required\", trusted = [\"10.0.0.0/33\"] }", "10.0.0.0/33"),
        ("[listener.a]\ntenant = \"acme\"", "no tenant \"acme\""),
        ("[listener.\"a b\"]\nport = 1", "a listener's name"),
        ("[tenants]\nnames = [\"a/b\"]\ndefault = \"\"", "a tenant's name"),
        ("[tenants]\ndefault = \"other\"", "no tenant \"other\"; there are: default"),
        ("[admin]\nbind = \"18083\"", "not an address with a port"),
        ("[mqtt]\naccept_v3 = false\naccept_v5 = false", "no MQTT version is left"),
        ("[limits]\nmemory_refuse_percent = 99", "comes before pausing"),
        ("[limits]\nmemory_pause_percent = 99", "comes before cutting"),
        ("[store]\nmax_bytes = \"100MiB\"", "fewer than four journal files"),
    ] {
        let error = mistakes(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn a_tenant_named_twice_is_refused_by_its_key() {
    let text = mistakes("[tenants]\nnames = [\"default\", \"acme\", \"acme\"]");
    assert!(text.contains("tenants.names") && text.contains("\"acme\" stands there twice"), "{text}");
    // Named in the list and in a section of its own is one tenant.
    let config = load("[tenants]\nnames = [\"default\", \"acme\"]\n[tenant.acme]");
    assert_eq!(config.tenants, ["default", "acme"]);
}

#[test]
fn a_certificate_that_no_listener_uses_is_remarked() {
    let text = "[tls]\ncert = \"c.pem\"\nkey = \"k.pem\"\n[listener.a]\n";
    assert!(load(text).remarks.iter().any(|r| r.contains("tls.cert") && r.contains("secure = true")));
    for used in ["", "secure = true\n"] {
        let text = if used.is_empty() { &text[..text.len() - 13] } else { text };
        assert_eq!(load(&format!("{text}{used}")).remarks, Vec::<String>::new());
    }
}

#[test]
fn what_show_prints_loads_again_to_the_same_configuration() {
    let text = "[auth]\nallow_anonymous = true\n[listener.a]\nport = 7\nmax_connections = 3\n[offline]\nmax_age = \"36h\"";
    let (config, layers) = load_with(text, &[], None).unwrap_or_else(|e| panic!("{e}"));
    let printed = reference::show(&layers, true);
    let (again, _) = load_with(&printed, &[], None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config, again);
    assert_eq!(config.auth.allow_anonymous, Switch::On);
}

#[test]
fn the_committed_reference_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == reference::reference(),
        "docs/configuration.md is out of date: run `mast config reference > docs/configuration.md`"
    );
}

#[test]
fn the_committed_table_of_limits_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limits.md");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == tenant_limits::reference(),
        "docs/limits.md is out of date: run `mast limits reference > docs/limits.md`"
    );
}

#[test]
fn a_tenant_s_limits_are_its_own_before_those_of_all_and_some_only_count() {
    let config = load(
        "[tenant_limits]\nconnections = 5\nretained_bytes = \"1MiB\"\nobserve = [\"connections\"]\n\
         [tenant.acme.limits]\nconnections = \"none\"\nkeep_alive_max = \"1m\"\nretain = false\n",
    );
    let all = &config.tenant_limits;
    assert_eq!(all.get(Row::Connections), Some(Limit::observed(5)));
    assert_eq!(all.get(Row::RetainedBytes), Some(Limit::enforced(1 << 20)));
    let own = config.own_limits["acme"].over(all);
    assert_eq!(own.get(Row::Connections), None);
    assert_eq!(own.get(Row::KeepAliveMax), Some(Limit::enforced(60)));
    assert_eq!(own.get(Row::Retain), Some(Limit::enforced(0)));
    assert_eq!(own.get(Row::RetainedBytes), Some(Limit::enforced(1 << 20)));
}

#[test]
fn a_limit_that_is_none_or_observed_without_a_value_or_out_of_range_is_named() {
    let text = mistakes("[tenant_limits]\nconections = 5\n");
    assert!(text.contains("tenant_limits.connections"), "{text}");
    let text = mistakes("[tenant.a.limits]\nobserve = [\"subscriptons\"]\n");
    assert!(text.contains("did you mean \"subscriptions\"?"), "{text}");
    let text = mistakes("[tenant.a.limits]\nobserve = [\"subscriptions\"]\n");
    assert!(text.contains("sets no value"), "{text}");
    let text = mistakes("[tenant_limits]\nmax_qos = 3\n");
    assert!(text.contains("from 0 to 2"), "{text}");
    let text = mistakes("[tenant_limits]\nkeep_alive_max = \"1500ms\"\n");
    assert!(text.contains("keep_alive_max"), "{text}");
}

#[test]
fn the_default_and_an_only_tenant_are_spread_and_others_sit_on_one_shard_unless_told_otherwise() {
    let placed = |text: &str| {
        let config = load(text);
        let placed = config.placed_tenants().into_iter();
        placed.map(|(name, spread)| (name.to_owned(), spread)).collect::<Vec<_>>()
    };
    let pair = |name: &str, spread| (name.to_owned(), spread);
    assert_eq!(placed(""), [pair("default", true)]);
    assert_eq!(
        placed("[tenant.a]\n[tenant.b]\nspread = true\n"),
        [pair("default", true), pair("a", false), pair("b", true)]
    );
    let only = "[tenants]\nnames = [\"one\"]\ndefault = \"\"\n";
    assert_eq!(placed(only), [pair("one", true)]);
    assert_eq!(placed("[tenant.default]\nspread = false\n"), [pair("default", false)]);
}
