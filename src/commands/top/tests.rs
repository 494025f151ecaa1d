//! The screen of `top`, drawn in memory.

use std::time::{Duration, Instant};

use console::Key;

use super::calls::ProcessNews;
use super::draw::draw;
use super::feed::TopNews;
use super::screen::{TopScreen, TopStep, TopView};
use super::style::Colours;
use super::take;

const CALLS: &str = r#"[
    {"n":1,"route":"npx","method":"tools/list","opened":1000,"ended":1001,"outcome":"result"},
    {"n":2,"route":"npx","method":"tools/call","tool":"build","client":"Claude Code 2.1","token":true,
     "opened":1000,"progress":"14","total":"40","message":"iteration 14 of 40","spoke":21000,"sent":3,
     "received":3,"repaired":{"lift":2},"messages":2},
    {"n":3,"route":"npx","method":"tools/call","tool":"index","token":true,"opened":2000,"sent":4,"spoke":2000,
     "message":"still indexing","beats":2},
    {"n":4,"route":"npx","method":"tools/call","tool":"report","opened":1000,"ended":4500,"outcome":"tool error"}
]"#;

const DETAIL: &str = r#"{"left_out":0,"messages":[
    {"at":0,"what":"request","why":[],"because":[],"before":"{\"id\":1}","after":null},
    {"at":500,"what":"repaired","why":["token"],"because":["the token in the client's own spelling"],
     "before":"{\"progressToken\":\"1\"}","after":"{\"progressToken\":1}"}]}"#;

struct Drawn {
    screen: TopScreen,
    size: (usize, usize),
    now: Instant,
}

impl Drawn {
    fn new(width: usize, height: usize) -> Self {
        let now = Instant::now();
        let mut screen = TopScreen::new(Colours::Off);
        screen.calls.take("/run/a", ProcessNews::Begun("wrap npx".to_owned()), now);
        let events = [
            ("routes", r#"[{"route":"npx","server":"everything"}]"#),
            ("calls", CALLS),
            ("now", "21000"),
        ];
        for (name, data) in events {
            let event = ProcessNews::Event(name.to_owned(), data.to_owned());
            screen.calls.take("/run/a", event, now);
        }
        Self { screen, size: (width, height), now }
    }

    fn lines(&mut self) -> Vec<String> {
        let lines = draw(&mut self.screen, self.size, self.now);
        assert_eq!(lines.len(), self.size.1);
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    fn press(&mut self, keys: &str) -> TopStep {
        let mut step = TopStep::On;
        for sign in keys.chars() {
            let key = match sign {
                '\n' => Key::Enter,
                '\u{1b}' => Key::Escape,
                sign => Key::Char(sign),
            };
            step = self.screen.press(&key, self.now);
        }
        step
    }

    #[track_caller]
    fn shows(&mut self, text: &str) {
        let lines = self.lines();
        assert!(lines.iter().any(|line| line.contains(text)), "{text}:\n{}", lines.join("\n"));
    }

    #[track_caller]
    fn hides(&mut self, text: &str) {
        let lines = self.lines();
        assert!(lines.iter().all(|line| !line.contains(text)), "{text}:\n{}", lines.join("\n"));
    }
}

#[test]
fn the_keys_at_the_foot_fit_every_width() {
    for (width, keys, foot) in [
        (
            120,
            "",
            "Enter open  / words  f failed, silent  s sort  x cancel  o in flight  t all requests  ? help  q quit",
        ),
        (80, "", "Enter open  / words  f failed, silent  s sort  x cancel  ? help  q quit"),
        (40, "", "Enter open  / words  ? help  q quit"),
        (10, "", "? help  q"),
        (80, "\n", "Esc back  j/k scroll  g first  G newest  x cancel  p pause  ? help  q back"),
        (60, "\n", "Esc back  j/k scroll  g first  G newest  ? help  q back"),
    ] {
        let mut drawn = Drawn::new(width, 20);
        drawn.press(keys);
        assert_eq!(drawn.lines().last().unwrap(), foot, "{width}");
    }
    for width in [40, 60, 80] {
        let mut drawn = Drawn::new(width, 20);
        drawn.press("o");
        assert!(drawn.lines().last().unwrap().ends_with("? help  q quit"), "{:?}", drawn.lines());
    }
}

#[test]
fn a_narrow_table_leaves_changes_out_and_cuts_no_number() {
    let mut drawn = Drawn::new(110, 12);
    let calls = CALLS.replace(r#"{"lift":2}"#, r#"{"lift":41},"withheld":{"late":3}"#);
    let event = ProcessNews::Event("calls".to_owned(), calls);
    drawn.screen.calls.take("/run/a", event, drawn.now);
    drawn.shows("repaired ×41, …");
}

#[test]
fn the_table_shows_calls_in_flight_first_with_their_progress() {
    let mut drawn = Drawn::new(140, 12);
    let lines = drawn.lines();
    assert_eq!(
        lines[0],
        "milepost top  1 process, 2 calls in flight (1 silent), 1 ended (1 failed)"
    );
    assert!(lines[2].contains("build") && lines[2].contains("█░"), "{}", lines[2]);
    assert!(lines[2].contains("35 %, 14 of 40") && lines[2].contains("Claude Code 2.1"));
    assert!(lines[2].contains("repaired ×2") && lines[2].ends_with("20 s"), "{}", lines[2]);
    assert!(lines[3].contains("index") && lines[3].contains("no figure"), "{}", lines[3]);
    assert!(lines[3].contains("silent 19 s") && lines[3].contains("wrap everything"));
    assert!(lines[4].starts_with('✕') && lines[4].contains("tool error"), "{}", lines[4]);
    drawn.hides("tools/list");
    drawn.press("t");
    drawn.shows("tools/list");
    // A narrow terminal still shows every call, with less about each.
    let mut narrow = Drawn::new(70, 12);
    narrow.shows("build");
    narrow.hides("Claude Code");
}

#[test]
fn a_filter_is_typed_kept_and_cleared() {
    let mut drawn = Drawn::new(120, 12);
    drawn.press("/index");
    drawn.shows("/index█");
    drawn.hides("build");
    drawn.press("\n");
    drawn.shows("/index  Esc clears");
    drawn.press("\u{1b}");
    drawn.shows("build");
    drawn.press("/nothing at all\n");
    drawn.shows("No call passes the filter");
    drawn.press("\u{1b}o");
    drawn.hides("report");
    drawn.shows("only in flight  Esc clears");
    drawn.press("\u{1b}");
    drawn.shows("report");
}

#[test]
fn calls_in_trouble_are_found_with_one_key() {
    let mut drawn = Drawn::new(120, 12);
    drawn.press("f");
    drawn.shows("report");
    drawn.hides("build");
    drawn.shows("only failed  Esc clears");
    drawn.press("f");
    drawn.shows("index");
    drawn.hides("report");
    drawn.shows("only silent  Esc clears");
    drawn.press("f");
    drawn.shows("build");
    drawn.hides("only");
}

#[test]
fn a_key_sorts_the_calls_and_the_head_names_the_order() {
    let mut drawn = Drawn::new(120, 12);
    let tools = |drawn: &mut Drawn| {
        let tool = |line: &String| line.split_whitespace().nth(1).unwrap_or_default().to_owned();
        drawn.lines()[2..5].iter().map(tool).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(tools(&mut drawn), "build index report");
    drawn.press("s");
    drawn.shows("1 ended (1 failed)  sorted by time");
    assert_eq!(tools(&mut drawn), "build index report");
    drawn.press("sss");
    drawn.shows("sorted by changes");
    drawn.press("s");
    drawn.hides("sorted by");
    // The selected call stays selected when the order changes.
    drawn.press("G");
    drawn.press("ss");
    assert_eq!(drawn.screen.chosen, Some(("/run/a".to_owned(), 4)));
}

#[test]
fn a_call_opens_with_its_messages_side_by_side() {
    let mut drawn = Drawn::new(120, 30);
    drawn.press("k\n");
    drawn.shows("Reading the messages");
    drawn.shows("build (call 2) at wrap everything, for Claude Code 2.1: in flight after 20 s");
    let key = ("/run/a".to_owned(), 2);
    take(&mut drawn.screen, TopNews::Detail(key, Ok(serde_json::from_str(DETAIL).unwrap())));
    drawn.shows("+0.50 s  repaired token: the token in the client's own spelling");
    drawn.shows("the client said; the server got the same");
    let lines = drawn.lines();
    let both = lines.iter().find(|line| line.contains('│') && line.contains("Token")).unwrap();
    assert!(both.contains(r#""progressToken": "1""#) && both.ends_with(r#""progressToken": 1"#));
    drawn.press("?");
    drawn.shows("the messages of a call, side by side");
    drawn.press("x\u{1b}");
    drawn.shows("TOOL");
    assert!(matches!(drawn.screen.view, TopView::Table));
    assert_eq!(drawn.press("q"), TopStep::Quit);
}

#[test]
fn a_call_in_flight_is_cancelled_after_a_question() {
    let mut drawn = Drawn::new(120, 12);
    drawn.press("x");
    drawn.shows("Cancel call 2, build at wrap everything?  y yes, any other key no");
    assert_eq!(drawn.press("n"), TopStep::On);
    drawn.hides("Cancel call");
    assert_eq!(drawn.press("xy"), TopStep::Cancel(("/run/a".to_owned(), 2)));
    take(&mut drawn.screen, TopNews::NotCancelled("call 2 has just ended".to_owned()));
    drawn.shows("call 2 has just ended");
    // The next key clears the words; the last row is a call that has ended.
    drawn.press("G");
    drawn.hides("just ended");
    drawn.press("x");
    drawn.shows("only a call in flight can be cancelled");
}

#[test]
fn the_newest_message_stays_in_sight_until_somebody_scrolls() {
    let mut drawn = Drawn::new(120, 12);
    drawn.press("\n");
    let key = ("/run/a".to_owned(), 2);
    let mut more = |count: usize| {
        let messages: Vec<String> = (0..count)
            .map(|n| format!(r#"{{"at":{n},"what":"said","before":"message {n}"}}"#))
            .collect();
        let detail = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        let detail = serde_json::from_str(&detail).unwrap();
        take(&mut drawn.screen, TopNews::Detail(key.clone(), Ok(detail)));
        drawn.lines().join("\n")
    };
    assert!(more(20).contains("message 19"));
    assert!(more(30).contains("message 29"));
    drawn.press("g");
    drawn.shows("message 0");
    drawn.press("G");
    drawn.shows("message 29");
}

#[test]
fn a_pause_keeps_what_is_in_sight() {
    let mut drawn = Drawn::new(120, 12);
    drawn.lines();
    drawn.press("p");
    let gone = ProcessNews::Event("gone".to_owned(), "[2]".to_owned());
    drawn.screen.calls.take("/run/a", gone, drawn.now);
    drawn.now += Duration::from_secs(5);
    drawn.shows("PAUSED 5.0 s ago");
    drawn.shows("build");
    drawn.press("p");
    drawn.hides("build");
}

#[test]
fn an_empty_screen_says_what_to_do() {
    let mut drawn = Drawn::new(120, 12);
    drawn.screen = TopScreen::new(Colours::Off);
    drawn.shows("Nothing runs that shows its calls");
}

#[test]
fn text_of_others_moves_nothing_on_the_screen() {
    let mut drawn = Drawn::new(120, 12);
    let calls =
        r#"[{"n":9,"route":"npx","tool":"evil\u001b[2J\u202e","opened":1,"message":"a\nb"}]"#;
    let event = ProcessNews::Event("calls".to_owned(), calls.to_owned());
    drawn.screen.calls.take("/run/a", event, drawn.now);
    drawn.shows("evil[2J");
    drawn.shows("a b");
}
