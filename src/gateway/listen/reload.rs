//! Reloads the route file: on SIGHUP, and when the file or a file that it names has changed. A file is applied as a
//! whole or not at all.

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::handler::Routed;
use crate::config::routes::{Admin, Environment, Routes, RoutesError, named_files, read_text};
use crate::gateway::dispatch::Proxy;
use crate::gateway::file_contents::contents;
use crate::gateway::fleet::FleetMember;
use crate::gateway::listen::file_watch::{FileChange, FileWatch, LOOK_EVERY};
use crate::gateway::listen::listeners::{Controls, Readiness};
use crate::gateway::live_routes::Prepared;
use crate::gateway::route_changes::{Changes, listed};
use crate::observe::durations::DurationStore;
use crate::observe::error_chain::error_chain;
use crate::observe::metrics::Reload;
use crate::platform::service;
use crate::platform::signals::Hangups;

/// The reason to read the file again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReloadCause {
    /// A client waits for the result.
    Asked,
    Change,
}

/// Reads the file again and again.
pub(super) struct Reloading {
    path: PathBuf,
    /// Whether a file that other users may write to is refused.
    strict_files: bool,
    memory: DurationStore,
    proxy: Arc<Proxy>,
    controls: Controls<Routed>,
    /// The settings that cannot change while the process runs, as they were at startup.
    fixed: Fixed,
    /// The settings of `[admin]` that are in effect.
    admin: Admin,
    /// The fingerprint of the route file in effect, with the files that it names. `mark_refused`: that of the last file
    /// that was refused.
    mark_in_effect: u64,
    mark_refused: Option<u64>,
    /// The files that the route file names.
    named: Vec<PathBuf>,
}

/// The settings that only a restart can change.
#[derive(PartialEq)]
struct Fixed {
    listen: String,
    admin: String,
    state: String,
    fleet: String,
}

impl Fixed {
    fn of(routes: &Routes) -> Self {
        let state = routes.state().map(ToString::to_string);
        let state = state.unwrap_or_else(|| "where such things belong".to_owned());
        let admin = routes.admin().listen;
        let admin = admin.map_or_else(|| "none".to_owned(), |address| address.to_string());
        let fleet = routes.fleet();
        let fleet = fleet.map_or_else(|| "none".to_owned(), FleetMember::words);
        Self { fleet, listen: routes.server().listen.to_string(), admin, state }
    }

    /// Returns the keys whose values differ, with the running and the requested value.
    fn differing<'a>(
        &'a self,
        asked: &'a Self,
    ) -> impl Iterator<Item = (&'static str, &'a str, &'a str)> {
        let keys = [
            ("server.listen", &self.listen, &asked.listen),
            ("admin.listen", &self.admin, &asked.admin),
            ("state.dir", &self.state, &asked.state),
            ("fleet", &self.fleet, &asked.fleet),
        ];
        keys.into_iter()
            .filter(|(_, running, asked)| running != asked)
            .map(|(key, running, asked)| (key, running.as_str(), asked.as_str()))
    }
}

/// The text of a route file, and its fingerprint when it was read.
struct RouteFileText {
    text: Result<String, RoutesError>,
    named: Vec<PathBuf>,
    /// The fingerprint: a number for the contents of the route file and the files that it names.
    mark: u64,
}

impl Reloading {
    /// Returns a reload for `proxy` and `controls`, which now serve `routes`. `memory` holds the learned durations.
    pub(super) fn new(
        routes: &Routes,
        memory: DurationStore,
        proxy: Arc<Proxy>,
        controls: Controls<Routed>,
    ) -> Self {
        let path = routes.path().to_owned();
        let mut reloading = Self {
            path,
            strict_files: routes.has_strict_files(),
            memory,
            proxy,
            controls,
            fixed: Fixed::of(routes),
            admin: routes.admin().clone(),
            mark_in_effect: 0,
            mark_refused: None,
            named: Vec::new(),
        };
        reloading.named = reloading.named_in(routes.text());
        reloading.mark_in_effect = reloading.mark(Ok(routes.text()), &reloading.named);
        reloading
    }

    /// Watches the file while it is served, and reloads it. `hangups` gets SIGHUP, which asks for a reload.
    pub(super) async fn run(mut self, mut hangups: Hangups) {
        let mut watch = FileWatch::new(self.files());
        // The file may have changed since it was read at startup.
        let mut is_other = self.read().mark != self.mark_in_effect;
        // Set if SIGHUP came while the file was being written, so that the next check has to answer it.
        let mut is_waiting = false;
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                () = hangups.next() => true,
                _ = looks.tick() => is_waiting,
            };
            if asked && hangups.was_end_of_terminal() {
                return;
            }
            // A blocking task, because reading files and parsing certificates may take long on a network file system.
            let done = spawn_blocking(move || {
                if asked {
                    service::notify_reloading();
                }
                let cause = if asked { ReloadCause::Asked } else { ReloadCause::Change };
                let look = watch.check();
                let mut is_whole = look != FileChange::BeingWritten;
                is_other |= look == FileChange::Changed;
                if is_whole && (asked || is_other) {
                    is_whole = self.reload(cause);
                    is_other &= !is_whole;
                    watch.watch(self.files());
                }
                if asked && is_whole {
                    service::notify_ready();
                }
                (self, watch, is_other, asked && !is_whole)
            });
            match done.await {
                Ok(done) => (self, watch, is_other, is_waiting) = done,
                Err(_) => return error!("the route file is read no more, by a fault of ours"),
            }
        }
    }

    /// Returns the files that are watched for changes.
    fn files(&self) -> Vec<PathBuf> {
        [&self.path].into_iter().chain(&self.named).cloned().collect()
    }

    fn read(&self) -> RouteFileText {
        let text = read_text(&self.path);
        let named = match &text {
            Ok(text) => self.named_in(text),
            // Keep watching the files that were named before, because the next file may name them again.
            Err(_) => self.named.clone(),
        };
        RouteFileText { mark: self.mark(text.as_deref(), &named), text, named }
    }

    fn named_in(&self, text: &str) -> Vec<PathBuf> {
        named_files(&self.path, text, &Environment::of_process())
    }

    /// Returns the fingerprint of a text, or of the error in its place, and of the contents of the named files.
    fn mark(&self, text: Result<&str, &RoutesError>, named: &[PathBuf]) -> u64 {
        let mut mark = DefaultHasher::new();
        text.map_err(|error| error_chain(error)).hash(&mut mark);
        contents(named.iter().map(AsRef::as_ref)).hash(&mut mark);
        mark.finish()
    }

    /// Reads the file and applies its settings, if they are valid. False if the file changed while it was read: then
    /// nothing is applied.
    fn reload(&mut self, cause: ReloadCause) -> bool {
        let asked = cause == ReloadCause::Asked;
        let RouteFileText { text, named, mark } = self.read();
        // The file is read twice, because a file that changes between the two reads may be incomplete.
        if self.read().mark != mark {
            return false;
        }
        self.named = named;
        let metrics = self.proxy.metrics().config();
        if mark == self.mark_in_effect {
            let was_refused = self.mark_refused.take().is_some();
            if asked {
                metrics.record_reload(Reload::Unchanged);
            } else if was_refused {
                metrics.mark_good();
            }
            if asked || was_refused {
                info!(file = %self.path.display(), "nothing to reload: the file says what holds already");
            }
            return true;
        }
        // A refused file is reported once, not at each check, unless SIGHUP asks for the report again.
        if !asked && self.mark_refused == Some(mark) {
            return true;
        }
        let prepared = text.map_err(Into::into).and_then(|text| self.prepare(&text));
        match prepared {
            Ok((routes, ready, prepared)) => {
                self.apply(&routes, ready, prepared);
                (self.mark_in_effect, self.mark_refused) = (mark, None);
            }
            Err(error) => {
                self.mark_refused = Some(mark);
                self.proxy.metrics().config().record_reload(Reload::Refused);
                let error = error_chain(&*error);
                error!(error, "the route file cannot be used; the previous settings still apply");
            }
        }
        true
    }

    /// Does everything that can fail, without changing anything that runs.
    fn prepare(&self, text: &str) -> Result<(Routes, Readiness, Prepared), Box<dyn Error>> {
        let routes = Routes::parse(&self.path, text, &Environment::of_process())?
            .with_strict_files(self.strict_files)?
            .not_empty()?;
        let ready = self.controls.prepare(routes.server())?;
        let prepared = self.proxy.prepare(&routes, &self.memory)?;
        Ok((routes, ready, prepared))
    }

    /// Applies the prepared settings. No step can fail, so a reload is never applied only in part.
    fn apply(&mut self, routes: &Routes, ready: Readiness, prepared: Prepared) {
        let (changes, left) = self.proxy.apply(routes, prepared);
        let Changes { added, removed, changed, moved, unchanged } = changes;
        // If the new file has no table [admin], the running listener keeps its token.
        if routes.admin().listen.is_some() {
            self.admin = routes.admin().clone();
        }
        self.controls.set_config(ready, routes.server(), &self.admin);
        left.retire();
        self.proxy.metrics().config().record_reload(Reload::Taken);
        for (key, running, asked) in self.fixed.differing(&Fixed::of(routes)) {
            warn!(key, running, asked, "only a restart can change this; what runs stays");
        }
        info!(
            file = %self.path.display(),
            added = added.len(),
            removed = removed.len(),
            changed = changed.len(),
            moved = moved.len(),
            unchanged,
            added_routes = listed(&added),
            removed_routes = listed(&removed),
            changed_routes = listed(&changed),
            moved_routes = listed(&moved),
            "reloaded"
        );
    }
}
