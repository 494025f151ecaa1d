//! Clients of Streamable HTTP in memory and in virtual time: before a server of the same transport, and before
//! a stdio server that clients of 2026-07-28 share.

use std::collections::BTreeMap;

use tokio::sync::mpsc::UnboundedReceiver;

use super::{Server, call, cancelled, reply};
use crate::conversation::{Conversation, Place, Say, Step, World};
use crate::http::rig::{Answer, Asked, Lines, Rig, ms, pass, settle};
use crate::judge::{Entry, What};

/// Longer than anything waits.
const AGES: u64 = 1000;

/// A stream that a client reads.
struct Reads {
    place: Place,
    answer: Answer,
    /// How much of it is in the log.
    seen: usize,
    /// Bytes that were looked at.
    length: usize,
    over: bool,
}

/// A request that a server answers.
struct Answers {
    asked: Asked,
    begun: bool,
}

struct Player<'a> {
    conversation: &'a Conversation,
    rig: Rig,
    reads: Vec<Reads>,
    posts: BTreeMap<usize, Answers>,
    homes: BTreeMap<usize, Asked>,
    server: Server,
    /// A shared server.
    started: Option<UnboundedReceiver<Lines>>,
    lines: Option<Lines>,
    log: Vec<Entry>,
}

pub(crate) fn play(conversation: &Conversation) -> Vec<Entry> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut player = Player::new(conversation).await;
        for step in &conversation.steps {
            player.step(step).await;
            player.collect().await;
        }
        player.pass(AGES).await;
        player.finish().await;
        player.log
    })
}

/// The route file, which says the same each time in other words.
fn file(number: usize) -> String {
    format!(
        "# {number}\n[[route]]\npath = \"/r\"\nupstream.url = \"http://up.example/base/mcp\"\nupstream.sse = \"http://up.example/base/sse\"\nupgrade_after = \"{}s\"\n",
        5 + number
    )
}

impl<'a> Player<'a> {
    async fn new(conversation: &'a Conversation) -> Self {
        let (mut rig, started) = match conversation.world {
            World::Shared => {
                let (rig, started) = Rig::of_lines("");
                (rig, Some(started))
            }
            _ => (Rig::new(""), None),
        };
        if started.is_none() {
            for session in &conversation.sessions {
                rig.session(session, "2025-06-18").await;
            }
        }
        Self {
            conversation,
            rig,
            reads: Vec::new(),
            posts: BTreeMap::new(),
            homes: BTreeMap::new(),
            server: Server::default(),
            started,
            lines: None,
            log: Vec::new(),
        }
    }

    fn note(&mut self, what: What) {
        let at = u64::try_from(self.rig.now().as_millis()).unwrap();
        self.log.push(Entry { at, what });
    }

    fn headers(&self, client: usize) -> Vec<String> {
        match self.conversation.world {
            World::Shared => vec!["MCP-Protocol-Version: 2026-07-28".to_owned()],
            _ => vec![format!("Mcp-Session-Id: {}", self.conversation.sessions[client])],
        }
    }

    fn post(&self, client: usize, more: &[String], text: &str) -> Answer {
        let headers = [&self.headers(client)[..], more].concat();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        self.rig.post(&headers, text)
    }

    async fn step(&mut self, step: &Step) {
        if step.needs().is_some_and(|call| !self.server.knows(call)) {
            return;
        }
        match step {
            Step::Wait(time) => self.pass(*time).await,
            Step::Call(asked) => {
                let shared = self.conversation.world == World::Shared;
                self.note(What::Asked(asked.clone()));
                let named = format!("Mcp-Name: {}", asked.tool);
                let modern = ["Mcp-Method: tools/call".to_owned(), named];
                let more = if shared { &modern[..] } else { &[] };
                let answer = self.post(asked.client, more, &asked.text(shared));
                let place = Place::Post(asked.number);
                self.reads.push(Reads { place, answer, seen: 0, length: 0, over: false });
                self.hear().await;
            }
            Step::Begin(number) => {
                if let Some(answers) = self.posts.get_mut(number).filter(|answers| !answers.begun) {
                    answers.begun = true;
                    answers.asked.events(&[]);
                    settle().await;
                    self.note(What::Begun(*number));
                }
            }
            Step::Cancel(number) => self.cancel(*number).await,
            Step::Stranger(number) => self.stranger(*number).await,
            Step::Say(say) => self.say(say).await,
            Step::Reply(mark) => self.reply(*mark).await,
            Step::Leave(number) => {
                let place = Place::Post(*number);
                if let Some(reads) = self.reads.iter_mut().find(|reads| reads.place == place) {
                    reads.over = true;
                    reads.answer.leave();
                    self.note(What::Left(*number));
                }
                self.hear().await;
            }
            Step::Listen(client) if self.started.is_none() => {
                let headers = self.headers(*client);
                let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
                let answer = self.rig.get(&headers);
                self.reads.push(Reads {
                    place: Place::Home(*client),
                    answer,
                    seen: 0,
                    length: 0,
                    over: false,
                });
                if let Some(asked) = self.rig.try_asked().await {
                    asked.events(&[]);
                    settle().await;
                    self.homes.insert(*client, asked);
                }
            }
            Step::Reload if self.started.is_none() => {
                let before = self.log.len();
                self.rig.take(&file(before % 7));
            }
            Step::Die => {
                self.note(What::Died);
                self.rig.refuse_connections(true);
                self.posts.clear();
                self.homes.clear();
                self.lines = None;
                settle().await;
            }
            Step::Stall(_) | Step::Listen(_) | Step::Reload => {}
        }
    }

    /// Somebody else cancels a call, and the server refuses that.
    async fn stranger(&mut self, number: usize) {
        let call = call(&self.conversation.steps, number).unwrap();
        let cancel = cancelled(call);
        let answer = self.post(call.client, &["Authorization: Bearer no".to_owned()], &cancel);
        self.note(What::Stranger(number));
        self.note(What::Gave(cancel));
        if let Some(asked) = self.rig.try_asked().await {
            self.note(What::Took(asked.text()));
            asked.answer("401 Unauthorized", &[], "");
        }
        settle().await;
        drop(answer);
    }

    /// What has reached the server.
    async fn hear(&mut self) {
        if let Some(started) = &mut self.started {
            settle().await;
            if let Ok(lines) = started.try_recv() {
                self.lines = Some(lines);
            }
            let told = match &mut self.lines {
                Some(lines) => lines.told().await,
                None => Vec::new(),
            };
            for text in told {
                self.server.take(&text);
                self.note(What::Took(text));
            }
            return;
        }
        while let Some(asked) = self.rig.try_asked().await {
            let text = asked.text();
            self.server.take(&text);
            if let Some(number) = crate::conversation::marks('c', &text).first() {
                self.posts.insert(*number, Answers { asked, begun: false });
            } else {
                asked.accept();
            }
            self.note(What::Took(text));
        }
    }

    async fn cancel(&mut self, number: usize) {
        let call = call(&self.conversation.steps, number).unwrap();
        self.note(What::Cancelled(number));
        if self.started.is_some() {
            // In 2026-07-28 closing the stream is the cancel.
            let place = Place::Post(number);
            if let Some(reads) = self.reads.iter_mut().find(|reads| reads.place == place) {
                reads.over = true;
                reads.answer.leave();
            }
            return self.hear().await;
        }
        let text = cancelled(call);
        self.note(What::Gave(text.clone()));
        let answer = self.post(call.client, &[], &text);
        self.hear().await;
        settle().await;
        self.accepted(&answer, &text);
    }

    fn accepted(&mut self, answer: &Answer, text: &str) {
        match answer.spoken().map(|spoken| spoken.status()) {
            Some(202) => {}
            status => self.note(What::Odd(format!("{status:?} for {text}"))),
        }
    }

    async fn reply(&mut self, mark: usize) {
        let wanted = format!("\"s{mark}\"");
        let client = self.log.iter().find_map(|entry| match &entry.what {
            What::Heard { place, text } if text.contains(&wanted) => Some(*place),
            _ => None,
        });
        let client = match client {
            Some(Place::Home(client)) => client,
            Some(Place::Post(number)) => call(&self.conversation.steps, number).unwrap().client,
            _ => return,
        };
        let text = reply(mark);
        self.note(What::Gave(text.clone()));
        let answer = self.post(client, &[], &text);
        self.hear().await;
        settle().await;
        self.accepted(&answer, &text);
    }

    async fn say(&mut self, say: &Say) {
        let Some(text) = self.server.say(say) else { return };
        let own = match say.place {
            Place::Post(number) => Some(number),
            _ => None,
        };
        match say.place {
            Place::Wire => {
                let Some(lines) = &self.lines else { return };
                lines.say(&text);
            }
            Place::Home(client) => {
                let Some(home) = self.homes.get(&client) else { return };
                home.say(&text);
            }
            Place::Post(number) => {
                let Some(answers) = self.posts.get(&number) else { return };
                let answer = say.kind.ends_call() && say.about == own;
                match answers.begun {
                    true => {
                        answers.asked.say(&text);
                        if answer {
                            answers.asked.end();
                        }
                    }
                    false if answer => answers.asked.json(&[], &text),
                    false => return,
                }
                if answer {
                    self.posts.remove(&number);
                }
            }
        }
        self.note(What::Said(say.clone()));
        settle().await;
    }

    /// Lets time pass; nothing of ours happens meanwhile.
    async fn pass(&mut self, time: u64) {
        pass(ms(time)).await;
        self.collect().await;
        self.hear().await;
    }

    /// What clients have read since the last time, in the order in which they did.
    async fn collect(&mut self) {
        settle().await;
        let mut heard = Vec::new();
        for reads in self.reads.iter_mut().filter(|reads| !reads.over) {
            let length = reads.answer.length();
            if std::mem::replace(&mut reads.length, length) == length && !reads.answer.is_closed() {
                continue;
            }
            let told = reads.answer.told();
            reads.over = reads.answer.is_over();
            for told in told.into_iter().skip(reads.seen) {
                reads.seen += 1;
                heard.push((told.order, told.at, reads.place, told.text));
            }
        }
        heard.sort_by_key(|(order, ..)| *order);
        for (_, at, place, text) in heard {
            let at = u64::try_from(at.as_millis()).unwrap();
            self.log.push(Entry { at, what: What::Heard { place, text } });
        }
    }

    /// Whoever was answered has read all; nothing is left over.
    async fn finish(&mut self) {
        let mut odd = Vec::new();
        let died = self.conversation.steps.contains(&Step::Die);
        let waits = |number: usize| {
            self.posts.contains_key(&number)
                || !self.log.iter().any(|entry| matches!(&entry.what, What::Said(say) if say.about == Some(number) && say.kind.ends_call()))
        };
        for reads in &self.reads {
            let Place::Post(number) = reads.place else { continue };
            let status = reads.answer.spoken().map(|spoken| spoken.status());
            if !reads.over && !waits(number) {
                odd.push(format!("call {number} was answered, its stream goes on"));
            }
            if reads.answer.is_over() && status != Some(200) && !died {
                odd.push(format!("call {number} gets {status:?}"));
            }
        }
        let left =
            self.reads.iter().any(|reads| matches!(reads.place, Place::Post(call) if waits(call)));
        if !left && !self.rig.calls_done().await {
            odd.push("calls are open".to_owned());
        }
        for text in odd {
            self.note(What::Odd(text));
        }
    }
}
