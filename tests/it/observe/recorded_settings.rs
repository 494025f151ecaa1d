//! Settings that change during a conversation are recorded and replayed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use milepost::observe::events::{EventEmitter, EventKind, FilterId, Observer, ObserverEvent};
use milepost::progress::{Filter, Policy, StreamId, StreamKind, StreamPacing};
use milepost::relay::filter_guard::FilterGuard;

use crate::support::milepost;

#[derive(Debug, Default, Clone)]
struct Commands(Arc<Mutex<Vec<String>>>);

impl Observer for Commands {
    fn on_event(&mut self, event: &ObserverEvent) {
        if let EventKind::Input(input, _) = &event.kind {
            self.0.lock().unwrap().extend(input.words());
        }
    }
}

#[test]
fn those_who_look_on_are_told_of_other_settings_once() {
    let first = Arc::new(Policy::default());
    let mut filter = Filter::new(Arc::clone(&first));
    filter.open_stream(StreamId(0), StreamKind::Shared, StreamPacing::Immediate);
    let mut guarded = FilterGuard::new(filter, Arc::clone(&first), StreamId(0));
    let commands = Commands::default();
    guarded.set_emitter(EventEmitter::new(
        FilterId { conversation: 1, filter: 1 },
        Instant::now(),
        vec![Box::new(commands.clone())],
    ));
    let mut second = Policy { keep_original: true, ..Policy::default() };
    second.call.heartbeat.after = Duration::from_secs(7);
    let second = Arc::new(second);
    for policy in [&first, &second, &second, &first] {
        guarded.set_policy(policy);
    }
    let told = commands.0.lock().unwrap().clone();
    assert_eq!(told, ["settings keep-original=on heartbeat-after=7s", "settings"]);
}

#[test]
fn a_replay_takes_them_where_they_were_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.txt");
    let call = |id| {
        format!(
            r#"> {{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{id}}}}}}}"#
        )
    };
    let refusal = |sign, id| format!(r#"{sign} {{"jsonrpc":"2.0","id":{id},"error":"no"}}"#);
    let ended = |repairs| format!("~ Error in 0 out 0 beats 0 repaired [{repairs}] withheld []");
    let mended = r#"= {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no","data":"no"}}"#;
    let text = [
        "! first-after=0s hold=0s guard=0s".to_owned(),
        call(1),
        "! settings error-shape=off".to_owned(),
        call(2),
        refusal("<", 1),
        ended("error-shape 1"),
        mended.to_owned(),
        refusal("<", 2),
        ended(""),
        refusal("=", 2),
    ];
    std::fs::write(&file, text.join("\n") + "\n").unwrap();
    let output = milepost().arg("replay").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
