//! A client made with the Rust SDK (rmcp) that declares tasks in the form of 2026-07-28, for Milepost's
//! end-to-end tests.
//!
//!     milepost-rmcp-tasks --url URL | -- CMD [ARG...]
//!
//! The client calls the tool `sleep` of the example server `silent` three times. A second of work is looked at
//! until the work is over, a minute of work is cancelled, and no work is answered. The client prints what came
//! of each call as one line of JSON.

use std::error::Error;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities, ClientConfig,
    GetTaskParams, ProtocolVersion, TaskPayload, TaskStatus,
};
use rmcp::service::{ClientLifecycleMode, RoleClient, RunningService, serve_client_with_lifecycle};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, Peer};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// The time for all.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct App(ClientConfig);

impl ClientHandler for App {
    fn get_info(&self) -> ClientConfig {
        self.0.clone()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut config = ClientConfig::default();
    config.protocol_version = ProtocolVersion::LATEST;
    config.capabilities = ClientCapabilities::builder().enable_tasks().build();
    let service = timeout(DEADLINE, connect(App(config))).await??;
    let found = timeout(DEADLINE, run(service.peer())).await??;
    println!("{found}");
    service.cancel().await?;
    Ok(())
}

async fn connect(app: App) -> Result<RunningService<RoleClient, App>, Box<dyn Error>> {
    let lifecycle =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_default();
    let target = args.next().ok_or("usage: milepost-rmcp-tasks --url URL | -- CMD [ARG...]")?;
    if kind == "--url" {
        let transport = StreamableHttpClientTransport::from_uri(target);
        return Ok(serve_client_with_lifecycle(app, transport, lifecycle).await?);
    }
    let mut command = tokio::process::Command::new(target);
    command.args(args);
    let transport = TokioChildProcess::new(command)?;
    Ok(serve_client_with_lifecycle(app, transport, lifecycle).await?)
}

async fn run(peer: &Peer<RoleClient>) -> Result<Value, Box<dyn Error>> {
    let task = begin(peer, 1.0).await?;
    let first = status(peer, &task).await?.status();
    let over = loop {
        let payload = status(peer, &task).await?;
        if payload.status().is_terminal() {
            break payload;
        }
        sleep(Duration::from_millis(100)).await;
    };
    let TaskPayload::Completed { result } = over else {
        return Err(format!("the task ended so: {over:?}").into());
    };
    let stopped = begin(peer, 60.0).await?;
    peer.cancel_task(CancelTaskParams::new(stopped.clone())).await?;
    let cancelled: TaskStatus = status(peer, &stopped).await?.status();
    let plain = match peer.call_tool_once(call(0.0)).await? {
        CallToolResponse::Complete(result) => serde_json::to_value(result)?,
        other => return Err(format!("a quick call became {other:?}").into()),
    };
    Ok(json!({
        "status": first,
        "result": result["content"][0]["text"],
        "cancelled": cancelled,
        "plain": plain["content"][0]["text"],
    }))
}

fn call(seconds: f64) -> CallToolRequestParams {
    let arguments = serde_json::Map::from_iter([("seconds".to_owned(), seconds.into())]);
    CallToolRequestParams::new("sleep").with_arguments(arguments)
}

/// Makes a call that becomes a task; the id of the task.
async fn begin(peer: &Peer<RoleClient>, seconds: f64) -> Result<String, Box<dyn Error>> {
    match peer.call_tool_once(call(seconds)).await? {
        CallToolResponse::Task(made) => Ok(made.task.task_id),
        other => Err(format!("a call of {seconds} s became {other:?}").into()),
    }
}

async fn status(peer: &Peer<RoleClient>, task: &str) -> Result<TaskPayload, Box<dyn Error>> {
    Ok(peer.get_task(GetTaskParams::new(task)).await?.task.payload)
}
