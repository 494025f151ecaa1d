//! The rules that hold in every conversation, even with invalid messages.

use std::time::Duration;

use bytes::Bytes;
use milepost_core::progress::durations::{Durations, Sample};
use milepost_core::progress::extract::Extract;
use milepost_core::progress::policy::ask::TokenType;
use milepost_core::progress::{
    CallPolicy, Coalesce, Filter, Fragment, Messages, Mode, OnFall, Outcome, Pacing, Policy,
    Reason, Verdict, dialect,
};
use milepost_core::protocol::jsonrpc::{Kind, Message};
use proptest::prelude::*;
use serde_json::Value;

use crate::core::checker::Checker;
use crate::core::dialects::dialects;
use crate::core::random_talk::{Said, Step, TOKENS, Talk, cut, steps};
use crate::core::rig::{Rig, assert_one_verdict_each, assert_pieces_stand_together, bare};

/// A time that is longer than any wait except that for a heartbeat.
pub(crate) const AGES: Duration = Duration::from_secs(10);

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let on_fall = prop_oneof![
        2 => Just(OnFall::Lift), 1 => Just(OnFall::Rebase), 1 => Just(OnFall::Drop)
    ];
    let pacing = prop_oneof![Just(Pacing::PACED), Just(Pacing::IMMEDIATE)];
    (on_fall, pacing, any::<[bool; 12]>()).prop_map(|(on_fall, pacing, dice)| {
        let mut policy = Policy::default();
        policy.call.pacing = pacing;
        policy.call.on_fall = on_fall;
        policy.call.extract = if dice[0] { Extract::default() } else { Extract::none() };
        if dice[1] {
            policy.call.dialects = dialects();
        }
        if dice[10] {
            // The other tool does not use all dialects.
            let mut own = CallPolicy { pacing, ..CallPolicy::default() };
            own.dialects.retain(|known| known.name() == "standard" || dice[11]);
            own.dialects.extend(dialect::named("stderr"));
            policy.tools.insert("fix".to_owned(), own);
        }
        if dice[2] && dice[3] {
            policy.call.mode = Mode::Enforce;
        }
        if dice[2] && dice[4] {
            policy.call.messages = Messages::Append;
        }
        if dice[3] && dice[5] {
            policy.call.coalesce = Coalesce::All;
        }
        policy.call.ask.token_in_arguments = dice[6];
        if dice[7] {
            policy.call.ask.token_type =
                if dice[8] { TokenType::String } else { TokenType::Integer };
        }
        if dice[9] {
            estimate(&mut policy);
        }
        policy
    })
}

/// Turns estimates on. Two tools have learned durations: one has short and long calls, the other only one call.
fn estimate(policy: &mut Policy) {
    policy.call.estimate = true;
    policy.call.heartbeat.after = Duration::from_millis(200);
    policy.call.heartbeat.every = Duration::from_millis(300);
    for (tool, took) in [("scan", &[300, 2000, 9000][..]), ("fix", &[1000])] {
        let samples = took.iter().map(|millis| Sample { millis: *millis, has_figure: false });
        policy.learned.remember(tool, &Durations::new(samples, 0, 0));
    }
}

/// Plays a conversation. `said` gets each message of the client just before the filter does.
pub(crate) fn play(
    rig: &mut Rig,
    talk: &mut Talk,
    steps: &[Step],
    mut said: impl FnMut(&mut Rig, &str),
) {
    for step in steps {
        match talk.put(step, rig.filter.calls().streams().is_drained()) {
            None => {}
            Some(Said::Client(text)) => {
                said(rig, &text);
                let asked = rig.policy.with_members(&Message::parse(Bytes::from(text.clone())));
                let wanted = asked.unwrap_or_else(|| text.clone().into());
                assert_eq!(rig.client(text.as_bytes()), wanted, "to the server");
            }
            Some(Said::Server(text)) => {
                let text = as_server_knows(&rig.policy, &text);
                rig.server(text.as_bytes());
            }
            Some(Said::ServerInPieces(pieces)) => {
                let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
                rig.server_in_pieces(&pieces, |_| {});
            }
            Some(Said::Errors(line)) => rig.errors(&line),
            Some(Said::Wait(time)) => rig.pass(time),
            Some(Said::Stall(true)) => rig.stalled = true,
            Some(Said::Stall(false)) => rig.resume(),
        }
    }
}

/// Returns a message of the server with the tokens in the form that the server got them.
fn as_server_knows(policy: &Policy, text: &str) -> String {
    const NAME: &str = r#""progressToken":"#;
    if policy.call.ask.token_type == TokenType::Same {
        return text.to_owned();
    }
    let mut parts = text.split(NAME);
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let known = TOKENS.iter().filter(|token| part.starts_with(**token));
        let token = known.max_by_key(|token| token.len()).copied().unwrap_or_default();
        let request = format!(
            r#"{{"id":1,"method":"ping","params":{{"_meta":{{"progressToken":{token}}}}}}}"#
        );
        let asked = policy.with_members(&Message::parse(Bytes::from(request)));
        let asked = asked.map(|asked| serde_json::from_slice::<Value>(&asked).unwrap());
        let given = asked.map(|asked| asked["params"]["_meta"]["progressToken"].to_string());
        out += NAME;
        out += &given.unwrap_or_else(|| token.to_owned());
        out += &part[token.len()..];
    }
    out
}

/// Passes the messages since the last call to the checker, with their pieces joined.
pub(crate) fn hear(rig: &mut Rig, checker: &mut Checker, partial: &mut Vec<u8>) {
    for transmit in rig.told.drain(..) {
        partial.extend_from_slice(&transmit.payload.to_bytes());
        if transmit.part != Fragment::Piece {
            checker.client_told(&String::from_utf8_lossy(partial));
            partial.clear();
        }
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the messages of a batch, or the one message.
fn elements(bytes: &Bytes) -> Vec<Bytes> {
    match serde_json::from_slice::<Vec<&serde_json::value::RawValue>>(bytes) {
        Ok(elements) => elements.iter().map(|one| bytes.slice_ref(one.get().as_bytes())).collect(),
        Err(_) => vec![bytes.clone()],
    }
}

fn is_progress(bytes: &Bytes) -> bool {
    let message = Message::parse(bytes.clone());
    message.kind() == Kind::Notification
        && message
            .method()
            .is_some_and(|method| dialects().iter().any(|dialect| dialect.claims(&method)))
}

proptest! {
    /// Every message that the client gets keeps the rules that can be checked.
    #[test]
    fn a_client_is_told_nothing_that_it_cannot_accept(
        policy in policies(),
        gathered in any::<bool>(),
        steps in steps(),
    ) {
        let mut rig = Rig::new(policy);
        rig.gathered = gathered;
        let (mut checker, mut partial) = (Checker::default(), Vec::new());
        play(&mut rig, &mut Talk::default(), &steps, |rig, text| {
            hear(rig, &mut checker, &mut partial);
            checker.client_said(text);
        });
        rig.resume();
        rig.pass(AGES);
        hear(&mut rig, &mut checker, &mut partial);
    }

    /// Each message of the server gets exactly one verdict.
    #[test]
    fn each_message_ends_in_one_verdict(
        policy in policies(),
        steps in steps(),
        keep_original in any::<bool>(),
        observe in any::<bool>(),
        end in 0..4,
    ) {
        let mut policy = Policy { keep_original, ..policy };
        if observe {
            policy.set_mode(Mode::Observe);
        }
        let mut rig = Rig::new(policy);
        play(&mut rig, &mut Talk::default(), &steps, |_, _| {});
        match end {
            0 => rig.gone(),
            1 => rig.close(Filter::close_stream),
            2 => rig.close(Filter::cancel_stream),
            _ => {}
        }
        rig.resume();
        rig.pass(AGES);
        if end == 1 {
            // Messages that wait for a client which may reconnect keep waiting until their call ends.
            rig.gone();
        }
        assert_one_verdict_each(&rig);
        assert_pieces_stand_together(&rig.told);
    }

    /// Text has no influence except on progress: all other messages are the same as without text, and at the same
    /// times.
    #[test]
    fn what_is_no_progress_is_the_same_without_text(policy in policies(), steps in steps()) {
        let mut policy = policy;
        policy.call.pacing = Pacing::IMMEDIATE;
        policy.tools.values_mut().for_each(|tool| tool.pacing = Pacing::IMMEDIATE);
        policy.call.dialects = dialects();
        let told = |policy: Policy, errors: bool| {
            let mut rig = Rig::new(policy);
            let mut talk = Talk::default();
            let mut told = Vec::new();
            for step in &steps {
                let stays = !matches!(step, Step::Text([place, _]) if place % 3 == 0 && !errors);
                let still = !matches!(step, Step::Stall(_));
                if stays && still {
                    play(&mut rig, &mut talk, std::slice::from_ref(step), |_, _| {});
                }
                for one in rig.told.drain(..).map(|told| told.payload.to_bytes()) {
                    let elements = if stays { elements(&one) } else { Vec::new() };
                    told.extend(elements.iter().filter(|one| !is_progress(one)).map(text));
                }
            }
            told
        };
        prop_assert_eq!(told(policy.clone(), true), told(policy, false));
    }

    /// Two proxies in a row have the same result as one.
    #[test]
    fn filtering_twice_is_filtering_once(policy in policies(), steps in steps()) {
        let mut inner_policy = policy;
        inner_policy.call.heartbeat.enabled = false;
        inner_policy.call.messages = Messages::Replace;
        // A message that the inner proxy forwards unchanged for one tool would be progress for the outer proxy.
        inner_policy.tools.clear();
        let mut inner = Rig::new(inner_policy);
        // So would a message that the inner proxy does not overhear.
        let mut outer_policy = bare(Policy::default());
        outer_policy.call.dialects.retain(|dialect| dialect.name() != "overheard");
        // The inner proxy does not repair a result that is not an object in a message that comes in pieces.
        outer_policy.call.answers.bare_result = false;
        let mut outer = Rig::new(outer_policy);
        let mut talk = Talk::chained();
        let mut partial = Vec::new();
        let mut twice = |inner: &mut Rig, outer: &mut Rig| {
            for transmit in inner.told.drain(..) {
                partial.extend_from_slice(&transmit.payload.to_bytes());
                if transmit.part == Fragment::Piece {
                    continue;
                }
                let message = Bytes::from(std::mem::take(&mut partial));
                outer.server(&message);
                assert_eq!(text(&Bytes::from(outer.told_bytes())), text(&message));
                outer.told.clear();
            }
        };
        for step in &steps {
            let still = !matches!(step, Step::Stall(_));
            for step in std::slice::from_ref(step).iter().filter(|_| still) {
                play(&mut inner, &mut talk, std::slice::from_ref(step), |inner, text| {
                    twice(inner, &mut outer);
                    outer.client(text.as_bytes());
                });
            }
            twice(&mut inner, &mut outer);
            if let Step::Wait(_) = step
                && let Some(Said::Wait(time)) = talk.put(step, true)
            {
                outer.pass(time);
            }
        }
        prop_assert!(outer.verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Forwarded));
    }

    /// Messages of a compliant server are not changed.
    #[test]
    fn a_compliant_server_is_forwarded_as_it_is(calls in compliant(), gap in 0_u64..40) {
        let mut policy = Policy::default();
        policy.call.pacing = Pacing::IMMEDIATE;
        policy.call.mode = Mode::Enforce;
        let mut rig = Rig::new(policy);
        let mut said = Vec::new();
        for event in schedule(&calls) {
            rig.pass(Duration::from_millis(gap));
            match event {
                Event::Client(text) => drop(rig.client(text.as_bytes())),
                Event::Server(_, text) => {
                    rig.server(text.as_bytes());
                    said.push(text);
                }
            }
        }
        let told: Vec<String> = rig.told.iter().map(|t| text(&t.payload.to_bytes())).collect();
        prop_assert_eq!(told, said);
    }

    /// Pacing changes the times of messages, but not the messages.
    #[test]
    fn pacing_only_delays_a_compliant_server(calls in compliant(), gap in 0_u64..300) {
        // With this gap no progress is dropped because of an answer, and answers never wait for each other's guard.
        let rest = Duration::from_millis(if calls.len() == 1 { 31 } else { 82 });
        let answer_gap = Pacing::PACED.first_after + rest;
        let mut policy = Policy::default();
        policy.call.mode = Mode::Enforce;
        let mut rig = Rig::new(policy);
        let mut said: Vec<Vec<String>> = vec![Vec::new(); calls.len()];
        for event in schedule(&calls) {
            match event {
                Event::Client(text) => drop(rig.client(text.as_bytes())),
                Event::Server(call, text) => {
                    let answers = text.contains("result");
                    let gap = Duration::from_millis(gap);
                    rig.pass(if answers { gap.max(answer_gap) } else { gap });
                    rig.server(text.as_bytes());
                    said[call].push(text);
                }
            }
        }
        rig.pass(AGES);
        for (call, said) in said.iter().enumerate() {
            let mark = format!("call-{call}\"");
            let told = rig.told.iter().map(|t| text(&t.payload.to_bytes()));
            let told: Vec<String> = told.filter(|text| text.contains(&mark)).collect();
            prop_assert_eq!(&told, said);
        }
    }

    /// Messages that are not progress are forwarded once, unchanged and in order. Only answers and requests may be sent
    /// before an answer that waits.
    #[test]
    fn what_is_no_progress_passes_once_and_in_order(
        calls in prop::collection::vec(0_usize..24, 1..6),
        script in prop::collection::vec((0_u8..8, any::<u8>(), 0_u64..60), 0..60),
        gathered in any::<bool>(),
    ) {
        let mut rig = Rig::new(Policy::default());
        rig.gathered = gathered;
        for (call, token) in calls.iter().enumerate() {
            let meta = TOKENS.get(*token).map(|token| format!(r#""progressToken":{token}"#));
            rig.client(request(call, &meta.unwrap_or_default()).as_bytes());
        }
        let mut open: Vec<usize> = (0..calls.len()).collect();
        let mut said: Vec<(Shape, String)> = Vec::new();
        for (count, (kind, which, wait)) in script.into_iter().enumerate() {
            rig.pass(Duration::from_millis(wait));
            let which = usize::from(which);
            let (shape, text) = match kind {
                0 if !open.is_empty() => {
                    let call = open.remove(which % open.len());
                    (Shape::Answer, answer(call))
                }
                1 => (Shape::Request, format!(r#"{{"jsonrpc":"2.0","id":{which},"method":"m","n":{count}}}"#)),
                2 => (Shape::Other, format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","n":{count}}}"#)),
                3 => (Shape::Other, format!(r#"{{"jsonrpc":"2.0","odd":{count}}}"#)),
                _ => {
                    let call = which % calls.len();
                    let token = TOKENS.get(calls[call]).unwrap_or(&"\"none\"");
                    let figure = count / 2;
                    let params = format!(r#"{{"progressToken":{token},"progress":{figure}}}"#);
                    let text = format!(
                        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#
                    );
                    rig.server(text.as_bytes());
                    continue;
                }
            };
            rig.server(text.as_bytes());
            said.push((shape, text));
        }
        rig.pass(AGES);
        let told = rig.told.iter().map(|t| t.payload.to_bytes()).filter(|t| !is_progress(t));
        let told: Vec<String> = told.map(|bytes| text(&bytes)).collect();
        let places: Vec<usize> = told
            .iter()
            .map(|text| said.iter().position(|(_, said)| said == text).unwrap())
            .collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..said.len()).collect::<Vec<_>>());
        for (index, &later) in places.iter().enumerate() {
            for &earlier in places[index + 1..].iter().filter(|&&place| place < later) {
                prop_assert!(
                    said[earlier].0 == Shape::Answer && said[later].0 != Shape::Other,
                    "{} before {}", &said[later].1, &said[earlier].1
                );
            }
        }
    }

    /// `mode = "observe"` forwards all bytes unchanged.
    #[test]
    fn observing_changes_nothing(
        steps in steps(),
        junk in prop::collection::vec(any::<Vec<u8>>(), 0..4),
    ) {
        let mut policy = Policy::default();
        policy.call.mode = Mode::Observe;
        let mut rig = Rig::new(policy);
        let mut talk = Talk::default();
        let mut said = Vec::new();
        let mut junk = junk.into_iter();
        for step in &steps {
            match talk.put(step, true) {
                None => {}
                Some(Said::Client(text)) => drop(rig.client(text.as_bytes())),
                Some(Said::Server(text)) => {
                    rig.server(text.as_bytes());
                    said.extend_from_slice(text.as_bytes());
                }
                Some(Said::ServerInPieces(pieces)) => {
                    let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
                    rig.server_in_pieces(&pieces, |rig| rig.pass(Duration::from_secs(3)));
                    said.extend(pieces.concat());
                }
                Some(Said::Errors(line)) => rig.errors(&line),
                Some(Said::Wait(time)) => rig.pass(time),
                Some(Said::Stall(_)) => {
                    let Some(junk) = junk.next() else { continue };
                    rig.server(&junk);
                    said.extend(junk);
                }
            }
        }
        prop_assert_eq!(rig.told_bytes(), said);
        prop_assert!(rig.noise.is_empty());
    }

    /// A message that is too large to be kept whole is forwarded in pieces, completely and without other messages
    /// between them. It ends its call.
    #[test]
    fn a_large_answer_passes_in_pieces(
        order in Just(["\"jsonrpc\":\"2.0\"", "\"id\":\"x\"", "\"result\":R"]).prop_shuffle(),
        result in json(),
        cuts in prop::collection::vec(any::<u8>(), 1..8),
        wait in 0_u64..3000,
        paced in any::<bool>(),
        decoy in any::<bool>(),
    ) {
        let pacing = if paced { Pacing::PACED } else { Pacing::IMMEDIATE };
        let mut policy = Policy::default();
        policy.call.pacing = pacing;
        policy.call.call_timeout = Some(Duration::from_secs(4));
        let mut rig = Rig::new(policy);
        for call in 0..3 {
            rig.client(request(call, &format!(r#""progressToken":{call}"#)).as_bytes());
        }
        rig.client(request(3, r#""progressToken":3"#).replace("\"call-3\"", "\"x\"").as_bytes());
        rig.pass(Duration::from_millis(160));
        let progress = |token: u8| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#)
        };
        rig.server(progress(3).as_bytes());
        rig.pass(Duration::from_millis(40));
        rig.server(progress(1).as_bytes());
        let padding = format!(r#""pad":"{} \"id\":9","#, "-".repeat(48));
        let padding = if decoy { padding } else { String::new() };
        let text = format!("{{{padding}{}}}\n", order.join(",")).replace('R', &result);
        let head = order.iter().position(|part| part.contains("id")).unwrap_or(0);
        let pieces = if head == 0 || decoy { cut(&text, &[vec![110], cuts].concat()) } else { cut(&text, &cuts) };
        let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
        rig.server_in_pieces(&pieces, |rig| rig.pass(Duration::from_millis(wait)));
        let ended_by_the_end = rig.ended.contains(&Outcome::Result);
        let timed_out = rig.ended.contains(&Outcome::TimedOut);
        prop_assert!(ended_by_the_end || timed_out);
        rig.pass(Duration::from_millis(100));
        assert_pieces_stand_together(&rig.told);
        let whole: Vec<u8> = rig.told.iter().filter(|t| t.part != Fragment::Whole)
            .flat_map(|t| t.payload.to_bytes()).collect();
        prop_assert_eq!(String::from_utf8_lossy(&whole), text);
        rig.server(progress(3).replace("\"progress\":1", "\"progress\":9").as_bytes());
        rig.pass(Duration::from_millis(100));
        prop_assert!(rig.verdicts.contains(&(rig.messages, Verdict::Withheld(Reason::Late))));
    }

    /// Any bytes can be read as a message, and every member is at the position that the message reports.
    #[test]
    fn any_bytes_can_be_read(bytes in ugly_bytes()) {
        let raw = Bytes::from(bytes);
        let message = Message::parse(raw.clone());
        prop_assert_eq!(message.raw(), &raw);
        let _ = (message.method(), message.params(), message.id_key(), message.is_strict());
        for element in message.elements() {
            let _ = (element.kind(), element.id(), element.result(), element.error());
        }
    }

    /// The envelope has the members that an independent reader finds, whatever the length of the message.
    #[test]
    fn the_envelope_is_found_whatever_stands_beside_it(
        members in prop::collection::vec(member(), 0..6),
        pad in prop_oneof![Just(0_usize), 3900_usize..4300, Just(9000_usize)],
        at in any::<prop::sample::Index>(),
        space in any::<bool>(),
    ) {
        let mut members = members;
        if pad > 0 {
            let large = format!(r#"{{"content":["{}"]}}"#, "y ".repeat(pad / 2));
            members.insert(at.index(members.len() + 1), ("\"result\"".to_owned(), large));
        }
        let space = if space { " " } else { "" };
        let body: Vec<String> =
            members.iter().map(|(key, value)| format!("{key}{space}:{space}{value}")).collect();
        let text = format!("{{{space}{}{space}}}{space}", body.join(","));
        let last = |name: &str| {
            let mut of_name = members.iter().filter(|(key, _)| {
                serde_json::from_str::<String>(key).is_ok_and(|key| key == name)
            });
            of_name.next_back().map(|(_, value)| value.clone())
        };
        // A null member has no meaning next to a member that determines the kind of the message.
        let is = |name: &str| last(name).is_some_and(|value| value != "null");
        let last = |name: &str| {
            let has_result = last("result").is_some();
            let is_left_out = match name {
                "method" => true,
                "error" => is("method") || has_result,
                "result" => is("method") || is("error"),
                _ => false,
            };
            last(name).filter(|value| !is_left_out || value != "null")
        };
        let message = Message::parse(Bytes::from(text.clone()));
        let part = |part: Option<Bytes>| part.map(|part| String::from_utf8_lossy(&part).into_owned());
        prop_assert_eq!(part(message.id()), last("id"), "{}", text);
        prop_assert_eq!(part(message.result()), last("result"), "{}", text);
        prop_assert_eq!(part(message.error()), last("error"), "{}", text);
        prop_assert_eq!(part(message.params()), last("params"), "{}", text);
        let method = last("method").and_then(|method| serde_json::from_str::<String>(&method).ok());
        prop_assert_eq!(message.method().map(|method| method.into_owned()), method, "{}", text);
        prop_assert_eq!(message.kind(), kind(&text), "{}", text);
    }
}

/// A recursive reader would overflow its stack long before the end of these messages.
#[test]
fn nesting_has_no_bottom() {
    let depth = 200_000;
    let inner = r#"[{"jsonrpc":"2.0","method":"m"},"#.repeat(depth);
    for text in [
        format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        format!("{inner}1{}", "]".repeat(depth)),
        format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        ),
    ] {
        let mut rig = Rig::new(Policy::default());
        rig.server(text.as_bytes());
        assert_one_verdict_each(&rig);
    }
}

/// Returns the kind of a message according to its members as `serde_json` reads them.
fn kind(text: &str) -> Kind {
    let Ok(Value::Object(members)) = serde_json::from_str(text) else { return Kind::Noise };
    let has = |name: &str| members.contains_key(name);
    let is_named = members.get("method").is_some_and(|method| !method.is_null());
    let versioned = has("jsonrpc");
    let has_id = members.get("id").is_some_and(|id| !id.is_null());
    let answers = has("result") || has("error") || versioned && has_id;
    if is_named {
        let named = members.get("id").is_some_and(|id| !id.is_null());
        if named { Kind::Request } else { Kind::Notification }
    } else if answers && (has("id") || versioned) {
        Kind::Response
    } else if versioned {
        Kind::Opaque
    } else {
        Kind::Noise
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Answer,
    Request,
    Other,
}

fn request(call: usize, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"call-{call}","method":"tools/call","params":{{"name":"t","_meta":{{{meta}}}}}}}"#
    )
}

fn answer(call: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"call-{call}","result":{{"content":[]}}}}"#)
}

enum Event {
    Client(String),
    Server(usize, String),
}

/// For each call, its token and the steps by which its progress value rises. A step has two more numbers: for the form
/// of the notification, and for its position among all notifications.
type Compliant = Vec<(usize, Vec<(f64, u8, u8)>)>;

/// Generates calls of a compliant server.
fn compliant() -> impl Strategy<Value = Compliant> {
    let figure = prop_oneof![4 => 0.001_f64..3.0, 1 => Just(1e-9), 1 => Just(1e15)];
    let steps = prop::collection::vec((figure, any::<u8>(), any::<u8>()), 0..12);
    // Each value is used in one spelling only, so that no two requests have the same token.
    let tokens = Just(vec![0_usize, 1, 2, 3, 4, 5, 6, 8, 11, 13, 14]).prop_shuffle();
    (tokens, prop::collection::vec(steps, 1..5))
        .prop_map(|(tokens, calls)| tokens.into_iter().zip(calls).collect())
}

/// Returns the messages of these calls, interleaved.
fn schedule(calls: &Compliant) -> Vec<Event> {
    let mut events: Vec<(u16, Event)> = Vec::new();
    for (call, (token, steps)) in calls.iter().enumerate() {
        let token = TOKENS[*token];
        let meta = format!(r#""progressToken":{token}"#);
        events.push((0, Event::Client(request(call, &meta))));
        let mut figure = -1.0;
        let mut place = 1;
        for (step, dress, later) in steps {
            figure = f64::max(figure + step, f64::next_up(figure));
            place += u16::from(*later);
            let spelled = match dress % 3 {
                0 => format!("{figure:e}"),
                1 => format!("{figure}{}", if figure.fract() == 0.0 { ".00" } else { "00" }),
                _ => figure.to_string(),
            };
            let more = match dress % 7 {
                0 => r#","total":1e300"#,
                1 => r#","total":9999999999999999.0,"message":"caf\u00e9 \/""#,
                2 => r#","_meta":{"a":[1e999]}"#,
                3 => r#","odd":{"progress":-1}"#,
                4 => r#","message":"""#,
                _ => "",
            };
            let more = if more.contains("1e999") { r#","_meta":{"a":[1E5]}"# } else { more };
            let text = format!(
                r#"{{"params":{{"progress":{spelled},"progressToken" : {token}{more},"call":"call-{call}"}},"method":"notifications\/progress","jsonrpc":"2.0"}}"#
            );
            events.push((place, Event::Server(call, text)));
        }
        events.push((place, Event::Server(call, answer(call))));
    }
    events.sort_by_key(|(place, _)| *place);
    events.into_iter().map(|(_, event)| event).collect()
}

/// Generates a member of an envelope as key and value, including escapes and misleading content.
fn member() -> impl Strategy<Value = (String, String)> {
    let key = prop::sample::select(vec![
        "\"id\"",
        "\"id\"",
        "\"\\u0069d\"",
        "\"method\"",
        "\"m\\u0065thod\"",
        "\"result\"",
        "\"result\"",
        "\"r\\u0065sult\"",
        "\"error\"",
        "\"params\"",
        "\"jsonrpc\"",
        "\"_meta\"",
        "\"x\\\"id\"",
    ]);
    let id = prop::sample::select(vec![
        "1",
        "\"a\"",
        "\"a,b\"",
        "null",
        "-0",
        "1e3",
        "{\"id\":1}",
        "\"\\\"id\\\":1\"",
        "[]",
    ]);
    let value = prop_oneof![id.prop_map(str::to_owned), json()];
    (key, value).prop_map(|(key, value)| match key {
        "\"jsonrpc\"" => (key.to_owned(), "\"2.0\"".to_owned()),
        "\"method\"" | "\"m\\u0065thod\"" => (key.to_owned(), "\"notifications\\/x\"".to_owned()),
        _ => (key.to_owned(), value),
    })
}

/// Generates valid JSON values that contain text which looks like an envelope.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "\"PAD\"",
        "\"PAD\"",
        "\"}\"",
        "\",\\\"id\\\":7}\"",
        "\"\\\\\"",
        "\"\\\\\\\"{[\"",
        "null",
        "-1.5e3",
        "\"id\"",
        "\"\"",
        "\"\u{e9}\u{2028}\"",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(3, 12, 4, |inner| {
        let array = prop::collection::vec(inner.clone(), 0..4);
        let keys =
            prop::sample::select(vec!["id", "method", "result", "content", "\\u0069d", "a\\\""]);
        let object = prop::collection::vec((keys, inner), 0..4);
        prop_oneof![
            array.prop_map(|values| format!("[{}]", values.join(","))),
            object.prop_map(|members| {
                let all: Vec<String> =
                    members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", all.join(","))
            }),
        ]
    })
}

/// Bytes of which most have a meaning in JSON. Sometimes there are very many of one kind.
fn ugly_bytes() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static [u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\"",
        b"\\",
        b" ",
        b"\n",
        b"\"id\"",
        b"\"id\":1",
        b"\"method\":\"x\"",
        b"\"result\":",
        b"\"error\":{}",
        b"\"jsonrpc\":\"2.0\"",
        b"NaN",
        b"1e999",
        b"\xFF",
        b"\\u00",
        b"null",
        b"\"params\":{}",
    ];
    let word = prop::sample::select(words);
    let times = prop_oneof![20 => Just(1_usize), 1 => 4096_usize..5000];
    prop::collection::vec((word, times), 0..40)
        .prop_map(|words| words.into_iter().flat_map(|(word, times)| word.repeat(times)).collect())
}
