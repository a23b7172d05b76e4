//! Questions of administration: what they tell, what they leave out, and how a tenant ends.

mod shard_support;

use mast_core::ask::{Answer, Ask, SessionFilter};
use mast_core::codec::{Reason, Version};
use mast_core::ids::TenantId;
use mast_core::settings::Settings;
use mast_core::topic::RetainedCursor;
use shard_support::{Client, Node};

const A: TenantId = TenantId(0);
const B: TenantId = TenantId(1);

fn node(shards: u16) -> Node {
    let mut node = Node::new(shards, Settings::default());
    node.tenancy.registry = node.tenancy.registry.with("b").expect("a good name");
    node.reconfigure(node.settings.clone());
    node
}

fn of(node: &mut Node, tenant: TenantId, id: &str, expiry: u32) -> Client {
    node.tenant = tenant;
    node.connect(Version::V5, id, expiry)
}

fn clients(node: &mut Node, tenant: TenantId, filter: &SessionFilter, max: u32) -> Vec<String> {
    let (mut from, mut names) = (0, Vec::new());
    loop {
        let ask = Ask::Sessions { tenant, from, max, filter: filter.clone() };
        let Answer::Sessions { sessions, next } = node.ask(0, ask) else { panic!("no sessions") };
        assert!(sessions.len() <= max as usize);
        names.extend(sessions.iter().map(|s| s.client.to_string()));
        match next {
            Some(next) => from = next,
            None => return names,
        }
    }
}

#[test]
fn sessions_are_listed_page_by_page_and_of_one_tenant_alone() {
    let mut node = node(1);
    for n in 0..7 {
        let client = of(&mut node, A, &format!("a{n}"), 100);
        of(&mut node, B, &format!("b{n}"), 100);
        if n % 2 == 0 {
            node.cut(client);
        }
    }
    let all = SessionFilter::default();
    assert_eq!(clients(&mut node, A, &all, 2), ["a0", "a1", "a2", "a3", "a4", "a5", "a6"]);
    let away = SessionFilter { connected: Some(false), ..SessionFilter::default() };
    assert_eq!(clients(&mut node, A, &away, 3), ["a0", "a2", "a4", "a6"]);
    let named = SessionFilter { client_prefix: "a3".into(), ..SessionFilter::default() };
    assert_eq!(clients(&mut node, A, &named, 3), ["a3"]);
    let foreign = SessionFilter { client_prefix: "b".into(), ..SessionFilter::default() };
    assert!(clients(&mut node, A, &foreign, 3).is_empty());
    let missing = node.ask(0, Ask::Session { tenant: A, client: "b1".into() });
    assert!(matches!(missing, Answer::Missing));
}

#[test]
fn one_session_tells_its_connection_and_its_subscriptions_in_pages() {
    let mut node = node(1);
    let client = of(&mut node, A, "c", 60);
    for filter in ["x/1", "x/2", "x/3"] {
        node.subscribe(client, filter, 1);
    }
    let Answer::Session(info) = node.ask(0, Ask::Session { tenant: A, client: "c".into() }) else {
        panic!("no session")
    };
    assert_eq!((info.subscriptions, info.expiry_secs, info.epoch), (3, 60, 1));
    assert!(info.connection.is_some_and(|c| c.version == Version::V5) && info.away_since.is_none());
    let mut page = |after: Option<&str>| {
        let ask = Ask::Subscriptions { tenant: A, client: "c".into(), after: after.map(Into::into), max: 2 };
        let Answer::Subscriptions { subscriptions, more } = node.ask(0, ask) else { panic!("none") };
        (subscriptions.iter().map(|s| s.filter.to_string()).collect::<Vec<_>>(), more)
    };
    assert_eq!(page(None), (vec!["x/1".into(), "x/2".into()], true));
    assert_eq!(page(Some("x/2")), (vec!["x/3".into()], false));
    let disconnect = |client: &str| Ask::Disconnect {
        tenant: A,
        client: client.into(),
        reason: Reason::ADMINISTRATIVE_ACTION,
    };
    let end = || Ask::EndSession { tenant: A, client: "c".into() };
    assert!(matches!(node.ask(0, end()), Answer::Busy), "only an absent session is ended");
    node.take(client);
    assert!(matches!(node.ask(0, disconnect("c")), Answer::Done));
    assert_eq!(node.take(client), [vec![0xE0, 1, 0x98]]);
    assert!(matches!(node.ask(0, disconnect("c")), Answer::Missing));
    assert!(node.stored() > 0);
    assert!(matches!(node.ask(0, end()), Answer::Done));
    assert!(matches!(node.ask(0, Ask::Session { tenant: A, client: "c".into() }), Answer::Missing));
    assert_eq!(node.stored(), 0);
}

#[test]
fn retained_messages_are_listed_by_filter_and_removed_one_by_one() {
    let mut node = node(1);
    let (a, b) = (of(&mut node, A, "p", 0), of(&mut node, B, "p", 0));
    for topic in ["r/1", "r/2", "r/3", "s/1"] {
        node.publish_with(a, 0x33, topic, topic.as_bytes());
    }
    node.publish_with(b, 0x33, "r/foreign", b"x");
    let topics = |node: &mut Node| {
        let (mut cursor, mut topics) = (Box::new(RetainedCursor::new("r/+")), Vec::new());
        loop {
            let Answer::Retained { messages, next } =
                node.ask(0, Ask::Retained { tenant: A, cursor, max: 2 })
            else {
                panic!("none")
            };
            topics.extend(messages.iter().map(|m| m.topic().to_owned()));
            match next {
                Some(next) => cursor = next,
                None => return topics,
            }
        }
    };
    assert_eq!(topics(&mut node), ["r/1", "r/2", "r/3"]);
    let remove = |topic: &str| Ask::RemoveRetained { tenant: A, topic: topic.into() };
    assert!(matches!(node.ask(0, remove("r/2")), Answer::Done));
    assert!(matches!(node.ask(0, remove("r/2")), Answer::Missing));
    assert!(matches!(node.ask(0, remove("r/foreign")), Answer::Missing));
    assert_eq!(topics(&mut node), ["r/1", "r/3"]);
}

#[test]
fn a_tenant_ends_with_its_sessions_groups_and_retained_messages_and_without_wills() {
    for shards in [1, 3] {
        let mut node = node(shards);
        let other = of(&mut node, A, "c1", 100);
        node.subscribe(other, "#", 1);
        node.publish_with(other, 0x33, "kept", b"of a");
        let kept = node.stored();
        let mut gone = Vec::new();
        for n in 0..9 {
            let client = of(&mut node, B, &format!("c{n}"), 100);
            node.subscribe(client, "$share/g/t/#", 1);
            node.subscribe(client, "u/#", 1);
            node.publish_with(client, 0x33, &format!("kept/{n}"), b"of b");
            gone.push(client);
        }
        node.cut(gone[0]);
        node.tenancy.registry = node.tenancy.registry.without(B);
        node.reconfigure(node.settings.clone());
        for shard in 0..shards {
            let mut rounds = 0;
            while !matches!(node.ask(shard, Ask::EndTenant { tenant: B }), Answer::Left { count: 0 }) {
                rounds += 1;
                assert!(rounds < 20, "it does not end");
            }
        }
        for shard in 0..shards {
            assert!(matches!(node.ask(shard, Ask::ForgetTenant { tenant: B }), Answer::Done));
        }
        assert!(gone.iter().all(|client| !node.is_open(*client)));
        assert!(node.is_open(other) && node.stored() == kept, "{} keys, {kept} before", node.stored());
        let Answer::Session(info) = node.ask(other.shard, Ask::Session { tenant: A, client: "c1".into() })
        else {
            panic!("the other tenant's session is gone")
        };
        assert_eq!(info.subscriptions, 1);
        let late = node.tenancy.registry.with("b").expect("a good name");
        node.tenancy.registry = late;
        node.reconfigure(node.settings.clone());
        let client = of(&mut node, TenantId(2), "c1", 100);
        node.subscribe(client, "#", 1);
        assert!(node.messages(client).is_empty(), "the new tenant of the old name is empty");
    }
}
