//! The report printed at the end, and the writer that collects the SDK's warnings for it.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::http::chain;

const MAX_LISTED: usize = 20;

#[derive(Default)]
pub struct Report {
    server: Option<(Value, Value)>,
    pub calls: Vec<Call>,
    stray_progress: u64,
    notifications: BTreeMap<String, u64>,
    errors: Vec<String>,
    error_count: u64,
    http_errors: Vec<String>,
    http_error_count: u64,
}

#[derive(Clone)]
pub struct Call {
    tool: String,
    pub progress: Vec<Value>,
    pub outcome: &'static str,
    pub is_error: bool,
    pub error: Option<String>,
    pub code: Option<i32>,
    pub result: Value,
    pub ms: Option<u64>,
}

impl Report {
    pub fn connected(&mut self, version: Value, protocol: Value) {
        self.server = Some((version, protocol));
    }

    /// Adds a call; it stays as it is here when the deadline comes first.
    pub fn start(&mut self, tool: &str) -> usize {
        self.calls.push(Call {
            tool: tool.to_owned(),
            progress: Vec::new(),
            outcome: "timeout",
            is_error: false,
            error: Some("still running at the deadline".to_owned()),
            code: None,
            result: Value::Null,
            ms: None,
        });
        self.calls.len() - 1
    }

    pub fn notification(&mut self, method: &str) {
        *self.notifications.entry(method.to_owned()).or_default() += 1;
    }

    pub fn fault(&mut self, text: &str) {
        self.error_count += 1;
        list(&mut self.errors, text);
    }

    pub fn http_fault(&mut self, method: &str, error: &dyn Error) {
        self.http_error_count += 1;
        list(&mut self.http_errors, &format!("{method} {}", chain(error)));
    }

    /// Of the progress the handler saw, what belonged to no running call.
    pub fn stray(&mut self, seen: u64) {
        let delivered: usize = self.calls.iter().map(|call| call.progress.len()).sum();
        self.stray_progress = seen.saturating_sub(delivered as u64);
    }

    pub fn to_json(&self) -> Value {
        let (version, protocol) = self.server.clone().unwrap_or_default();
        json!({
            "client": "rmcp",
            "connected": self.server.is_some(),
            "server_version": version,
            "protocol": protocol,
            "calls": self.calls.iter().map(Call::to_json).collect::<Vec<_>>(),
            "stray_progress": self.stray_progress,
            "notifications": self.notifications,
            "errors": self.errors,
            "error_count": self.error_count,
            "http_errors": self.http_errors,
            "http_error_count": self.http_error_count,
        })
    }
}

impl Call {
    fn to_json(&self) -> Value {
        json!({
            "tool": self.tool,
            "progress": self.progress,
            "outcome": self.outcome,
            "is_error": self.is_error,
            "error": self.error,
            "code": self.code,
            "result": self.result,
            "ms": self.ms,
        })
    }
}

fn list(texts: &mut Vec<String>, text: &str) {
    if texts.len() < MAX_LISTED {
        texts.push(text.chars().take(200).collect());
    }
}

pub fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gets each warning of the SDK as one write and counts it.
#[derive(Clone)]
pub struct Warnings(pub Arc<Mutex<Report>>);

impl Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).fault(String::from_utf8_lossy(bytes).trim());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
