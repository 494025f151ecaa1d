//! The SDK's HTTP client, watched for what goes wrong.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::report::{self, Report};

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Outcome<T> = Result<T, StreamableHttpError<reqwest::Error>>;

#[derive(Clone)]
pub struct Watched {
    pub client: reqwest::Client,
    pub report: Arc<Mutex<Report>>,
}

impl Watched {
    fn note<T>(&self, method: &str, outcome: Outcome<T>) -> Outcome<T> {
        let report = || report::lock(&self.report);
        match &outcome {
            // The SDK leaves out what this error came from.
            Err(StreamableHttpError::Client(error)) => report().http_fault(method, error),
            Err(error) => report().http_fault(method, error),
            Ok(_) => {}
        }
        outcome
    }

    fn watch(&self, method: &'static str, events: Events) -> Events {
        let report = self.report.clone();
        let note = move |event: &Result<Sse, SseError>| {
            if let Err(error) = event {
                report::lock(&report).http_fault(method, error);
            }
        };
        events.inspect(note).boxed()
    }
}

impl StreamableHttpClient for Watched {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Outcome<StreamableHttpPostResponse> {
        let answer = self.client.post_message(uri, message, session, auth, headers).await;
        Ok(match self.note("POST", answer)? {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(self.watch("POST", events), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Outcome<()> {
        self.note("DELETE", self.client.delete_session(uri, session, auth, headers).await)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Outcome<Events> {
        let events = self.client.get_stream(uri, session, last_event, auth, headers).await;
        Ok(self.watch("GET", self.note("GET", events)?))
    }
}

/// An error and what it came from: the SDK's own texts leave that out.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}
