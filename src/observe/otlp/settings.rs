//! The environment variables of OpenTelemetry that Milepost reads itself.
//!
//! The SDK and its exporter read the others: headers, compression, sampler, resource, batches.
//! Milepost reads the variables that switch traces on and off, the variables of the connection, and
//! two numbers of the batch processor whose extremes would harm the process.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// Spans that may wait, also if the environment asks for more: the SDK allocates the queue at once.
const QUEUE_MAX: usize = 65_536;

/// The collector if the environment asks for traces and names none.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// Variables whose value is one word, and the words that the SDK knows.
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
    /// The address of the collector for traces.
    pub url: Url,
    /// The time that an export may take, retries included.
    pub timeout: Duration,
    /// Certificate authorities that the collector may use, besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Milepost's own certificate and its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// The variables of OpenTelemetry that are read here.
#[derive(Debug, Clone)]
pub struct TraceSettings {
    /// The connection to the collector.
    pub collector: Collector,
    /// The number of spans that may wait.
    pub queue: usize,
    /// The time for which spans wait for more spans.
    pub delay: Duration,
}

/// A variable that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {why}")]
pub struct BadVariable {
    /// The name of the variable.
    pub name: &'static str,
    /// The fault, without the value: the value may be a secret.
    pub why: &'static str,
}

/// Reads the variables one after the other.
struct EnvReader<F> {
    of: F,
    /// Variables whose values are not understood, and are treated as not set.
    doubts: Vec<BadVariable>,
}

impl<F: Fn(&str) -> Option<String>> EnvReader<F> {
    fn get(&self, name: &str) -> Option<String> {
        (self.of)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The first of these that is set.
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

/// Reads the variables; `None` if no traces are wanted. Also returns the variables with invalid
/// values, which count as not set.
///
/// # Errors
/// If traces are wanted and cannot be sent.
pub fn read(
    of: impl Fn(&str) -> Option<String>,
) -> Result<Option<(TraceSettings, Vec<BadVariable>)>, BadVariable> {
    let mut variables = EnvReader { of, doubts: Vec::new() };
    // This variable switches off all signals, whatever the other variables say.
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
    // Only one protocol is built in: another one that is asked for is an error, and not silently replaced.
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

/// The address of the collector: as written for traces, or `v1/traces` below the address for all.
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
    // The address for all signals is a base: each signal adds its own path.
    if name == names[1] {
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(Some(url))
}
