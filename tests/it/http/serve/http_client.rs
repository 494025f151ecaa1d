//! Clients that speak HTTP/1.1 or HTTP/2, with or without TLS.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::support::STUCK;

/// A connection.
pub(crate) enum Client {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// Without TLS.
    pub(crate) async fn plain(address: &str, http2: bool) -> Self {
        Self::speak(TcpStream::connect(address).await.unwrap(), http2).await
    }

    /// With TLS, in the version that is agreed on.
    pub(crate) async fn tls(address: &str, config: ClientConfig) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Self::speak(stream, http2).await
    }

    async fn speak(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, http2: bool) -> Self {
        let io = TokioIo::new(io);
        if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            Self::Two(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            Self::One(sender)
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::Two(_))
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        address: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Response<Incoming> {
        self.send_to("/a", method, address, headers, body).await
    }

    /// The same to any path.
    pub(crate) async fn send_to(
        &mut self,
        path: &str,
        method: &str,
        address: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Response<Incoming> {
        // Every listener on loopback accepts this host, whatever its certificate says.
        let port = address.rsplit(':').next().unwrap();
        let uri = match self {
            Self::One(_) => path.to_owned(),
            Self::Two(_) => format!("http://localhost:{port}{path}"),
        };
        let mut request = Request::builder().method(method).uri(uri);
        if let Self::One(_) = self {
            request = request.header("host", format!("localhost:{port}"));
        }
        for (name, value) in super::POST.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).unwrap();
        let answer = async {
            match self {
                Self::One(sender) => sender.send_request(request).await.unwrap(),
                Self::Two(sender) => sender.send_request(request).await.unwrap(),
            }
        };
        timeout(STUCK, answer).await.unwrap()
    }
}

/// The rest of an answer.
pub(crate) async fn rest(response: Response<Incoming>) -> String {
    let body = timeout(STUCK, response.into_body().collect()).await.unwrap().unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

/// Reads an answer until this text has arrived.
pub(crate) async fn until(response: &mut Response<Incoming>, text: &str) -> String {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(text) {
        let frame = timeout(STUCK, response.body_mut().frame()).await.unwrap();
        let frame = frame.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&heard)));
        heard.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    String::from_utf8(heard).unwrap()
}
