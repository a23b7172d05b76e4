//! Tests of TLS over in-memory streams, with certificates made on the spot.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::tls::TlsListener;
use crate::auth::{CertificateNameError, CertificateNames};
use crate::config::{TlsFiles, UsernameFrom};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "test authority");
    let key = KeyPair::generate().expect("key");
    let pem = params.self_signed(&key).expect("certificate").pem();
    Authority { issuer: Issuer::new(params, key), pem }
}

/// Certificate and key for a name, as PEM.
fn leaf(authority: &Authority, name: &str, serial: u64) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, format!("cn of {name}"));
    params.serial_number = Some(SerialNumber::from(serial));
    let key = KeyPair::generate().expect("key");
    (params.signed_by(&key, &authority.issuer).expect("certificate").pem(), key.serialize_pem())
}

fn crl(authority: &Authority, revoked: &[u64]) -> String {
    let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(2099, 1, 1),
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: revoked_certs.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    }
    .signed_by(&authority.issuer)
    .expect("list")
    .pem()
    .expect("PEM")
}

struct Setup {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Setup {
    fn new() -> Self {
        let setup = Self { dir: tempfile::tempdir().expect("temporary directory"), authority: authority() };
        setup.serve("localhost");
        setup.write("ca.pem", &setup.authority.pem);
        setup
    }

    fn serve(&self, name: &str) {
        let (cert, key) = leaf(&self.authority, name, 1);
        self.write("cert.pem", &cert);
        self.write("key.pem", &key);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("write");
    }

    fn files(&self, client_ca: bool, crl: bool) -> TlsFiles {
        TlsFiles {
            cert: self.path("cert.pem"),
            key: self.path("key.pem"),
            client_ca: client_ca.then(|| self.path("ca.pem")),
            crl: crl.then(|| self.path("crl.pem")),
            require_client_cert: true,
            username_from: UsernameFrom::Cn,
            alpn_required: false,
        }
    }
}

fn user_name(cert: &[u8], from: UsernameFrom) -> Result<Option<String>, CertificateNameError> {
    CertificateNames::read(cert)?.user_name(from)
}

/// Connects; gives the user name the server sees and the protocol agreed on.
async fn connect(
    listener: &TlsListener,
    setup: &Setup,
    server: &str,
    identity: Option<&(String, String)>,
    alpn: &[&[u8]],
) -> Result<(Option<String>, Option<Vec<u8>>), String> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(setup.authority.pem.as_bytes()).expect("PEM");
    roots.add(ca).expect("root");
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(vec![cert], key).expect("identity")
        }
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let (near, far) = tokio::io::duplex(16_384);
    let name = ServerName::try_from(server.to_owned()).expect("name");
    let client = async {
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, far).await?;
        // TLS 1.3 clients learn of a refused certificate with the first read.
        stream.write_all(b"x").await?;
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        Ok::<_, std::io::Error>(())
    };
    let server = async {
        let mut stream = listener.accept(near).await?;
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        stream.write_all(&byte).await?;
        stream.flush().await?;
        let session = stream.get_ref().1;
        let user = match session.peer_certificates().and_then(|c| c.first()) {
            Some(cert) => user_name(cert, listener.username_from()).map_err(std::io::Error::other)?,
            None => None,
        };
        Ok::<_, std::io::Error>((user, session.alpn_protocol().map(<[u8]>::to_vec)))
    };
    let (served, connected) = tokio::join!(server, client);
    connected.map_err(|e| e.to_string())?;
    served.map_err(|e| e.to_string())
}

fn load(files: &TlsFiles) -> TlsListener {
    TlsListener::load(files, false, 16_384).unwrap_or_else(|e| panic!("{e}"))
}

#[tokio::test]
async fn a_client_connects_with_and_without_an_application_protocol() {
    let setup = Setup::new();
    let listener = load(&setup.files(false, false));
    assert_eq!(connect(&listener, &setup, "localhost", None, &[]).await, Ok((None, None)));
    let mqtt = connect(&listener, &setup, "localhost", None, &[b"x", b"mqtt"]).await;
    assert_eq!(mqtt, Ok((None, Some(b"mqtt".to_vec()))));
    assert_eq!(connect(&listener, &setup, "localhost", None, &[b"x"]).await, Ok((None, None)));
    let mut strict = setup.files(false, false);
    strict.alpn_required = true;
    let listener = load(&strict);
    assert!(connect(&listener, &setup, "localhost", None, &[b"x"]).await.is_err());
    assert!(connect(&listener, &setup, "localhost", None, &[]).await.is_ok());
}

#[tokio::test]
async fn a_client_certificate_is_asked_for_and_names_the_user() {
    let setup = Setup::new();
    let listener = load(&setup.files(true, false));
    let identity = leaf(&setup.authority, "dev1", 2);
    let connected = connect(&listener, &setup, "localhost", Some(&identity), &[]).await;
    assert_eq!(connected, Ok((Some("cn of dev1".into()), None)));
    assert!(connect(&listener, &setup, "localhost", None, &[]).await.is_err());
    let stranger = leaf(&authority(), "dev1", 2);
    assert!(connect(&listener, &setup, "localhost", Some(&stranger), &[]).await.is_err());
    let mut optional = setup.files(true, false);
    optional.require_client_cert = false;
    assert_eq!(connect(&load(&optional), &setup, "localhost", None, &[]).await, Ok((None, None)));
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_as_soon_as_the_list_is_loaded() {
    let setup = Setup::new();
    setup.write("crl.pem", &crl(&setup.authority, &[]));
    let files = setup.files(true, true);
    let listener = load(&files);
    let identity = leaf(&setup.authority, "dev1", 7);
    assert!(connect(&listener, &setup, "localhost", Some(&identity), &[]).await.is_ok());
    setup.write("crl.pem", &crl(&setup.authority, &[7]));
    listener.reload(&files).expect("reload");
    assert!(connect(&listener, &setup, "localhost", Some(&identity), &[]).await.is_err());
    let other = leaf(&setup.authority, "dev2", 8);
    assert!(connect(&listener, &setup, "localhost", Some(&other), &[]).await.is_ok());
}

#[tokio::test]
async fn a_reload_takes_the_new_certificate_and_a_failed_one_keeps_the_old() {
    let setup = Setup::new();
    let files = setup.files(false, false);
    let listener = load(&files);
    setup.serve("renamed");
    assert!(connect(&listener, &setup, "localhost", None, &[]).await.is_ok(), "not reloaded yet");
    listener.reload(&files).expect("reload");
    assert!(connect(&listener, &setup, "renamed", None, &[]).await.is_ok());
    setup.write("key.pem", "garbage");
    let error = listener.reload(&files).expect_err("garbage").to_string();
    assert!(error.contains("key.pem"), "{error}");
    assert!(connect(&listener, &setup, "renamed", None, &[]).await.is_ok());
}

#[test]
fn errors_name_the_file() {
    let setup = Setup::new();
    let error = |files: &TlsFiles| TlsListener::load(files, false, 16_384).err().map(|e| e.to_string());
    let mut missing = setup.files(false, false);
    missing.cert = Path::new("/nowhere/cert.pem").into();
    assert!(error(&missing).is_some_and(|e| e.starts_with("/nowhere/cert.pem: ")));
    setup.write("key.pem", &leaf(&setup.authority, "other", 3).1);
    let mixed = error(&setup.files(false, false));
    assert!(mixed.is_some_and(|e| e.contains("cert.pem") && e.contains("key.pem")));
    setup.write("cert.pem", "");
    assert!(error(&setup.files(false, false)).is_some_and(|e| e.contains("no certificate")));
}

/// Made by `openssl x509 -req` without extensions, with its authority; the rest of these tests can't make them.
const VERSION_1: &str = include_str!("../../tests/fixtures/v1.pem");
const VERSION_1_AUTHORITY: &str = include_str!("../../tests/fixtures/v1-authority.pem");

/// Shows a certificate without looking at it.
#[derive(Debug)]
struct Shows(Arc<rustls::sign::CertifiedKey>);

impl rustls::client::ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_certificate_of_version_1_is_named_as_such_on_both_sides() {
    let setup = Setup::new();
    setup.write("cert.pem", VERSION_1);
    setup.write("key.pem", VERSION_1);
    let error = TlsListener::load(&setup.files(false, false), false, 16_384).err().map(|e| e.to_string());
    assert!(error.as_ref().is_some_and(|e| e.contains("X.509 version 1")), "{error:?}");

    let setup = Setup::new();
    setup.write("ca.pem", VERSION_1_AUTHORITY);
    let listener = load(&setup.files(true, false));
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let cert = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(VERSION_1.as_bytes()).expect("PEM");
    let key = provider.key_provider.load_private_key(key).expect("a key");
    let shows = Shows(Arc::new(rustls::sign::CertifiedKey::new(vec![cert], key)));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(setup.authority.pem.as_bytes()).expect("PEM")).expect("root");
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(shows));
    let (near, far) = tokio::io::duplex(16_384);
    let name = ServerName::try_from("localhost").expect("name");
    let connector = TlsConnector::from(Arc::new(config));
    let (served, _) = tokio::join!(listener.accept(near), connector.connect(name, far));
    let error = served.map(|_| ()).expect_err("refused");
    let error = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()).expect("of TLS");
    assert!(super::tls::explain(error).contains("X.509 version 1"), "{error}");
}

#[test]
fn names_come_from_where_they_are_asked_for() {
    let (pem, _) = leaf(&authority(), "dev1.example", 2);
    let cert = CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    assert_eq!(user_name(&cert, UsernameFrom::None), Ok(None));
    assert_eq!(user_name(&cert, UsernameFrom::Cn), Ok(Some("cn of dev1.example".into())));
    assert_eq!(user_name(&cert, UsernameFrom::San), Ok(Some("dev1.example".into())));
    let garbage = CertificateDer::from(vec![1, 2, 3]);
    assert_eq!(user_name(&garbage, UsernameFrom::Cn), Err(CertificateNameError::Unparsable));
}
