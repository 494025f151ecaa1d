//! The settings in OpenTelemetry's environment variables.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use crate::protocol::trace_context::TraceContext;

/// Spans that can wait for the collector, whatever `OTEL_BSP_MAX_QUEUE_SIZE` says.
const QUEUE_MAX: usize = 65_536;

/// Where spans go if it is only said that they are to go somewhere.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// Where spans go, which, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the collector is.
    pub to: Url,
    /// Headers for it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long it may take to answer.
    pub timeout: Duration,
    /// Spans are compressed.
    pub gzip: bool,
    /// Authorities that the collector's certificate may be of, besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate and its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// What we are called.
    pub service: String,
    /// What else is told of us.
    pub attributes: Vec<(String, String)>,
    /// Which calls become spans.
    pub sampler: Sampler,
    /// How many spans may wait.
    pub queue: usize,
    /// How many are sent at once.
    pub batch: usize,
    /// How long spans wait for others.
    pub delay: Duration,
    /// How long it is tried to send them.
    pub patience: Duration,
}

/// Which calls become spans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Where the client says whether it records the trace, so do we.
    pub parent_based: bool,
    /// The part of the others.
    pub ratio: f64,
}

impl Sampler {
    const DEFAULT: Self = Self { parent_based: true, ratio: 1.0 };

    fn named(name: &str, argument: Option<&str>) -> Option<Self> {
        let (parent_based, name) = match name.strip_prefix("parentbased_") {
            Some(name) => (true, name),
            None => (false, name),
        };
        let ratio = match name {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument.map_or(Some(1.0), |argument| argument.parse().ok())?,
            _ => return None,
        };
        (0.0..=1.0).contains(&ratio).then_some(Self { parent_based, ratio })
    }

    /// Whether a call of this trace becomes a span. All who go by the ratio decide alike.
    pub fn takes(self, trace: [u8; 16], parent: Option<&TraceContext>) -> bool {
        if let Some(parent) = parent.filter(|_| self.parent_based) {
            return parent.sampled;
        }
        let [.., a, b, c, d, e, f, g, h] = trace;
        let place = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        self.ratio >= 1.0 || place < (self.ratio * (1_u64 << 63) as f64) as u64
    }
}

/// Why no spans are told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {why}")]
pub struct Wrong {
    /// The variable.
    pub name: &'static str,
    /// What is wrong, without its value: that may be a secret.
    pub why: &'static str,
}

/// Variables, read one after the other.
struct Variables<F> {
    of: F,
    /// What was not understood, and is as if it were not set.
    doubts: Vec<Wrong>,
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
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
            self.doubts.push(Wrong { name, why: "is no number" });
            default
        })
    }

    fn pairs(&mut self, name: &'static str) -> Vec<(String, String)> {
        let text = self.get(name).unwrap_or_default();
        let mut found = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let pair = pair.split_once('=').and_then(|(key, value)| {
                Some((key.trim().to_owned(), percent_decoded(value.trim())?))
            });
            match pair {
                Some((key, value)) if !key.is_empty() => found.push((key, value)),
                _ => self.doubts.push(Wrong { name, why: "is no list of name=value,…" }),
            }
        }
        found
    }
}

/// What the variables say; `None` if no spans are wanted. What was not understood, and is left out, is
/// told besides.
///
/// # Errors
/// If spans are wanted and nobody can say where to.
pub fn read(of: impl Fn(&str) -> Option<String>) -> Result<Option<(Settings, Vec<Wrong>)>, Wrong> {
    let mut variables = Variables { of, doubts: Vec::new() };
    if variables.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let exporter = variables.get("OTEL_TRACES_EXPORTER");
    match exporter.as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(_) => {
            return Err(Wrong { name: "OTEL_TRACES_EXPORTER", why: "is neither otlp nor none" });
        }
    }
    let Some(to) = endpoint(&variables, exporter.is_some())? else { return Ok(None) };
    let protocol = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    if let Some((name, protocol)) = variables.first(protocol)
        && protocol != "http/protobuf"
    {
        return Err(Wrong { name, why: "is another protocol than http/protobuf" });
    }
    let timeout = variables.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000);
    let timeout = variables.number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", timeout);
    let compression = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
    let gzip = match variables.first(compression) {
        Some((_, value)) if value == "gzip" => true,
        Some((name, value)) if value != "none" => {
            variables.doubts.push(Wrong { name, why: "is neither gzip nor none" });
            false
        }
        _ => false,
    };
    let file = |names| variables.first(names).map(|(_, file)| PathBuf::from(file));
    let ca_file = file(["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"]);
    let certificate = file([
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    ]);
    let key = file(["OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"]);
    let mut attributes = variables.pairs("OTEL_RESOURCE_ATTRIBUTES");
    let named = attributes.iter().rev().find(|(key, _)| key == "service.name");
    let named = named.map(|(_, name)| name.clone());
    let service = variables.get("OTEL_SERVICE_NAME").or(named);
    attributes.retain(|(key, _)| key != "service.name");
    let queue = size(variables.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)).clamp(1, QUEUE_MAX);
    let batch = size(variables.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)).clamp(1, queue);
    let settings = Settings {
        to,
        headers: headers(&mut variables),
        timeout: Duration::from_millis(timeout.max(1)),
        gzip,
        ca_file,
        client_certificate: certificate.zip(key),
        service: service.unwrap_or_else(|| "milepost".to_owned()),
        attributes,
        sampler: sampler(&mut variables),
        queue,
        batch,
        delay: Duration::from_millis(variables.number("OTEL_BSP_SCHEDULE_DELAY", 5000)),
        patience: Duration::from_millis(variables.number("OTEL_BSP_EXPORT_TIMEOUT", 30_000)),
    };
    Ok(Some((settings, variables.doubts)))
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Where the collector is: as it is written for traces, or `v1/traces` below what is written for all.
fn endpoint<F: Fn(&str) -> Option<String>>(
    variables: &Variables<F>,
    wanted: bool,
) -> Result<Option<Url>, Wrong> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    let (name, text) = match variables.first(names) {
        Some(found) => found,
        None if wanted => (names[1], DEFAULT_ENDPOINT.to_owned()),
        None => return Ok(None),
    };
    let url = Url::parse(&text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    let mut url = url.ok_or(Wrong { name, why: "is no address with http:// or https://" })?;
    if !url.username().is_empty() || url.password().is_some() {
        let why = "has a user's name in it, which is not sent; use OTEL_EXPORTER_OTLP_HEADERS";
        return Err(Wrong { name, why });
    }
    if name == names[1] {
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(Some(url))
}

/// Those for traces go before those for all.
fn headers<F: Fn(&str) -> Option<String>>(
    variables: &mut Variables<F>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for name in ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"] {
        for (key, value) in variables.pairs(name) {
            match (HeaderName::try_from(key), HeaderValue::try_from(value)) {
                (Ok(key), Ok(mut value)) => {
                    value.set_sensitive(true);
                    if headers.iter().all(|(known, _)| *known != key) {
                        headers.push((key, value));
                    }
                }
                _ => variables.doubts.push(Wrong { name, why: "has a header that is none" }),
            }
        }
    }
    headers
}

fn sampler<F: Fn(&str) -> Option<String>>(variables: &mut Variables<F>) -> Sampler {
    let name = "OTEL_TRACES_SAMPLER";
    let Some(sampler) = variables.get(name) else { return Sampler::DEFAULT };
    let argument = variables.get("OTEL_TRACES_SAMPLER_ARG");
    Sampler::named(&sampler, argument.as_deref()).unwrap_or_else(|| {
        let why = "or its argument is not known; every call is sampled whose client does not say otherwise";
        variables.doubts.push(Wrong { name, why });
        Sampler::DEFAULT
    })
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
