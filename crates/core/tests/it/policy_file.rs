//! Policies that are read from TOML: every setting has its key, and an error names the correct form.

use std::time::Duration;

use milepost_core::policy_file::setting::SettingScope;
use milepost_core::progress::dialect::Dialect;
use milepost_core::progress::policy::ask::{LogLevel, TokenType};
use milepost_core::progress::{CallPolicy, Coalesce, Mode, OnFall, Policy, Scale};

/// A text with settings of most kinds.
const WHOLE: &str = r#"
    mode = "enforce"
    dialects = ["standard", "acme"]
    hold = "1.5s"
    coalesce = "all"
    no_repair = ["noise"]
    heartbeat = { every = "7s" }
    scale = "250"
    call_timeout = "off"
    late.bytes = "16MiB"
    ask.log_level = "debug"
    ask.meta = { stream = true, note = "$${x}" }
    keep_original = true
    tools.import = { on_fall = "rebase", ask.token_type = "string", dialects = ["log"] }

    [[dialect]]
    name = "acme"
    method = "acme/status"
    progress = "/params/pct"
"#;

fn shape(policy: &Policy) -> String {
    format!("{policy:?}")
}

/// Returns the faults of a text, one on each line.
fn faults(text: &str) -> String {
    Policy::from_toml(text).unwrap_err().to_string()
}

#[test]
fn a_text_without_keys_is_the_default_policy() {
    for text in ["", "# nothing\n", "\u{feff}", "tools = {}", "dialects = [\"defaults\"]"] {
        assert_eq!(shape(&Policy::from_toml(text).unwrap()), shape(&Policy::default()), "{text:?}");
    }
}

#[test]
fn a_policy_has_what_the_text_says() {
    let policy = Policy::from_toml(WHOLE).unwrap();
    let names = |call: &CallPolicy| -> Vec<String> {
        call.dialects.iter().map(|dialect| dialect.name().to_owned()).collect()
    };
    let call = &policy.call;
    assert_eq!((call.mode, call.coalesce), (Mode::Enforce, Coalesce::All));
    assert_eq!(names(call), ["standard", "acme"]);
    assert!(matches!(call.dialects[1], Dialect::Custom(_)));
    // A time that the text names applies to every client.
    assert_eq!(call.pacing.hold, Duration::from_millis(1500));
    assert!(!call.spare_known_clients);
    assert!(!call.answers.noise && call.answers.ping);
    assert_eq!(call.heartbeat.every, Duration::from_secs(7));
    assert_eq!(call.scale, Some(Scale::Of(250.0)));
    assert_eq!(call.call_timeout, None);
    // The table `late` switches late answers on.
    assert!(call.late.enabled && !call.tasks.enabled);
    assert_eq!(call.late.bytes, 16 << 20);
    assert_eq!(policy.log_level, Some(LogLevel::Debug));
    assert_eq!(call.ask.meta["note"], "${x}");
    assert!(policy.keep_original);
    let tool = &policy.tools["import"];
    assert_eq!((tool.on_fall, tool.ask.token_type), (OnFall::Rebase, TokenType::String));
    assert_eq!(names(tool), ["log"]);
    assert_eq!((tool.mode, tool.heartbeat.every), (Mode::Enforce, Duration::from_secs(7)));
}

/// If the default of each setting is written into a file, the result is the default policy.
#[test]
fn every_setting_has_its_key() {
    fn all<S: SettingScope>() -> usize {
        let settings = S::SETTINGS.iter().filter_map(|one| Some((one.key, one.printed_default()?)));
        let mut count = 0;
        for (key, default) in settings {
            let mut policy = Policy::from_toml(&format!("{key} = {default}")).unwrap();
            let switched = [
                ("late.", &mut policy.call.late.enabled),
                ("tasks.", &mut policy.call.tasks.enabled),
            ];
            for (table, is_on) in switched {
                assert_eq!(*is_on, key.starts_with(table) && !key.ends_with(".enabled"), "{key}");
                *is_on = false;
            }
            policy.call.spare_known_clients = true;
            assert_eq!(shape(&policy), shape(&Policy::default()), "{key}");
            count += 1;
        }
        count
    }
    assert!(all::<CallPolicy>() > 30 && all::<Policy>() > 5);
}

#[test]
fn an_error_says_where_and_what_would_be_right() {
    for (text, told) in [
        ("mode = \"obsrve\"", "1:8: mode: \"obsrve\" is not known; did you mean \"observe\"?"),
        ("hartbeat = {}", "1:1: hartbeat: unknown key; did you mean `heartbeat`?"),
        (
            "heartbeat.after = 5",
            "1:19: heartbeat.after: a time such as \"150ms\" is expected, not integer `5`",
        ),
        (
            "\n  heartbeat = { afer = \"2s\" }",
            "2:17: heartbeat.afer: unknown key; did you mean `after`?",
        ),
        (
            "late.bytes = \"much\"",
            "1:14: late.bytes: \"much\" is not a size; a number with KiB, MiB or GiB such as 64MiB is expected",
        ),
        ("dialects = [\"acme\"]", "1:13: dialects: \"acme\" is not known; one of "),
        (
            "[dialect]\nname = \"a\"",
            "1:1: dialect: [[dialect]] is expected, not [dialect]: there may be several",
        ),
        (
            "[[dialect]]\nname = \"a\"",
            "1:1: dialect: `method` or `source` is expected, such as method = \"acme/status\"",
        ),
        (
            "tools.scan = { keep_original = true }",
            "1:16: tools.scan.keep_original: unknown key; known here: mode, dialects, ",
        ),
        (
            "tools.scan.hold = \"1\"",
            "1:19: tools.scan.hold: \"1\" is not a time; a number with a unit such as 150ms, 2s or 5m is expected",
        ),
        (
            "ask.meta.key = \"${KEY}\"",
            "1:17: ask.meta.key: variables are not known here; write the value, or `$${KEY}` if this is no variable",
        ),
        ("extract = [\"(\"]", "1:11: extract: "),
        ("mode = ", "1:8: "),
    ] {
        let all = faults(text);
        assert!(all.starts_with(told) && !all.contains('\n'), "{text:?}: {all}");
    }
}

#[test]
fn every_error_is_told() {
    let text = "mode = 1\nhold = \"off\"\n\n[tools.scan]\nscale = \"half\"\n";
    let faults = Policy::from_toml(text).unwrap_err();
    let places: Vec<_> = faults.all().iter().map(|fault| (fault.line, fault.column)).collect();
    assert_eq!(places, [(1, 8), (2, 8), (5, 9)], "{faults}");
    assert_eq!(faults.to_string().lines().count(), 3);
    let third = &faults.all()[2];
    assert_eq!(third.key.as_deref(), Some("tools.scan.scale"));
    let excerpt = "    5 | scale = \"half\"\n      |         ^^^^^^\n";
    assert_eq!(third.excerpt.as_deref(), Some(excerpt));
}

/// The reader always returns: a policy, or at least one fault with a position in the text.
#[test]
fn no_text_makes_the_reader_panic() {
    let read = |text: &str| {
        if let Err(faults) = Policy::from_toml(text) {
            let lines = text.split('\n').count();
            assert!(!faults.all().is_empty(), "{text:?}");
            assert!(faults.all().iter().all(|fault| (1..=lines).contains(&fault.line)), "{faults}");
        }
    };
    for (at, sign) in WHOLE.char_indices().step_by(3) {
        let (before, after) = WHOLE.split_at(at);
        let rest = &after[sign.len_utf8()..];
        read(before);
        for other in ["", "\"", "[", "=", "\n", "\u{0}", "é", "${"] {
            read(&format!("{before}{other}{rest}"));
        }
    }
}

/// A line that may contain a secret is not shown, so that the secret does not reach a log.
#[test]
fn a_line_that_may_hold_a_secret_is_not_shown() {
    let faults =
        Policy::from_toml("ask.meta = { token = \"hidden\", progressToken = 1 }").unwrap_err();
    let fault = &faults.all()[0];
    assert!(!format!("{fault:?}").contains("hidden"), "{fault:?}");
}
