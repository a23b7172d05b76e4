//! Tests of the keys of rules, from text to lists.

use std::path::Path;

use crate::config::{Config, ConfigErrors, Place, Sources};

fn check(text: &str) -> Result<Config, ConfigErrors> {
    let place = Place { is_root: true, ..Place::default() };
    let sources = Sources { place, ..Sources::default() };
    sources.check(Some((Path::new("mast.toml"), text))).map(|(config, _)| config)
}

fn good(text: &str) -> Config {
    check(text).unwrap_or_else(|e| panic!("{e}"))
}

fn mistakes(text: &str) -> String {
    check(text).err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn rules_stand_in_the_order_of_the_file_with_their_places() {
    let mut text = "[[rule]]\neffect = \"deny\"\nname = \"ops\"\ntopics = [\"ops/#\"]\n".to_owned();
    for n in 0..11 {
        text += &format!("[[tenant.acme.rule]]\ntopics = [\"t{n}/%c\"]\neffect = \"allow\"\nqos = [0, 1]\n");
    }
    let config = good(&text);
    assert!(config.tenants.contains(&"acme".to_owned()), "its rules make a tenant");
    let node = config.rules.node.expect("rules of the node");
    assert_eq!((&*node.rules()[0].name, &*node.rules()[0].origin), ("ops", "mast.toml:2, rule.1"));
    let own = &config.rules.tenants["acme"];
    let topics: Vec<_> = own.rules().iter().map(|r| r.topics[0].to_string()).collect();
    assert_eq!(topics, (0..11).map(|n| format!("t{n}/%c")).collect::<Vec<_>>());
    assert_eq!(&*own.rules()[10].name, "11");
    assert_eq!(&*own.rules()[0].origin, "mast.toml:7, tenant.acme.rule.1");
    assert!(config.rules.tenants.len() == 1);
    assert_eq!(good("").rules, crate::config::RuleLists::default());
}

#[test]
fn every_mistake_in_a_rule_names_its_place_and_the_way_out() {
    let rule = |keys: &str| mistakes(&format!("[[rule]]\neffect = \"deny\"\n{keys}\n"));
    for (keys, place, words) in [
        ("topics = [\"a/%x\"]", "mast.toml:3: `rule.1.topics`", "\"%x\" is no placeholder"),
        ("topics = [\"a/#/b\"]", "`rule.1.topics`", "is no topic filter"),
        ("topics = [\"\"]", "`rule.1.topics`", "is no topic filter"),
        ("topics = [\"$share/g/a\"]", "`rule.1.topics`", "behind the group"),
        ("users = [\"%\"]", "`rule.1.users`", "%%"),
        ("client_ids = [\"${\"]", "`rule.1.client_ids`", "${name}"),
        ("sources = [\"10.0.0.1/8\"]", "`rule.1.sources`", "10.0.0.0/8"),
        ("attributes = [\"site\"]", "`rule.1.attributes`", "name=value"),
        ("tenants = [\"nobody\"]", "`rule.1.tenants`", "no tenant \"nobody\""),
        ("qos = [3]", "`rule.1.qos`", "a QoS from 0 to 2"),
        ("qos = 1\naction = \"receive\"", "`rule.1.qos`", "not of deliveries"),
        ("retain = true", "`rule.1.retain`", "action = \"publish\""),
        ("action = \"read\"", "`rule.1.action`", "\"publish\", \"subscribe\""),
        ("topic = \"a\"", "unknown key `rule.1.topic`", "did you mean `rule.1.topics`"),
        ("[[rule]]\neffect = \"allow\"\nname = \"1\"", "`rule.2.name`", "a rule before it"),
    ] {
        let said = rule(keys);
        assert!(said.contains(place) && said.contains(words), "{keys}: {said}");
    }
    assert!(mistakes("[[rule]]\ntopics = [\"a\"]\n").contains("`rule.1.effect`: must be there"));
    assert!(mistakes("[rule.first]\neffect = \"deny\"\n").contains("stand as [[rule]]"));
    assert!(mistakes("[tenant.a]\nrule = 5\n").contains("`tenant.a.rule` is a section"));
    let tenants = "[[tenant.acme.rule]]\neffect = \"deny\"\ntenants = [\"acme\"]\n";
    assert!(mistakes(tenants).contains("leave it away"), "{}", mistakes(tenants));
}

#[test]
fn rules_come_from_the_environment_too() {
    let variables = [
        ("MAST__RULE__1__EFFECT".to_owned(), "allow".to_owned()),
        ("MAST__RULE__1__QOS".to_owned(), "0,2".to_owned()),
        ("MAST__TENANT__ACME__RULE__2__EFFECT".to_owned(), "deny".to_owned()),
    ];
    let place = Place { is_root: true, variables: variables.into() };
    let config = Sources { place, ..Sources::default() }.load().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.rules.node.map(|l| l.rules().len()), Some(1));
    assert_eq!(
        &*config.rules.tenants["acme"].rules()[0].origin,
        "env MAST__TENANT__ACME__RULE__2__EFFECT, tenant.acme.rule.2"
    );
}
