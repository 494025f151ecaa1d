//! The files of `examples/deploy` fit together, and name only things that exist.

use std::fs;
use std::time::Duration;

use milepost::config::routes::{Environment, Routes};
use serde_json::Value;

use crate::support::home;

fn read(name: &str) -> String {
    fs::read_to_string(home().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn routes(name: &str) -> Routes {
    Routes::parse(&home().join(name), &read(name), &Environment::default()).unwrap()
}

#[test]
fn each_front_leads_to_the_listener_of_the_route_file() {
    let routes = routes("examples/deploy/proxy.toml");
    let address = routes.server().listen.to_string();
    for front in ["nginx/nginx.conf", "haproxy/haproxy.cfg", "caddy/Caddyfile"] {
        assert!(read(&format!("examples/deploy/{front}")).contains(&address), "{front}");
    }
    let envoy: Value = serde_yaml_ng::from_str(&read("examples/deploy/envoy/envoy.yaml")).unwrap();
    let port = format!("\"port_value\":{}", routes.server().listen.port());
    assert!(envoy["static_resources"]["clusters"].to_string().contains(&port), "{envoy}");
    let socket = read("examples/deploy/systemd/milepost.socket");
    assert!(socket.contains(&format!("ListenStream={address}")), "{socket}");
}

#[test]
fn the_file_for_compose_mounts_what_is_there_and_waits_for_the_drain() {
    let folder = home().join("examples/deploy/compose");
    let compose: Value =
        serde_yaml_ng::from_str(&read("examples/deploy/compose/compose.yaml")).unwrap();
    let routes = routes("examples/deploy/compose/proxy.toml");
    let milepost = &compose["services"]["milepost"];
    assert_eq!(milepost["stop_grace_period"], "40s");
    assert!(Duration::from_secs(40) >= routes.server().drain + Duration::from_secs(20));
    assert_eq!(milepost["expose"][0], routes.server().listen.port().to_string());
    for service in compose["services"].as_object().unwrap().values() {
        for volume in service["volumes"].as_array().unwrap() {
            let (source, _) = volume.as_str().unwrap().split_once(':').unwrap();
            assert!(folder.join(source).is_file(), "{source}");
        }
    }
    let upstream = format!("http://milepost:{};", routes.server().listen.port());
    assert!(read("examples/deploy/compose/nginx.conf").contains(&upstream));
}

#[test]
fn the_ingress_names_the_service_of_the_fleet() {
    let ingress: Value =
        serde_yaml_ng::from_str(&read("examples/deploy/kubernetes/ingress.yaml")).unwrap();
    let service = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    let fleet = read("examples/fleet/kubernetes/milepost.yaml");
    assert!(fleet.contains("kind: Service\nmetadata:\n  name: milepost\n"));
    assert_eq!(service["name"], "milepost");
    assert!(fleet.contains(&format!("name: {}, port:", service["port"]["name"].as_str().unwrap())));
    let host = ingress["spec"]["rules"][0]["host"].as_str().unwrap();
    assert!(fleet.contains(&format!("allowed_hosts = [\"{host}\"")));
}
