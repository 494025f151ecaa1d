//! The HTTP client of the OpenTelemetry trace exporter.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use super::client::Connector;
use super::connection_pool::ConnectionPool;
use super::dialer::Dialer;
use super::forward_proxy::{ForwardProxy, ProxyDecision};
use super::request_body::RequestBody;
use super::tls::{self, ClientTlsError, TlsPeer};
use crate::config::routes::{Authorities, Environment};
use crate::observe::error_chain::error_chain;
use crate::observe::metrics::Traffic;
use crate::observe::otlp::settings::Collector;

/// Limit of the bytes that are read of a trace collector's answer.
const ANSWER_MAX: usize = 64 << 10;

/// The setting with the certificate authorities of a collector, for errors.
const AUTHORITIES: &str = "`OTEL_EXPORTER_OTLP_CERTIFICATE`";

/// The reason why a collector can never be reached.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The address has no host, or no host that can be in a certificate.
    #[error("the address of the collector has no host that can be used")]
    Address,
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] ClientTlsError),
    /// The system gives no resources for the runtime.
    #[error("no connection can be made")]
    Runtime(#[from] io::Error),
}

/// Connections to a collector of traces.
///
/// The exporter's thread has no runtime, and the program's runtime must not wait for a collector. So the client has a
/// small runtime of its own, which runs only while the exporter's thread waits for a response.
pub struct CollectorClient {
    client: Arc<ConnectionPool>,
    runtime: Runtime,
    timeout: Duration,
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl CollectorClient {
    /// Returns a client for this collector. It connects when the first spans are sent.
    ///
    /// # Errors
    /// If the address has no host, or TLS cannot be set up.
    pub fn new(collector: &Collector) -> Result<Self, CollectorError> {
        let Collector { url, timeout, ca_file, client_certificate } = collector;
        let host = url.host_str().ok_or(CollectorError::Address)?;
        let port = url.port_or_known_default().ok_or(CollectorError::Address)?;
        // Brackets are part of the text of an IPv6 address, not of the address.
        let host = host.trim_matches(['[', ']']).to_owned();
        let trusted =
            Authorities { files: ca_file.iter().cloned().collect(), ..Authorities::default() };
        let tls = match url.scheme() {
            "https" => {
                let own = client_certificate.as_ref();
                let own = own.map(|(certificate, key)| (&**certificate, &**key));
                let connector = tls::connector(&trusted, own, &[])?;
                let name =
                    ServerName::try_from(host.clone()).map_err(|_| CollectorError::Address)?;
                Some(TlsPeer { connector, name, setting: AUTHORITIES })
            }
            _ => None,
        };
        let decision = ProxyDecision::of(None, &Environment::of_process(), url);
        decision.log("traces", url);
        let proxy = decision.proxy().map(|proxy| ForwardProxy::new(proxy, &trusted, AUTHORITIES));
        let dialer = Dialer::new(host, port, tls).through(proxy.transpose()?);
        let connector = Connector::Network(Arc::new(dialer));
        let client = Arc::new(ConnectionPool::new(connector, *timeout, &Traffic::default()));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { client, runtime, timeout: *timeout })
    }

    async fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Box<dyn Error>> {
        let mut request = request.map(RequestBody::from);
        if let Some(authority) = request.uri().authority() {
            let host = HeaderValue::from_str(authority.as_str())?;
            request.headers_mut().insert(header::HOST, host);
        }
        let (head, mut body) = self.client.send(request).await?.into_parts();
        let mut answer = BytesMut::new();
        while let Some(bytes) = poll_fn(|cx| body.poll_data(cx)).await {
            answer.extend_from_slice(&bytes?);
            if answer.len() > ANSWER_MAX {
                return Err("its answer is too long".into());
            }
        }
        Ok(Response::from_parts(head, answer.freeze()))
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'b, Result<Response<Bytes>, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            // The exporter has no timeout of its own, so the client must have one.
            let answer = async { timeout(self.timeout, self.post(request)).await };
            match self.runtime.block_on(answer) {
                Ok(answer) => answer.map_err(|error| error_chain(&*error).into()),
                Err(_) => Err(format!("no answer within {:?}", self.timeout).into()),
            }
        })
    }
}
