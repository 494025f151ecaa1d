//! Clients of each transport and a server of the same or another, what stands between them being a `Stage`.

use std::collections::BTreeMap;

use super::stage::Stage;
use super::{Server, call, cancelled, given_up, is_possible, reply};
use crate::conversation::{Call, Conversation, Kind, Place, Say, Speaks, Step, World, marks};
use crate::http::raw;
use crate::http::rig::{Answer, Asked, Lines};
use crate::judge::{Entry, Finding, What, judge, lateness};
use crate::names::same;
use crate::support::messages::{INITIALIZED, agreement_to, initialize};

/// Longer than anything waits.
const AGES: u64 = 1000;

/// Longer than anybody tries to reach a server that has broken off.
const TRIES: u64 = 120_000;

/// What a process may need for anything that has to come, in milliseconds, and for anything else.
const PATIENCE: u64 = 120_000;
const PATIENCE_IN_DOUBT: u64 = 15_000;

/// A piece of time while a response is broken off.
const PIECE: u64 = 500;

/// How often both sides take their turn in memory until something has happened.
const ROUNDS: usize = 4;

/// At the end of a conversation of processes nothing comes for so long.
const QUIET: u64 = 500;

/// The same where something has broken off.
const BROKEN_QUIET: u64 = 2000;

/// The same where something that has to come does not come. On a late machine there is more time, by so many times
/// its lateness.
const END_MAX: u64 = 30_000;
const END_LATE_TIMES: u64 = 20;

/// How often the judge is asked whether something is still to come.
const END_LOOK: u64 = 200;

const ACCEPTS: &str = "Accept: application/json, text/event-stream";
const JSON: &str = "Content-Type: application/json";

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

/// A request that a server of Streamable HTTP answers.
struct Answers {
    /// Where it says so; between a cut and the client's return nowhere.
    asked: Option<Asked>,
    begun: bool,
    /// What it has said in events with ids, in their order.
    events: Option<Vec<String>>,
    /// It has said the answer.
    answered: bool,
}

/// Where the server speaks to a client without being asked.
enum Home {
    Stream(Asked),
    Lines(Lines),
}

/// A client's session.
#[derive(Default)]
struct Session {
    /// Of Streamable HTTP.
    id: String,
    /// Of HTTP+SSE.
    endpoint: String,
}

pub(crate) struct Player<'a> {
    conversation: &'a Conversation,
    stage: Stage,
    sessions: Vec<Session>,
    reads: Vec<Reads>,
    posts: BTreeMap<usize, Answers>,
    homes: BTreeMap<usize, Home>,
    /// Who has connected to the server last.
    comes: usize,
    /// Distinguishes the sessions of one conversation from those of others.
    mark: String,
    server: Server,
    /// What is to come in one array with what follows.
    joined: Vec<Say>,
    /// For so long the server stops in the middle of what it says next.
    pause: Option<u64>,
    /// Clients do not read.
    stalled: bool,
    /// The server is gone, also from the connections that it had.
    died: bool,
    begun: bool,
    log: Vec<Entry>,
}

/// Plays a conversation.
pub(crate) async fn play(conversation: &Conversation, stage: Stage, mark: &str) -> Vec<Entry> {
    let mut player = Player {
        conversation,
        stage,
        sessions: Vec::new(),
        reads: Vec::new(),
        posts: BTreeMap::new(),
        homes: BTreeMap::new(),
        comes: 0,
        mark: mark.to_owned(),
        server: Server::default(),
        joined: Vec::new(),
        pause: None,
        stalled: false,
        died: false,
        begun: false,
        log: Vec::new(),
    };
    if conversation.world.is_pair() {
        for client in 0..conversation.sessions.len() {
            player.begin_session(client).await;
        }
    }
    player.begun = true;
    for step in &conversation.steps {
        player.step(step).await;
        player.collect().await;
    }
    player.say_joined().await;
    player.stall(false).await;
    player.finish().await;
    player.leave().await;
    player.log
}

impl Player<'_> {
    fn world(&self) -> World {
        self.conversation.world
    }

    fn note(&mut self, what: What) {
        if self.begun {
            let at = self.stage.now();
            self.log.push(Entry { at, what });
        }
    }

    fn headers(&self, client: usize) -> Vec<String> {
        let mut headers = vec![ACCEPTS.to_owned(), JSON.to_owned()];
        match self.world() {
            World::Shared => {
                headers.push("MCP-Protocol-Version: 2026-07-28".to_owned());
                if self.conversation.late {
                    headers.push("Authorization: Bearer one".to_owned());
                }
            }
            _ if !self.sessions[client].id.is_empty() => {
                headers.push(format!("Mcp-Session-Id: {}", self.sessions[client].id));
            }
            _ => {}
        }
        headers
    }

    /// A client says something; over HTTP there is an answer.
    fn tell(&mut self, client: usize, more: &[String], text: &str) -> Option<Answer> {
        match self.world().client() {
            Some(Speaks::Stdio) => {
                self.stage.wrap().say(text);
                None
            }
            Some(Speaks::Sse) => {
                let start = format!("POST {}", self.sessions[client].endpoint);
                Some(self.stage.send(&start, &[JSON.to_owned()], text))
            }
            _ => {
                let headers = [self.headers(client), more.to_vec()].concat();
                Some(self.stage.send(&format!("POST {}", self.stage.path()), &headers, text))
            }
        }
    }

    fn listen(&mut self, place: Place, path: &str, headers: &[String]) {
        let headers = [&["Accept: text/event-stream".to_owned()], headers].concat();
        let answer = self.stage.send(&format!("GET {path}"), &headers, "");
        self.reads.push(Reads { place, answer, seen: 0, length: 0, over: false });
    }

    /// Waits until something holds; in memory everything that can happen has happened at once.
    async fn until(&mut self, holds: impl Fn(&Self) -> bool) -> bool {
        self.until_at_most(PATIENCE, holds).await
    }

    /// The same for what need not happen.
    async fn perhaps(&mut self, holds: impl Fn(&Self) -> bool) {
        self.until_at_most(PATIENCE_IN_DOUBT, holds).await;
    }

    async fn until_at_most(&mut self, patience: u64, holds: impl Fn(&Self) -> bool) -> bool {
        let begin = self.stage.now();
        let mut rounds = 0;
        loop {
            self.hear().await;
            if holds(self) {
                return true;
            }
            rounds += 1;
            let is_late = match self.world().is_real() {
                true => self.stage.now() >= begin + patience,
                false => rounds == ROUNDS,
            };
            if is_late {
                return false;
            }
            self.stage.settle().await;
        }
    }

    /// A client introduces itself and is answered.
    async fn introduce(&mut self, client: usize) -> Option<Answer> {
        let speaks = self.world().client().unwrap();
        let answer = self.tell(client, &[], &initialize("2025-06-18"));
        let told = |player: &Self| match (&answer, speaks) {
            (_, Speaks::Stdio) => true,
            (Some(answer), Speaks::Http) => !answer.told().is_empty(),
            _ => !player.reads.last().unwrap().answer.told().is_empty(),
        };
        assert!(self.until(told).await, "no session begins");
        answer
    }

    async fn begin_session(&mut self, client: usize) {
        self.comes = client;
        self.sessions.push(Session::default());
        let speaks = self.world().client().unwrap();
        if speaks == Speaks::Sse {
            let path = format!("{}/sse", self.stage.path());
            self.listen(Place::Home(client), &path, &[]);
            let last = self.reads.len() - 1;
            let endpoint = move |player: &Self| {
                let body = player.reads[last].answer.spoken()?.text();
                let rest = body.strip_prefix("event: endpoint\ndata: ")?;
                Some(rest.split_once('\n')?.0.to_owned())
            };
            assert!(self.until(|player| endpoint(player).is_some()).await, "no endpoint");
            self.sessions[client].endpoint = endpoint(self).unwrap();
        }
        let mut answer = self.introduce(client).await;
        let no_id = |answer: &Answer| answer.header("mcp-session-id").is_none();
        let is_refused =
            |answer: &Option<Answer>| speaks == Speaks::Http && answer.as_ref().is_some_and(no_id);
        let end = self.stage.now() + PATIENCE;
        // A connection to the server of an earlier conversation may have ended under the request.
        while self.world().is_real() && is_refused(&answer) && self.stage.now() < end {
            self.stage.settle().await;
            answer = self.introduce(client).await;
        }
        if speaks == Speaks::Stdio {
            let end = self.stage.now() + PATIENCE;
            loop {
                self.hear().await;
                if !self.stage.wrap().told().await.is_empty() {
                    break;
                }
                assert!(self.stage.now() < end, "no session begins");
                self.stage.settle().await;
            }
        }
        if speaks == Speaks::Http {
            let id = answer.as_ref().unwrap().header("mcp-session-id");
            self.sessions[client].id = id.expect("no session id");
        } else if let Some(reads) = self.reads.last_mut() {
            reads.seen = reads.answer.told().len();
        }
        let _accepted = self.tell(client, &[], INITIALIZED);
        let has_home = self.world().server() != Some(Speaks::Http) || speaks != Speaks::Http;
        self.until(|player| !has_home || player.homes.contains_key(&client)).await;
        self.stage.settle().await;
        self.hear().await;
    }

    async fn step(&mut self, step: &Step) {
        match step {
            // What was to come between may not have been possible.
            Step::Say(say) if self.joined.last().is_some_and(|last| last.may_join(say)) => {}
            _ => self.say_joined().await,
        }
        let steps = &self.conversation.steps;
        if step.needs().is_some_and(|call| !self.server.works_for(steps, call)) {
            return;
        }
        match step {
            Step::Wait(time) => self.pass(*time).await,
            Step::Call(asked) => self.ask(asked).await,
            Step::Begin(number, numbered) => self.begin(*number, *numbered).await,
            Step::Accept(number) => self.accept(*number).await,
            Step::Cancel(number) => self.cancel(*number).await,
            Step::GiveUp(number) => self.give_up(*number).await,
            Step::Stranger(number) => self.stranger(*number).await,
            Step::Say(say) if is_possible(say, &self.log) => {
                self.joined.push(say.clone());
                if !say.with_next {
                    self.say_joined().await;
                }
            }
            Step::Reply(mark) => self.reply(*mark).await,
            Step::Leave(number) => {
                self.note(What::Left(*number));
                self.close(*number);
                self.hear().await;
            }
            Step::Cut(number) => self.cut(*number).await,
            Step::Return(number) => self.come_back(*number).await,
            Step::Listen(client) if self.world().client() == Some(Speaks::Http) => {
                self.comes = *client;
                let path = self.stage.path().to_owned();
                let headers = self.headers(*client)[2..].to_vec();
                self.listen(Place::Home(*client), &path, &headers);
                self.until(|player| player.homes.contains_key(client)).await;
                self.stage.settle().await;
                self.note(What::Listens(*client));
            }
            Step::Reload if self.world().client().is_some_and(|client| client != Speaks::Stdio) => {
                self.stage.reload(self.conversation, self.log.len() % 7);
            }
            Step::Die => {
                self.note(What::Died);
                self.died = true;
                self.stage.refuse_connections();
                self.posts.clear();
                self.homes.clear();
                self.stage.settle().await;
            }
            Step::Stall(stalled) => self.stall(*stalled).await,
            Step::Pause(time) => self.pause = Some(*time),
            Step::Say(_) | Step::Listen(_) | Step::Reload => {}
        }
    }

    /// Clients do not read any more, or read again. What they open meanwhile they read.
    async fn stall(&mut self, stalled: bool) {
        if std::mem::replace(&mut self.stalled, stalled) == stalled
            || self.world().client() == Some(Speaks::Stdio)
        {
            return;
        }
        self.note(What::Stalled(stalled));
        self.reads.iter().for_each(|reads| reads.answer.pause(stalled));
        self.stage.settle().await;
    }

    async fn ask(&mut self, asked: &Call) {
        let shared = self.world() == World::Shared;
        self.note(What::Asked(asked.clone()));
        let named = format!("Mcp-Name: {}", asked.tool);
        let modern = ["Mcp-Method: tools/call".to_owned(), named];
        let more = if shared { &modern[..] } else { &[] };
        let answer = self.tell(asked.client, more, &asked.text(shared));
        let place = Place::Post(asked.number);
        let steps = &self.conversation.steps;
        let known = |player: &Self| player.server.works_for(steps, asked.number);
        if self.world().reads_streams() {
            let answer = answer.unwrap();
            self.reads.push(Reads { place, answer, seen: 0, length: 0, over: false });
            self.until(known).await;
        } else {
            self.until(known).await;
            self.is_accepted(answer, "a call").await;
        }
    }

    /// The server begins a response of events.
    async fn begin(&mut self, number: usize, numbered: bool) {
        let Some(answers) = self.posts.get_mut(&number).filter(|answers| !answers.begun) else {
            return;
        };
        let Some(asked) = &answers.asked else { return };
        answers.begun = true;
        answers.events = numbered.then(Vec::new);
        asked.events(&[]);
        if numbered {
            asked.chunk(format!("id: e{number}-0\ndata: \n\n"));
        }
        self.stage.settle().await;
        self.note(What::Begun(number, numbered));
    }

    /// The server answers a request with 202.
    async fn accept(&mut self, number: usize) {
        if self.posts.get(&number).is_some_and(|answers| !answers.begun)
            && let Some(asked) = self.posts.remove(&number).and_then(|answers| answers.asked)
        {
            asked.accept();
            self.stage.settle().await;
        }
    }

    /// The client of a call closes its connection.
    fn close(&mut self, number: usize) {
        for reads in self.reads.iter_mut().filter(|reads| reads.place == Place::Post(number)) {
            reads.over = true;
            reads.answer.leave();
        }
    }

    /// The server breaks off its response.
    async fn cut(&mut self, number: usize) {
        let Some(answers) = self.posts.get_mut(&number) else { return };
        let resumable = answers.events.is_some();
        let Some(asked) = answers.asked.take() else { return };
        if answers.begun && number.is_multiple_of(2) {
            asked.chunk("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message");
            self.stage.settle().await;
        }
        drop(asked);
        if !resumable {
            self.posts.remove(&number);
        }
        self.note(What::Cut(number, resumable));
        let place = Place::Post(number);
        if self.world().reads_streams() {
            let stalled = self.stalled;
            let over = |reads: &Reads| {
                let is_over = reads.over || reads.answer.is_over() || reads.answer.is_closed();
                reads.place != place || is_over || stalled
            };
            self.perhaps(|player| player.reads.iter().all(over)).await;
        }
        self.stage.settle().await;
    }

    /// The client of a call, whose stream is over, asks for what it missed.
    async fn come_back(&mut self, number: usize) {
        self.collect().await;
        let place = Place::Post(number);
        let answered = self.log.iter().any(|entry| matches!(&entry.what, What::Heard { place: at, text } if *at == place && !text.contains("\"method\"")));
        let mut ids = Vec::new();
        for reads in self.reads.iter().filter(|reads| reads.place == place) {
            let body = reads.answer.spoken().map(|spoken| spoken.body).unwrap_or_default();
            ids.extend(raw::blocks(&body).into_iter().filter_map(|block| block.id));
        }
        let goes_on = self
            .reads
            .iter()
            .any(|reads| reads.place == place && !reads.over && !reads.answer.is_closed());
        let Some(id) = ids.pop().filter(|_| !answered && !goes_on) else { return };
        let client = call(&self.conversation.steps, number).unwrap().client;
        self.note(What::Returned(number));
        let path = self.stage.path().to_owned();
        let mut headers = self.headers(client)[2..].to_vec();
        headers.push(format!("Last-Event-ID: {id}"));
        self.listen(place, &path, &headers);
        if self.world().is_direct() {
            self.perhaps(|player| {
                player.posts.get(&number).is_none_or(|answers| answers.asked.is_some())
            })
            .await;
        }
        self.stage.settle().await;
    }

    /// Somebody else cancels a call, and the server refuses that.
    async fn stranger(&mut self, number: usize) {
        let call = call(&self.conversation.steps, number).unwrap();
        let cancel = cancelled(call);
        self.note(What::Stranger(number));
        self.note(What::Gave(cancel.clone()));
        let answer =
            self.tell(call.client, &["Authorization: Bearer no".to_owned()], &cancel).unwrap();
        self.until(|_| answer.is_over()).await;
        self.stage.settle().await;
    }

    /// What has reached the server.
    async fn hear(&mut self) {
        if let Some(lines) = self.stage.try_started() {
            self.homes.insert(self.comes, Home::Lines(lines));
        }
        let mut told = Vec::new();
        for (client, home) in &mut self.homes {
            if let Home::Lines(lines) = home {
                told.extend(lines.told().await.into_iter().map(|text| (*client, text)));
            }
        }
        for (client, text) in told {
            if let Some(answer) = introduction(&text) {
                if let Some(Home::Lines(lines)) = self.homes.get(&client) {
                    lines.say(answer);
                }
            } else {
                self.take(text);
            }
        }
        while let Some(asked) = self.stage.try_asked().await {
            self.answer(asked);
        }
    }

    fn take(&mut self, text: String) {
        if text != INITIALIZED {
            self.server.take(&text);
            self.note(What::Took(text));
        }
    }

    /// A request of HTTP has reached the server.
    fn answer(&mut self, asked: Asked) {
        if self.died {
            return asked.die();
        }
        let what = asked.what().to_owned();
        if what.starts_with("GET ") {
            return self.answer_get(asked);
        }
        if !what.starts_with("POST ") {
            return asked.answer("200 OK", &[], "");
        }
        let text = asked.text();
        let sse = self.world().server() == Some(Speaks::Sse);
        if sse && !what.contains("/messages") {
            // Who looks for Streamable HTTP here.
            return asked.answer("405 Method Not Allowed", &[], "");
        }
        if let Some(introduction) = introduction(&text) {
            if sse {
                asked.accept();
                if let Some(Home::Stream(stream)) = self.homes.get(&self.comes) {
                    stream.say(introduction);
                }
            } else {
                let id = &self.conversation.sessions[self.comes];
                asked.json(&[&format!("Mcp-Session-Id: {}-{id}", self.mark)], &introduction);
            }
            return;
        }
        if asked.request.header("authorization").is_some() {
            self.note(What::Took(text));
            return asked.answer("401 Unauthorized", &[], "");
        }
        match marks('c', &text).first() {
            Some(number) if !sse && text.contains("\"method\"") => {
                let (begun, events, answered) = (false, None, false);
                let answers = Answers { asked: Some(asked), begun, events, answered };
                self.posts.insert(*number, answers);
            }
            _ => asked.accept(),
        }
        self.take(text);
    }

    fn answer_get(&mut self, asked: Asked) {
        if self.world().server() == Some(Speaks::Sse) {
            asked.events(&[]);
            asked.chunk(format!("event: endpoint\ndata: /base/messages?id={}\n\n", self.comes));
            self.homes.insert(self.comes, Home::Stream(asked));
            return;
        }
        let event = asked.request.header("last-event-id").map(str::to_owned);
        let place = event.as_deref().and_then(|event| event.strip_prefix('e')?.split_once('-'));
        let Some((number, event)) = place else {
            asked.events(&[]);
            self.homes.insert(self.comes, Home::Stream(asked));
            return;
        };
        let (number, event): (usize, usize) = (number.parse().unwrap(), event.parse().unwrap());
        let Some(answers) = self.posts.get_mut(&number) else {
            return asked.answer("404 Not Found", &[], "");
        };
        asked.events(&[]);
        for (index, text) in answers.events.iter().flatten().enumerate().skip(event) {
            asked.chunk(format!("id: e{number}-{}\ndata: {text}\n\n", index + 1));
        }
        // Who was answered meanwhile needs nothing more.
        if answers.answered {
            asked.end();
        }
        answers.asked = Some(asked);
    }

    async fn cancel(&mut self, number: usize) {
        let call = call(&self.conversation.steps, number).unwrap();
        if self.is_of_another(call) {
            // A client that gives an id up once more, and has used it again, gives the newer call up.
            return;
        }
        if self.is_unclear(call) {
            // The server is not to know, and both calls go on.
            let text = cancelled(call);
            let answer = self.tell(call.client, &[], &text);
            self.stage.settle().await;
            self.is_accepted(answer, &text).await;
            return self.hear().await;
        }
        self.note(What::Cancelled(number));
        if self.world() == World::Shared {
            // In 2026-07-28 closing the stream is the cancel.
            self.close(number);
            return self.hear().await;
        }
        let wanted = self.server.cancelled(&self.conversation.steps, call);
        self.give(call.client, &cancelled(call), &wanted).await;
    }

    /// Whether a cancellation may mean two requests of a session, which an answer tells apart by their ids alone.
    fn is_unclear(&self, call: &Call) -> bool {
        self.world().finds_answers_by_id() && !self.is_over(call) && self.has_open_namesake(call)
    }

    /// Whether the id of a call that is over is that of an open one.
    fn is_of_another(&self, call: &Call) -> bool {
        self.world().finds_answers_by_id() && self.is_over(call) && self.has_open_namesake(call)
    }

    fn is_over(&self, call: &Call) -> bool {
        self.log.iter().any(|entry| match &entry.what {
            What::Said(say) => {
                // A second answer that comes first is taken for the answer.
                let answers = say.kind.ends_call() || say.kind == Kind::Extra;
                say.about == Some(call.number) && answers
            }
            What::Cancelled(number) => *number == call.number,
            _ => false,
        })
    }

    fn has_open_namesake(&self, call: &Call) -> bool {
        let sessions = &self.conversation.sessions;
        self.log.iter().any(|entry| match &entry.what {
            What::Asked(other) => {
                other.number != call.number
                    && same(&other.id, &call.id)
                    && sessions[other.client] == sessions[call.client]
                    && !self.is_over(other)
            }
            _ => false,
        })
    }

    /// The clock of a client runs out.
    async fn give_up(&mut self, number: usize) {
        let call = call(&self.conversation.steps, number).unwrap();
        self.note(What::GaveUp(number));
        if self.world() == World::Shared {
            // In 2026-07-28 closing the stream says so.
            self.close(number);
            return self.hear().await;
        }
        let text = given_up(call);
        let answer = self.tell(call.client, &[], &text);
        self.stage.settle().await;
        self.is_accepted(answer, &text).await;
        self.hear().await;
    }

    /// A client says something that has no answer, and the server is to get it in these words.
    async fn give(&mut self, client: usize, text: &str, wanted: &str) {
        self.note(What::Gave(wanted.to_owned()));
        let before = self.log.len();
        let answer = self.tell(client, &[], text);
        let took = |entry: &Entry| matches!(&entry.what, What::Took(took) if took == wanted);
        self.until(|player| player.log[before..].iter().any(took)).await;
        self.stage.settle().await;
        self.is_accepted(answer, text).await;
    }

    async fn is_accepted(&mut self, answer: Option<Answer>, text: &str) {
        let Some(answer) = answer else { return };
        self.until(|_| answer.is_over()).await;
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
        self.give(client, &reply(mark), &reply(mark)).await;
    }

    /// The server says what it has to say, in one message or in one array.
    async fn say_joined(&mut self) {
        let joined = std::mem::take(&mut self.joined);
        let Some(place) = joined.first().map(|say| say.place) else { return };
        let says: Vec<(Say, String)> = joined
            .into_iter()
            .filter_map(|say| self.server.say(&say).map(|text| (say, text)))
            .collect();
        let texts: Vec<&str> = says.iter().map(|(_, text)| text.as_str()).collect();
        let text = match &texts[..] {
            [] => return,
            [one] => (*one).to_owned(),
            more => format!("[{}]", more.join(",")),
        };
        let about = match place {
            Place::Post(number) => Some(number),
            _ => None,
        };
        let answer = says.iter().any(|(say, _)| say.kind.ends_call() && say.about == about);
        let can = match place {
            Place::Wire => self.homes.contains_key(&0),
            Place::Home(client) => self.homes.contains_key(&client),
            Place::Post(number) => {
                self.posts.get(&number).is_some_and(|post| post.begun || answer && texts.len() == 1)
            }
        };
        if !can {
            return;
        }
        let pause = self.pause.take();
        let place = if place == Place::Wire { Place::Home(0) } else { place };
        let event = self.event(place, &text);
        let mut rest = event.as_str();
        if let Some(time) = pause
            && let Some((half, other)) = halves(&event)
            && self.write(place, half)
        {
            self.pass(time).await;
            rest = other;
        }
        for (say, _) in &says {
            self.note(What::Said(say.clone()));
        }
        if let Place::Post(number) = place {
            self.end_on_post(number, &text, rest, answer);
        } else {
            self.write(place, rest);
        }
        self.stage.settle().await;
    }

    /// What stands for a message at a place.
    fn event(&mut self, place: Place, text: &str) -> String {
        let event = format!("event: message\ndata: {text}\n\n");
        match place {
            Place::Home(client) if matches!(self.homes[&client], Home::Lines(_)) => {
                format!("{text}\n")
            }
            Place::Post(number) => match &mut self.posts.get_mut(&number).unwrap().events {
                Some(events) => {
                    events.push(text.to_owned());
                    format!("id: e{number}-{}\n{event}", events.len())
                }
                None => event,
            },
            _ => event,
        }
    }

    /// Writes to a stream of events or of lines; whether there is one.
    fn write(&self, place: Place, bytes: &str) -> bool {
        match place {
            Place::Post(number) => {
                let post = self.posts.get(&number).filter(|post| post.begun);
                let asked = post.and_then(|post| post.asked.as_ref());
                asked.map(|asked| asked.chunk(bytes)).is_some()
            }
            Place::Home(client) => match self.homes.get(&client) {
                Some(Home::Stream(stream)) => {
                    stream.chunk(bytes);
                    true
                }
                Some(Home::Lines(lines)) => {
                    lines.raw(bytes);
                    true
                }
                None => false,
            },
            Place::Wire => false,
        }
    }

    /// Writes the last of a message to the response of a call, which may be its answer.
    fn end_on_post(&mut self, number: usize, text: &str, rest: &str, answer: bool) {
        let is_written = self.write(Place::Post(number), rest);
        let Some(post) = self.posts.get_mut(&number) else { return };
        post.answered |= answer;
        let Some(asked) = &post.asked else { return };
        match () {
            () if !is_written => asked.json(&[], text),
            () if answer => asked.end(),
            () => {}
        }
        if answer && post.events.is_none() {
            self.posts.remove(&number);
        }
    }

    /// Lets time pass; nothing of ours happens meanwhile.
    async fn pass(&mut self, time: u64) {
        let end = self.stage.now() + time;
        loop {
            // Who comes back to a response that has broken off is answered soon.
            let some_cut = self.posts.values().any(|answers| answers.asked.is_none());
            let piece = if some_cut || self.died { PIECE } else { u64::MAX };
            let left = end.saturating_sub(self.stage.now());
            self.stage.pass(left.min(piece)).await;
            self.collect().await;
            self.hear().await;
            if self.stage.now() >= end {
                return;
            }
        }
    }

    /// What clients have read since the last time, in the order in which they did.
    async fn collect(&mut self) {
        if !self.world().is_real() {
            self.stage.settle().await;
        }
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
        if self.world().client() == Some(Speaks::Stdio) {
            for text in self.stage.wrap().told().await {
                self.note(What::Heard { place: Place::Home(0), text });
            }
        }
    }

    /// Lets everything come to an end.
    async fn finish(&mut self) {
        if !self.world().is_real() {
            let breaks = |step: &Step| matches!(step, Step::Cut(_) | Step::Die);
            let breaks = self.conversation.steps.iter().any(breaks);
            self.pass(if breaks { TRIES } else { AGES }).await;
            return self.look_for_rest().await;
        }
        let begin = self.stage.now();
        let breaks = |step: &Step| matches!(step, Step::Cut(_) | Step::Die);
        let quiet = if self.conversation.steps.iter().any(breaks) { BROKEN_QUIET } else { QUIET };
        let (mut length, mut since, mut looked) = (0, begin, 0);
        loop {
            self.pass(10).await;
            let now = self.stage.now();
            if std::mem::replace(&mut length, self.log.len()) != self.log.len() {
                since = now;
            }
            if now < since + quiet || now < looked + END_LOOK {
                continue;
            }
            looked = now;
            let patience = END_MAX + END_LATE_TIMES * self.lateness();
            if now >= begin + patience || !self.is_incomplete().await {
                break;
            }
        }
        self.look_for_rest().await;
        self.note(What::Late(self.stage.late()));
    }

    /// How late the machine was, in milliseconds.
    fn lateness(&self) -> u64 {
        lateness(&self.log).max(self.stage.late())
    }

    /// Whether the judge misses something that may still come.
    async fn is_incomplete(&mut self) -> bool {
        let length = self.log.len();
        self.look_for_rest().await;
        let Conversation { world, sessions, .. } = self.conversation;
        let findings = judge(*world, sessions, &self.log);
        self.log.truncate(length);
        findings.iter().any(Finding::may_pass)
    }

    /// Whoever was answered has read all; nothing is left over.
    async fn look_for_rest(&mut self) {
        let mut odd = Vec::new();
        let died = self.conversation.steps.contains(&Step::Die);
        let steps = &self.conversation.steps;
        let work = |number: usize| {
            call(steps, number).and_then(|call| self.server.work_of(steps, call)).unwrap_or(number)
        };
        let answered = |number: usize| {
            let number = work(number);
            self.log.iter().any(|entry| matches!(&entry.what, What::Said(say) if say.about == Some(number) && say.kind.ends_call()))
        };
        let cut = |number: usize| {
            self.log
                .iter()
                .any(|entry| matches!(&entry.what, What::Cut(call, _) if *call == number))
        };
        for reads in &self.reads {
            let Place::Post(number) = reads.place else { continue };
            let status = reads.answer.spoken().map(|spoken| spoken.status());
            if !reads.over && !reads.answer.is_closed() && answered(number) && !cut(number) {
                odd.push(format!("call {number} was answered, its stream goes on"));
            }
            if reads.answer.is_over() && status != Some(200) && !died && !cut(number) {
                odd.push(format!("call {number} gets {status:?}"));
            }
        }
        let mut asked = self.log.iter().filter_map(|entry| match &entry.what {
            What::Asked(call) => Some(call.number),
            _ => None,
        });
        let is_over = |number: usize| {
            let ends = |entry: &Entry| matches!(&entry.what, What::Said(say) if say.about == Some(number) && say.kind == Kind::Note);
            let is_task = call(steps, number).is_some_and(Call::is_task);
            answered(number) && (!is_task || self.log.iter().any(ends))
        };
        let left = asked.any(|number| !is_over(number) || cut(number));
        if !left && !self.stage.calls_done().await {
            odd.push("calls are open".to_owned());
        }
        for text in odd {
            self.note(What::Odd(text));
        }
    }

    /// The sessions end, so that nothing of them comes to those of the next conversation.
    async fn leave(&mut self) {
        if !self.world().is_real() {
            return;
        }
        let path = self.stage.path().to_owned();
        for client in 0..self.sessions.len() {
            if self.world().client() == Some(Speaks::Http) {
                let headers = self.headers(client);
                let answer = self.stage.send(&format!("DELETE {path}"), &headers, "");
                self.until(|_| answer.is_over() || answer.is_closed()).await;
            }
        }
        self.reads.clear();
        self.stage.settle().await;
    }
}

/// The answer to `initialize`.
fn introduction(text: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(text).ok()?;
    let is_first = message["method"] == "initialize";
    is_first.then(|| {
        let revision = message["params"]["protocolVersion"].as_str().unwrap_or("2025-06-18");
        agreement_to(&message["id"], revision)
    })
}

/// The two halves of a text.
fn halves(text: &str) -> Option<(&str, &str)> {
    let middle = (text.len() / 2..text.len()).find(|at| text.is_char_boundary(*at))?;
    Some(text.split_at(middle))
}
