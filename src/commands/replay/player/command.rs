//! The commands of a recording: events of a connection, in the words of the file.

use std::sync::Arc;

use bytes::Bytes;

use super::{Player, upstream};
use crate::observe::events::APART;
use crate::observe::transcript::{escape, settings};
use crate::progress::clients::Client;
use crate::progress::{Pacing, Policy, Reason, StreamId, StreamKind};
use crate::protocol::json;
use crate::protocol::jsonrpc::Key;

/// What may be said there.
const EXPECTED: &str = "one of left, gone, settings, fails, ending, flush, slow, quick, large, on, apart, opens, closes, \
                        settles, settled, whose, learns, moved, here, passes, out of place, refused, \
                        knows not all, client, leaves, tasks over, looks, waits, written is expected";

impl Player {
    pub(super) fn command(&mut self, text: &str) -> Result<(), String> {
        let (command, rest) = text.split_once(' ').unwrap_or((text, ""));
        let now = self.now;
        match command {
            "left" => self.filter.client_left(),
            "gone" => self.filter.server_gone(now, rest),
            "fails" => {
                let (status, why) = rest.split_once(' ').unwrap_or((rest, ""));
                self.filter.fail_calls(now, why, status.parse().ok());
            }
            "settings" => self.settings(rest)?,
            "ending" => self.filter.stop_beating(),
            "flush" => self.filter.flush(),
            "slow" => self.filter.client_is_slow(true),
            "quick" => self.filter.client_is_slow(false),
            "large" => {
                self.large = Some(rest.strip_prefix("broken ").map(str::to_owned));
            }
            "on" => {
                let stream = number(rest)?;
                if let Some((client, asked)) = &self.asked {
                    self.filter.pair(*client, asked, upstream(stream));
                }
            }
            "apart" => {
                let id = Key::read(&Bytes::copy_from_slice(rest.as_bytes()));
                let id = id.ok_or("the id of a request is expected")?;
                self.filter.answered_apart(now, &id);
            }
            "opens" | "closes" | "settles" => self.stream(command, rest)?,
            "settled" | "whose" | "learns" | "moved" | "refused" => {
                self.aside = Some(command.to_owned());
            }
            "here" | "passes" => {
                let (origin, message) = self.said.clone().ok_or("a message before is expected")?;
                if command == "here" {
                    self.filter.server_message_here(now, origin, &message);
                } else {
                    self.passes = Some(format!("= {}", escape(message.raw())));
                }
            }
            "out" => {
                let name = rest.trim_start_matches("of place ");
                let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name);
                self.filter.out_of_place(reason.ok_or("a reason of docs/verdicts.md is expected")?);
            }
            "knows" => self.filter.knows_not_all(),
            "client" => {
                let said = values(rest)?;
                let word = |at: usize| said.get(at).and_then(|text| json::decode_str(text));
                let version = word(1).unwrap_or_default();
                let client = word(0).and_then(|name| Client::new(&name, &version));
                self.filter.speaks_with(client.map(Into::into));
            }
            "leaves" => {
                let tokens: Vec<Key> = values(rest)?.iter().filter_map(Key::read).collect();
                self.filter.leave_to_others(&tokens);
            }
            "tasks" => self.filter.end_tasks(now),
            "looks" => self.look(first(rest)?, APART),
            "waits" => drop(self.waits.insert(first(rest)?)),
            "written" => {
                let stream = first(rest)?;
                self.waits.remove(&stream);
                self.unwritten.remove(&stream);
                self.filter.written(now, stream);
            }
            _ => return Err(format!("{command:?} is not known; {EXPECTED}")),
        }
        Ok(())
    }

    /// Calls from here on go by others.
    fn settings(&mut self, words: &str) -> Result<(), String> {
        let learned = Arc::clone(&self.learned);
        let mut policy = Policy { learned, remap: self.is_shared, ..Policy::default() };
        settings::read(&mut policy, words)?;
        self.filter.take(&Arc::new(policy));
        Ok(())
    }

    fn stream(&mut self, command: &str, rest: &str) -> Result<(), String> {
        let mut words = rest.split(' ');
        let stream = StreamId(number(words.next().unwrap_or_default())?);
        let kind = words.next().unwrap_or_default();
        let paced = words.next() == Some("paced");
        let pacing = if paced { self.pacing } else { Pacing::IMMEDIATE };
        match (command, kind) {
            ("settles", _) => {
                self.filter.settle_stream(self.now, stream);
                return Ok(());
            }
            ("closes", _) => {
                self.streams.remove(&stream);
                self.unwritten.remove(&stream);
                self.waits.remove(&stream);
                self.filter.close_stream(self.now, stream, kind == "cancels");
                return Ok(());
            }
            (_, "shared") => self.filter.open_stream(stream, StreamKind::Shared, pacing),
            (_, "exchange") => self.filter.open_stream(stream, StreamKind::Exchange, pacing),
            (_, "replay") => self.filter.open_replay(stream),
            _ => return Err("shared, exchange or replay is expected behind the number".to_owned()),
        }
        self.streams.insert(stream);
        Ok(())
    }

    /// The calls of another filter of the conversation go on here.
    pub(in crate::commands::replay) fn take_over(&mut self, from: &mut Self) {
        from.filter.hand_over(&mut self.filter);
        self.records();
    }
}

/// The values of an array.
fn values(text: &str) -> Result<Vec<Bytes>, String> {
    let text = Bytes::copy_from_slice(text.as_bytes());
    let (all, _) = json::elements(&text).ok_or("an array is expected")?;
    Ok(all.into_iter().map(|at| text.slice(at)).collect())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "the number of a stream is expected".to_owned())
}

/// The stream that is named, else the first.
fn first(text: &str) -> Result<StreamId, String> {
    if text.is_empty() { Ok(StreamId(0)) } else { number(text).map(StreamId) }
}

/// The stream of which a line says that it waits or has been written.
pub(in crate::commands::replay) fn written(text: &str) -> Option<StreamId> {
    let (command, rest) = text.split_once(' ').unwrap_or((text, ""));
    ["waits", "written"].contains(&command).then(|| first(rest).ok()).flatten()
}
