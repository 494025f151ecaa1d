//! A client made with the Rust SDK (rmcp), for Milepost's end-to-end tests.
//!
//! The command line and the report are those of all drivers: see `../README.md`.

#![expect(deprecated, reason = "logging is deprecated in 2026-07-28; servers still use it")]

mod http;
mod options;
mod report;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::http::{HeaderName, HeaderValue};
use futures::{FutureExt, StreamExt};
use options::Options;
use report::{Call, Report, Warnings};
use rmcp::handler::client::progress::ProgressDispatcher;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientConfig, ClientRequest, CustomNotification,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion, ServerResult,
};
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, Peer};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout, timeout_at};

/// Time to let the SDK close the server: it waits 3 s, terminates, waits 3 s, kills.
const CLOSE: Duration = Duration::from_secs(9);

/// The application: hands progress to whoever subscribed to its token.
#[derive(Clone, Default)]
struct App {
    config: ClientConfig,
    progress: ProgressDispatcher,
    seen: Arc<AtomicU64>,
    report: Arc<Mutex<Report>>,
}

impl ClientHandler for App {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        self.progress.handle_notification(params).await;
    }

    async fn on_logging_message(
        &self,
        _params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        report::lock(&self.report).notification("notifications/message");
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        _context: NotificationContext<RoleClient>,
    ) {
        report::lock(&self.report).notification(&notification.method);
    }
}

fn main() {
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|problem| {
        eprintln!("{problem}\nusage: client --call TOOL[=JSON] ... [options] --url URL | -- CMD [ARG...]   (see tests/sdk/README.md)");
        std::process::exit(2);
    });
    let mut app = App::default();
    if let Some(version) = version(&options) {
        app.config.protocol_version = version;
    }
    let warnings = Warnings(app.report.clone());
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_ansi(false)
        .without_time()
        .with_writer(move || warnings.clone())
        .init();
    // One thread: the SDK starts a task for each notification, more threads would run them out of order.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(run(&app, &options));
    let mut report = report::lock(&app.report);
    report.stray(app.seen.load(Ordering::Relaxed));
    println!("{}", report.to_json());
}

async fn run(app: &App, options: &Options) {
    let deadline = tokio::time::Instant::now() + options.deadline;
    let fault = |text: String| report::lock(&app.report).fault(&text);
    let service = match timeout_at(deadline, connect(app, options)).await {
        Ok(Ok(service)) => service,
        Ok(Err(problem)) => return fault(problem),
        Err(_) => {
            fault(format!("deadline of {} s reached", options.deadline.as_secs_f64()));
            // Dropping the transport started a task that kills the server.
            return sleep(Duration::from_millis(200)).await;
        }
    };
    if let Some(server) = service.peer_info() {
        let server = serde_json::to_value(&*server).unwrap_or_default();
        report::lock(&app.report)
            .connected(server["serverInfo"].clone(), server["protocolVersion"].clone());
    }
    if timeout_at(deadline, calls(app, &service, options)).await.is_err() {
        fault(format!("deadline of {} s reached", options.deadline.as_secs_f64()));
    }
    let frozen = report::lock(&app.report).calls.clone();
    match timeout(CLOSE, service.cancel()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => fault(error.to_string()),
        Err(_) => fault("the server did not close".to_owned()),
    }
    // Closing ends the calls still running with an error of its own: report them as they were.
    report::lock(&app.report).calls = frozen;
}

async fn connect(app: &App, options: &Options) -> Result<RunningService<RoleClient, App>, String> {
    let modern = version(options).filter(|version| !version.has_initialize());
    let lifecycle = if options.auto {
        ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: None,
        }
    } else if let Some(version) = modern {
        ClientLifecycleMode::Discover { preferred_versions: vec![version] }
    } else {
        ClientLifecycleMode::Initialize
    };
    let service = if let Some(url) = &options.url {
        let client = http::Watched { client: reqwest::Client::new(), report: app.report.clone() };
        let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers(options)?);
        let transport = StreamableHttpClientTransport::with_client(client, config);
        serve_client_with_lifecycle(app.clone(), transport, lifecycle).await
    } else {
        let mut command = tokio::process::Command::new(&options.command);
        command.args(&options.args);
        let transport = TokioChildProcess::new(command).map_err(|error| error.to_string())?;
        serve_client_with_lifecycle(app.clone(), transport, lifecycle).await
    };
    service.map_err(|error| http::chain(&error))
}

/// The protocol version asked for.
fn version(options: &Options) -> Option<ProtocolVersion> {
    serde_json::from_value(Value::from(options.protocol.as_deref()?)).ok()
}

fn headers(options: &Options) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let parse = |(name, value): &(String, String)| {
        let name = name.parse().map_err(|error| format!("--header {name}: {error}"))?;
        let value = value.parse().map_err(|error| format!("--header {name}: {error}"))?;
        Ok((name, value))
    };
    options.headers.iter().map(parse).collect()
}

async fn calls(app: &App, service: &RunningService<RoleClient, App>, options: &Options) {
    let mut running = Vec::new();
    for (tool, args) in std::iter::repeat_n(&options.calls, options.repeat).flatten() {
        let index = report::lock(&app.report).start(tool);
        let params = match args {
            Value::Object(args) => {
                CallToolRequestParams::new(tool.clone()).with_arguments(args.clone())
            }
            _ => CallToolRequestParams::new(tool.clone()),
        };
        let mut request = PeerRequestOptions::no_options();
        request.timeout = options.timeout;
        request.reset_timeout_on_progress = options.reset;
        let call =
            call(app.clone(), service.peer().clone(), params, request, options.progress, index);
        // A task of its own, so that it runs after the SDK's notification tasks that came before the result.
        let task = tokio::spawn(call);
        if options.concurrent {
            running.push(task);
        } else {
            let _ = task.await;
        }
    }
    for task in running {
        let _ = task.await;
    }
    sleep(options.linger).await;
}

async fn call(
    app: App,
    peer: Peer<RoleClient>,
    params: CallToolRequestParams,
    request: PeerRequestOptions,
    subscribe: bool,
    index: usize,
) {
    let start = Instant::now();
    let record = |p: ProgressNotificationParam| {
        let line = json!([p.progress, p.total, p.message, millis(start)]);
        report::lock(&app.report).calls[index].progress.push(line);
    };
    let outcome = async {
        let handle = peer.send_request_with_option(call_request(params), request).await?;
        if !subscribe {
            return handle.await_response().await;
        }
        let mut progress = app.progress.subscribe(handle.progress_token.clone()).await;
        let mut response = std::pin::pin!(handle.await_response());
        let response = loop {
            tokio::select! {
                biased;
                Some(p) = progress.next() => record(p),
                response = &mut response => break response,
            }
        };
        // The SDK may wake this task before the one that handles a notification it read just before.
        tokio::task::yield_now().await;
        while let Some(Some(p)) = progress.next().now_or_never() {
            record(p);
        }
        response
    }
    .await;
    finish(&mut report::lock(&app.report).calls[index], outcome, millis(start));
}

fn call_request(params: CallToolRequestParams) -> ClientRequest {
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}

fn finish(call: &mut Call, outcome: Result<ServerResult, ServiceError>, ms: u64) {
    call.ms = Some(ms);
    let error = match outcome {
        Ok(ServerResult::CallToolResult(result)) => {
            call.is_error = result.is_error == Some(true);
            call.result = serde_json::to_value(&result).unwrap_or_default();
            call.outcome = "result";
            call.error = None;
            return;
        }
        // What the SDK's own `call_tool` says of any other result.
        Ok(_) => ServiceError::UnexpectedResponse,
        Err(error) => error,
    };
    call.outcome = if matches!(error, ServiceError::Timeout { .. }) { "timeout" } else { "error" };
    if let ServiceError::McpError(error) = &error {
        call.code = Some(error.code.0);
    }
    call.error = Some(error.to_string());
}

fn millis(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
