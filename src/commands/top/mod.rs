//! `milepost top`: the live table of calls in the terminal.

mod calls;
mod detail;
mod draw;
mod feed;
mod filter;
mod lines;
mod row;
mod screen;
mod style;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::sync::mpsc as channel;
use std::thread;
use std::time::{Duration, Instant};

use console::{Key, Term};
use tokio::sync::mpsc;
use tokio::time::interval;

use self::feed::{Feeds, TopNews};
use self::screen::{TopScreen, TopStep, TopView};
use self::style::Colours;
use self::terminal::TopTerminal;
use crate::commands::args::TopArgs;
use crate::commands::sites::SiteError;

/// The interval at which the screen is drawn even if nothing happens, because the shown times advance.
const TICK: Duration = Duration::from_millis(250);

/// The shortest time between two drawings.
const FRAME: Duration = Duration::from_millis(40);

/// The reason why `top` cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Standard input or output is not a terminal.
    #[error("`top` needs a terminal; `milepost tap` writes messages to any output")]
    NoTerminal,
    /// The proxy at the named address does not show its calls.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The terminal fails.
    #[error("the terminal cannot be used")]
    Terminal(#[from] io::Error),
}

/// Shows the calls until `q`.
///
/// # Errors
/// If standard input or output is not a terminal, or the named proxy does not answer.
pub async fn run(args: &TopArgs) -> Result<(), TopError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let (feeds, news) = Feeds::begin(&args.admin).await?;
    Ok(show(feeds, news).await?)
}

/// The keys that the user presses. A thread reads them, because the terminal cannot be read asynchronously.
struct TopKeys {
    next: channel::Sender<()>,
    keys: mpsc::Receiver<Key>,
}

impl TopKeys {
    /// Starts the thread, which reads the first key.
    fn begin() -> Self {
        let (next, wanted) = channel::channel();
        let (sender, keys) = mpsc::channel(1);
        thread::spawn(move || {
            let terminal = Term::stdout();
            while wanted.recv().is_ok() {
                let Ok(key) = terminal.read_key_raw() else { return };
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        });
        let keys = Self { next, keys };
        keys.read();
        keys
    }

    /// Lets the thread read one more key. Reading changes the terminal's mode, so no read may be pending when `top`
    /// ends.
    fn read(&self) {
        // Ignore the error: if the terminal is closed, the next key reports that.
        let _ = self.next.send(());
    }
}

async fn show(mut feeds: Feeds, mut news: mpsc::Receiver<TopNews>) -> io::Result<()> {
    let mut terminal = TopTerminal::begin()?;
    let colours = if console::colors_enabled() { Colours::Shown } else { Colours::Off };
    let mut screen = TopScreen::new(colours);
    let mut keys = TopKeys::begin();
    let mut ticks = interval(TICK);
    let mut last_drawn = None;
    loop {
        tokio::select! {
            biased;
            key = keys.keys.recv() => match key {
                Some(key) => {
                    match screen.press(&key, Instant::now()) {
                        TopStep::Quit => return Ok(()),
                        TopStep::Cancel(call) => feeds.cancel(&call),
                        TopStep::On => {}
                    }
                    keys.read();
                    last_drawn = None;
                }
                // The terminal was closed.
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
            let size = terminal.size();
            terminal.show(&draw::draw(&mut screen, size, now))?;
        }
    }
}

/// Applies an event of a process, or the messages of the opened call.
fn take(screen: &mut TopScreen, news: TopNews) {
    match news {
        TopNews::Process(key, news) => screen.calls.take(&key, news, Instant::now()),
        TopNews::NotCancelled(why) => screen.refusal = Some(why),
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

/// Requests the messages of the opened call, if it has more messages than were read.
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
