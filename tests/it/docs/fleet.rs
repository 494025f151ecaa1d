//! The files of `examples/fleet` fit together, and name only things that exist.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use milepost::config::routes::{Environment, Routes};
use serde::Deserialize;
use serde_json::Value;

use crate::support::home;

fn read(name: &str) -> String {
    let place = home().join("examples/fleet").join(name);
    std::fs::read_to_string(&place).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The documents of a YAML file.
fn documents(name: &str) -> Vec<Value> {
    let text = read(name);
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// Returns the route file of an example, with the environment of its replicas.
#[track_caller]
fn routes(text: &str) -> Routes {
    let key = "5a".repeat(32);
    let environment: Environment = [
        ("MILEPOST_FLEET_KEY", &*key),
        ("MILEPOST_IP", "127.0.0.11"),
        ("POD_IP", "10.0.0.7"),
        ("MILEPOST_ADMIN_TOKEN", "token"),
    ]
    .into_iter()
    .collect();
    Routes::parse(Path::new("proxy.toml"), text, &environment).unwrap()
}

/// The time that a supervisor has to give a replica.
fn time_to_end(routes: &Routes) -> Duration {
    routes.server().linger + routes.server().drain + Duration::from_secs(20)
}

#[test]
fn the_route_file_of_the_example_is_that_of_a_fleet() {
    let routes = routes(&read("proxy.toml"));
    assert!(routes.fleet().is_some() && !routes.server().linger.is_zero());
    let (haproxy, nginx, envoy) = (read("haproxy.cfg"), read("nginx.conf"), read("envoy.yaml"));
    for number in 11..=13 {
        for port in [7332, 7333] {
            // The ports of clients and of health checks.
            assert!(
                haproxy.contains(&format!("127.0.0.{number}:7332"))
                    && haproxy.contains("check port 7333")
            );
            assert!(envoy.contains(&format!("127.0.0.{number}, port_value: 7332")));
            assert!(envoy.contains(&format!("port_value: {port}")));
        }
        assert!(nginx.contains(&format!("server 127.0.0.{number}:7332")));
    }
    assert!(!haproxy.contains("\n    on-marked-down"));
    assert!(haproxy.contains("\n    option http-no-delay"));
}

#[test]
fn balancers_accept_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| home().join("examples/fleet").join(name).display().to_string();
    let (haproxy, nginx) = (at("haproxy.cfg"), at("nginx.conf"));
    let here = folder.path().display().to_string();
    for (program, arguments) in [
        ("/usr/sbin/haproxy", vec!["-c", "-f", &haproxy]),
        ("/usr/sbin/nginx", vec!["-t", "-c", &nginx, "-p", &here]),
    ] {
        // If the balancer is not installed, only the test suite with real clients checks this.
        let Ok(output) = Command::new(program).args(arguments).output() else { continue };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_manifests_for_kubernetes_fit_together() {
    let documents = documents("kubernetes/milepost.yaml");
    let of_kind = |kind: &str| {
        let found = documents.iter().find(|document| document["kind"] == kind);
        found.unwrap_or_else(|| panic!("{kind} is missing"))
    };
    let routes = routes(of_kind("ConfigMap")["data"]["proxy.toml"].as_str().unwrap());
    assert!(routes.fleet().is_some());
    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let wait = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert!(grace >= time_to_end(&routes) + Duration::from_secs(wait), "{grace:?}");
    let port = |name: &str| {
        let ports = container["ports"].as_array().unwrap();
        let found = ports.iter().find(|port| port["name"] == name).unwrap();
        u16::try_from(found["containerPort"].as_u64().unwrap()).unwrap()
    };
    assert_eq!(port("mcp"), routes.server().listen.port());
    assert_eq!(port("admin"), routes.admin().listen.unwrap().port());
    assert_eq!(port("fleet"), routes.fleet().unwrap().listen.port());
    assert_eq!(port("fleet"), routes.fleet().unwrap().advertise.port());
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/livez")] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
        assert_eq!(container[probe]["httpGet"]["port"], "admin");
    }
    let labels = &of_kind("Deployment")["spec"]["template"]["metadata"]["labels"];
    for document in &documents {
        let selector = &document["spec"]["selector"];
        let selector = selector.get("matchLabels").unwrap_or(selector);
        assert!(selector.is_null() || selector == labels, "{document}");
    }
    let scaled = &of_kind("HorizontalPodAutoscaler")["spec"];
    assert_eq!(scaled["metrics"][0]["pods"]["metric"]["name"], "milepost_calls_in_flight");
    of_kind("PodDisruptionBudget");
    of_kind("NetworkPolicy");
    let services = documents.iter().filter(|document| document["kind"] == "Service");
    assert_eq!(services.filter(|service| service["spec"]["clusterIP"] == "None").count(), 1);
}

#[test]
fn the_file_for_compose_gives_each_replica_its_address() {
    let compose = documents("compose.yaml").remove(0);
    let text = compose["configs"]["routes"]["content"].as_str().unwrap().replace("$$", "$");
    let routes = routes(&text);
    assert_eq!(compose["x-replica"]["stop_grace_period"], "60s");
    assert!(Duration::from_secs(60) >= time_to_end(&routes));
    let balancer = compose["configs"]["balancer"]["content"].as_str().unwrap();
    let mut addresses = BTreeSet::new();
    for name in ["r1", "r2", "r3"] {
        let service = &compose["services"][name];
        let own = service["environment"]["MILEPOST_IP"].as_str().unwrap();
        assert_eq!(service["networks"]["fleet"]["ipv4_address"], own);
        assert!(balancer.contains(&format!("server {name} {own}:7332")), "{name}");
        addresses.insert(own.to_owned());
    }
    assert_eq!(addresses.len(), 3);
}

/// The values that a chart has, by their paths.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) if path != ".resources" => {
            members.iter().for_each(|(name, value)| paths(value, &format!("{path}.{name}"), found));
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

#[test]
fn the_chart_uses_each_of_its_values() {
    let mut known = BTreeSet::new();
    paths(&documents("helm/milepost/values.yaml")[0], "", &mut known);
    let mut used = BTreeSet::new();
    let folder = home().join("examples/fleet/helm/milepost/templates");
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert_eq!(text.matches("{{").count(), text.matches("}}").count());
        for rest in text.split(".Values").skip(1) {
            let end = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '.');
            used.insert(rest[..end.unwrap_or(rest.len())].to_owned());
        }
    }
    assert_eq!(used, known);
    let chart = &documents("helm/milepost/Chart.yaml")[0];
    assert_eq!(chart["apiVersion"], "v2");
}
