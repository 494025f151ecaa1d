//! `milepost man`: prints manual pages, made from the description of the command line.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use crate::commands::args::Cli;

/// The program's name in shells.
pub(super) const NAME: &str = "milepost";

/// The text about the exit status, for a command whose help does not describe it.
const EXIT: &str = "0 if the command did what it was asked to do, 2 for a command line that cannot be read, and 1 or 2 \
                    for any other error.";

const FILES: [(&str, &str); 4] = [
    ("proxy.toml", "The route file that `serve`, `check` and `init` use unless another is named."),
    (
        "$XDG_STATE_HOME/milepost, ~/.local/state/milepost",
        "The folder for state: learned durations of tools, kept starts, and the token for operators.",
    ),
    (
        "$XDG_RUNTIME_DIR/milepost",
        "The local sockets by which `ls`, `top` and `tap` find the processes of this user; without this variable they \
         are in the folder for state.",
    ),
    ("NAME.milepost-backup", "The client's file as it was before `adopt` changed it."),
];

const ENVIRONMENT: [(&str, &str); 7] = [
    ("MILEPOST_LOG", "A log filter such as `milepost=debug`, which goes before `--log-level`."),
    ("MILEPOST_STATE_DIR", "The folder for state, or `off`."),
    ("XDG_STATE_HOME, XDG_RUNTIME_DIR", "The folders below which the files above are."),
    (
        "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY",
        "The forward proxies by which servers at an address are reached.",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "The collector that gets traces; the other variables of OTLP exporters count too.",
    ),
    ("NO_COLOR", "If it is set, output has no colours."),
    ("TMPDIR", "The folder for large messages that wait in files."),
];

/// The error of manual pages that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write manual pages into {}", path.display())]
pub struct ManualError {
    path: PathBuf,
    source: io::Error,
}

/// Returns the whole manual, one page after the other, in the format of `man -l -`.
pub fn whole() -> String {
    pages().into_iter().map(|(_, page)| page).collect()
}

/// Writes each page into a folder, under its usual name: `milepost.1`, `milepost-wrap.1` ...
///
/// # Errors
/// If a page cannot be written.
pub fn write(folder: &Path) -> Result<(), ManualError> {
    let failed = |source| ManualError { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (name, page) in pages() {
        std::fs::write(folder.join(name), page).map_err(failed)?;
    }
    Ok(())
}

/// Returns the pages with their file names: first the program's page, then each command's.
fn pages() -> Vec<(String, String)> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    std::iter::once(&program).chain(commands).cloned().map(page).collect()
}

fn page(command: Command) -> (String, String) {
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let is_of_program = command.has_subcommands();
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let page = Man::new(command).source(source).manual("Milepost");
    let mut out = Vec::new();
    // Ignore the result: writing to a byte vector does not fail.
    let _ = render(&page, &mut out);
    if is_of_program {
        let _ = page.render_subcommands_section(&mut out);
    }
    let help = AfterHelp::read(&after);
    let sections =
        if is_of_program { help.sections_of_program() } else { help.sections_of_command() };
    let _ = sections.to_writer(&mut out);
    (page.get_filename(), String::from_utf8_lossy(&out).into_owned())
}

fn render(page: &Man, out: &mut Vec<u8>) -> io::Result<()> {
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)
}

/// The text after the options in a command's help, by its parts.
struct AfterHelp<'a> {
    examples: Vec<&'a str>,
    /// Sentences on the exit code.
    exit: Vec<&'a str>,
    /// Other sentences.
    notes: Vec<&'a str>,
}

impl<'a> AfterHelp<'a> {
    fn read(text: &'a str) -> Self {
        let (examples, prose) = match text.strip_prefix("Examples:\n") {
            Some(rest) => rest.split_once("\n\n").unwrap_or((rest, "")),
            None => ("", text),
        };
        let sentences = prose.split_inclusive(". ").map(str::trim);
        let (exit, notes) =
            sentences.filter(|one| !one.is_empty()).partition(|one| one.contains("exit code"));
        Self { examples: examples.lines().map(str::trim).collect(), exit, notes }
    }

    fn sections_of_program(&self) -> Roff {
        let mut page = self.notes_and_examples();
        list(&mut page, "FILES", &FILES);
        list(&mut page, "ENVIRONMENT", &ENVIRONMENT);
        let see = "The page of each command, such as milepost-wrap(1) and milepost-serve(1)";
        self.close(page, see)
    }

    fn sections_of_command(&self) -> Roff {
        let see = "milepost(1), which lists files and environment variables";
        self.close(self.notes_and_examples(), see)
    }

    fn notes_and_examples(&self) -> Roff {
        let mut page = Roff::new();
        if !self.notes.is_empty() {
            page.control("SH", ["NOTES"]).text([roman(self.notes.join(" "))]);
        }
        if !self.examples.is_empty() {
            page.control("SH", ["EXAMPLES"]).control("nf", []);
            for line in &self.examples {
                page.text([roman(*line)]);
            }
            page.control("fi", []);
        }
        page
    }

    /// Adds the last sections.
    fn close(&self, mut page: Roff, see: &str) -> Roff {
        let exit = if self.exit.is_empty() { EXIT.to_owned() } else { self.exit.join(" ") };
        page.control("SH", ["EXIT STATUS"]).text([roman(exit)]);
        page.control("SH", ["SEE ALSO"]).text([roman(see)]);
        page
    }
}

/// Adds a section in which each row is a name and its meaning.
fn list(page: &mut Roff, title: &str, rows: &[(&str, &str)]) {
    page.control("SH", [title]);
    for (name, meaning) in rows {
        page.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
    }
}
