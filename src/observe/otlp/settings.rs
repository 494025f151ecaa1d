//! The environment variables of OpenTelemetry that Milepost reads itself.
//!
//! The SDK and its exporter read the others: headers, compression, sampler, resource, batches. Milepost reads the
//! variables that turn traces on and off, the variables about the connection, and two numbers of the batch processor,
//! because extreme values would harm the process.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// Maximum number of spans in the queue, even if the environment asks for more, because the SDK allocates the whole
/// queue at the start.
const QUEUE_MAX: usize = 65_536;

/// The collector if the environment asks for traces but does not name one.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// Variables whose value is one word, with the words that the SDK knows.
const WORDS: [(&str, &[&str]); 3] = [
    ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", &["gzip", "none"]),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", &["gzip", "none"]),
    (
        "OTEL_TRACES_SAMPLER",
        &[
            "always_on",
            "always_off",
            "traceidratio",
            "parentbased_always_on",
            "parentbased_always_off",
            "parentbased_traceidratio",
        ],
    ),
];

/// The connection to a collector.
#[derive(Debug, Clone)]
pub struct Collector {
    /// The URL of the collector for traces.
    pub url: Url,
    /// Deadline for an export, including retries.
    pub timeout: Duration,
    /// A file with additional certificate authorities for the collector.
    pub ca_file: Option<PathBuf>,
    /// The files of Milepost's own certificate and its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// The settings from variables that Milepost reads itself.
#[derive(Debug, Clone)]
pub struct TraceSettings {
    /// The connection to the collector.
    pub collector: Collector,
    /// The maximum number of spans in the queue.
    pub queue: usize,
    /// The time for which a span waits for further spans.
    pub delay: Duration,
}

/// A variable with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {why}")]
pub struct BadVariable {
    /// The name of the variable.
    pub name: &'static str,
    /// What is wrong, without the value, because the value may be a secret.
    pub why: &'static str,
}

/// Reads the variables one after the other.
struct EnvReader<F> {
    of: F,
    /// Variables with invalid values, which count as not set.
    doubts: Vec<BadVariable>,
}

impl<F: Fn(&str) -> Option<String>> EnvReader<F> {
    fn get(&self, name: &str) -> Option<String> {
        (self.of)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Returns the first of these variables that is set.
    fn first(&self, names: [&'static str; 2]) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, self.get(name)?)))
    }

    fn number(&mut self, name: &'static str, default: u64) -> u64 {
        let Some(value) = self.get(name) else { return default };
        value.parse().unwrap_or_else(|_| {
            self.doubts.push(BadVariable { name, why: "is no number" });
            default
        })
    }

    fn file(&self, names: [&'static str; 2]) -> Option<PathBuf> {
        self.first(names).map(|(_, file)| PathBuf::from(file))
    }
}

/// Reads the variables; returns `None` if no traces are wanted. Also returns the variables with invalid values, which
/// count as not set.
///
/// # Errors
/// If traces are wanted but cannot be sent.
pub fn read(
    of: impl Fn(&str) -> Option<String>,
) -> Result<Option<(TraceSettings, Vec<BadVariable>)>, BadVariable> {
    let mut variables = EnvReader { of, doubts: Vec::new() };
    // This variable turns off all signals, whatever the other variables say.
    if variables.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let exporter = variables.get("OTEL_TRACES_EXPORTER");
    match exporter.as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(_) => {
            let why = "is neither otlp nor none";
            return Err(BadVariable { name: "OTEL_TRACES_EXPORTER", why });
        }
    }
    let Some(url) = endpoint(&variables, exporter.map(|_| DEFAULT_ENDPOINT))? else {
        return Ok(None);
    };
    // Only one protocol is supported. If the environment asks for another, do not use this one silently: fail.
    let protocol = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    if let Some((name, protocol)) = variables.first(protocol)
        && protocol != "http/protobuf"
    {
        return Err(BadVariable { name, why: "is another protocol than http/protobuf" });
    }
    // The variable for traces takes precedence over the variable for all signals, as the specification requires.
    let timeout = variables.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000);
    let timeout = variables.number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", timeout);
    for (name, words) in WORDS {
        let value = variables.get(name);
        if value.is_some_and(|value| !words.contains(&&*value)) {
            variables.doubts.push(BadVariable { name, why: "has a value that is not known" });
        }
    }
    let certificate = variables.file([
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    ]);
    let key =
        variables.file(["OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"]);
    let collector = Collector {
        url,
        timeout: Duration::from_millis(timeout.max(1)),
        ca_file: variables
            .file(["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"]),
        client_certificate: certificate.zip(key),
    };
    let queue = variables.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048);
    // With a delay of zero the SDK's thread would never sleep.
    let delay = variables.number("OTEL_BSP_SCHEDULE_DELAY", 5000).max(1);
    let settings = TraceSettings {
        collector,
        queue: usize::try_from(queue).unwrap_or(usize::MAX).clamp(1, QUEUE_MAX),
        delay: Duration::from_millis(delay),
    };
    Ok(Some((settings, variables.doubts)))
}

/// Returns the URL of the collector: the URL for traces unchanged, or `v1/traces` below the URL for all signals.
fn endpoint<F: Fn(&str) -> Option<String>>(
    variables: &EnvReader<F>,
    default: Option<&str>,
) -> Result<Option<Url>, BadVariable> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    let default = || Some((names[1], default?.to_owned()));
    let Some((name, text)) = variables.first(names).or_else(default) else { return Ok(None) };
    let url = Url::parse(&text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    let mut url =
        url.ok_or(BadVariable { name, why: "is not an address with http:// or https://" })?;
    if !url.username().is_empty() || url.password().is_some() {
        let why = "has a user's name in it, which is not sent; use OTEL_EXPORTER_OTLP_HEADERS";
        return Err(BadVariable { name, why });
    }
    // The URL for all signals is a base to which each signal adds its own path.
    if name == names[1] {
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(Some(url))
}
