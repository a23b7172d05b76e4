//! TLS for listeners: configuration from files, reload without a drop.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem, pem::PemObject},
    server::{Acceptor, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use crate::config::{TlsFiles, UsernameFrom};

/// Why TLS cannot be set up. Names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    #[error("certificate {} and key {}: {problem}", cert.display(), key.display())]
    Pair { cert: PathBuf, key: PathBuf, problem: String },
    #[error("TLS: {0}")]
    Setup(String),
}

/// What was made from one set of files.
struct Loaded {
    /// For clients that offer `mqtt` (or, over WebSocket, `http/1.1`) as application protocol.
    with_alpn: Arc<ServerConfig>,
    /// For clients that offer none, or none that is known.
    plain: Arc<ServerConfig>,
    files: TlsFiles,
}

/// Files that were loaded and checked, not yet in use.
pub struct PreparedTls(Loaded);

/// The TLS side of one listener. Handshakes use what was loaded last; connections keep what they began with.
pub struct TlsListener {
    loaded: ArcSwap<Loaded>,
    protocol: &'static [u8],
    max_chain: usize,
}

impl TlsListener {
    /// Loads the files. `websocket` chooses the application protocol; a client's chain may have `max_chain` bytes.
    pub fn load(files: &TlsFiles, websocket: bool, max_chain: usize) -> Result<Self, TlsError> {
        let protocol: &[u8] = if websocket { b"http/1.1" } else { b"mqtt" };
        Ok(Self { loaded: ArcSwap::from_pointee(load(files, protocol)?), protocol, max_chain })
    }

    /// Loads files without using them yet, so that a reload of several listeners is all or nothing.
    pub fn prepare(&self, files: &TlsFiles) -> Result<PreparedTls, TlsError> {
        load(files, self.protocol).map(PreparedTls)
    }

    /// Uses what was prepared. Session tickets of before end with this, so that a revoked certificate cannot come
    /// back by resumption.
    pub fn apply(&self, prepared: PreparedTls) {
        self.loaded.store(Arc::new(prepared.0));
    }

    /// Loads again: on an error everything stays as it was.
    pub fn reload(&self, files: &TlsFiles) -> Result<(), TlsError> {
        self.apply(self.prepare(files)?);
        Ok(())
    }

    /// Where the user name comes from.
    pub fn username_from(&self) -> UsernameFrom {
        self.loaded.load().files.username_from
    }

    /// Does the handshake. The caller sets the deadline.
    pub async fn accept<S>(&self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let start = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let loaded = self.loaded.load_full();
        let (offers_any, offers_ours) = match start.client_hello().alpn() {
            None => (false, false),
            Some(mut offered) => (true, offered.any(|p| p == self.protocol)),
        };
        if loaded.files.alpn_required && offers_any && !offers_ours {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client offers application protocols, but not the one of this listener",
            ));
        }
        let config = if offers_ours { &loaded.with_alpn } else { &loaded.plain };
        let stream = start.into_stream(Arc::clone(config)).await?;
        let chain: usize =
            stream.get_ref().1.peer_certificates().unwrap_or_default().iter().map(|c| c.len()).sum();
        if chain > self.max_chain {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client's certificate chain is too long",
            ));
        }
        Ok(stream)
    }
}

fn load(files: &TlsFiles, protocol: &[u8]) -> Result<Loaded, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let certs = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| file(&files.key, &e))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Setup(e.to_string()))?;
    let builder = match client_verifier(files, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut plain = builder.with_single_cert(certs, key).map_err(|e| TlsError::Pair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        problem: explain(&e),
    })?;
    // Tickets instead of a cache: their keys rotate by themselves, and they cost no memory. Early data stays off,
    // because it can be replayed.
    plain.ticketer = aws_lc_rs::Ticketer::new().map_err(|e| TlsError::Setup(e.to_string()))?;
    plain.max_early_data_size = 0;
    let mut with_alpn = plain.clone();
    with_alpn.alpn_protocols = vec![protocol.to_vec()];
    Ok(Loaded { with_alpn: Arc::new(with_alpn), plain: Arc::new(plain), files: files.clone() })
}

/// What is wrong, in words that lead somewhere.
pub fn explain(error: &rustls::Error) -> String {
    let text = error.to_string();
    // The library below has no word for it that it would hand out.
    if text.contains("UnsupportedCertVersion") {
        return "this certificate is of X.509 version 1, and TLS takes version 3 alone: issue it again with \
                extensions (with `openssl x509 -req`, give an -extfile)"
            .to_owned();
    }
    text
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certs: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|e| file(path, &e))?.collect();
    let certs = certs.map_err(|e| file(path, &e))?;
    if certs.is_empty() {
        let problem = "there is no certificate in this file".into();
        return Err(TlsError::File { path: path.to_owned(), problem });
    }
    Ok(certs)
}

fn client_verifier(
    files: &TlsFiles,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let Some(ca) = &files.client_ca else { return Ok(None) };
    let bad = |path: &Path, problem: String| TlsError::File { path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for cert in certificates(ca)? {
        roots.add(cert).map_err(|e| bad(ca, e.to_string()))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(crl) = &files.crl {
        let lists: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_file_iter(crl).map_err(|e| file(crl, &e))?.collect();
        let lists = lists.map_err(|e| file(crl, &e))?;
        if lists.is_empty() {
            return Err(bad(crl, "there is no revocation list in this file".into()));
        }
        // Few deployments publish a list for each intermediate authority: the client's own certificate counts.
        builder = builder.with_crls(lists).only_check_end_entity_revocation();
    }
    if !files.require_client_cert {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map(Some).map_err(|e| bad(files.crl.as_ref().unwrap_or(ca), e.to_string()))
}

fn file(path: &Path, e: &pem::Error) -> TlsError {
    let problem = match e {
        pem::Error::NoItemsFound => "there is no such item in this file (PEM is expected)".into(),
        pem::Error::Io(e) => e.to_string(),
        other => other.to_string(),
    };
    TlsError::File { path: path.to_owned(), problem }
}
