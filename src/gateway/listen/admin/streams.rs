//! `/calls` and `/tap`: streams without an end that show calls while they happen.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{ACCEPT, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};
use url::form_urlencoded;

use super::{AdminResponse, PLAIN, plain, typed};
use crate::gateway::listen::connection::BodyError;
use crate::gateway::listen::last_use::{EndlessAnswer, LastUse};
use crate::observe::calls::{CallTableReader, PATH_OF_TAP, ROUND, Table, TapFilter, TapReader};
use crate::progress::{Reason, Repair};

/// Limit of observers with an endless stream. A further observer gets 503, so that connections to the admin listener
/// stay free for probes.
const WATCHERS_MAX: usize = 16;

/// Number of bytes of messages that are written together.
const BATCH_BYTES: usize = 16 << 10;

const EVENTS: &str = "text/event-stream";
pub(in crate::gateway::listen) const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

/// The header of `/tap` with the number of routes whose messages are shown.
pub const ROUTES_WATCHED: HeaderName = HeaderName::from_static("milepost-routes");

/// The error for unknown parameters in the query of `/tap`.
const QUERY: &str = "route, tool, verdict and format=json are known";

/// What the endless streams to observers share.
pub(in crate::gateway::listen) struct AdminStreams {
    room: Arc<Semaphore>,
    over: watch::Sender<bool>,
}

impl Default for AdminStreams {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(WATCHERS_MAX));
        Self { room, over: watch::Sender::new(false) }
    }
}

impl AdminStreams {
    /// Ends all streams, including those that begin later.
    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    pub(in crate::gateway::listen) fn answer(
        &self,
        calls: &Arc<Table>,
        last_use: Option<&LastUse>,
        parts: &Parts,
    ) -> AdminResponse {
        let path = parts.uri.path();
        if let Some(number) = path.strip_prefix("/calls/") {
            let call = number.parse().ok().and_then(|number| calls.call_json(number));
            return match call {
                Some(json) => typed(StatusCode::OK, JSON, json),
                None => plain(
                    StatusCode::NOT_FOUND,
                    "milepost: there is no call of this number, or no longer\n",
                ),
            };
        }
        let taps = path == PATH_OF_TAP;
        let accepts_events = parts
            .headers
            .get_all(ACCEPT)
            .iter()
            .any(|accept| memchr::memmem::find(accept.as_bytes(), EVENTS.as_bytes()).is_some());
        if !taps && !accepts_events {
            return typed(StatusCode::OK, JSON, calls.json());
        }
        let filter = match filter(parts.uri.query().unwrap_or_default()) {
            Err(why) if taps => {
                return plain(StatusCode::BAD_REQUEST, &format!("milepost: {why}\n"));
            }
            filter => filter.unwrap_or_default(),
        };
        let watched = match calls.watched(filter.route.as_deref().filter(|_| taps)) {
            Ok(watched) => watched,
            Err(why) => return plain(StatusCode::BAD_REQUEST, &format!("milepost: {why}\n")),
        };
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let why =
                format!("milepost: {WATCHERS_MAX} look on already, which is as many as may\n");
            return plain(StatusCode::SERVICE_UNAVAILABLE, &why);
        };
        let mut over = self.over.subscribe();
        let over = Box::pin(async move {
            let _ = over.wait_for(|over| *over).await;
        });
        let (kind, source) = if taps {
            let kind = if filter.json { LINES } else { PLAIN };
            (kind, AdminSource::Tap(Box::new(TapReader::begin(calls, filter))))
        } else {
            let mut rounds = interval(ROUND);
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            (EVENTS, AdminSource::Calls(Box::new(CallTableReader::at(calls)), Box::new(rounds)))
        };
        let answer = last_use.map(LastUse::begin_answer);
        let endless = Endless { source, over, _room: room, _answer: answer };
        let mut response = Response::new(AdminBody::Endless(endless));
        response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if taps {
            response.headers_mut().insert(ROUTES_WATCHED, HeaderValue::from(watched));
        }
        response
    }
}

/// Reads the filter of an observer; the error says which values are valid.
fn filter(query: &str) -> Result<TapFilter, String> {
    let mut filter = TapFilter::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = value.into_owned();
        match &*name {
            "route" => filter.route = Some(value),
            "tool" => filter.tool = Some(value),
            "verdict" if is_verdict(&value) => filter.verdict = Some(value),
            "verdict" => {
                return Err(format!(
                    "{value:?} is not a verdict; forwarded, repaired, withheld, added, or the name of a \
                     reason or a repair is expected"
                ));
            }
            "format" if value == "json" => filter.json = true,
            _ => return Err(format!("{name:?} is not known here; {QUERY}")),
        }
    }
    Ok(filter)
}

/// Whether a verdict, reason or repair has this name.
fn is_verdict(name: &str) -> bool {
    ["forwarded", "repaired", "withheld", "added", "heartbeat", "text"].contains(&name)
        || Reason::ALL.iter().any(|reason| reason.name() == name)
        || Repair::ALL.iter().any(|repair| repair.name() == name)
}

/// The body of a response to an operator.
pub(crate) enum AdminBody {
    /// The whole body.
    Whole(Full<Bytes>),
    /// Events as they happen.
    Endless(Endless),
}

/// An endless stream to an observer. Nothing is produced while the observer does not read.
pub(crate) struct Endless {
    source: AdminSource,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    _room: OwnedSemaphorePermit,
    _answer: Option<EndlessAnswer>,
}

enum AdminSource {
    Calls(Box<CallTableReader>, Box<Interval>),
    Tap(Box<TapReader>),
}

impl AdminSource {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        match self {
            Self::Calls(looking, rounds) => loop {
                ready!(rounds.poll_tick(cx));
                if let Some(news) = looking.round() {
                    return Poll::Ready(news);
                }
            },
            Self::Tap(tap) => tap.poll(cx, BATCH_BYTES),
        }
    }
}

impl From<Bytes> for AdminBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Full::new(bytes))
    }
}

impl Default for AdminBody {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl http_body::Body for AdminBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Pin::new(bytes).poll_frame(cx).map_err(BodyError::from),
            Self::Endless(endless) => {
                if endless.over.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                let news = ready!(endless.source.poll(cx));
                Poll::Ready(Some(Ok(Frame::data(Bytes::from(news)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => bytes.size_hint(),
            Self::Endless(_) => SizeHint::new(),
        }
    }
}
