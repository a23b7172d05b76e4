//! Who a client is and of which tenant, from the configuration's files: certificates, tokens, passwords, in the
//! order of a listener's chain.

use std::io::{Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use mast_tests::{
    Broker, Connect, Version,
    certs::{self, Authority, Pair},
    ws,
};
use serde_json::{Value, json};

const SECRET: &str = "a secret of the tests, 32 bytes and more";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn token(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes()).expect("a secret");
    encode(&Header::new(Algorithm::HS256), claims, &key).expect("a token")
}

fn token_of(tenant: &str, user: &str, seconds: u64) -> String {
    token(&json!({ "sub": user, "tenant": tenant, "exp": now() + seconds }))
}

fn token_broker(more: &str) -> Broker {
    let mut broker = Broker::prepared();
    broker.write("secret", SECRET);
    broker.add_user("ann", "pw");
    broker.write("acl", "user ann\ntopic readwrite #\npattern readwrite dev/%u/#\n");
    broker.configure(&format!(
        "[auth]\npassword_file = \"{{dir}}/users\"\n[tenant.acme]\nacl_file = \"{{dir}}/acl\"\n[tenant.globex]\n\
         [jwt]\nalgorithms = [\"HS256\"]\nsecret_file = \"{{dir}}/secret\"\n\
         [limits]\nlogin_rate_per_source = 0\nlogin_rate_per_user = 0\n\
         [listener.main]\nbind = [\"{{ip}}\"]\nport = 1883\n\
         [listener.acme]\nbind = [\"{{ip}}\"]\nport = 1884\ntenant = \"acme\"\n{more}"
    ));
    broker.launch();
    broker
}

#[test]
fn a_token_names_user_and_tenant_and_the_tenants_own_rules_apply() {
    let broker = token_broker("");
    let with = |tenant: &str, id: &str| Connect::v5(id).login("whoever", &token_of(tenant, "dev1", 600));
    let mut a = with("acme", "c").open(&broker);
    let mut g = with("globex", "c").open(&broker);
    assert!(g.subscribe("#", 1) < 0x80);
    // The user is the token's, not the name in CONNECT; the rules are acme's alone.
    assert!(a.publish("dev/dev1/x", "x", 1) < 0x80);
    assert_eq!(a.publish("dev/whoever/x", "x", 1), 0x87);
    assert!(g.publish("anything", "x", 1) < 0x80);
    assert_eq!(g.message().topic, "anything");
    g.assert_quiet();
    // MQTT 5 needs no user name.
    Connect::v5("d").password(token_of("acme", "dev1", 600).as_bytes()).open(&broker).ping();
    // At the door of a tenant another's token is no key.
    let at = |tenant: &str| with(tenant, "e").attempt_on(ws::tcp(broker.at(1884))).1.reason();
    assert_eq!((at("acme"), at("globex")), (0, 0x87));
}

#[test]
fn bad_tokens_are_refused_and_passwords_go_on_to_the_next_in_the_chain() {
    let broker = token_broker("");
    let exp = now() + 600;
    for claims in [
        json!({ "sub": "dev1", "exp": exp }),
        json!({ "sub": "dev1", "exp": exp, "tenant": "" }),
        json!({ "sub": "dev1", "exp": exp, "tenant": "acme/x" }),
        json!({ "sub": "dev1", "exp": exp, "tenant": ["acme"] }),
        json!({ "sub": "dev1", "tenant": "acme" }),
        json!({ "sub": "dev1", "tenant": "acme", "exp": now() - 60 }),
        json!({ "tenant": "acme", "exp": exp }),
    ] {
        Connect::v5("c").login("ann", &token(&claims)).expect_refusal(&broker, 0x86);
        Connect::v311("c").login("ann", &token(&claims)).expect_refusal(&broker, 4);
    }
    // A tenant that is not on this node.
    Connect::v5("c").login("ann", &token_of("initech", "dev1", 600)).expect_refusal(&broker, 0x87);
    let good = token_of("acme", "dev1", 600);
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", good.split('.').nth(1).expect("claims"));
    Connect::v5("c").login("ann", &unsigned).expect_refusal(&broker, 0x86);
    Connect::v5("c").login("ann", "pw").open(&broker).ping();
    Connect::v5("c").login("ann", "no").expect_refusal(&broker, 0x86);
}

#[test]
fn a_listener_asks_only_whom_its_chain_names() {
    let broker = token_broker(
        "authenticators = [\"password\"]\n[listener.tokens]\nbind = [\"{ip}\"]\nport = 1885\nauthenticators = [\"jwt\"]\n",
    );
    let at = |port, password: &str| {
        Connect::v5("c").login("ann", password).attempt_on(ws::tcp(broker.at(port))).1.reason()
    };
    let good = token_of("acme", "ann", 600);
    assert_eq!((at(1883, &good), at(1883, "pw")), (0, 0));
    assert_eq!((at(1884, &good), at(1884, "pw")), (0x86, 0));
    assert_eq!((at(1885, &good), at(1885, "pw")), (0, 0x86));
}

#[test]
fn the_connection_ends_with_its_token() {
    let broker = token_broker("");
    let connect = |version| Connect::new(version, "c").lasting().login("dev1", &token_of("acme", "dev1", 2));
    let mut v5 = connect(Version::V5).open(&broker);
    v5.expect_end(0x87);
    let mut v3 = connect(Version::V311).open(&broker);
    v3.expect_end(0x87);
    // Shards tell their counts from time to time.
    broker.until("both cuts in the metrics", || {
        broker.metric("mast_connections_cut_total{reason=\"credential_expired\"}") >= 2.0
    });
    // A fresh token takes the session up again.
    let again = Connect::v5("c").lasting().login("dev1", &token_of("acme", "dev1", 600)).open(&broker);
    assert!(again.connack().session_present());
}

#[test]
fn rules_make_users_of_certificates() {
    let mut broker = Broker::prepared();
    let authority = Authority::new("ca");
    certs::write(broker.dir(), "s", &authority.server(broker.address().ip()));
    broker.write("ca.crt", &authority.pem);
    broker.write("acl", "pattern readwrite dev/%u/#\n");
    let configure = |broker: &Broker, rules: &str| {
        broker.configure(&format!(
            "[auth]\nacl_file = \"{{dir}}/acl\"\n[tls]\ncert = \"{{dir}}/s.crt\"\nkey = \"{{dir}}/s.key\"\n\
             client_ca = \"{{dir}}/ca.crt\"\n[tenant.acme]\n[tenant.globex]\n{rules}\n\
             [listener.tls]\nbind = [\"{{ip}}\"]\nport = 8883\nsecure = true\n"
        ));
    };
    configure(
        &broker,
        "[[certificate]]\ncn = \"acme-*\"\ntenant = \"acme\"\nclient_id = \"%cn/*\"\n\
         [[certificate]]\ncn = \"globex-*\"\ntenant = \"globex\"\nuser = \"gus\"\n",
    );
    broker.launch();
    let connect = |connect: Connect, own: &Pair| {
        let tls = certs::connect(&certs::client_config(&authority.pem, Some(own)), ws::tcp(broker.at(8883)));
        connect.attempt_on(tls)
    };
    let (one, other) = (authority.client("acme-1"), authority.client("globex-1"));
    let (mut a, _) = connect(Connect::v5("acme-1/x"), &one);
    let (mut g, _) = connect(Connect::v5("any"), &other);
    assert!(g.subscribe("dev/gus/#", 1) < 0x80 && a.subscribe("dev/acme-1/#", 1) < 0x80);
    assert!(g.publish("dev/gus/x", "g", 1) < 0x80 && a.publish("dev/acme-1/x", "a", 1) < 0x80);
    assert_eq!((g.message().text(), a.message().text()), ("g", "a"));
    assert_eq!(a.publish("dev/gus/x", "x", 1), 0x87);
    // The client id is bound, an assigned one too.
    for id in ["acme-2/x", "x", ""] {
        assert_eq!(connect(Connect::v5(id), &one).1.reason(), 0x85, "{id}");
    }
    // A good certificate that no rule is for stands for nobody; nor does a name that would be a pattern.
    assert_eq!(connect(Connect::v5("c"), &authority.client("initech-1")).1.reason(), 0x87);
    assert_eq!(connect(Connect::v5("acme-*/x"), &authority.client("acme-*")).1.reason(), 0x87);
    // Rules change with a reload; a rule that can't be reached refuses it.
    configure(&broker, "[[certificate]]\ncn = \"*\"\n[[certificate]]\ncn = \"a*\"\ntenant = \"acme\"\n");
    assert!(!broker.reload());
    assert_eq!(connect(Connect::v5("c"), &authority.client("initech-1")).1.reason(), 0x87);
    configure(&broker, "[[certificate]]\ncn = \"*\"\ntenant = \"acme\"\n");
    assert!(broker.reload());
    assert_eq!(connect(Connect::v5("c"), &authority.client("initech-1")).1.reason(), 0);
}

#[test]
fn mistakes_in_tenants_chains_rules_and_tokens_are_named_with_their_keys() {
    let listener = "[listener.a]\nbind = [\"{ip}\"]\nport = 1883\nallow_anonymous = true\n";
    for (text, words) in [
        ("[tenant.\"a/b\"]\n", "tenant.a/b"),
        ("[tenant._sys]\n", "reserved"),
        ("[tenant.acme]\npassword_fil = \"x\"\n", "did you mean `tenant.acme.password_file`"),
        ("[tenant.acme]\npassword_file = \"/nowhere\"\n", "/nowhere"),
        ("authenticators = [\"pasword\"]\n", "did you mean \"password\"?"),
        ("authenticators = [\"ldap\"]\n", "there are certificate, jwt, http, password"),
        ("authenticators = [\"jwt\"]\n", "set jwt.secret_file"),
        ("authenticators = [\"certificate\"]\n", "client_ca"),
        ("[[certificate]]\ntenant = \"default\"\n", "`certificate.1.cn`: a rule needs a condition"),
        ("[[certificate]]\ncn = \"a\"\ntenant = \"nobody\"\n", "no tenant \"nobody\""),
        ("[jwt]\nalgorithms = [\"HS255\"]\n", "did you mean \"HS256\"?"),
        ("[jwt]\nalgorithms = [\"none\"]\n", "never accepted"),
        ("[jwt]\nsecret_file = \"x\"\n", "name the algorithms"),
    ] {
        let mut broker = Broker::prepared();
        broker.configure(&format!("{listener}{text}"));
        broker.spawn();
        assert_eq!(broker.wait_exit().code(), Some(78), "{text}{}", broker.log());
        assert!(broker.log().contains(words), "{text}{}", broker.log());
    }
}

#[test]
fn a_revoked_certificate_is_refused_from_the_reload_of_the_list_on() {
    let mut broker = Broker::prepared();
    let authority = Authority::new("ca");
    certs::write(broker.dir(), "s", &authority.server(broker.address().ip()));
    broker.write("ca.crt", &authority.pem);
    broker.write("revoked.pem", &authority.revocations(&[]));
    broker.configure(
        "[tls]\ncert = \"{dir}/s.crt\"\nkey = \"{dir}/s.key\"\nclient_ca = \"{dir}/ca.crt\"\n\
         crl = \"{dir}/revoked.pem\"\nusername_from = \"cn\"\n\
         [listener.tls]\nbind = [\"{ip}\"]\nport = 8883\nsecure = true\n",
    );
    broker.launch();
    let (lost, kept) = (authority.client_numbered("lost", 7), authority.client_numbered("kept", 8));
    let tls = |pair: &Pair| {
        certs::connect(&certs::client_config(&authority.pem, Some(pair)), ws::tcp(broker.at(8883)))
    };
    Connect::v5("c").open_on(tls(&lost)).ping();
    broker.write("revoked.pem", &authority.revocations(&[7]));
    assert!(broker.reload());
    let mut stream = tls(&lost);
    let asked = stream.write_all(&Connect::v5("c").bytes()).and_then(|()| stream.flush());
    assert!(!matches!(asked.and_then(|()| stream.read(&mut [0; 64])), Ok(n) if n > 0));
    broker.until("the reason in the log", || {
        broker.log().contains("client certificate: ") && broker.log().contains("Revoked")
    });
    Connect::v5("c").open_on(tls(&kept)).ping();
    // Half a list changes nothing.
    broker.write("revoked.pem", "-----BEGIN X509 CRL-----\n");
    assert!(!broker.reload());
    Connect::v5("c").open_on(tls(&kept)).ping();
}
