//! The byte streams of the command line clients: TCP, TLS, unix socket, and WebSocket over any of them.

use std::{path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::{
    ClientError,
    args::{ClientArgs, Target},
};
use crate::listen::{
    ws::accept_value,
    ws_codec::{WsCodec, WsState, wrap_masked},
};

/// Any byte stream.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Where the operating systems keep the authorities they trust.
const OS_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A stream of MQTT bytes.
pub struct Transport {
    io: Box<dyn Io>,
    ws: Option<Ws>,
}

struct Ws {
    codec: WsCodec,
    buffer: Vec<u8>,
    closed: bool,
}

impl Transport {
    /// Connects, with all handshakes below MQTT.
    pub async fn connect(args: &ClientArgs, target: &Target) -> Result<Self, ClientError> {
        let place = format!("{}:{}", target.host, target.port);
        let mut io: Box<dyn Io> = if let Some(path) = &args.unix {
            let socket = tokio::net::UnixStream::connect(path).await;
            Box::new(socket.map_err(|e| ClientError::new(format!("{}: {e}", path.display())))?)
        } else {
            let socket = tokio::net::TcpStream::connect((target.host.as_str(), target.port)).await;
            let socket = socket.map_err(|e| ClientError::new(format!("{place}: {e}")))?;
            socket.set_nodelay(true).map_err(|e| ClientError::new(format!("{place}: {e}")))?;
            Box::new(socket)
        };
        if target.tls {
            let name = ServerName::try_from(target.host.clone())
                .map_err(|_| ClientError::new(format!("{} is no host name for TLS", target.host)))?;
            let connector = TlsConnector::from(Arc::new(tls_config(args)?));
            let tls = connector.connect(name, io).await;
            io = Box::new(tls.map_err(|e| ClientError::new(format!("{place}: TLS: {e}")))?);
        }
        if args.ws {
            let rest = upgrade(&mut io, &place, args).await?;
            let mut ws = Ws { codec: WsCodec::client(u64::MAX >> 1), buffer: Vec::new(), closed: false };
            ws.buffer = rest;
            return Ok(Self { io, ws: Some(ws) });
        }
        Ok(Self { io, ws: None })
    }

    /// Appends what arrives to `out`; 0: the peer closed. Dropping the future loses nothing.
    pub async fn read(&mut self, out: &mut Vec<u8>) -> std::io::Result<usize> {
        let Some(ws) = &mut self.ws else { return self.io.read_buf(out).await };
        loop {
            if ws.closed {
                return Ok(0);
            }
            if ws.buffer.is_empty() && self.io.read_buf(&mut ws.buffer).await? == 0 {
                return Ok(0);
            }
            let before = out.len();
            let mut answer = Vec::new();
            let state = ws.codec.decode(&ws.buffer, out, &mut answer);
            ws.buffer.clear();
            ws.closed = state != Ok(WsState::Open);
            if !answer.is_empty() {
                self.io.write_all(&answer).await?;
                self.io.flush().await?;
            }
            state.map_err(std::io::Error::other)?;
            if out.len() > before {
                return Ok(out.len() - before);
            }
        }
    }

    /// Sends all of `bytes`.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.ws.is_some() {
            let mut mask = [0; 4];
            ::aws_lc_rs::rand::fill(&mut mask).map_err(std::io::Error::other)?;
            let mut framed = Vec::with_capacity(bytes.len() + 14);
            wrap_masked(bytes, mask, &mut framed);
            self.io.write_all(&framed).await?;
        } else {
            self.io.write_all(bytes).await?;
        }
        self.io.flush().await
    }

    /// Ends the stream in order.
    pub async fn close(mut self) -> std::io::Result<()> {
        self.io.shutdown().await
    }
}

/// The WebSocket upgrade; gives what came behind it.
async fn upgrade(io: &mut Box<dyn Io>, place: &str, args: &ClientArgs) -> Result<Vec<u8>, ClientError> {
    let failed = |what: String| ClientError::new(format!("{place}: WebSocket: {what}"));
    let mut nonce = [0; 16];
    ::aws_lc_rs::rand::fill(&mut nonce).map_err(|_| failed("no random bytes".into()))?;
    let key = STANDARD.encode(nonce);
    let subprotocol =
        if args.protocol.version() == mast_core::codec::Version::V31 { "mqttv3.1" } else { "mqtt" };
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {place}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {subprotocol}\r\n\r\n",
        args.ws_path
    );
    io.write_all(request.as_bytes()).await.map_err(|e| failed(e.to_string()))?;
    io.flush().await.map_err(|e| failed(e.to_string()))?;
    let mut received = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&received).map_err(|e| failed(e.to_string()))? {
            httparse::Status::Complete(length) => {
                if response.code != Some(101) {
                    let code = response.code.unwrap_or(0);
                    let reason = String::from_utf8_lossy(&received[length..]).trim().to_owned();
                    return Err(failed(format!("refused with {code} {reason}")));
                }
                let accepted = accept_value(&key);
                let right = |h: &&mut httparse::Header<'_>| {
                    h.name.eq_ignore_ascii_case("sec-websocket-accept") && h.value == accepted.as_bytes()
                };
                if response.headers.iter_mut().find(right).is_none() {
                    return Err(failed("the answer does not fit the request".into()));
                }
                return Ok(received.split_off(length));
            }
            httparse::Status::Partial if received.len() > 16_384 => {
                return Err(failed("endless answer".into()));
            }
            httparse::Status::Partial => {
                let n = io.read_buf(&mut received).await.map_err(|e| failed(e.to_string()))?;
                if n == 0 {
                    return Err(failed("the connection was closed".into()));
                }
            }
        }
    }
}

fn tls_config(args: &ClientArgs) -> Result<ClientConfig, ClientError> {
    let failed = |e: &dyn std::fmt::Display| ClientError::new(format!("TLS: {e}"));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    match &args.cafile {
        Some(path) => add_authorities(&mut roots, path)?,
        None => {
            let path = OS_AUTHORITIES.iter().map(Path::new).find(|p| p.exists());
            let path = path
                .ok_or_else(|| ClientError::new("this system has no list of authorities: give --cafile"))?;
            add_authorities(&mut roots, path)?;
        }
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|e| failed(&e))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?;
    let builder = if args.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
    } else {
        builder.with_webpki_verifier(verifier)
    };
    let mut config = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let in_file =
                |path: &Path, e: &dyn std::fmt::Display| ClientError::new(format!("{}: {e}", path.display()));
            let certs: Result<Vec<_>, _> =
                CertificateDer::pem_file_iter(cert).map_err(|e| in_file(cert, &e))?.collect();
            let certs = certs.map_err(|e| in_file(cert, &e))?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| in_file(key, &e))?;
            builder.with_client_auth_cert(certs, key).map_err(|e| failed(&e))?
        }
        (_, _) => builder.with_no_client_auth(),
    };
    config.alpn_protocols = args.tls_alpn.iter().map(|p| p.clone().into_bytes()).collect();
    Ok(config)
}

fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), ClientError> {
    let in_file = |e: &dyn std::fmt::Display| ClientError::new(format!("{}: {e}", path.display()));
    let certs = CertificateDer::pem_file_iter(path).map_err(|e| in_file(&e))?;
    let certs = certs.collect::<Result<Vec<_>, _>>().map_err(|e| in_file(&e))?;
    // A list of an operating system may hold some that are not understood.
    let (added, _) = roots.add_parsable_certificates(certs);
    if added == 0 { Err(in_file(&"there is no certificate in this file")) } else { Ok(()) }
}

/// `--insecure`: the chain is verified, the host name is not.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(RustlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
