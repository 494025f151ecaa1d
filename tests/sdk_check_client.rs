//! The drivers of `milepost check-progress --client` with the official SDKs.

use std::process::Stdio;

use serde_json::Value;

use crate::support::sdk::{python, sdk_folder, set_up};
use crate::support::{home, milepost};
use crate::{aside, for_each};

/// The result of a scenario, of the client that a driver drives.
fn judged(driver: &str, scenario: &str) -> Value {
    let driver = format!("{driver} {{url}} {{tool}}");
    let output = milepost()
        .args(["check-progress", "--client", "--json", "--timeout", "30s"])
        .args(["--only", scenario, "--driver", &driver])
        .env("SDK_FOLDER", sdk_folder("node"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    report["results"][0].take()
}

/// The drivers' command lines.
fn drivers() -> [String; 3] {
    set_up();
    let drivers = home().join("examples/clients");
    let with = |program: String, file: &str| format!("{program} {}", drivers.join(file).display());
    let of_python = |name| with(python(name).display().to_string(), "driver.py");
    [with("node".to_owned(), "driver.mjs"), of_python("py1"), of_python("py2")]
}

#[test]
fn the_drivers_report_what_the_clients_of_the_official_sdks_show() {
    aside(|| {
        for_each(drivers(), |driver| {
            // The clients show falling values as they come, and the next call is well.
            let result = judged(&driver, "client/falling");
            assert_eq!(result["outcome"], "noted", "{driver}: {result}");
            let shown = &result["findings"][0]["example"];
            assert_eq!(shown, "[1.0, 3.0, 2.0, 2.0, 4.0]", "{driver}");
        });
    });
}
