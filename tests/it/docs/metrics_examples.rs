//! The dashboard, the alerts and the table in the documents name metrics that there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use milepost::observe::metrics::Metrics;
use regex::Regex;
use serde_json::Value;

use crate::observe::metrics::page::Page;

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap()
}

/// Returns the metrics after a route has served a client without a token.
fn page() -> Page {
    let metrics = Metrics::new();
    let _ = metrics.route("/a");
    metrics.count_refusal("host");
    let _ = metrics.client_limit("streams");
    milepost::observe::untokened_clients::UNTOKENED_CLIENTS
        .note(None, milepost::progress::clients::Situation::NoToken);
    Page::read(&metrics.text(0, || {}))
}

/// Every text below a key.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if name == key {
                    found.extend(member.as_str());
                }
                texts(member, key, found);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|one| texts(one, key, found)),
        _ => {}
    }
}

/// Holds a query against what there is; answers with the labels that its result has.
#[track_caller]
fn check(page: &Page, query: &str) -> BTreeSet<String> {
    let metric = Regex::new(r"(milepost_[a-z_]+)(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)""#).unwrap();
    let grouping = Regex::new(r"\b(?:by|without)\s*\(([^)]*)\)").unwrap();
    let mut labels: Option<BTreeSet<String>> = None;
    for found in metric.captures_iter(query) {
        let name = &found[1];
        let own = page.labels(name).unwrap_or_else(|| panic!("there is no {name}: {query}"));
        for matched in found.get(2).iter().flat_map(|text| matcher.captures_iter(text.as_str())) {
            let (label, how, value) = (&matched[1], &matched[2], &matched[3]);
            assert!(own.contains(label), "{name} has no label {label}: {query}");
            if value.starts_with('$') {
                continue;
            }
            let values = if how.ends_with('~') { value.split('|').collect() } else { vec![value] };
            for value in values {
                assert!(page.has(name, label, value), "no {name} has {label}={value:?}: {query}");
            }
        }
        let both = |labels: BTreeSet<String>| labels.intersection(own).cloned().collect();
        labels = Some(labels.map_or_else(|| own.clone(), both));
    }
    let labels = labels.unwrap_or_else(|| panic!("no metric is asked for: {query}"));
    let mut grouped = BTreeSet::new();
    for group in grouping.captures_iter(query) {
        for label in group[1].split(',').map(str::trim) {
            assert!(labels.contains(label), "there is no label {label}: {query}");
            grouped.insert(label.to_owned());
        }
    }
    grouped
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let dashboard: Value = serde_json::from_str(&read("examples/grafana.json")).unwrap();
    let page = page();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    let mut asked = String::new();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let labels = check(&page, query);
            asked += query;
            let legend = target["legendFormat"].as_str().unwrap();
            for shown in legend.split("{{").skip(1) {
                let label = shown.split("}}").next().unwrap();
                assert!(labels.contains(label), "{legend} of {query}");
            }
        }
    }
    let mut definitions = Vec::new();
    texts(&dashboard, "definition", &mut definitions);
    assert_eq!(definitions, ["label_values(milepost_calls_in_flight, route)"]);
    // The page leaves out no metric that changes.
    for (name, family) in &page.families {
        let shown = family.samples.keys().any(|sample| asked.contains(sample));
        let apart = ["milepost_uptime_seconds", "milepost_build", "milepost_kept_messages"];
        let besides = [
            "milepost_overheard_lines",
            "milepost_progress_received",
            "milepost_child_starts",
            "milepost_forwarded_dropped",
            "milepost_client_limit",
            "milepost_idle_connections_closed",
            "milepost_requests_refused",
            "milepost_messages_refused",
            "milepost_unread_requests",
            "milepost_late_calls",
            "milepost_tasks",
            "milepost_unspilled_answers",
            "milepost_dropped_mail",
            "milepost_bodies_refused",
            "milepost_fleet_store_errors",
            "milepost_server_notices",
            "milepost_route_limit",
            "milepost_connections_refused",
        ];
        assert!(shown || apart.contains(&&**name) || besides.contains(&&**name), "{name}");
    }
    // The panels must not overlap.
    let places: BTreeSet<String> = panels.iter().map(|one| one["gridPos"].to_string()).collect();
    assert_eq!(places.len(), panels.len());
}

#[test]
fn the_alerts_ask_for_what_there_is() {
    let alerts: Value = serde_yaml_ng::from_str(&read("examples/alerts.yaml")).unwrap();
    let page = page();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 4);
    for rule in rules {
        let labels = check(&page, rule["expr"].as_str().unwrap());
        assert!(rule["labels"]["severity"].is_string() && rule["alert"].is_string(), "{rule}");
        let mut said = Vec::new();
        texts(rule, "summary", &mut said);
        texts(rule, "description", &mut said);
        assert!(!said.is_empty(), "{rule}");
        for shown in said.iter().flat_map(|text| text.split("$labels.").skip(1)) {
            let label = shown.split([' ', '}']).next().unwrap();
            assert!(labels.contains(label), "{label} in {rule}");
        }
    }
}

#[test]
fn the_table_of_metrics_is_what_they_say_of_themselves() {
    const FILE: &str = "docs/operating.md";
    let (begin, end) = ("<!-- metrics: made by a test -->\n", "<!-- end of metrics -->");
    let mut table = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, family) in &page().families {
        let all = family.samples.values().flatten().filter(|label| *label != "le");
        let labels: BTreeSet<String> = all.map(|label| format!("`{label}`")).collect();
        let labels: Vec<String> = labels.into_iter().collect();
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let (kind, help) = (&family.kind, family.help.trim_end_matches('.'));
        table += &format!("| `{name}{suffix}` | {kind} | {} | {help} |\n", labels.join(", "));
    }
    let text = read(FILE);
    let (head, rest) = text.split_once(begin).unwrap();
    let (old, tail) = rest.split_once(end).unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path(FILE), format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(old, table, "UPDATE_EXPECT=1 writes it anew");
}
