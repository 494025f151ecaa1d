//! The text that a terminal would show: progress bars, colours and unreadable bytes, divided at every byte.

use milepost_core::protocol::terminal::{LINE_MAX, Terminal, plain};
use proptest::prelude::*;

/// Returns the lines that are reported if output arrives in these pieces.
fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut terminal, mut lines) = (Terminal::default(), Vec::new());
    for piece in pieces {
        terminal.feed(piece, &mut |line| lines.push(line.to_owned()));
    }
    terminal.flush(&mut |line| lines.push(line.to_owned()));
    lines
}

/// Whether `all` contains all lines of `some`, in the same order.
fn are_among(some: &[String], all: &[String]) -> bool {
    let mut all = all.iter();
    some.iter().all(|line| all.any(|other| other == line))
}

/// Checks the lines that are shown, however the output is divided. If a piece ends within a line that is being redrawn,
/// the line's state at that time is shown too.
#[track_caller]
fn check(output: impl AsRef<[u8]>, shown: &[&str]) {
    let output = output.as_ref();
    let is_redrawn = output.iter().any(|byte| b"\r\x08\x1b\xc2".contains(byte));
    let same = |cut: &[String]| match is_redrawn {
        true => are_among(&shown.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), cut),
        false => cut == shown,
    };
    assert_eq!(lines([output]), shown);
    for cut in 0..=output.len() {
        let (head, tail) = output.split_at(cut);
        let cut_lines = lines([head, tail]);
        assert!(same(&cut_lines), "cut at {cut}: {cut_lines:?}");
    }
    let cut_lines = lines(output.chunks(1));
    assert!(same(&cut_lines), "byte by byte: {cut_lines:?}");
}

#[test]
fn what_turns_text_is_not_shown() {
    check("\u{202e}cba\u{202c} 45%\n", &["cba 45%"]);
    check("a\u{2066}b\u{2069}\u{200f}c\u{61c}\u{2028}d\n", &["abcd"]);
    // Progress bars, Arabic letters and joined signs are kept.
    check(
        "\u{2588}\u{2588} \u{62d}\u{644} \u{1f469}\u{200d}\u{1f4bb}\n",
        &["\u{2588}\u{2588} \u{62d}\u{644} \u{1f469}\u{200d}\u{1f4bb}"],
    );
    assert_eq!(plain("\u{202e}a\tb\n"), "a\tb\n");
}

#[test]
fn lines_are_lines() {
    check("a\nb\r\n\n  \n c \nd", &["a", "b", "c", "d"]);
    check("no end", &["no end"]);
    check("a\n\u{e9}t\u{e9}\u{4e2d}\u{1f680}\n", &["a", "\u{e9}t\u{e9}\u{4e2d}\u{1f680}"]);
    check("tab\tbed\n", &["tab bed"]);
    check("same\nsame\n", &["same", "same"]);
    check("", &[]);
}

#[test]
fn colours_titles_and_other_sequences_are_not_shown() {
    check("\x1b[1;31mred\x1b[0m \x1b[38;5;12mblue\x1b[m\n", &["red blue"]);
    check("\x1b]0;title\x07a\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\\n", &["alink"]);
    check("\x1bP+q544e\x1b\\a\x1b_apc\x1b\\b\x1b^pm\u{9c}c\n", &["abc"]);
    check("\u{9b}31mred\u{9b}m \u{9d}0;title\u{9c}x\u{90}dcs\u{9c}y\n", &["red xy"]);
    check("\x1b(Ba\x1b=b\x1b>c\x1b7d\n", &["abcd"]);
    check("\x1b[?25lhidden\x1b[?25h\n", &["hidden"]);
    check("bell\x07 \x0e\x0fshift\n", &["bell shift"]);
    check("\x1b]0;a title without an end\nnext\n", &["next"]);
    check("\x1b[31", &[]);
    check("\x1b[3\u{18}1m\n", &["1m"]);
    // A control character within a sequence has its effect, and the sequence continues.
    check("a\x1b\r[1mb\n", &["a", "b"]);
    check("\u{9d}0;title\u{9b}1mb\n", &["b"]);
}

#[test]
fn each_state_of_a_bar_is_a_line() {
    check(
        "\r  0%| | 0/2\r 50%|#| 1/2\r100%|##| 2/2\n",
        &["0%| | 0/2", "50%|#| 1/2", "100%|##| 2/2"],
    );
    check("10%\r20%\r30%\r\nend\n", &["10%", "20%", "30%", "end"]);
    check("a\x1b[2K\x1b[1Gb\x1b[1Gc\x1b[0Gd\n", &["a", "b", "c", "d"]);
    check("\x1b[2K\r\x1b[36mbar\x1b[0m 1/2\x1b[1A\x1b[2K\rbar 2/2\n", &["bar 1/2", "bar 2/2"]);
    check("\x1b[1;1Htop\x1b[2Jnew\x1b[Jsame\n", &["top", "newsame"]);
    check("same\rsame\rsame\nsame\n", &["same", "same"]);
    check("up\x1bMa\x1b8b\x1bcc\n", &["up", "a", "b", "c"]);
}

#[test]
fn the_cursor_goes_back_over_what_is_written_again() {
    check("work: 1%\x08\x08 2%\n", &["work:  2%"]);
    check("1/3\x08\x08\x082/3\x1b[3D3/3\n", &["3/3"]);
    check("\x08\x08a\x1b[9999Db\n", &["b"]);
    check("name\x1b[10G45%\n", &["name 45%"]);
    check("done 10%\x1b[6G20%\n", &["done 20%"]);
    check("a\x1b[5Cb\n", &["a b"]);
}

#[test]
fn a_bar_is_seen_before_it_ends() {
    let (mut terminal, mut seen) = (Terminal::default(), Vec::new());
    let mut feed = |bytes: &str| {
        seen.clear();
        terminal.feed(bytes.as_bytes(), &mut |line| seen.push(line.to_owned()));
        seen.join("|")
    };
    assert_eq!(feed("\r 10%"), "10%");
    assert_eq!(feed("\r 20%"), "20%");
    assert_eq!(feed(""), "");
    assert_eq!(feed("\n"), "");
    // A line that has not been redrawn may continue, so it is not reported yet.
    assert_eq!(feed("Loading"), "");
    assert_eq!(feed("..."), "");
    assert_eq!(feed("\r30%"), "Loading...|30%");
    assert_eq!(feed("\x08\x08\x0840%"), "40%");
    // A read of this length may end anywhere, so its last line is not reported yet.
    let flood = "\r12/345".repeat(700);
    assert_eq!(feed(&flood), "12/345");
    assert_eq!(feed(&flood.replace("12", "13")[..4098]), "13/345");
    assert_eq!(feed("\n"), "13");
}

#[test]
fn rubbish_is_no_line() {
    check(b"\x00\x01\x02ELF\n\0\0\0\nok\n", &["ok"]);
    check(b"a\0\rb\n", &["b"]);
    check(b"caf\xe9 au lait\n", &["caf\u{fffd} au lait"]);
    check(b"\xff\xfe\xfd\xfc\n\xe2\x82\n\xe2\xe2\x82\xac fine\n", &["\u{fffd}\u{20ac} fine"]);
    check(b"cut \xf0\x9f\x9a", &["cut"]);
    check(b"\x1b]0;\xff\xfe\x07title\n", &["title"]);
}

#[test]
fn a_long_line_is_cut() {
    let long = "x".repeat(LINE_MAX);
    check(format!("{long}\nnext\n"), &[&long, "next"]);
    assert_eq!(lines([format!("{long}yz\n{long}\x1b[1my\nb\n").as_bytes()]), [&*long, &long, "b"]);
    let wide = "\u{e9}".repeat(LINE_MAX);
    let shown = lines([format!("x{wide}y\n\rx{wide}y\n").as_bytes()]);
    assert_eq!(shown.iter().map(String::len).collect::<Vec<_>>(), [LINE_MAX - 1, LINE_MAX - 1]);
}

#[test]
fn a_text_without_its_sequences_keeps_its_lines() {
    assert_eq!(plain("\x1b[31mred\x1b[0m\0 \x1b]0;t\x07x\n\ty\r\n"), "red x\n\ty\n");
    assert_eq!(plain("as it is "), "as it is ");
}

/// Bytes of which most have a meaning for a terminal.
fn ugly() -> impl Strategy<Value = Vec<u8>> {
    let pieces: [&[u8]; 18] = [
        b"45%",
        b"45%",
        b"a ",
        b"\n",
        b"\n",
        b"\r",
        b"\x08",
        b"\x1b[",
        b"\x1b]",
        b"\x1b",
        b"12G",
        b"2K",
        b"\x07",
        b"\xe2\x82\xac",
        b"\xc2",
        b"\x9b",
        b"\x00",
        b"\xff",
    ];
    let piece = prop::sample::select(pieces.to_vec());
    prop::collection::vec(piece, 0..48).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces(output in ugly(), size in 1_usize..9) {
        let whole = lines([&output[..]]);
        let cut = lines(output.chunks(size));
        prop_assert!(are_among(&whole, &cut), "{:?} {:?}", whole, cut);
        for line in &cut {
            prop_assert!(!line.trim().is_empty() && line.len() <= LINE_MAX);
            prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
        }
        let ended = output.iter().any(|byte| b"\r\x08\x1b\xc2".contains(byte));
        prop_assert!(ended || whole == cut);
    }
}
