//! The two text formats of metrics: OpenMetrics 1.0, and Prometheus's older text format 0.0.4, which all readers know.

use http::HeaderMap;
use http::header::ACCEPT;

/// A format of the text of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Text 0.0.4.
    Plain,
}

impl TextFormat {
    /// Returns the format for a request: OpenMetrics if the client accepts it, as Prometheus does.
    pub fn asked_for(headers: &HeaderMap) -> Self {
        let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        // Weights (`q=`) are ignored, because a reader that names OpenMetrics can read it.
        match accepted.any(|value| value.contains("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Plain,
        }
    }

    /// Returns the `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts a text of OpenMetrics to this format.
    pub fn of(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Plain => plain(&text),
        }
    }
}

/// Returns the text in the older format, which has no `info` type, no units and no end mark, and in which a counter has
/// the same name as its samples.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut described: Vec<(&str, &str)> = Vec::new();
    for line in text.lines() {
        if let Some((name, words)) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            described.push((name, words));
            continue;
        }
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            // Write the description after the type is known, because the name depends on the type.
            for (_, words) in described.extract_if(.., |(of, _)| *of == name) {
                out += &format!("# HELP {name}{suffix} {words}\n");
            }
            out += &format!("# TYPE {name}{suffix} {kind}\n");
            continue;
        }
        if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::metrics::Metrics;

    #[test]
    fn the_older_text_has_the_names_of_its_samples() {
        let open = "# HELP calls Calls.\n# TYPE calls counter\ncalls_total{a=\"b\"} 1\n# HELP build Build.\n\
                    # TYPE build info\nbuild_info{version=\"1\"} 1\n# HELP up_seconds Up.\n# TYPE up_seconds gauge\n\
                    # UNIT up_seconds seconds\nup_seconds 3\n# EOF\n";
        let plain = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{a=\"b\"} 1\n\
                     # HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
                     # HELP up_seconds Up.\n# TYPE up_seconds gauge\nup_seconds 3\n";
        assert_eq!(TextFormat::Plain.of(open.to_owned()), plain);
        assert_eq!(TextFormat::OpenMetrics.of(open.to_owned()), open);
    }

    #[test]
    fn both_texts_have_the_same_samples() {
        let open = Metrics::new().text(0, || ());
        let plain = TextFormat::Plain.of(open.clone());
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&plain), samples(&open));
        assert!(
            !plain.contains("# EOF") && !plain.contains("# UNIT") && !plain.contains(" info\n")
        );
    }

    #[test]
    fn only_who_names_openmetrics_gets_it() {
        for (accept, format) in [
            (None, TextFormat::Plain),
            (Some("*/*"), TextFormat::Plain),
            (Some("text/plain;version=0.0.4"), TextFormat::Plain),
            (
                Some("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
                TextFormat::OpenMetrics,
            ),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(TextFormat::asked_for(&headers), format, "{accept:?}");
        }
    }
}
