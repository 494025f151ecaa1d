//! The files of `milepost check-progress` for other tools, by the schemas that those who read them publish.

use std::fs;
use std::process::{Command, Stdio};

use boon::{Compiler, Schemas};

use crate::aside;
use crate::support::sdk::{sdk_folder, set_up};
use crate::support::{example, milepost};

/// The schema of SARIF 2.1.0, in a package of Microsoft.
const SARIF: &str = "node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json";

#[test]
fn sarif_and_junit_xml_are_valid_by_their_published_schemas() {
    aside(|| {
        set_up();
        let folder = tempfile::tempdir().unwrap();
        let (sarif, junit) = (folder.path().join("sarif"), folder.path().join("junit.xml"));
        // Of every outcome: scenarios that pass, fail, are noted, and are not assessed.
        let status = milepost()
            .args(["check-progress", "--call", "pagerank", "--revision", "2025-06-18"])
            .arg("--sarif")
            .arg(&sarif)
            .arg("--junit")
            .arg(&junit)
            .args(["--", &example("kuzumem"), "--variant", "k1", "--pace", "10ms"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(1));

        let report = serde_json::from_slice(&fs::read(&sarif).unwrap()).unwrap();
        let mut schemas = Schemas::new();
        let path = sdk_folder("node").join(SARIF);
        let schema = Compiler::new().compile(path.to_str().unwrap(), &mut schemas).unwrap();
        if let Err(error) = schemas.validate(&report, schema) {
            panic!("{error:#}");
        }

        let path = sdk_folder("schemas").join("junit-10.xsd");
        let mut check = Command::new("xmllint");
        check.args(["--noout", "--nonet", "--schema"]).args([&path, &junit]);
        let checked = check.output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    });
}
