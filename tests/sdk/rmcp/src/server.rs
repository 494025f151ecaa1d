//! A server made with the Rust SDK (rmcp), over stdio or Streamable HTTP, for Milepost's end-to-end tests.
//!
//! The command line and the tools are those of all servers: see `../README.md`.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, PingRequest, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, ServerRequest, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::time::sleep;

/// The name of each tool, and its arguments.
const TOOLS: [(&str, &[&str]); 5] = [
    ("steps", &["count", "ms", "total"]),
    ("quiet", &["ms"]),
    ("burst", &[]),
    ("big", &["bytes", "ms"]),
    ("ask", &[]),
];

#[derive(Clone)]
struct Tools;

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("milepost-rmcp-server", "1"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = TOOLS.iter().map(|(name, arguments)| {
            let properties: JsonObject = arguments
                .iter()
                .map(|&argument| (argument.to_owned(), json!({ "type": "number" })))
                .collect();
            let schema = json!({ "type": "object", "properties": properties });
            Tool::new_with_raw(*name, None, schema.as_object().cloned().unwrap_or_default())
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let number = |name: &str| arguments.get(name).and_then(Value::as_f64);
        let pause = |ms: f64| sleep(Duration::from_secs_f64(ms / 1000.0));
        let text = match &*request.name {
            "steps" => {
                let (count, ms) = (number("count").unwrap_or(3.0), number("ms").unwrap_or(50.0));
                for step in 1..=count as u64 {
                    pause(ms).await;
                    report(&context, step as f64, number("total"), format!("step {step}")).await;
                }
                pause(ms).await;
                format!("{count} steps done")
            }
            "quiet" => {
                let ms = number("ms").unwrap_or(1000.0);
                pause(ms).await;
                format!("quiet for {ms} ms")
            }
            "burst" => {
                report(&context, 100.0, Some(100.0), "done".to_owned()).await;
                "burst done".to_owned()
            }
            "big" => {
                pause(number("ms").unwrap_or(0.0)).await;
                "x".repeat(number("bytes").unwrap_or(1000.0) as usize)
            }
            "ask" => {
                let ping = ServerRequest::PingRequest(PingRequest::default());
                let answer = context.peer.send_request(ping).await;
                answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                "the client answered the ping".to_owned()
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// Reports progress with the caller's token; nothing without a token.
async fn report(
    context: &RequestContext<RoleServer>,
    progress: f64,
    total: Option<f64>,
    message: String,
) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let mut params = ProgressNotificationParam::new(token, progress).with_message(message);
    params.total = total;
    // Nobody is left to tell when this fails.
    let _ = context.peer.notify_progress(params).await;
}

struct Options {
    http: Option<u16>,
    json: bool,
    stateless: bool,
    deadline: Duration,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Self { http: None, json: false, stateless: false, deadline: Duration::from_secs(600) };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a number"));
            let wrong = |error: &dyn std::fmt::Display| format!("{word}: {error}");
            match word.as_str() {
                "--http" => options.http = Some(value()?.parse().map_err(|error| wrong(&error))?),
                "--deadline" => {
                    let seconds = value()?.parse().map_err(|error| wrong(&error))?;
                    options.deadline =
                        Duration::try_from_secs_f64(seconds).map_err(|error| wrong(&error))?;
                }
                "--json" => options.json = true,
                "--stateless" => options.stateless = true,
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        if options.http.is_none() && (options.json || options.stateless) {
            return Err("without --http the server speaks stdio".to_owned());
        }
        Ok(options)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|problem| {
        eprintln!("{problem}\nusage: server [--http PORT [--json] [--stateless]] [--deadline S]   (see tests/sdk/README.md)");
        std::process::exit(2);
    });
    let Some(port) = options.http else {
        if let Ok(service) = Tools.serve(stdio()).await {
            let _ = service.waiting().await;
        }
        return;
    };
    // It ends when whoever started it does.
    std::thread::spawn(|| {
        while std::io::stdin().read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
        std::process::exit(0);
    });
    let _ = tokio::time::timeout(options.deadline, serve(port, &options)).await;
}

async fn serve(port: u16, options: &Options) {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(!options.stateless)
        .with_json_response(options.json);
    let service =
        StreamableHttpService::new(|| Ok(Tools), Arc::new(LocalSessionManager::default()), config);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    println!("listening on http://127.0.0.1:{port}/mcp");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
