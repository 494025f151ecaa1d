//! `milepost man`: made of the same description as the command line.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::commands::args::Cli;

/// The program's name in shells.
pub(super) const NAME: &str = "milepost";

/// The error of manual pages that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write manual pages into {}", path.display())]
pub struct ManualError {
    path: PathBuf,
    source: io::Error,
}

/// The whole manual, one page after the other, as `man -l -` reads it.
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

/// The pages by their file names: the program's, then each command's.
fn pages() -> Vec<(String, String)> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    std::iter::once(&program).chain(commands).cloned().map(page).collect()
}

fn page(command: Command) -> (String, String) {
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command).source(source).manual("Milepost");
    let mut out = Vec::new();
    // A list of bytes takes everything.
    let _ = page.render(&mut out);
    (page.get_filename(), String::from_utf8_lossy(&out).into_owned())
}
