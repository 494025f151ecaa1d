//! The connection to a collector of traces.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::settings::Settings;

/// Bytes of a collector's answer that are read.
const ANSWER_MAX: usize = 64 << 10;

/// Bytes that a connection to a collector buffers.
const BUFFER_MAX: usize = 64 << 10;

/// The longest `Retry-After` of a collector that is accepted.
const AFTER_MAX: Duration = Duration::from_secs(60);

/// Why a collector did not take what it was sent, without anything that may be secret.
pub(super) struct Failure {
    pub(super) why: String,
    /// It may take it later.
    pub(super) again: bool,
    /// When, as it says itself.
    pub(super) after: Option<Duration>,
}

impl Failure {
    /// It may take it later.
    pub(super) fn later(why: String) -> Self {
        Self { why, again: true, after: None }
    }

    fn of(error: &dyn Error) -> Self {
        Self::later(error_chain(error))
    }
}

/// How a collector is reached, and the connection to it.
pub(super) struct Wire {
    host: String,
    port: u16,
    name: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    path: String,
    headers: HeaderMap,
    gzip: bool,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Wire {
    /// No connection is made before the first spans.
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let url = &settings.to;
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err("the address of the collector has no host".to_owned());
        };
        let name = format!("{host}:{port}");
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match url.scheme() {
            "https" => {
                let server = ServerName::try_from(bare.clone());
                let server = server.map_err(|_| "no certificate can be of the collector's host")?;
                Some((connector(settings)?, server))
            }
            _ => None,
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let mut headers: HeaderMap = settings.headers.iter().cloned().collect();
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        headers.insert(header::HOST, value(&name)?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!("milepost/", env!("CARGO_PKG_VERSION"));
        headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(agent));
        if settings.gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(Self { host: bare, port, name, tls, path, headers, gzip: settings.gzip, open: None })
    }

    /// Host and port, for people.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A request as it is sent.
    pub(super) fn packed(&self, request: Vec<u8>) -> Bytes {
        if !self.gzip {
            return request.into();
        }
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing into memory does not fail.
        let _ = packed.write_all(&request);
        packed.finish().unwrap_or_default().into()
    }

    /// The connection is not used again.
    pub(super) fn forget(&mut self) {
        self.open = None;
    }

    /// Sends a request and reads the answer.
    pub(super) async fn send(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        let mut request = Request::post(&self.path)
            .body(Full::new(body))
            .map_err(|error| Failure { again: false, ..Failure::of(&error) })?;
        *request.headers_mut() = self.headers.clone();
        let kept = self.open.take().filter(|open| !open.is_closed());
        let reused = kept.is_some();
        let mut sender = match kept {
            Some(open) => open,
            None => self.connect().await?,
        };
        let answer = match sender.try_send_request(request).await {
            Ok(answer) => answer,
            Err(mut error) => match error.take_message() {
                // It was closed while nobody looked.
                Some(unsent) if reused => {
                    sender = self.connect().await?;
                    sender.send_request(unsent).await.map_err(|error| Failure::of(&error))?
                }
                _ => return Err(Failure::of(error.error())),
            },
        };
        let status = answer.status();
        let after = answer.headers().get(header::RETRY_AFTER).and_then(|value| {
            let seconds = value.to_str().ok()?.parse().ok()?;
            Some(Duration::from_secs(seconds).min(AFTER_MAX))
        });
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        if body.is_ok() {
            self.open = Some(sender);
        }
        if status.is_success() {
            return Ok(body.map(|body| body.to_bytes()).unwrap_or_default());
        }
        let again = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err(Failure { why: format!("HTTP status {}", status.as_u16()), again, after })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let tcp = TcpStream::connect((&*self.host, self.port)).await;
        let tcp = tcp.map_err(|error| Failure::of(&error))?;
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => speak(tcp).await,
            Some((connector, name)) => {
                let tls = connector.connect(name.clone(), tcp).await;
                speak(tls.map_err(|error| Failure::of(&error))?).await
            }
        }
    }
}

async fn speak<T>(io: T) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = http1::Builder::new().max_buf_size(BUFFER_MAX).handshake(TokioIo::new(io));
    let (sender, connection) = handshake.await.map_err(|error| Failure::of(&error))?;
    // Whoever sends on it hears of its end.
    tokio::spawn(connection);
    Ok(sender)
}

/// The system's authorities and those of the settings; our certificate, if there is one.
fn connector(settings: &Settings) -> Result<TlsConnector, String> {
    let bad = |file: &Path| {
        let file = file.display().to_string();
        move |error| format!("{file} cannot be used: {error}")
    };
    let none = |error: rustls::Error| format!("TLS cannot be set up: {error}");
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = &settings.ca_file {
        for certificate in CertificateDer::pem_file_iter(file).map_err(bad(file))? {
            roots.add(certificate.map_err(bad(file))?).map_err(none)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(none)?
        .with_root_certificates(roots);
    let config = match &settings.client_certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_file_iter(certificate)
                .and_then(Iterator::collect)
                .map_err(bad(certificate))?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(bad(key))?;
            config.with_client_auth_cert(chain, key).map_err(none)?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}
