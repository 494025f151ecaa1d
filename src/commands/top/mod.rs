//! `milepost top`: the live table of calls in the terminal.

mod calls;
mod detail;
mod draw;
mod feed;
mod screen;
mod style;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;
use tokio::time::interval;

use self::feed::{Feeds, TopNews};
use self::screen::{TopScreen, TopStep, TopView};
use crate::commands::args::TopArgs;
use crate::commands::sites::SiteError;

/// The interval at which the screen is drawn where nothing else happens: times go on.
const TICK: Duration = Duration::from_millis(250);

/// The shortest time between two drawings.
const FRAME: Duration = Duration::from_millis(40);

/// Keys that wait to be handled.
const KEYS_MAX: usize = 64;

/// The reason why `top` cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Standard input or output is no terminal.
    #[error("`top` needs a terminal; `milepost tap` writes messages to any output")]
    NoTerminal,
    /// The proxy at the address does not show its calls.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The terminal fails.
    #[error("the terminal cannot be used")]
    Terminal(#[from] io::Error),
}

/// Shows the calls until `q`.
///
/// # Errors
/// If there is no terminal, or the named proxy cannot be asked.
pub async fn run(args: &TopArgs) -> Result<(), TopError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let (feeds, news) = Feeds::begin(&args.admin).await?;
    // A panic restores the terminal too.
    let mut terminal = ratatui::try_init()?;
    let ended = show(&mut terminal, feeds, news).await;
    let _ = ratatui::try_restore();
    Ok(ended?)
}

/// Reads keys in a thread: the terminal cannot be waited for otherwise.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn show(
    terminal: &mut DefaultTerminal,
    mut feeds: Feeds,
    mut news: mpsc::Receiver<TopNews>,
) -> io::Result<()> {
    let mut screen = TopScreen::new(console::colors_enabled());
    let mut keys = keys();
    let mut ticks = interval(TICK);
    let mut last_drawn = None;
    loop {
        tokio::select! {
            biased;
            event = keys.recv() => match event {
                Some(Event::Key(key)) => {
                    if screen.press(key, Instant::now()) == TopStep::Quit {
                        return Ok(());
                    }
                    last_drawn = None;
                }
                Some(_) => last_drawn = None,
                // The terminal has gone.
                None => return Ok(()),
            },
            Some(one) = news.recv() => take(&mut screen, one),
            _ = ticks.tick() => {
                screen.calls.tidy(Instant::now());
                feeds.look(&screen.calls.running());
            }
        }
        read_messages(&mut screen, &mut feeds);
        let now = Instant::now();
        if last_drawn.is_none_or(|last: Instant| now.duration_since(last) >= FRAME) {
            last_drawn = Some(now);
            terminal.draw(|frame| draw::draw(frame, &mut screen, now))?;
        }
    }
}

/// Takes news of a process, or the messages of the call in sight.
fn take(screen: &mut TopScreen, news: TopNews) {
    match news {
        TopNews::Process(key, news) => screen.calls.take(&key, news, Instant::now()),
        TopNews::Detail(key, detail) => {
            if let TopView::Call(opened) = &mut screen.view
                && opened.key == key
            {
                match detail {
                    Ok(detail) => (opened.detail, opened.trouble) = (Some(*detail), None),
                    Err(trouble) if opened.detail.is_none() => opened.trouble = Some(trouble),
                    Err(_) => {}
                }
            }
        }
    }
}

/// Asks for the messages of the call in sight where there are more than were read.
fn read_messages(screen: &mut TopScreen, feeds: &mut Feeds) {
    if screen.paused.is_some() {
        return;
    }
    let TopView::Call(opened) = &mut screen.view else { return };
    let Some(row) = screen.calls.row(&opened.key, Instant::now()) else { return };
    let version = (row.call.messages, row.call.ended.is_some());
    if opened.read != Some(version) && feeds.read_call(&opened.key) {
        opened.read = Some(version);
    }
}
