//! Progress values in text: real lines with their values, lines without values, and patterns of a route.

use milepost_core::progress::ProgressValue;
use milepost_core::progress::extract::{Extract, PATTERN_MAX, PATTERNS_MAX};
use proptest::prelude::*;

/// Returns the lines of a table, each with the text before its first tab.
fn table(name: &str) -> Vec<(String, String)> {
    let path = format!("{}/../../tests/data/lines/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|row| !row.starts_with('#'));
    rows.map(|row| row.split_once('\t').unwrap())
        .map(|(first, line)| (first.to_owned(), line.to_owned()))
        .collect()
}

fn spelled(figure: Option<ProgressValue>) -> String {
    let Some(ProgressValue { value, total }) = figure else { return "-".to_owned() };
    let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
    match total {
        Some(total) => format!("{}/{}", text(&value.text), text(&total.text)),
        None => text(&value.text),
    }
}

#[test]
fn what_real_tools_print_is_read() {
    let (lines, extract) = (table("progress.tsv"), Extract::presets());
    assert!(lines.iter().filter(|(figure, _)| figure != "-").count() >= 150);
    let wrong: Vec<String> = lines
        .iter()
        .map(|(figure, line)| (figure, line, spelled(extract.figure(line))))
        .filter(|(figure, _, found)| *figure != found)
        .map(|(figure, line, found)| format!("{found} instead of {figure}: {line}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn what_may_mean_something_else_stays_text() {
    let (lines, extract) = (table("other.tsv"), Extract::presets());
    assert!(lines.len() >= 200);
    let wrong: Vec<String> = lines
        .iter()
        .map(|(why, line)| (why, line, spelled(extract.figure(line))))
        .filter(|(_, _, found)| found != "-")
        .map(|(why, line, found)| format!("{found} from a line of {why}: {line}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[track_caller]
fn check(patterns: &[&str], line: &str, figure: &str) {
    let extract = Extract::read(patterns.iter().copied()).unwrap();
    assert_eq!(spelled(extract.figure(line)), figure, "{patterns:?}: {line}");
}

#[test]
fn a_template_says_where_the_numbers_stand() {
    check(&["{progress}/{total}"], "at 3/10 now", "3/10");
    check(&["{progress}/{total}"], "at 1,234/5'678 now", "1234/5678");
    check(&["{progress}/{total}"], "at 007/010 now", "7/10");
    check(&["{progress}/{total}"], "2026/11/22 at 3/10", "3/10");
    for joined in ["v3/10", "3/10ms", "0.3/10.5.1", "src/3/10", "3/10/11", "11/10", "0/0"] {
        check(&["{progress}/{total}"], joined, "-");
    }
    check(&["{percent}%"], "cpu 45%", "45/100");
    check(&["{percent}%"], "145%", "-");
    check(&["done {progress} of\t{total} parts"], "done  3 of 10   parts", "3/10");
    check(&["frame= {progress}"], "frame=  123 fps= 25", "123");
    check(&["({progress})"], "a(1) (b) (22)", "1");
    check(&["a.{progress}"], "ab1 a.7", "7");
}

#[test]
fn an_expression_names_what_it_finds() {
    check(&[r"(?<progress>\d+) von (?<total>\d+)"], "3 von 10", "3/10");
    check(&[r"(?P<percent>[\d.]+) Prozent"], "12.5 Prozent", "12.5/100");
    check(&[r"x(?<progress>\S+)"], "xa x5", "5");
    check(&[r"at (?<progress>-?\d+)"], "at -5", "-");
    check(&[r"(?<progress>\d+)(?:/(?<total>\d+))?"], "4", "4");
    check(&[r"(?<progress>\d+)(?:/(?<total>\d+))?"], "4/5", "4/5");
}

#[test]
fn the_first_pattern_that_finds_a_figure_counts() {
    check(&["{percent} pct", "presets"], "12 pct 3/10", "12/100");
    check(&["{percent} pct", "presets"], "3/10", "3/10");
    check(&["{percent} pct"], "3/10", "-");
    check(&[], "3/10", "-");
    assert_eq!(spelled(Extract::none().figure("45%")), "-");
    assert_eq!(Extract::default(), Extract::read(["presets"]).unwrap());
    let own = Extract::read(["{percent}%", "presets"]).unwrap();
    assert_eq!(own.patterns().collect::<Vec<_>>(), ["{percent}%", "presets"]);
}

#[test]
fn what_is_no_pattern_is_refused_with_what_may_be_meant() {
    let many: Vec<String> = (0..=PATTERNS_MAX).map(|at| format!("{at} {{percent}}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = format!("{{percent}}{}", "x".repeat(PATTERN_MAX));
    let huge = r"(?<percent>(\w{100}){100})";
    for (patterns, told) in [
        (&["preset"][..], "\"preset\" is not a pattern; did you mean \"presets\"?"),
        (&["defaults"], "\"defaults\" is not a pattern; did you mean \"presets\"?"),
        (&["{percant}%"], "\"{percant}%\" is not a pattern; did you mean \"{percent}%\"?"),
        (&["{progres}/{total}"], "\"{progres}/{total}\" has `total` without `progress`"),
        (
            &[r"(?<totals>\d+)"],
            r#""(?<totals>\\d+)" is not a pattern; did you mean "(?<total>\\d+)"?"#,
        ),
        (
            &["done"],
            "\"done\" finds no figure; {progress}, {total} or {percent} is expected in it, such as \
             \"{progress}/{total}\", or a group such as (?<percent>[0-9]+)",
        ),
        (&["{total} files"], "\"{total} files\" has `total` without `progress`"),
        (&["{progress} {progress}"], "\"{progress} {progress}\" has {progress} twice"),
        (&["{percent}%", "{percent}%"], "\"{percent}%\" is there twice"),
        (
            &["{percent}% {progress}"],
            "\"{percent}% {progress}\" has `percent` beside other figures; either `percent` or \
             `progress` with or without `total` is expected",
        ),
        (
            &["(?<percent>[0-9"],
            "\"(?<percent>[0-9\" is not a regular expression: unclosed character class",
        ),
        (&[&long], "a pattern of at most 1024 bytes is expected"),
        (&many, "at most 32 patterns are expected"),
    ] {
        assert_eq!(Extract::read(patterns.iter().copied()).unwrap_err(), told);
    }
    let error = Extract::read([huge]).unwrap_err();
    assert!(error.contains("size limit"), "{error}");
}

#[test]
fn only_the_beginning_of_a_line_is_looked_at() {
    let extract = Extract::presets();
    let padded = |blanks: usize| format!("{}3 of 10", " ".repeat(blanks));
    assert_eq!(spelled(extract.figure(&padded(1000))), "3/10");
    // The line is cut after "3 of 1", which would be another value.
    assert_eq!(spelled(extract.figure(&padded(1018))), "-");
    let long = "1/2 ".repeat(1 << 20);
    extract.figure(&long);
}

/// Generates text that probably contains values.
fn ugly() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => "[0-9]{1,3}", 3 => Just("/".to_owned()), 3 => Just("%".to_owned()),
        2 => Just(" of ".to_owned()), 2 => Just(" ".to_owned()), 1 => "[,.:=-]",
        1 => "[\\[\\]()|<>]", 1 => Just("-chk=".to_owned()), 1 => Just("kMGTiB".to_owned()),
        1 => "[0-9]{14,40}", 1 => Just(" left".to_owned()), 1 => "\\PC{0,3}", 1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_figure_is_beyond_its_total(line in ugly()) {
        let own = Extract::read(["{percent}%", "{progress}/{total}", "x(?<progress>.*)"]).unwrap();
        for extract in [Extract::presets(), own] {
            if let Some(ProgressValue { value, total }) = extract.figure(&line) {
                prop_assert!(value.value.is_finite() && value.value >= 0.0, "{value:?}");
                prop_assert!(total.as_ref().is_none_or(|total| value.value <= total.value));
                for number in total.iter().chain([&value]) {
                    let text = milepost_core::protocol::json::number(&number.text);
                    prop_assert_eq!(text, Some(number.value), "{:?}", number);
                }
            }
        }
    }
}
