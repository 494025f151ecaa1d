//! A server that never heard of progress and runs programs that show theirs on a terminal: what it says
//! of a call before its answer stands on its standard error, with bars that are drawn over and over.
//!
//! `build` makes a small workspace and runs the real `cargo build` on it:
//!
//! ```text
//!    Compiling step-3 v0.1.0 (/tmp/…/step-3)
//!     Building [======>                    ] 3/9: step-3(build)
//! ```
//!
//! `train` draws what tqdm draws, with nothing but carriage returns between:
//!
//! ```text
//!  45%|████▌     | 45/100 [00:02<00:02, 20.00it/s]
//! ```
//!
//! Run it with `cargo run --example builder`, and behind milepost with
//! `milepost wrap --dialect defaults,stderr -- target/debug/examples/builder`.

mod support;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use support::{Call, Cancelled, Library, Listen, Server, Tool};

/// A server whose tools run programs that draw bars on a terminal.
#[derive(Parser)]
struct Builder {
    /// Packages that `build` compiles, one after the other
    #[arg(long, value_name = "N", default_value_t = 4)]
    packages: usize,
    /// Time between two steps of `train`
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = support::duration)]
    pace: Duration,
    #[command(flatten)]
    listen: Listen,
}

impl Server for Builder {
    fn identity(&self) -> (&'static str, &'static str) {
        ("builder", "1.0.0")
    }

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        Library::Plain { json: false, early: false, sessions: false }
    }

    fn tools(&self) -> &'static [Tool] {
        &[
            Tool {
                name: "build",
                description: "Compiles a small workspace with cargo",
                arguments: &[],
            },
            Tool {
                name: "train",
                description: "Works through as many steps as it is told, 100 by default",
                arguments: &[("steps", "number", "How many")],
            },
        ]
    }

    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        match call.tool.as_str() {
            "build" => self.build(call)?,
            "train" => self.train(call)?,
            _ => call.unknown_tool(),
        }
        Ok(())
    }
}

impl Builder {
    fn build(&self, call: &Call) -> Result<(), Cancelled> {
        let folder = std::env::temp_dir().join(format!("builder-{}", support::uuid()));
        let built = self.workspace(&folder).and_then(|()| {
            Command::new("cargo")
                .args(["build", "--offline", "--jobs", "1"])
                .current_dir(&folder)
                .env("CARGO_TERM_PROGRESS_WHEN", "always")
                .env("CARGO_TERM_PROGRESS_WIDTH", "80")
                .env("CARGO_TARGET_DIR", folder.join("target"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
        });
        let result = match built {
            Err(error) => Err(error.to_string()),
            Ok(mut cargo) => loop {
                match cargo.try_wait() {
                    Ok(None) => {
                        if let Err(cancelled) = call.wait(Duration::from_millis(20)) {
                            let _ = cargo.kill();
                            let _ = cargo.wait();
                            let _ = fs::remove_dir_all(&folder);
                            return Err(cancelled);
                        }
                    }
                    Ok(Some(status)) if status.success() => {
                        break Ok(format!("built {} packages", self.packages));
                    }
                    Ok(Some(status)) => break Err(format!("cargo failed: {status}")),
                    Err(error) => break Err(error.to_string()),
                }
            },
        };
        let _ = fs::remove_dir_all(&folder);
        match result {
            Ok(text) => call.answer(&text),
            Err(why) => call.finish(support::text_result(&why, true)),
        }
        Ok(())
    }

    /// Packages that each need the one before, so that they are compiled in order. What each of them
    /// does before it is compiled takes a moment, as it would with code worth compiling.
    fn workspace(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(
            folder.join("Cargo.toml"),
            "[workspace]\nmembers = [\"step-*\"]\nresolver = \"2\"\n",
        )?;
        for number in 1..=self.packages {
            let package = folder.join(format!("step-{number}"));
            fs::create_dir_all(package.join("src"))?;
            let needs = match number {
                1 => String::new(),
                _ => {
                    format!("[dependencies]\nstep-{0} = {{ path = \"../step-{0}\" }}\n", number - 1)
                }
            };
            let manifest = format!(
                "[package]\nname = \"step-{number}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n{needs}"
            );
            fs::write(package.join("Cargo.toml"), manifest)?;
            fs::write(package.join("src/lib.rs"), "")?;
            let work = "fn main() { std::thread::sleep(std::time::Duration::from_millis(300)); }\n";
            fs::write(package.join("build.rs"), work)?;
        }
        Ok(())
    }

    fn train(&self, call: &Call) -> Result<(), Cancelled> {
        const CELLS: u64 = 10;
        let steps = call.arguments["steps"].as_u64().filter(|steps| *steps > 0).unwrap_or(100);
        let begin = Instant::now();
        for step in 0..=steps {
            let cells = (step * CELLS / steps) as usize;
            let bar = format!("{:<10}", "█".repeat(cells));
            let spent = begin.elapsed().as_secs_f64();
            let rate = if spent > 0.0 { step as f64 / spent } else { 0.0 };
            let drawn = format!(
                "\r{:3}%|{bar}| {step}/{steps} [00:{:02.0}, {rate:.2}it/s]",
                step * 100 / steps,
                spent,
            );
            // One write, as tqdm does: a reader between two writes would take a part for the whole.
            let _ = io::stderr().write_all(drawn.as_bytes());
            if step < steps {
                call.wait(self.pace)?;
            }
        }
        eprintln!();
        call.answer(&format!("{steps} steps"));
        Ok(())
    }
}

fn main() {
    support::serve(Builder::parse());
}
