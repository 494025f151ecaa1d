//! The build script asks the linker of a release build for a smaller program, where this linker can: to keep one copy of
//! functions that are the same byte for byte (2 %), and to list the addresses that the loader adjusts in packed form (4 %).

use std::env::{var, var_os};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ONE_COPY: &str = "-Wl,--icf=all";

/// Only loaders of recent systems read this form (glibc 2.36, musl 1.2.4).
const PACKED: &str = "-Wl,-z,pack-relative-relocs";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    // A debug build keeps every function under its own name for backtraces.
    if !var("PROFILE").is_ok_and(|profile| profile == "release") {
        return;
    }
    if link_probe(ONE_COPY).is_some() {
        println!("cargo:rustc-link-arg-bins={ONE_COPY}");
    }
    // The program of a package, which has level 3, also runs on older systems than the one that built it.
    let is_for_here =
        var_os("HOST") == var_os("TARGET") && var("OPT_LEVEL").is_ok_and(|level| level != "3");
    if is_for_here && link_probe(PACKED).is_some_and(|probe| runs(&probe)) {
        println!("cargo:rustc-link-arg-bins={PACKED}");
    }
}

/// Links an empty program with an option for the linker. A linker that does not know the option refuses it.
fn link_probe(option: &str) -> Option<PathBuf> {
    let folder = var_os("OUT_DIR")?;
    let mut rustc = Command::new(var_os("RUSTC")?);
    rustc.args(["--crate-name", "probe", "--edition", "2024", "-C"]);
    rustc.arg(format!("link-arg={option}"));
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
    let program = Path::new(&folder).join("probe");
    rustc.arg(&source).arg("-o").arg(&program);
    let status = rustc.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    status.success().then_some(program)
}

/// Whether the loader of this system accepts a program.
fn runs(program: &Path) -> bool {
    let status = Command::new(program).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
