//! The views of a running `wrap`: its local socket, and its live page.

use std::ffi::OsString;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::gateway::listen::{AboutProcess, LocalApi, LocalPage};
use crate::observe::calls::Table;
use crate::transport::browser::{self, OpenedLink};

/// Maximum number of characters in a server's name.
const NAME_MAX: usize = 60;

/// Programs whose first argument is more informative than their own name.
const LAUNCHERS: [&str; 12] = [
    "npx", "bunx", "uvx", "pnpm", "yarn", "node", "bun", "deno", "uv", "python", "python3", "ruby",
];

/// First arguments of these programs that are not informative.
const VERBS: [&str; 6] = ["run", "exec", "dlx", "x", "tool", "start"];

/// The views of a `wrap` process.
pub struct CallViews {
    calls: Arc<Table>,
    socket: Option<(Arc<LocalApi>, PathBuf)>,
    page: Option<(LocalPage, Option<OpenedLink>)>,
}

impl CallViews {
    /// Makes the views of the calls of the process called `name`, with a local socket in `folder` if it is `Some`.
    pub fn new(calls: &Arc<Table>, name: &str, folder: Option<PathBuf>) -> Self {
        let about = || AboutProcess::this("wrap", name.to_owned());
        let socket = folder.map(|folder| (LocalApi::new(about(), Arc::clone(calls)), folder));
        Self { calls: Arc::clone(calls), socket, page: None }
    }

    /// Adds the live page, writes its link to the log, and opens the page if there is a desktop.
    ///
    /// # Errors
    /// If no port of loopback is free.
    pub async fn open_page(&mut self) -> io::Result<()> {
        let page = LocalPage::bind(Arc::clone(&self.calls)).await?;
        tracing::info!(page = page.link(), "the live page of this server");
        let opened = browser::open(page.link()).unwrap_or_else(|error| {
            tracing::info!(%error, "the page cannot be opened in a browser; open the link");
            None
        });
        self.page = Some((page, opened));
        Ok(())
    }

    /// Runs `work`, and shows the calls meanwhile.
    pub async fn beside<T>(self, work: impl Future<Output = T>) -> T {
        let Self { calls, socket, page } = self;
        let socket = async {
            // The socket opens after the first use, so that a process that is never used leaves no file behind.
            poll_fn(|cx| calls.poll_use(cx)).await;
            match socket {
                Some((api, folder)) => api.serve(&folder).await,
                None => pending().await,
            }
        };
        let page = async {
            match page {
                Some((page, _opened)) => page.serve().await,
                None => pending().await,
            }
        };
        tokio::select! {
            done = work => done,
            never = socket => match never {},
            never = page => match never {},
        }
    }
}

/// Returns a short name for the server of a command: the program, or the program that a launcher such as `npx` starts.
pub fn name_of_command(command: &[OsString]) -> String {
    let base = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
    let program = command.first().map(|program| base(&program.to_string_lossy()));
    let program = program.unwrap_or_default();
    let is_name = |word: &str| {
        let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "@._/+-".contains(sign);
        !word.is_empty() && word.chars().all(is_sign)
    };
    let mut words = command.iter().skip(1).filter_map(|word| word.to_str());
    let started = words.find(|word| !word.starts_with('-') && !VERBS.contains(word));
    let started = started.filter(|word| LAUNCHERS.contains(&&*program) && is_name(word));
    let name = started.map(base).filter(|name| !name.is_empty()).unwrap_or(program);
    name.chars().filter(|sign| !sign.is_control()).take(NAME_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_called_by_what_its_launcher_starts() {
        for (command, name) in [
            ("npx -y @modelcontextprotocol/server-everything stdio", "server-everything"),
            ("uv run server.py", "server.py"),
            ("python -m mcp_server_git --repository /x", "mcp_server_git"),
            ("/usr/bin/node /srv/build/index.js", "index.js"),
            ("python -c print(1)", "python"),
            ("docker run -i image", "docker"),
            ("/opt/bin/server --port 1", "server"),
            ("npx -y", "npx"),
        ] {
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            assert_eq!(name_of_command(&words), name, "{command}");
        }
        assert_eq!(name_of_command(&[]), "");
    }
}
