//! The work and words of the tools of `kuzumem.rs`, before a generation puts them on the wire.

use std::time::Duration;

use serde_json::json;

use crate::support::{Call, Fields};

/// The work of a tool, before a generation tells of it.
pub(crate) struct Work {
    /// The time between its steps.
    pub(crate) pace: Duration,
    /// Each begins with `status`.
    pub(crate) steps: Vec<Fields>,
    pub(crate) outcome: Result<Fields, String>,
}

fn place(call: &Call) -> (&str, &str) {
    (call.text("repository").unwrap_or("demo"), call.text("branch").unwrap_or("main"))
}

/// The result of preparing a memory bank.
pub(crate) fn success(call: &Call) -> Fields {
    let (repository, branch) = place(call);
    let message = format!("Memory bank initialized for {repository} (branch: {branch})");
    vec![("success", json!(true)), ("message", json!(message))]
}

/// Twenty iterations, after which there are no ranks.
pub(crate) fn pagerank(call: &Call) -> Work {
    const ITERATIONS: u32 = 20;
    let (repository, branch) = place(call);
    let mut steps = vec![vec![
        ("status", json!("initializing")),
        ("message", json!(format!("Starting PageRank analysis for {repository}:{branch}"))),
        ("dampingFactor", json!(0.85)),
        ("maxIterations", json!(ITERATIONS)),
    ]];
    steps.extend((1..=ITERATIONS).map(|iteration| {
        vec![
            ("status", json!("in_progress")),
            ("message", json!(format!("PageRank iteration {iteration}/{ITERATIONS} complete."))),
            ("currentIteration", json!(iteration)),
            ("maxIterations", json!(ITERATIONS)),
            ("percentComplete", json!(iteration * 100 / ITERATIONS)),
        ]
    }));
    steps.push(vec![
        ("status", json!("finalizing")),
        ("message", json!("PageRank calculation complete. Retrieved 0 ranks.")),
        ("ranksCount", json!(0)),
    ]);
    let outcome = Ok(vec![
        ("status", json!("complete")),
        ("repository", json!(repository)),
        ("branch", json!(branch)),
        ("dampingFactor", json!(0.85)),
        ("iterationsCompleted", json!(ITERATIONS)),
        ("ranks", json!([])),
    ]);
    Work { pace: Duration::from_millis(50), steps, outcome }
}

/// Counts from 0 to 2 in four steps: the second and the third say 1.
pub(crate) fn dependencies(call: &Call) -> Work {
    let (repository, branch) = place(call);
    let component = call.text("componentId").unwrap_or("comp-A");
    let pace = Duration::from_millis(5);
    let start = format!("Starting dependency analysis for {component} in {repository}:{branch}");
    let mut steps = vec![vec![
        ("status", json!("initializing")),
        ("message", json!(start)),
        ("depth", json!(2)),
    ]];
    if component.starts_with("no-such") {
        let outcome = Err(format!("Component {component} not found"));
        return Work { pace, steps, outcome };
    }
    let found =
        json!([{ "id": "comp-B", "kind": "service" }, { "id": "comp-C", "kind": "service" }]);
    steps.push(vec![
        ("status", json!("in_progress")),
        ("message", json!("Retrieved first level dependencies")),
        ("level", json!(1)),
        ("count", json!(2)),
        ("dependencies", found.clone()),
    ]);
    for (processed, name) in ["comp-C", "comp-B"].into_iter().enumerate() {
        for (verb, processed) in [("Processing", processed), ("Processed", processed + 1)] {
            steps.push(vec![
                ("status", json!("in_progress")),
                ("message", json!(format!("{verb} dependencies for {name}"))),
                ("processedCount", json!(processed)),
                ("totalCount", json!(2)),
            ]);
        }
    }
    let outcome = Ok(vec![
        ("status", json!("complete")),
        ("repository", json!(repository)),
        ("branch", json!(branch)),
        ("componentId", json!(component)),
        ("depth", json!(2)),
        ("totalDependencies", json!(2)),
        ("dependencies", found),
    ]);
    Work { pace, steps, outcome }
}
