//! The SDK's pipeline: a bounded queue, an exporter with Milepost's own HTTP client, and counters.

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator, RandomIdGenerator, SdkTracer,
    SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};
use prost::Message;
use tracing::{info, warn};

use super::settings::{self, Collector, TraceSettings};
use super::{Counts, DownstreamTransport, SpanMark, span};
use crate::observe::error_chain::error_chain;
use crate::progress::Summary;
use crate::protocol::trace_context::to_hex;

/// Deadline for spans to be sent at the end of the process.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The pipeline of this process.
struct Pipeline {
    over: DownstreamTransport,
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    tally: Arc<Tally>,
}

/// The counts of spans, and the last failure of the collector.
#[derive(Debug, Default)]
struct Tally {
    recorded: AtomicU64,
    exported: AtomicU64,
    dropped: AtomicU64,
    /// The number of spans in the queue.
    queued: AtomicUsize,
    /// The number of spans that the collector rejected in the current export.
    rejected: AtomicU64,
    failure: Mutex<String>,
}

static PIPELINE: OnceLock<Pipeline> = OnceLock::new();

/// The tracing of calls, begun by [`start`]. [`Traces::close`] sends the remaining spans.
#[derive(Debug)]
#[must_use]
pub struct Traces(());

/// Begins to record calls as spans, if the environment names a collector. `connect` makes the HTTP client. A failure is
/// only logged.
pub fn start<C, E>(
    over: DownstreamTransport,
    connect: impl FnOnce(&Collector) -> Result<C, E>,
) -> Traces
where
    C: HttpClient + 'static,
    E: Error,
{
    let traces = Traces(());
    let why = match settings::read(|name| std::env::var(name).ok()) {
        Ok(None) => return traces,
        Err(error) => error.to_string(),
        Ok(Some((settings, doubts))) => {
            for doubt in doubts {
                warn!(what = doubt.to_string(), "a variable of OpenTelemetry is not used");
            }
            let to = name(&settings.collector);
            let client = connect(&settings.collector).map_err(|error| error_chain(&error));
            let begin =
                |client| pipeline(over, &settings, client).map_err(|error| error_chain(&error));
            match client.and_then(begin) {
                Ok(pipeline) => {
                    // A process has one pipeline: a second start changes nothing.
                    if PIPELINE.set(pipeline).is_ok() {
                        info!(to, "calls are exported as traces");
                    }
                    return traces;
                }
                Err(why) => why,
            }
        }
    };
    warn!(why, "calls are not exported as traces");
    traces
}

/// Returns the host and port of the collector.
fn name(collector: &Collector) -> String {
    let host = collector.url.host_str().unwrap_or_default();
    format!("{host}:{}", collector.url.port_or_known_default().unwrap_or_default())
}

fn pipeline(
    over: DownstreamTransport,
    settings: &TraceSettings,
    client: impl HttpClient + 'static,
) -> Result<Pipeline, ExporterBuildError> {
    let tally = Arc::<Tally>::default();
    let agent = concat!("milepost/", env!("CARGO_PKG_VERSION")).to_owned();
    let otlp = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(settings.collector.url.as_str())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(settings.collector.timeout)
        .with_headers(HashMap::from([("user-agent".to_owned(), agent)]))
        .with_http_client(CountingClient { client, tally: Arc::clone(&tally) })
        .build()?;
    let to = name(&settings.collector);
    let exporter =
        CountingExporter { otlp, to, fails: AtomicBool::new(false), tally: Arc::clone(&tally) };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(settings.queue)
        .with_scheduled_delay(settings.delay)
        .build();
    let batches = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    let processor = CountingQueue { batches, max: settings.queue, tally: Arc::clone(&tally) };
    let provider = SdkTracerProvider::builder()
        .with_resource(resource())
        .with_span_processor(processor)
        .build();
    let scope = InstrumentationScope::builder("milepost").with_version(env!("CARGO_PKG_VERSION"));
    let tracer = provider.tracer_with_scope(scope.build());
    Ok(Pipeline { over, tracer, provider, tally })
}

/// Returns the attributes of this process: those of the SDK and of the environment, then Milepost's own for other
/// names.
fn resource() -> Resource {
    let found = Resource::builder().build();
    let mut own = vec![
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance()),
    ];
    // Attributes from the environment take precedence over Milepost's own.
    own.retain(|pair| found.get_ref(&pair.key).is_none());
    // According to the specification this variable takes precedence over the attributes; the SDK ignores that.
    let service = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    for (key, value) in found.iter() {
        let text = value.as_str();
        match key.as_str() {
            "service.name" if service.is_some() || text.starts_with("unknown_service") => {
                let name = service.clone().unwrap_or_else(|| "milepost".to_owned());
                own.push(KeyValue::new("service.name", name));
            }
            // According to the specification these values are percent-encoded, but the SDK does not decode them.
            _ if text.contains('%') => {
                let text = percent_decoded(&text).unwrap_or_else(|| text.into_owned());
                own.push(KeyValue::new(key.clone(), Value::from(text)));
            }
            _ => {}
        }
    }
    Resource::builder().with_attributes(own).build()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(piece.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Returns a random UUID that identifies this process for collectors.
fn instance() -> String {
    let mut bytes = RandomIdGenerator::default().new_trace_id().to_bytes();
    // RFC 9562, 5.4: with these version and variant bits, random bytes are a UUID of version 4.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = to_hex(&bytes);
    for place in [20, 16, 12, 8] {
        text.insert(place, '-');
    }
    text
}

impl Traces {
    /// Sends the remaining spans, and waits until the deadline at most.
    pub fn close(self) {
        let Some(Pipeline { provider, tally, .. }) = PIPELINE.get() else { return };
        let _ = provider.shutdown_with_timeout(FLUSH_MAX);
        let exported = tally.exported.load(Ordering::Relaxed);
        let lost = tally.recorded.load(Ordering::Relaxed).saturating_sub(exported);
        if lost > 0 {
            warn!(exported, lost, "the collector has not got the spans of all calls");
        }
    }
}

/// Whether calls become spans.
pub fn is_on() -> bool {
    PIPELINE.get().is_some()
}

/// Returns the counts of spans.
pub fn counts() -> Counts {
    let Some(Pipeline { tally, .. }) = PIPELINE.get() else { return Counts::default() };
    Counts {
        exported: tally.exported.load(Ordering::Relaxed),
        dropped: tally.dropped.load(Ordering::Relaxed),
    }
}

/// Records an ended call as a span, if it is a tool call or its client sent a trace context. Returns the trace id.
pub fn record(call: &Summary, route: Option<&str>, marks: &[SpanMark]) -> Option<String> {
    let Pipeline { over, tracer, .. } = PIPELINE.get()?;
    // A span for every `ping` would hide the calls, so other requests become spans only if their client sends a trace
    // context.
    if call.tool.is_none() && call.trace.is_none() {
        return None;
    }
    span::record(tracer, call, *over, route, marks)
}

/// The SDK's queue, which also counts dropped spans, because the SDK does not tell their number.
#[derive(Debug)]
struct CountingQueue {
    batches: BatchSpanProcessor,
    max: usize,
    tally: Arc<Tally>,
}

impl SpanProcessor for CountingQueue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        self.tally.recorded.fetch_add(1, Ordering::Relaxed);
        // Counted before the SDK gets the span: the SDK would also drop a span beyond its limit, but without reporting
        // it.
        if self.tally.queued.fetch_add(1, Ordering::Relaxed) < self.max {
            self.batches.on_end(span);
        } else {
            self.tally.queued.fetch_sub(1, Ordering::Relaxed);
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// The SDK's exporter, whose results are counted and logged.
#[derive(Debug)]
struct CountingExporter {
    otlp: opentelemetry_otlp::SpanExporter,
    to: String,
    /// Whether the last export failed.
    fails: AtomicBool,
    tally: Arc<Tally>,
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (tally, to, count) = (&self.tally, &*self.to, batch.len());
        // The batch has left the queue even if the export fails, because the SDK does not send it again.
        tally.queued.fetch_sub(count, Ordering::Relaxed);
        tally.rejected.store(0, Ordering::Relaxed);
        let exported = self.otlp.export(batch).await;
        let count = count as u64;
        let dropped = match &exported {
            Ok(()) => tally.rejected.load(Ordering::Relaxed).min(count),
            Err(_) => count,
        };
        tally.dropped.fetch_add(dropped, Ordering::Relaxed);
        tally.exported.fetch_add(count - dropped, Ordering::Relaxed);
        // Log only a change: an export to an unreachable collector fails every few seconds.
        if self.fails.swap(exported.is_err(), Ordering::Relaxed) != exported.is_err() {
            if exported.is_ok() {
                info!(to, "the collector of traces takes spans again");
            } else {
                let why = tally.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
                warn!(to, why, "the collector of traces accepts no spans; the spans are dropped");
            }
        }
        exported
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.otlp.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

/// The HTTP client, which also reads the answers: the SDK reports neither the cause of a failure nor how many spans a
/// collector rejects.
#[derive(Debug)]
struct CountingClient<C> {
    client: C,
    tally: Arc<Tally>,
}

impl<C: HttpClient> HttpClient for CountingClient<C> {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'b, Result<Response<Bytes>, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = self.client.send_bytes(request).await;
            let failure = match &answer {
                Ok(answer) if answer.status().is_success() => {
                    // OTLP: a collector may accept only some of the spans. Its answer has the number of rejected ones.
                    let read = ExportTraceServiceResponse::decode(answer.body().clone());
                    let partial = read.ok().and_then(|read| read.partial_success);
                    let rejected = partial.map_or(0, |partial| partial.rejected_spans);
                    let rejected = u64::try_from(rejected).unwrap_or_default();
                    self.tally.rejected.store(rejected, Ordering::Relaxed);
                    String::new()
                }
                Ok(answer) => format!("HTTP status {}", answer.status().as_u16()),
                Err(error) => error.to_string(),
            };
            *self.tally.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
            answer
        })
    }
}
