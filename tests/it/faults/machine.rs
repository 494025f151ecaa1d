//! A machine whose clock and disk are set by a test, for the one process that has its variables
//! (`tests/support/machine.c`). It needs no privileges.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::NamedTempFile;

use crate::support::home;

const LIBRARY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/machine.so");

pub(super) struct Machine(NamedTempFile);

impl Machine {
    pub(super) fn new() -> Self {
        static BUILT: OnceLock<()> = OnceLock::new();
        BUILT.get_or_init(|| {
            let source = home().join("tests/support/machine.c");
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-O1", "-o", LIBRARY]).arg(source);
            let status = compiler.status().unwrap();
            assert!(status.success(), "cc: {status}");
        });
        let machine = Self(NamedTempFile::new().unwrap());
        machine.set_clock(0);
        machine.set_full(false);
        machine
    }

    /// The environment of a process that runs on it.
    pub(super) fn variables(&self) -> [(&'static str, String); 2] {
        let file = self.0.path().display().to_string();
        [("LD_PRELOAD", LIBRARY.to_owned()), ("MACHINE_FILE", file)]
    }

    /// Seconds that the clock of the wall is ahead.
    pub(super) fn set_clock(&self, seconds: i64) {
        self.0.as_file().write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// Whether nothing more can be written to standard error.
    pub(super) fn set_full(&self, full: bool) {
        self.0.as_file().write_all_at(&i64::from(full).to_ne_bytes(), 8).unwrap();
    }
}
