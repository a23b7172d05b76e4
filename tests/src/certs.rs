//! Certificates for one test: an authority, a server, clients.

use std::{net::TcpStream, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub pem: String,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub cert: String,
    /// The key.
    pub key: String,
}

fn named(cn: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, cn);
    params
}

impl Authority {
    /// A fresh one.
    pub fn new(name: &str) -> Authority {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        Authority { issuer: Issuer::new(params, key), pem: cert.pem() }
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Pair {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A certificate for the broker, valid for `localhost` and the given address.
    pub fn server(&self, ip: std::net::IpAddr) -> Pair {
        let mut params = named("mast test broker");
        params.subject_alt_names =
            vec![SanType::DnsName("localhost".try_into().expect("a name")), SanType::IpAddress(ip)];
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for the broker that ends in so many days.
    pub fn server_for_days(&self, ip: std::net::IpAddr, days: i64) -> Pair {
        let mut params = named("mast test broker");
        params.subject_alt_names = vec![SanType::IpAddress(ip)];
        let now = std::time::SystemTime::now();
        let day = |n: i64| {
            let step = std::time::Duration::from_secs(n.unsigned_abs() * 86_400);
            if n < 0 { now - step } else { now + step }
        };
        (params.not_before, params.not_after) = (day(days.min(0) - 1).into(), day(days).into());
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client.
    pub fn client(&self, cn: &str) -> Pair {
        self.sign(named(cn), ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate for a client that is valid in these years.
    pub fn client_between(&self, cn: &str, from: i32, to: i32) -> Pair {
        let mut params = named(cn);
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// A TLS client configuration that trusts an authority and may show a certificate.
pub fn client_config(authority: &str, own: Option<&Pair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("a client certificate")
        }
    })
}

/// TLS on a TCP stream.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Wraps a stream; the handshake runs with the first bytes.
pub fn connect(config: &Arc<ClientConfig>, stream: TcpStream) -> TlsStream {
    let name = ServerName::try_from("localhost").expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).expect("a TLS client"), stream)
}

/// Writes a pair as `<name>.crt` and `<name>.key`.
pub fn write(dir: &Path, name: &str, pair: &Pair) {
    std::fs::write(dir.join(format!("{name}.crt")), &pair.cert).expect("writable");
    std::fs::write(dir.join(format!("{name}.key")), &pair.key).expect("writable");
}
