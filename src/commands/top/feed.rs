//! Connects `milepost top` to all processes, and collects their events.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use litemap::LiteMap;
use tokio::sync::mpsc;

use super::calls::ProcessNews;
use super::detail::TopDetail;
use super::row::CallKey;
use crate::commands::args::{AdminAddress, AdminArgs};
use crate::commands::sites::{self, EVENTS, JSON, Site, SiteError, SiteReply};
use crate::transport::tasks;

/// Maximum number of events that wait for the screen. Further events are not read from their process yet.
const NEWS_MAX: usize = 256;

/// The interval at which `top` looks for new processes.
const LOOK: Duration = Duration::from_secs(1);

/// The shortest time between two readings of the messages of a call.
const READ: Duration = Duration::from_millis(500);

/// Maximum number of bytes of one event. A longer event ends the connection.
const EVENT_MAX: usize = 16 << 20;

/// An event for the screen.
#[derive(Debug)]
pub(super) enum TopNews {
    /// An event of the process with this key.
    Process(String, ProcessNews),
    /// The messages of a call, or why there are none.
    Detail(CallKey, Result<Box<TopDetail>, String>),
    /// The reason why a call was not cancelled.
    NotCancelled(String),
}

type FoundSite = (Site, Option<SiteReply>);

/// The connections to all processes.
pub(super) struct Feeds {
    news: mpsc::Sender<TopNews>,
    /// The channel for processes that a search has found, each with its reply if it was asked.
    found: (mpsc::Sender<FoundSite>, mpsc::Receiver<FoundSite>),
    sites: LiteMap<String, Site>,
    /// The arguments that name addresses; without, all that runs is shown.
    named: Option<AdminArgs>,
    last_look: Option<Instant>,
    last_read: Option<Instant>,
}

impl Feeds {
    /// Connects to the named address, or to all processes of this user.
    ///
    /// # Errors
    /// If the named address does not show its calls.
    pub(super) async fn begin(
        admin: &AdminArgs,
    ) -> Result<(Self, mpsc::Receiver<TopNews>), SiteError> {
        let (news, received) = mpsc::channel(NEWS_MAX);
        let addresses = admin.addresses().await?;
        let mut feeds = Self {
            news,
            found: mpsc::channel(sites::SITES_MAX),
            sites: LiteMap::new(),
            named: addresses.is_some().then(|| admin.clone()),
            last_look: None,
            last_read: None,
        };
        if let Some(addresses) = addresses {
            for address in addresses {
                let mut site = Site::at(address);
                let reply = site.get("/calls", EVENTS).await;
                // If one of several replicas does not answer, the others may still show their calls.
                let reply = if admin.is_of_fleet() { reply.ok() } else { Some(reply?) };
                feeds.follow(site, reply);
            }
        } else if let Some(usual) = AdminAddress::usual() {
            // Asked even though no local socket was found: it may be a `serve` of another user whose token this user
            // may read, or a `serve` without a token.
            let mut site = Site::at(usual);
            let folder = sites::folder();
            let found = match &folder {
                Some(folder) => sites::find(folder).await,
                None => Vec::new(),
            };
            let has_serve = found.iter().any(Site::is_serve);
            for site in found {
                feeds.follow(site, None);
            }
            if !has_serve && let Ok(reply) = site.get("/calls", EVENTS).await {
                feeds.follow(site, Some(reply));
            }
        }
        Ok((feeds, received))
    }

    fn follow(&mut self, site: Site, reply: Option<SiteReply>) {
        let (key, news) = (site.key(), self.news.clone());
        self.sites.insert(key.clone(), site.clone());
        tasks::spawn(async move {
            let begun = ProcessNews::Begun(site.name.clone());
            let _ = news.send(TopNews::Process(key.clone(), begun)).await;
            let trouble = match follow(site, reply, &key, &news).await {
                Err(SiteError::Lost(..) | SiteError::Silent(..)) | Ok(()) => None,
                Err(error) => Some(error.to_string()),
            };
            let _ = news.send(TopNews::Process(key, ProcessNews::Ended(trouble))).await;
        });
    }

    /// Connects to processes that have started since the last search. `running` are the keys of the processes whose
    /// calls are already shown.
    pub(super) fn look(&mut self, running: &BTreeSet<String>) {
        while let Ok((site, reply)) = self.found.1.try_recv() {
            if !self.sites.contains_key(&site.key()) {
                self.follow(site, reply);
            }
        }
        let now = Instant::now();
        let is_due = self.last_look.is_none_or(|last| now.duration_since(last) >= LOOK);
        if !is_due {
            return;
        }
        self.last_look = Some(now);
        let found = self.found.0.clone();
        if let Some(named) = self.named.clone() {
            self.sites.retain(|key, _| running.contains(key));
            let is_of_fleet = named.is_of_fleet();
            if !is_of_fleet && !self.sites.is_empty() {
                return;
            }
            // The token of the address may have been renewed since the process was lost, so its file is read again.
            tasks::spawn(async move {
                for address in named.addresses().await.ok().flatten().into_iter().flatten() {
                    let mut site = Site::at(address);
                    let reply = match is_of_fleet {
                        true => None,
                        // The calls of the lost process stay on the screen until the process answers again.
                        false => match site.get("/calls", EVENTS).await {
                            Ok(reply) => Some(reply),
                            Err(_) => return,
                        },
                    };
                    let _ = found.send((site, reply)).await;
                }
            });
            return;
        }
        let Some(folder) = sites::folder() else { return };
        self.sites.retain(|key, _| running.contains(key) || !key.starts_with('/'));
        let known: BTreeSet<String> = self.sites.keys().cloned().collect();
        tasks::spawn(async move {
            for site in sites::find_new(&folder, &known).await {
                let _ = found.send((site, None)).await;
            }
        });
    }

    /// Cancels a call. The event of its end then reaches the table as usual.
    pub(super) fn cancel(&self, key: &CallKey) {
        let Some(mut site) = self.sites.get(&key.0).cloned() else { return };
        let (target, news) = (format!("/calls/{}/cancel", key.1), self.news.clone());
        tasks::spawn(async move {
            if let Err(error) = site.post(&target, "").await {
                let _ = news.send(TopNews::NotCancelled(error.to_string())).await;
            }
        });
    }

    /// Requests the messages of a call. Returns `false` if they were requested less than `READ` ago.
    pub(super) fn read_call(&mut self, key: &CallKey) -> bool {
        let now = Instant::now();
        if self.last_read.is_some_and(|last| now.duration_since(last) < READ) {
            return false;
        }
        let Some(mut site) = self.sites.get(&key.0).cloned() else { return true };
        self.last_read = Some(now);
        let (key, news) = (key.clone(), self.news.clone());
        tasks::spawn(async move {
            let read = async {
                let reply = site.get(&format!("/calls/{}", key.1), JSON).await?;
                reply.whole().await
            };
            let detail = match read.await {
                Ok(whole) => serde_json::from_slice(&whole).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            let _ = news.send(TopNews::Detail(key, detail)).await;
        });
        true
    }
}

/// Reads the events of a process until the process ends.
async fn follow(
    mut site: Site,
    reply: Option<SiteReply>,
    key: &str,
    news: &mpsc::Sender<TopNews>,
) -> Result<(), SiteError> {
    let mut reply = match reply {
        Some(reply) => reply,
        None => site.get("/calls", EVENTS).await?,
    };
    let mut held = Vec::new();
    while let Some(chunk) = reply.chunk().await {
        held.extend_from_slice(&chunk?);
        while let Some(end) = memchr::memmem::find(&held, b"\n\n") {
            let event: Vec<u8> = held.drain(..end + 2).collect();
            let (name, data) = read_event(&String::from_utf8_lossy(&event));
            let event = ProcessNews::Event(name, data);
            if news.send(TopNews::Process(key.to_owned(), event)).await.is_err() {
                return Ok(());
            }
        }
        if held.len() > EVENT_MAX {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the name and the data of an event.
fn read_event(event: &str) -> (String, String) {
    let (mut name, mut data) = (String::new(), String::new());
    for line in event.lines() {
        match line.split_once(':') {
            Some(("event", value)) => name = value.trim().to_owned(),
            Some(("data", value)) => data.push_str(value),
            _ => {}
        }
    }
    (name, data)
}
