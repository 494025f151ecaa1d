//! The command line program: parses the arguments, runs the command, and returns the exit code.

use std::error::Error;
use std::io::{self, BufRead, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use console::Term;
use tokio::runtime::Builder;
use tracing::Level;

use crate::commands::args::{
    AdoptArgs, CheckArgs, CheckProgressArgs, CheckProgressTask, Command, DoctorArgs,
    ReferenceOptions, ReplayArgs, ServeArgs, TryArgs, WrapArgs, WrapError,
};
use crate::commands::init::{self, InitArgs, InitError};
use crate::commands::show_calls::CallViews;
use crate::commands::{
    adopt, cancel, check, completions, help, ls, man, presets, sites, stats, tap, top, wrap,
};
use crate::config::routes;
use crate::config::routes::{Routes, RoutesError};
use crate::gateway::listen;
use crate::lab::check_progress::{self, CheckProgressOptions, scenarios};
use crate::lab::doctor::playground;
use crate::lab::export::{self, ExportError};
use crate::lab::reference::seen::SeenNotes;
use crate::lab::replay::{ReplayForm, SavedFiles};
use crate::lab::{demo, diff, doctor, mock, reference, replay};
use crate::observe::calls::{Table, Watch};
use crate::observe::durations::{DurationStore, state_dir, state_dir_warning};
use crate::observe::error_chain::error_chain;
use crate::observe::events::{EventEmitter, FilterId, ObserverFactory, Scope};
use crate::observe::log;
use crate::observe::log::{LogFormat, MessageLog};
use crate::observe::otlp;
use crate::observe::otlp::DownstreamTransport;
use crate::observe::pointer_watch::PointerWatch;
use crate::observe::record::Recording;
use crate::platform::signals::Signals;
use crate::transport::child;
use crate::transport::http::collector::CollectorClient;

/// Runs the whole program, and returns the exit code for the shell.
pub fn main() -> ExitCode {
    if let Some(code) = child::run_hidden() {
        return code;
    }
    match completions::answer() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => error.exit(),
    }
    let cli = match help::parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let runtime = match runtime(&cli.command).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&error, 1),
    };
    let code = runtime.block_on(run(cli.command));
    // Do not wait for a thread that still reads from the terminal.
    runtime.shutdown_background();
    code
}

/// Returns the runtime for a command: `wrap` has one connection and needs one thread, `serve` may have many.
fn runtime(command: &Command) -> Builder {
    let threads = match command {
        Command::Serve(args) => {
            let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            args.threads.map_or_else(|| serving_threads(cores), NonZeroUsize::get)
        }
        _ => 1,
    };
    match threads {
        1 => Builder::new_current_thread(),
        several => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(several);
            builder
        }
    }
}

/// Returns the number of threads of `serve` on a machine with this number of cores. Half of the cores are enough, and
/// the servers need the others.
fn serving_threads(cores: usize) -> usize {
    (cores / 2).max(1)
}

async fn run(command: Command) -> ExitCode {
    match command {
        Command::Wrap(args) => wrap_one(&args).await,
        Command::Serve(args) => serve(&args).await,
        Command::Check(args) => check(&args),
        Command::Doctor(args) => diagnose(*args).await,
        Command::CheckProgress(args) if args.list => print(&scenarios::list()),
        Command::CheckProgress(args) => check_progress(*args).await,
        Command::Stats(args) => {
            let _log = match log::start(Level::WARN, LogFormat::Text) {
                Ok(log) => log,
                Err(error) => return report(&error, 2),
            };
            match stats::run(&args) {
                Ok(text) => print(&text),
                Err(error) => report(&error, 1),
            }
        }
        Command::Replay(args) => replay(&args).await,
        Command::Export(args) => match export::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error @ ExportError::Write(..)) => report(&error, 1),
            Err(error) => report(&error, 2),
        },
        Command::Diff(args) => match diff::run(&args) {
            Ok(diff) if diff.is_equal => print(&diff.text),
            Ok(diff) => failing(print(&diff.text)),
            Err(error) => report(&error, 2),
        },
        Command::Mock(args) => match mock::run(&args).await {
            Ok(is_complete) => ExitCode::from(u8::from(!is_complete)),
            Err(error) => report(&error, 2),
        },
        Command::Ls(args) => {
            let listed = ls::run(&args).await;
            listed.warnings.iter().for_each(|warning| eprintln!("milepost: {warning}"));
            if listed.is_complete { print(&listed.text) } else { failing(print(&listed.text)) }
        }
        Command::Tap(args) => match tap::run(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(&error, if error.is_late() { 1 } else { 2 }),
        },
        Command::Top(args) => match top::run(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(&error, 2),
        },
        Command::Cancel(args) => match cancel::run(&args).await {
            Ok(text) => print(&text),
            Err(error) => report(&error, if error.is_refusal() { 1 } else { 2 }),
        },
        Command::Presets(args) => print(&presets::run(&args)),
        Command::Schema => print(routes::schema()),
        Command::Demo(args) => match demo::run(args.silence).await {
            Ok(code) => ExitCode::from(code),
            Err(error) => report(&error, 1),
        },
        Command::Try(args) => try_out(*args).await,
        Command::Adopt(args) => adopt(&args),
        Command::Init(args) => init(&args),
        Command::Completions(args) => print(&completions::script(args.shell)),
        Command::Man(args) => man(args.dir.as_deref()),
        Command::Version => print(concat!("milepost ", env!("CARGO_PKG_VERSION"), "\n")),
    }
}

/// Returns the exit code 1, or the exit code of the failed output.
fn failing(printed: ExitCode) -> ExitCode {
    if printed == ExitCode::SUCCESS { ExitCode::FAILURE } else { printed }
}

/// Runs `milepost replay`; with `--watch`, again after each save until Ctrl-C.
async fn replay(args: &ReplayArgs) -> ExitCode {
    let mut watch = SavedFiles::new(args.files());
    let (mut before, screen) = (None, Term::stdout());
    loop {
        let form = args.form(before);
        let played = replay::run(&args.file, form, |recorded| args.settings(recorded));
        if matches!(form, ReplayForm::Table { .. }) && screen.is_term() {
            // Ignore the error: the following output of the table will fail too.
            let _ = screen.clear_screen();
        }
        before = played.as_ref().ok().and_then(|played| played.reports).or(before);
        let code = match played {
            Ok(played) if played.is_equal => print(&played.text),
            Ok(played) => failing(print(&played.text)),
            Err(error) => report(&error, 2),
        };
        if !args.watch {
            return code;
        }
        eprintln!("milepost: plays again when a file is saved; Ctrl-C ends");
        tokio::select! {
            () = watch.saved() => {}
            _ = tokio::signal::ctrl_c() => return ExitCode::SUCCESS,
        }
    }
}

/// Runs `milepost serve`. Returns the exit code of the listeners, 1 if nothing can be served, or 2 for wrong settings.
async fn serve(args: &ServeArgs) -> ExitCode {
    let _log = match log::start(args.log.log_level, args.log.log_format) {
        Ok(log) => log,
        Err(error) => return report(&error, 2),
    };
    let routes = Routes::load(args.file());
    let routes = routes.and_then(|all| all.with_strict_files(args.strict_files)?.not_empty());
    let routes = match routes {
        Ok(routes) => routes,
        Err(error) => return report(&error, 2),
    };
    for warning in routes.warnings() {
        tracing::warn!("{warning}");
    }
    let recording = args.recording();
    let (records, ending) = match recording.as_ref().map(Recording::start).transpose() {
        Ok(begun) => begun.unzip(),
        Err(error) => return report(&RecordError(error), 2),
    };
    let records = records.map(|records| Arc::new(records) as Arc<dyn ObserverFactory>);
    let watch = Arc::new(PointerWatch::default()) as Arc<dyn ObserverFactory>;
    let observers: Vec<Arc<dyn ObserverFactory>> = records.into_iter().chain([watch]).collect();
    let state = state_dir(None, routes.state());
    warn_of_writers(state.as_deref());
    let memory = DurationStore::open(state.as_deref());
    let traces = otlp::start(DownstreamTransport::Http, CollectorClient::new);
    let folder = sites::own_folder(state.as_deref()).filter(|_| !args.no_socket);
    let code = match listen::serve(&routes, &memory, state.as_deref(), &observers, folder).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => report(&error, 1),
    };
    memory.close();
    traces.close();
    if let Some(ending) = ending {
        ending.wait();
    }
    code
}

/// Warns if other users can create files in the state directory.
fn warn_of_writers(state: Option<&Path>) {
    if let Some(warning) = state.and_then(state_dir_warning) {
        tracing::warn!("{warning}");
    }
}

/// Runs `milepost check`: prints its output, with warnings on standard error.
fn check(args: &CheckArgs) -> ExitCode {
    match check::run(args) {
        Ok(output) => {
            for warning in output.warnings {
                eprint!("{}", warning.report());
            }
            match print(&output.text) {
                ExitCode::SUCCESS if !output.is_usable => ExitCode::from(2),
                code => code,
            }
        }
        Err(error) => report(&error, 2),
    }
}

async fn wrap_one(args: &WrapArgs) -> ExitCode {
    let _log = match log::start(args.log.log_level, args.log.log_format) {
        Ok(log) => log,
        Err(error) => return report(&error, 2),
    };
    let mut wrapped = match args.resolve() {
        Ok(wrapped) => wrapped,
        Err(error) => return report(&error, 2),
    };
    for warning in &wrapped.warnings {
        tracing::warn!("{warning}");
    }
    warn_of_writers(wrapped.state_dir.as_deref());
    let memory = DurationStore::open(wrapped.state_dir.as_deref());
    wrapped.policy.learned = memory.of(&wrapped.label);
    if wrapped.policy.needs_durations() {
        memory.load(&wrapped.label, &wrapped.policy.learned);
    }
    let (records, ending) = match wrapped.recording.as_ref().map(Recording::start).transpose() {
        Ok(begun) => begun.unzip(),
        Err(error) => return report(&RecordError(error), 2),
    };
    let traces = otlp::start(DownstreamTransport::Pipe, CollectorClient::new);
    let calls = Table::quiet(&wrapped.name);
    let state = wrapped.state_dir.as_deref();
    let views = match call_views(args, &calls, &wrapped.name, state).await {
        Ok(views) => views,
        Err(error) => return report(&PageError(error), 1),
    };
    let id = FilterId { conversation: 1, filter: 1 };
    let policy = Arc::new(wrapped.policy);
    let records = records.map(|records| Arc::new(records) as Arc<dyn ObserverFactory>);
    let view = views
        .as_ref()
        .and_then(|_| Watch { table: calls }.begin(id, &wrapped.name, Scope::Whole, &policy));
    let pointers = Arc::new(PointerWatch::default()) as Arc<dyn ObserverFactory>;
    let observers = records.into_iter().chain(MessageLog::factory_if_on()).chain([pointers]);
    let observers = observers.filter_map(|it| it.begin(id, "", Scope::Whole, &policy));
    let observers = observers.chain(view).collect();
    let emitter = EventEmitter::new(id, Instant::now(), observers);
    let place = (wrapped.name, wrapped.state_dir);
    let work = async move {
        match wrap::run_server(wrapped.server, place, policy, emitter).await {
            Ok(code) => ExitCode::from(code),
            Err(error) => report(&error, error.exit_code()),
        }
    };
    let code = match views {
        Some(views) => views.beside(work).await,
        None => work.await,
    };
    memory.close();
    traces.close();
    if let Some(ending) = ending {
        ending.wait();
    }
    code
}

/// Makes the views of a `wrap` process, as far as the arguments want them.
async fn call_views(
    args: &WrapArgs,
    calls: &Arc<Table>,
    name: &str,
    state: Option<&Path>,
) -> io::Result<Option<CallViews>> {
    let folder = sites::own_folder(state).filter(|_| !args.no_socket);
    if folder.is_none() && !args.page {
        return Ok(None);
    }
    let mut views = CallViews::new(calls, name, folder);
    if args.page {
        views.open_page().await?;
    }
    Ok(Some(views))
}

/// The error of a live page that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("--page")]
struct PageError(#[source] io::Error);

/// The error of a recording that cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("--record")]
struct RecordError(#[source] io::Error);

fn adopt(args: &AdoptArgs) -> ExitCode {
    let mut answers = io::stdin().lock();
    let is_asked = answers.is_terminal() && io::stdout().is_terminal();
    let asked = is_asked.then_some(&mut answers as &mut dyn BufRead);
    match adopt::run(args, &mut io::stdout(), asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => report(&error, 2),
    }
}

fn init(args: &InitArgs) -> ExitCode {
    let mut answers = io::stdin().lock();
    let is_asked = answers.is_terminal() && io::stdout().is_terminal();
    let asked = is_asked.then_some(&mut answers as &mut dyn BufRead);
    match init::run(args, &mut io::stdout(), asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, 2),
    }
}

fn man(folder: Option<&Path>) -> ExitCode {
    let Some(folder) = folder else { return print(&man::whole()) };
    match man::write(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, 1),
    }
}

/// Runs `milepost doctor`. Exit code 0: a plain client works well with the server; 1: not well; 2: no result.
async fn diagnose(args: DoctorArgs) -> ExitCode {
    let by_suite = args.suite;
    let options = match args.resolve() {
        Ok(options) if by_suite => return judge(CheckProgressOptions::of_server(options)).await,
        Ok(options) => options,
        Err(error) => return report(&error, 2),
    };
    match doctor::run(options).await {
        Ok(outcome) if outcome.is_fine => print(&outcome.text),
        Ok(outcome) => {
            print(&outcome.text);
            ExitCode::from(1)
        }
        Err(error) => report(&error, 2),
    }
}

/// Runs `milepost try`. Exit code 0: every call was answered; 1: one was not; 2: no call can be made.
async fn try_out(args: TryArgs) -> ExitCode {
    let (playground, warnings) = match args.resolve() {
        Ok(resolved) => resolved,
        Err(error) => return report(&error, 2),
    };
    warnings.iter().for_each(|warning| eprintln!("milepost: {warning}"));
    child::adopt_orphans();
    match playground::run(playground, &mut io::stdout()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => report(&error, 2),
    }
}

/// Runs `milepost check-progress`. Exit code 0: no scenario fails; 1: a scenario fails; 2: there is no result, or a
/// proxy does not start.
async fn check_progress(args: CheckProgressArgs) -> ExitCode {
    let options = match args.resolve() {
        Ok(CheckProgressTask::Judge(options)) => options,
        Ok(CheckProgressTask::Serve(options)) => return serve_reference(options).await,
        Err(error) => return report(&error, 2),
    };
    judge(options).await
}

async fn judge(options: CheckProgressOptions) -> ExitCode {
    match check_progress::run(options).await {
        Ok(checked) if checked.is_passed => print(&checked.text),
        Ok(checked) => {
            print(&checked.text);
            for why in &checked.unstarted {
                eprintln!("milepost: the proxy does not start, {why}");
            }
            ExitCode::from(if checked.unstarted.is_empty() { 1 } else { 2 })
        }
        Err(error) => report(&error, 2),
    }
}

/// Runs `milepost check-progress --serve`. Exit code 0: the input ended, or a signal came; 2: nothing can be served.
async fn serve_reference(options: ReferenceOptions) -> ExitCode {
    let ReferenceOptions { listen, notes, silence, is_modern } = options;
    let notes = match notes.as_deref().map(SeenNotes::append).transpose() {
        Ok(notes) => Arc::new(notes.unwrap_or_default()),
        Err(error) => return report(&error, 2),
    };
    let terms = reference::ReferenceTerms { notes, silence, is_modern };
    let Some(address) = listen else {
        return match reference::serve_stdio(terms).await {
            Ok(()) => ExitCode::SUCCESS,
            // The client has disconnected, which is the usual end.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => report(&error, 2),
        };
    };
    let server = match reference::ReferenceHttp::listen(address, terms).await {
        Ok(server) => server,
        Err(error) => return report(&error, 2),
    };
    eprintln!("listening on {} (HTTP+SSE: {}); Ctrl-C ends", server.url(), server.sse_url());
    let mut signals = match Signals::to_pass_on() {
        Ok(signals) => signals,
        Err(error) => return report(&error, 2),
    };
    signals.next().await;
    ExitCode::SUCCESS
}

/// Writes `text` to standard output. A closed pipe (`milepost presets | head`) is not an error.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => report(&error, 1),
        _ => ExitCode::SUCCESS,
    }
}

/// Writes an error with its causes to standard error; for a route file, every error with its line.
fn report(error: &(dyn Error + 'static), code: u8) -> ExitCode {
    log::flush();
    let routes = match error.downcast_ref() {
        Some(WrapError::Routes(routes)) => Some(routes),
        _ => match error.downcast_ref() {
            Some(InitError::Routes(routes)) => Some(routes),
            _ => error.downcast_ref(),
        },
    };
    match routes.and_then(RoutesError::faults) {
        Some(faults) => faults.iter().for_each(|fault| eprint!("{}", fault.report())),
        None => eprintln!("milepost: {}", error_chain(error)),
    }
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_takes_half_of_the_cores_and_at_least_one() {
        let threads = [1, 2, 3, 4, 7, 8, 64].map(serving_threads);
        assert_eq!(threads, [1, 1, 1, 2, 3, 4, 32]);
    }
}
