//! The files of `examples/compose` fit together, and fit the image of `Dockerfile`.

use std::fs;
use std::time::Duration;

use milepost::config::routes::{Environment, Routes, Upstream};
use serde_json::Value;

use crate::support::home;

fn read(name: &str) -> String {
    fs::read_to_string(home().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn the_file_for_compose_starts_the_server_of_each_route() {
    let folder = home().join("examples/compose");
    let compose: Value = serde_yaml_ng::from_str(&read("examples/compose/compose.yaml")).unwrap();
    let file = folder.join("proxy.toml");
    let routes =
        Routes::parse(&file, &read("examples/compose/proxy.toml"), &Environment::default())
            .unwrap();
    let services = &compose["services"];
    let milepost = &services["milepost"];
    assert_eq!(texts(&milepost["ports"]), ["127.0.0.1:7332:7332"]);
    assert_eq!(routes.server().listen.port(), 7332);
    assert_eq!(milepost["stop_grace_period"], "50s");
    assert!(Duration::from_secs(50) >= routes.server().drain + Duration::from_secs(20));
    // Every mounted path exists, and a server inside Milepost's container is mounted there.
    let mut mounted = Vec::new();
    for service in services.as_object().unwrap().values() {
        for volume in texts(&service["volumes"]) {
            let (source, target) = volume.strip_suffix(":ro").unwrap().split_once(':').unwrap();
            assert!(folder.join(source).is_file(), "{source}");
            mounted.push(target);
        }
    }
    let mut paths = Vec::new();
    for route in routes.iter() {
        paths.push(&*route.path);
        match &route.upstream {
            Upstream::Command(server) => {
                let script = server.command[1].to_str().unwrap();
                assert!(mounted.contains(&script), "{script}");
            }
            Upstream::Http(server) => {
                let server = &services[server.url.as_ref().unwrap().host_str().unwrap()];
                let port = texts(&server["command"]).pop().unwrap();
                assert_eq!(port, "0.0.0.0:8000");
            }
            Upstream::Demo => panic!("{}", route.path),
        }
    }
    assert_eq!(paths, ["/reports", "/shop"]);
    // The program and its route file are where the image has them.
    let (image, own) = (read("Dockerfile"), read("examples/compose/Dockerfile"));
    for line in [
        "ENTRYPOINT [\"/usr/bin/milepost\"]",
        "CMD [\"serve\", \"/etc/milepost/proxy.toml\"]",
        "USER 65532:65532",
    ] {
        assert!(image.contains(line) && own.contains(line), "{line}");
    }
    assert!(mounted.contains(&"/etc/milepost/proxy.toml"));
}
