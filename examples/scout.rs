//! Scout, which loads the data of several tenants into one database, and polls for how far it is.
//!
//! Every three seconds it reads the state of the run and sends it on if the *text* has changed. The
//! figures are steps, so they stand still while rows are loaded, and fall back when the next
//! tenant's run starts, often with another number of steps.
//!
//! ```json
//! {"method":"notifications/progress","params":{"progressToken":"t","progress":3.0,"total":5.0,"message":"Loading cases: 4.6% (600 / 13,028 rows)"},"jsonrpc":"2.0"}
//! {"method":"notifications/progress","params":{"progressToken":"t","progress":3.0,"total":5.0,"message":"Loading cases: 38.4% (5,000 / 13,028 rows)"},"jsonrpc":"2.0"}
//! {"method":"notifications/progress","params":{"progressToken":"t","progress":1.0,"total":4.0,"message":"Discovering tables for tenant-b"},"jsonrpc":"2.0"}
//! ```
//!
//! Run it with `cargo run --example scout -- --pace 200ms`, and behind milepost with
//! `milepost wrap -- target/debug/examples/scout`.
//!
//! Over HTTP it stands for every server on FastMCP before 1.29: progress goes to the session's GET
//! stream and is lost if the client has none; what answers the POST has the result and no more.
//!
//! ```text
//! event: message
//! data: {"method":"notifications/progress","params":{"progressToken":"t","progress":1.0,"total":5.0,"message":"Discovering tables for tenant-a"},"jsonrpc":"2.0"}
//! ```
//!
//! `cargo run --example scout -- --http 127.0.0.1:8100 --pace 200ms`

mod support;

use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use support::{Call, Cancelled, Library, Listen, Server, Tool};

/// Scout's server for materializations.
#[derive(Parser)]
struct Scout {
    /// Time between two looks at the state of the run
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = support::duration)]
    pace: Duration,
    /// Report each step of one tenant once, as the first version did
    #[arg(long)]
    steps: bool,
    #[command(flatten)]
    listen: Listen,
}

/// The state of a run in the database.
struct State {
    step: Option<u32>,
    steps: Option<u32>,
    message: String,
}

impl Server for Scout {
    fn identity(&self) -> (&'static str, &'static str) {
        ("scout", "1.26.0")
    }

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        Library::Python
    }

    fn tools(&self) -> &'static [Tool] {
        &[Tool {
            name: "run_materialization",
            description: "Loads the data of two tenants",
            arguments: &[("pipeline", "string", "What to load")],
        }]
    }

    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        if call.tool != "run_materialization" {
            call.unknown_tool();
            return Ok(());
        }
        let pipeline = call.text("pipeline").unwrap_or("cases");
        if self.steps {
            return self.poll(call, &steps(pipeline));
        }
        let mut states =
            vec![State { step: None, steps: None, message: "Waiting for a worker".to_owned() }];
        states.extend(run("tenant-a", pipeline, 5, 13_028));
        states.extend(run("tenant-b", pipeline, 4, 2_250));
        self.poll(call, &states)
    }
}

impl Scout {
    fn poll(&self, call: &Call, states: &[State]) -> Result<(), Cancelled> {
        let mut told = None;
        for state in states {
            call.wait(self.pace)?;
            if told.replace(&state.message) != Some(&state.message) {
                report(call, state);
            }
        }
        call.answer(r#"{"status": "completed", "tenants": 2}"#);
        Ok(())
    }
}

/// The steps of the first version: 1 to N of N.
fn steps(pipeline: &str) -> Vec<State> {
    let words = [
        "Discovering tables".to_owned(),
        "Creating schema".to_owned(),
        format!("Loading {pipeline} from CommCare API..."),
        "Transforming".to_owned(),
        "Finished".to_owned(),
    ];
    let steps = words.len() as u32;
    let numbered = (1..).zip(words);
    numbered
        .map(|(step, message)| State { step: Some(step), steps: Some(steps), message })
        .collect()
}

/// The states a tenant's run is found in. Now and then nothing has changed.
fn run(tenant: &str, pipeline: &str, steps: u32, rows: u32) -> Vec<State> {
    let at = |step, message| State { step: Some(step), steps: Some(steps), message };
    let loaded = |loaded: u32| {
        let percent = f64::from(loaded) * 100.0 / f64::from(rows);
        let (loaded, rows) = (support::grouped(loaded), support::grouped(rows));
        at(steps - 2, format!("Loading {pipeline}: {percent:.1}% ({loaded} / {rows} rows)"))
    };
    let mut states = vec![
        at(1, format!("Discovering tables for {tenant}")),
        at(1, format!("Discovering tables for {tenant}")),
    ];
    states.extend((2..steps - 2).map(|step| at(step, "Creating schema".to_owned())));
    // 4.6 % of the first tenant's rows, where they stay for a while.
    states.extend([600, 600, 5_000, 11_500].into_iter().filter(|done| *done <= rows).map(loaded));
    states.push(loaded(rows));
    states.push(at(steps - 1, "Transforming".to_owned()));
    states.push(at(steps, format!("Finished {tenant}")));
    states
}

/// Floats, as Python writes them; without a step 0 of 1.
fn report(call: &Call, state: &State) {
    let Some(token) = &call.token else { return };
    let progress = Value::from(f64::from(state.step.unwrap_or(0)));
    let total = Value::from(f64::from(state.steps.unwrap_or(1)));
    let message = support::quoted(&state.message);
    // To this library progress belongs to no request.
    call.aside(format_args!(
        r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"total":{total},"message":{message}}},"jsonrpc":"2.0"}}"#
    ));
}

fn main() {
    support::serve(Scout::parse());
}
