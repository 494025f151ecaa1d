//! `milepost export`: a recording as a HAR archive, or as one page for a browser.

mod har;
mod html;

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::lab::recordings::RecordingError;
use crate::lab::recordings::calls::RecordedCalls;
use crate::observe::redact::Masking;
use crate::platform::files;
use crate::progress::policy::masks::Masks;

/// `milepost export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The format [default: by the name of OUT, else har]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Option<ExportFormat>,
    /// The file to write, which only its owner can read [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Do not mask text that looks like a secret; only of use for a recording made with --record-secrets
    #[arg(long)]
    pub keep_secrets: bool,
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// HAR 1.2: one entry for each call
    Har,
    /// One page for a browser, which loads nothing
    Html,
}

/// The reason why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The recording cannot be used.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The export cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

impl ExportArgs {
    fn format(&self) -> ExportFormat {
        let extension = self.output.as_deref().and_then(Path::extension);
        let is_page = extension.is_some_and(|own| own == "html" || own == "htm");
        let by_name = if is_page { ExportFormat::Html } else { ExportFormat::Har };
        self.to.unwrap_or(by_name)
    }
}

/// How the text of messages is written: without secrets, if they are to be masked.
struct ExportText {
    masking: Option<Masking>,
}

impl ExportText {
    /// The text as it was recorded.
    fn recorded() -> Self {
        Self { masking: None }
    }

    /// The text of a recording without its secrets.
    fn masked(recording: &RecordedCalls) -> Self {
        // Text that was already masked stays unchanged, so that its masks keep their numbers.
        if recording.is_masked {
            return Self::recorded();
        }
        let mut masking = Masking::new(Masks::default());
        recording.calls.iter().for_each(|call| masking.learn_names(&call.request));
        Self { masking: Some(masking) }
    }

    fn show(&mut self, text: &[u8]) -> String {
        match &mut self.masking {
            Some(masking) => String::from_utf8_lossy(&masking.mask(text)).into_owned(),
            None => String::from_utf8_lossy(text).into_owned(),
        }
    }
}

/// Writes a recording in another format.
///
/// # Errors
/// If the recording cannot be used, or the file cannot be written. A closed pipe on standard output is not an error.
pub fn run(args: &ExportArgs) -> Result<(), ExportError> {
    let recording = RecordedCalls::load(&args.file)?;
    let name = args.output.clone().unwrap_or_else(|| PathBuf::from("standard output"));
    let written = match &args.output {
        Some(path) => {
            let mut options = OpenOptions::new();
            files::private(options.write(true).create(true).truncate(true));
            options.open(path).and_then(|file| write(args, &recording, BufWriter::new(file)))
        }
        None => match write(args, &recording, BufWriter::new(io::stdout().lock())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        },
    };
    written.map_err(|error| ExportError::Write(name, error))
}

fn write(args: &ExportArgs, recording: &RecordedCalls, mut to: impl Write) -> io::Result<()> {
    let mut text = match args.keep_secrets {
        true => ExportText::recorded(),
        false => ExportText::masked(recording),
    };
    match args.format() {
        ExportFormat::Har => har::write(recording, &mut text, &mut to)?,
        ExportFormat::Html => html::write(recording, &mut text, &mut to)?,
    }
    to.flush()
}
