//! The table in `docs/transports.md`: each of its cells is a test.
//!
//! With `UPDATE_EXPECT=1` the table is written from the results of the cells. Without it, the table must say that each
//! cell passes, and the cells run as tests of their own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::cells;
use super::{Pair, Transport};
use crate::support::home;

/// The text above the table.
const PREFACE: &str = include_str!("transports.md");

/// One cell: the name of its pair, its own name, and its test.
struct Cell {
    pair: &'static str,
    name: &'static str,
    run: fn(),
}

/// For each pair a module with a test for each cell, and all of them in one list.
macro_rules! cells {
    ($($pair:ident: $client:ident to $server:ident),* $(,)?; $names:tt) => {
        $(pub(crate) mod $pair {
            cells!(@tests $client $server $names);
        })*
        const CELLS: &[&[Cell]] = &[$(cells!(@list $pair $names)),*];
    };
    (@tests $client:ident $server:ident [$($name:ident),*]) => {
        $(#[test]
        pub(crate) fn $name() {
            super::cells::$name(super::Pair::new(
                super::Transport::$client,
                super::Transport::$server,
            ));
        })*
    };
    (@list $pair:ident [$($name:ident),*]) => {
        &[$(Cell { pair: stringify!($pair), name: stringify!($name), run: $pair::$name }),*]
    };
}

cells! {
    stdio_to_stdio: Stdio to Stdio,
    stdio_to_http: Stdio to Http,
    stdio_to_sse: Stdio to Sse,
    http_to_stdio: Http to Stdio,
    http_to_http: Http to Http,
    http_to_sse: Http to Sse,
    sse_to_stdio: Sse to Stdio,
    sse_to_http: Sse to Http,
    sse_to_sse: Sse to Sse;
    [progress, asked, cancel, concurrent, server_request, resume, death, large]
}

/// The table, where `passes` says what becomes of a cell.
fn table(passes: impl Fn(&Cell) -> bool) -> String {
    let names: Vec<_> = CELLS[0].iter().map(|cell| cell.name.replace('_', " ")).collect();
    let mut table = format!("| pair | {} |\n", names.join(" | "));
    table += &"|---".repeat(names.len() + 1);
    table += "|\n";
    for row in CELLS {
        let cells: Vec<_> =
            row.iter().map(|cell| if passes(cell) { "passes" } else { "FAILS" }).collect();
        table += &format!("| `{}` | {} |\n", row[0].pair, cells.join(" | "));
    }
    table
}

#[test]
fn the_documented_table_is_what_the_cells_do() {
    let path = home().join("docs/transports.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let run = |cell: &Cell| catch_unwind(AssertUnwindSafe(cell.run)).is_ok();
        std::fs::write(&path, format!("{PREFACE}{}", table(run))).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    let expected = format!("{PREFACE}{}", table(|_| true));
    assert_eq!(stored, expected, "docs/transports.md: run with UPDATE_EXPECT=1");
}
