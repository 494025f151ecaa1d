//! The rules, as clients and servers can observe them. Written from the specification of MCP and from what
//! Milepost promises, and with nothing of Milepost in it.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

use crate::conversation::{Call, Kind, Names, Place, Say, World, marks};
use crate::names::{alike, plain, readable, same};

/// Something that happened, at a time in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// A client sent the request of this call.
    Asked(Call),
    /// A client sent something else; whether the server is to get it.
    Gave(String),
    /// The server got this.
    Took(String),
    /// The client gave up this call.
    Cancelled(usize),
    /// The clock of this call's client ran out; the server is not to know.
    GaveUp(usize),
    /// The server has begun to answer this call with events, to which a client can come back or not.
    Begun(usize, bool),
    /// The server has broken off its response to this call; whether a client can come back to it.
    Cut(usize, bool),
    /// The client of this call has come back.
    Returned(usize),
    /// A client has a stream for what belongs to no request.
    Listens(usize),
    /// The server said this.
    Said(Say),
    /// A client read this.
    Heard { place: Place, text: String },
    /// The client of the wire does not read, or reads again.
    Stalled(bool),
    /// The client of a call has closed its connection.
    Left(usize),
    /// Who has no part in this call has sent its cancellation, and was refused.
    Stranger(usize),
    /// The server is gone.
    Died,
    /// The player's own turn came so many milliseconds late.
    Late(u64),
    /// Something is left over at the end, or went wrong that only the player can see.
    Odd(String),
}

/// A rule that does not hold.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) rule: &'static str,
    pub(crate) at: u64,
    pub(crate) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.rule, self.at, self.text)
    }
}

/// What the documentation gives as times, in milliseconds.
const FIRST_AFTER: u64 = 150;
const HOLD: u64 = 30;
const GUARD: u64 = 50;
const MIN_INTERVAL: u64 = 100;
const BEAT_AFTER: u64 = 2000;
const BEAT_EVERY: u64 = 5000;
/// What a beat may be late or early; the players look at their clocks at least this often.
const TOLERANCE: u64 = 20;
/// The same where the clock is real: processes have their turn late on a busy machine. What crosses in so long on
/// two ways of processes comes in any order.
const REAL_TOLERANCE: u64 = 2500;
/// A message may be late by so many times the longest time that a request needed to the server.
const LATE_TIMES: u64 = 4;
/// Longer than any conversation.
const AGES: u64 = 100_000_000;
/// For this long the response to a request that is over is read at least.
const LINGERS: u64 = 10_000;
/// For so long an answer waits for the client that gave its call up, and the work goes on without its client.
const FINISHED: u64 = 120_000;
const KEEP: u64 = 1_800_000;
/// A cancellation that comes so long after the answer has crossed the answer.
const CROSSING: u64 = 5000;
/// The least time after which a client gives up a call by a clock.
const CLOCK: u64 = 1000;
/// For so long a call that repeats an open one waits, if the open one is so old.
const HELD: u64 = 1000;
const REPEATED: u64 = 5000;
/// For this long the names of jobs in an answer are no names of calls.
const NAMED: u64 = 60_000;
/// Bytes of one answer, and of all answers, in which names of jobs are remembered.
const NAMED_BYTES_EACH: usize = 8 << 10;
const NAMED_BYTES_MAX: usize = 32 << 10;
/// Bytes of the longest message that is held whole.
const HELD_MAX: usize = 1 << 20;
/// For this long a name of an ended call of a shared server is nobody's.
const SHARED_PAUSE: u64 = 10_000;

#[derive(Debug)]
struct CallState {
    call: Call,
    /// The id and the token by which the server knows the call.
    known: [String; 2],
    /// The call that began the work for which this one waits, and when.
    work: usize,
    began: u64,
    asked: u64,
    /// It repeats an open call.
    repeats: bool,
    begun: Option<u64>,
    cancelled: Option<u64>,
    left: Option<u64>,
    answer_said: Option<u64>,
    answer_heard: Option<u64>,
    /// Its client has made another call since it read the answer, and so gets this answer no second time.
    is_past: bool,
    /// Another answer with its id was taken for its own, which is still to come.
    has_foreign_answer: bool,
    /// The task that the call has become is over.
    task_over_said: Option<u64>,
    task_over_heard: Option<u64>,
    /// Somebody else has tried to cancel it.
    stranger: bool,
    /// Its response has broken off; whether for good.
    cut: Option<u64>,
    lost: Option<u64>,
    /// Its client can come back, and has.
    numbered: bool,
    returned: bool,
    /// Where progress was read last.
    place: Option<Place>,
    /// The server has reported something for the call.
    reported: Option<u64>,
    /// The last figure that the client read, and when.
    value: Option<f64>,
    /// The total of the figures in words that the client read.
    counted: Option<f64>,
    /// When progress was read.
    progress: Vec<u64>,
}

impl CallState {
    /// When the server has said the last word about the call: the answer, or the end of the task.
    fn over_said(&self) -> Option<u64> {
        if self.call.is_task() { self.task_over_said } else { self.answer_said }
    }

    /// When the client has read it.
    fn over_heard(&self) -> Option<u64> {
        if self.call.is_task() { self.task_over_heard } else { self.answer_heard }
    }
}

#[derive(Debug)]
struct SaidState {
    at: u64,
    say: Say,
    /// Calls that the client waited for then, with the token that each had.
    open: Vec<usize>,
    /// Calls that were over or cancelled then, and whether all calls of its session were.
    ended: Vec<usize>,
    is_idle: bool,
    /// It has the token of a call without one, which names nobody.
    nameless: bool,
    /// A call has ended just now.
    soon: bool,
    stalled: bool,
    /// Since then somebody waits for this answer, which came before.
    fetched: Option<u64>,
    heard: Vec<(u64, Place)>,
    /// The calls for which it was shown.
    shown: Vec<usize>,
    /// What the client had read for the call by then.
    value: Option<f64>,
}

impl Finding {
    /// Whether more time may mend it: something has not come, or is not over.
    pub(crate) fn may_pass(&self) -> bool {
        let waits = ["early-update", "to-server", "left-over", "stranger-cancel"];
        self.rule.starts_with("lost") || waits.contains(&self.rule)
    }
}

/// How late the machine was at its latest, in milliseconds: how long a message of a client needed to the server,
/// or how late the player itself had its turn.
pub(crate) fn lateness(log: &[Entry]) -> u64 {
    let (mut sent, mut longest) = (Vec::new(), 0);
    for Entry { at, what } in log {
        match what {
            What::Asked(call) => sent.push((*at, call.text(false))),
            What::Gave(text) => sent.push((*at, text.clone())),
            What::Took(took) => {
                if let Some(which) = sent.iter().position(|(_, text)| text == took) {
                    longest = longest.max(at.saturating_sub(sent.swap_remove(which).0));
                }
            }
            What::Late(time) => longest = longest.max(*time),
            _ => {}
        }
    }
    longest
}

impl SaidState {
    /// Whether a newer report may have taken the place of this one, and its figure, whomever the newer one is
    /// about: this one names no open call, and nobody has read it. The id of a call that is over may be a token that
    /// the server has invented.
    fn may_be_replaced(&self) -> bool {
        let is_over = self.say.about.is_some_and(|call| !self.open.contains(&call));
        let names_nobody = match self.say.names {
            Names::Token => self.nameless,
            Names::Id => is_over && self.say.text.contains("notifications/progress"),
            Names::Other(_) | Names::Tool | Names::Nothing => true,
        };
        self.heard.is_empty() && self.say.kind.is_progress() && names_nobody
    }
}

pub(crate) struct Judge {
    world: World,
    sessions: Vec<String>,
    calls: BTreeMap<usize, CallState>,
    said: Vec<SaidState>,
    by_mark: BTreeMap<usize, usize>,
    /// What clients sent, and how often the server got it.
    gave: Vec<(u64, String, usize)>,
    /// Which call waits for the work that a call has begun, or did so last.
    waits: BTreeMap<usize, usize>,
    /// Calls that were given up by a clock, whose work the same call may join.
    kept: Vec<usize>,
    /// A call has been cancelled before the server got it.
    withdrawn: bool,
    /// Clients that read what belongs to no request.
    listens: Vec<usize>,
    stalled: bool,
    /// The client has not read at some time.
    was_stalled: bool,
    died: Option<u64>,
    /// Where the clock is real: what may be late or early, and what crosses on two ways.
    slack: u64,
    now: u64,
    /// The numbers of what was read last on each place and is no progress.
    order: Vec<(Place, usize)>,
    findings: Vec<Finding>,
}

/// Raw members of an object; of a repeated key the last.
fn members(text: &str) -> Option<BTreeMap<String, String>> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    Some(members.into_iter().map(|(key, value)| (key, value.get().to_owned())).collect())
}

/// A message as strict clients need it, with the revision of JSON-RPC.
fn with_revision(text: String) -> String {
    match members(&text) {
        Some(message) if !message.contains_key("jsonrpc") => {
            text.replacen('{', r#"{"jsonrpc":"2.0","#, 1)
        }
        _ => text,
    }
}

/// Whether two notifications have the same members, in any order.
fn have_same_members(one: &str, other: &str) -> bool {
    let parts = |text: &str| {
        let mut message = members(text)?;
        Some((members(&message.remove("params")?)?, message))
    };
    parts(one).is_some_and(|parts_of_one| parts(other) == Some(parts_of_one))
}

/// A report without the name of its task. Progress of a task that is written anew has this name.
fn without_task_name(text: &str) -> String {
    const NAME: &str = r#","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"#;
    let parts =
        text.split_once(NAME).and_then(|(before, rest)| Some((before, rest.split_once("}}")?.1)));
    parts.map_or_else(|| text.to_owned(), |(before, after)| format!("{before}{after}"))
}

/// Compliant progress as its client is told: without a total that nothing can be of.
fn without_impossible_total(text: String) -> String {
    let message = members(&text).unwrap_or_default();
    let params = message.get("params").and_then(|params| members(params)).unwrap_or_default();
    let Some(total) = params.get("total") else { return text };
    let value: f64 = total.parse().unwrap();
    let is_possible = value > 0.0 && figure(&text) <= value;
    if is_possible { text } else { text.replacen(&format!(",\"total\":{total}"), "", 1) }
}

/// The findings in a conversation that is over.
pub(crate) fn judge(world: World, sessions: &[String], log: &[Entry]) -> Vec<Finding> {
    let mut judge = Judge {
        world,
        sessions: sessions.to_vec(),
        calls: BTreeMap::new(),
        said: Vec::new(),
        by_mark: BTreeMap::new(),
        gave: Vec::new(),
        waits: BTreeMap::new(),
        kept: Vec::new(),
        withdrawn: false,
        listens: Vec::new(),
        stalled: false,
        was_stalled: false,
        died: None,
        slack: REAL_TOLERANCE + LATE_TIMES * lateness(log),
        now: 0,
        order: Vec::new(),
        findings: Vec::new(),
    };
    for entry in log {
        judge.now = entry.at;
        judge.note(&entry.what);
    }
    judge.finish();
    judge.findings
}

impl Judge {
    fn find(&mut self, rule: &'static str, text: impl Into<String>) {
        self.findings.push(Finding { rule, at: self.now, text: text.into() });
    }

    fn note(&mut self, what: &What) {
        let now = self.now;
        match what {
            What::Asked(call) => self.asked(call),
            What::GaveUp(call) => {
                self.calls.get_mut(call).unwrap().cancelled.get_or_insert(now);
                // Nobody's clock ran out within a second: that answer is not kept.
                let CallState { began, answer_heard, is_past, .. } = self.calls[call];
                let is_young = answer_heard.is_some_and(|heard| heard < began + CLOCK);
                let is_kept = !is_young && !is_past;
                if !self.withdraws(*call) && !self.goes_on_for_the_next(*call) && is_kept {
                    self.kept.push(*call);
                }
            }
            // The cancellation of what the server has never seen.
            What::Gave(_) if std::mem::take(&mut self.withdrawn) => {}
            What::Gave(text) => self.gave.push((now, text.clone(), 0)),
            What::Took(text) => self.took(text),
            What::Cancelled(call) => {
                self.calls.get_mut(call).unwrap().cancelled.get_or_insert(now);
                self.withdrawn = self.withdraws(*call);
            }
            What::Begun(call, numbered) => {
                let state = self.calls.get_mut(call).unwrap();
                state.begun.get_or_insert(now);
                state.numbered = *numbered;
            }
            What::Cut(call, can_return) => {
                let state = self.calls.get_mut(call).unwrap();
                state.cut.get_or_insert(now);
                state.returned = false;
                if !can_return {
                    state.lost.get_or_insert(now);
                }
            }
            What::Returned(call) => {
                let state = self.calls.get_mut(call).unwrap();
                state.cut.get_or_insert(now);
                state.left = None;
                state.returned = true;
            }
            What::Listens(client) => self.listens.push(*client),
            What::Left(call) => {
                self.calls.get_mut(call).unwrap().left.get_or_insert(now);
            }
            What::Said(say) => self.say(say),
            What::Heard { place, text } => self.heard(*place, text),
            What::Stalled(stalled) => {
                self.stalled = *stalled;
                self.was_stalled = true;
                let unread = self.said.iter_mut().filter(|said| said.heard.is_empty());
                unread.for_each(|said| said.stalled = true);
            }
            What::Stranger(call) => self.calls.get_mut(call).unwrap().stranger = true,
            What::Died => self.died = Some(now),
            What::Late(_) => {}
            What::Odd(text) => self.find("left-over", text.clone()),
        }
    }

    /// A client asks for some work, which may go on since it was asked for before.
    fn asked(&mut self, call: &Call) {
        let now = self.now;
        let joins = self.joins(call);
        let work = joins.map_or(call.number, |before| self.calls[&before].work);
        if joins.is_none() {
            self.gave.push((now, call.text(self.world == World::Shared), 0));
            self.moves_on(call.client);
        }
        let mut state = CallState {
            call: call.clone(),
            known: [call.id.clone(), call.token.clone()],
            work,
            began: joins.map_or(now, |before| self.calls[&before].began),
            asked: now,
            repeats: joins.is_none() && self.repeats(call),
            begun: None,
            cancelled: None,
            left: None,
            answer_said: None,
            answer_heard: None,
            is_past: false,
            has_foreign_answer: false,
            task_over_said: None,
            task_over_heard: None,
            stranger: false,
            cut: None,
            lost: None,
            numbered: false,
            returned: false,
            place: None,
            reported: None,
            value: None,
            counted: None,
            progress: Vec::new(),
        };
        if let Some(before) = joins {
            state.answer_said = self.fetch(before, call.number);
        }
        self.calls.insert(call.number, state);
        self.waits.insert(work, call.number);
    }

    /// The call that its client gave up by a clock, and whose work or answer the same call of the same client gets.
    fn joins(&mut self, call: &Call) -> Option<usize> {
        let now = self.now;
        let is_same = |before: &usize| {
            let CallState { call: before, answer_said, .. } = &self.calls[before];
            before.client == call.client
                && before.first() == call.first()
                && before.tool == call.tool
                && answer_said.is_none_or(|said| said + FINISHED > now)
        };
        let which = self.kept.iter().position(is_same)?;
        Some(self.kept.remove(which))
    }

    /// Whether a call repeats an open one, and so waits for the cancellation of that one.
    fn repeats(&self, call: &Call) -> bool {
        let is_repeated = |state: &CallState| {
            let is_same = state.call.client == call.client && state.call.first() == call.first();
            let is_open = state.over_said().is_none() && state.cancelled.is_none();
            is_same && is_open && state.began + REPEATED <= self.now
        };
        self.calls.values().any(is_repeated)
    }

    /// The work of a call that its client gives up goes on for the call that came before and waits for that.
    fn goes_on_for_the_next(&mut self, call: usize) -> bool {
        let CallState { call: before, work, began, answer_said, .. } = &self.calls[&call];
        let (work, began) = (*work, *began);
        let waits = |state: &&CallState| {
            let is_same = state.call.client == before.client
                && state.call.first() == before.first()
                && state.call.tool == before.tool;
            is_same && state.repeats && state.cancelled.is_none() && self.now <= state.asked + HELD
        };
        let next = self.calls.values().find(waits).filter(|_| answer_said.is_none());
        let Some(next) = next.map(|next| next.call.clone()) else { return false };
        let text = next.text(false);
        let Some(place) = self.gave.iter().position(|gave| gave.2 == 0 && gave.1 == text) else {
            return false;
        };
        self.gave.remove(place);
        let state = self.calls.get_mut(&next.number).unwrap();
        (state.work, state.began, state.repeats) = (work, began, false);
        self.waits.insert(work, next.number);
        true
    }

    /// A call that waits and is given up meanwhile is over before the server knows of it.
    fn withdraws(&mut self, call: usize) -> bool {
        let CallState { call, asked, repeats, .. } = &self.calls[&call];
        let text = call.text(false);
        let unknown = |(_, gave, times): &(u64, String, usize)| *times == 0 && *gave == text;
        let waits = *repeats && self.now <= asked + HELD;
        let withdrawn = waits && self.gave.iter().any(unknown);
        if withdrawn {
            self.gave.retain(|gave| !unknown(gave));
        }
        withdrawn
    }

    /// A client that makes another call has moved on: the server is told that nobody waits for the work.
    fn moves_on(&mut self, client: usize) {
        for state in self.calls.values_mut() {
            state.is_past |= state.call.client == client && state.answer_heard.is_some();
        }
        let is_of = |call: &usize| self.calls[call].call.client == client;
        let (left, kept): (Vec<usize>, Vec<usize>) = self.kept.iter().partition(|call| is_of(call));
        self.kept = kept;
        for call in left {
            let CallState { work, answer_said, .. } = self.calls[&call];
            if answer_said.is_none() {
                self.gave.push((self.now, cancellation(&self.calls[&work].known[0]), 0));
            }
        }
    }

    /// The answer that came when nobody waited for it is that of this call; when it came.
    fn fetch(&mut self, before: usize, call: usize) -> Option<u64> {
        let (now, mut came) = (self.now, None);
        // Who gives a call up just when the answer comes may get the answer once more.
        let CallState { answer_heard, cancelled, .. } = self.calls[&before];
        let crosses = answer_heard.zip(cancelled);
        let crosses =
            crosses.is_some_and(|(heard, gone)| heard <= gone && gone <= heard + CROSSING);
        let is_answer = |said: &&mut SaidState| {
            let is_free = crosses || said.heard.is_empty();
            said.say.about == Some(before) && said.say.kind.ends_call() && is_free
        };
        for said in self.said.iter_mut().filter(is_answer) {
            said.heard.clear();
            said.say.about = Some(call);
            said.fetched = Some(now);
            came.get_or_insert(said.at);
        }
        came
    }

    /// Whether the server is told that nobody came for the work of a call.
    fn expires(&mut self, text: &str) -> bool {
        let is_over = |call: &usize| {
            let CallState { work, answer_said, cancelled, .. } = &self.calls[call];
            let id = &self.calls[work].known[0];
            answer_said.is_none()
                && cancelled.is_some_and(|gone| gone + KEEP <= self.now)
                && text == cancellation(id)
        };
        let which = self.kept.iter().position(is_over);
        which.map(|which| self.kept.remove(which)).is_some()
    }

    /// The server gets what clients say, as they say it, once and in order.
    fn took(&mut self, raw: &str) {
        let text = as_cancellation(raw);
        let text = text.as_str();
        let shared = self.world == World::Shared;
        let mark = marks('c', text);
        let fits = |gave: &(u64, String, usize)| match shared {
            true => marks('c', &gave.1) == mark,
            // Milepost writes the id of work that a call has joined.
            false => gave.1 == raw || as_cancellation(&gave.1) == *text,
        };
        match self.gave.iter().position(|gave| gave.2 == 0 && fits(gave)) {
            Some(which) => {
                self.gave[which].2 = 1;
                self.took_as_given(&mark, text);
            }
            // A shared server is told of clients that leave.
            None if shared && text.contains("notifications/cancelled") => {}
            None if self.took_renamed(&mark, text) => {}
            None => self.took_more(text),
        }
    }

    /// The other calls of a call's session that the server may still answer, or answers after they were cancelled.
    fn beside(&self, call: &Call) -> impl Iterator<Item = &CallState> {
        let (number, session) = (call.number, &self.sessions[call.client]);
        self.calls.values().filter(move |state| {
            let is_over = state.over_said().is_some_and(|said| said + self.race() < self.now);
            state.call.number != number
                && self.sessions[state.call.client] == *session
                && (!is_over || state.cancelled.is_some())
        })
    }

    /// The server gets a request with the client's own names. No request that it is still to answer has the same id.
    fn took_as_given(&mut self, mark: &[usize], text: &str) {
        let state = mark.first().and_then(|number| self.calls.get(number));
        let Some(CallState { call, .. }) = state.filter(|_| self.world.finds_answers_by_id())
        else {
            return;
        };
        let is_open = |state: &&CallState| {
            state.answer_said.is_none() && state.cancelled.is_none() && !state.has_foreign_answer
        };
        let is_twice =
            self.beside(call).filter(is_open).any(|other| same(&other.known[0], &call.id));
        // Of processes two requests may cross.
        if is_twice && !self.world.is_real() && text.contains("\"method\"") {
            self.find("one-id-for-two", format!("the server is to answer two of {text}"));
        }
    }

    /// Whether the server gets a request with other names, because a request of the session that it may still answer
    /// has one of these names.
    fn took_renamed(&mut self, mark: &[usize], text: &str) -> bool {
        let state = mark.first().and_then(|number| self.calls.get(number));
        let Some(CallState { call, .. }) = state.filter(|_| self.world.finds_answers_by_id())
        else {
            return false;
        };
        let message = members(text).unwrap_or_default();
        let member = |of: Option<&String>, name: &str| members(of?)?.get(name).cloned();
        let meta = member(message.get("params"), "_meta");
        let id = message.get("id").cloned().unwrap_or_default();
        let token = member(meta.as_ref(), "progressToken").unwrap_or_default();
        let renamed = Call { id: id.clone(), token: token.clone(), ..call.clone() };
        let repeats = self.beside(call).any(|other| {
            let has =
                |name: &String| !name.is_empty() && other.known.iter().any(|own| same(own, name));
            has(&call.id) || has(&call.token)
        });
        let is_new = |name: &String| {
            let mut others = self.beside(call);
            name.is_empty() || !others.any(|other| other.known.iter().any(|own| same(own, name)))
        };
        let (number, given) = (call.number, call.text(false));
        let is_right = repeats && is_new(&id) && is_new(&token) && renamed.text(false) == text;
        let mut gave = self.gave.iter_mut().filter(|_| is_right);
        let Some(gave) = gave.find(|gave| gave.2 == 0 && gave.1 == given) else { return false };
        gave.2 = 1;
        self.calls.get_mut(&number).unwrap().known = [id, token];
        true
    }

    /// The server gets what no client has just sent.
    fn took_more(&mut self, text: &str) {
        // What is given up once more under a name of the client's own, the server was told of under another.
        let is_repeated = |state: &&CallState| {
            let is_renamed = !same(&state.known[0], &state.call.id);
            is_renamed && state.cancelled.is_some() && text == cancellation(&state.call.id)
        };
        let repeated = self.calls.values().filter(is_repeated);
        let wanted: Vec<String> = repeated.map(|state| cancellation(&state.known[0])).collect();
        let is_wanted = |gave: &&mut (u64, String, usize)| {
            gave.2 == 0 && wanted.contains(&as_cancellation(&gave.1))
        };
        if let Some(gave) = self.gave.iter_mut().rev().find(is_wanted) {
            gave.2 = 1;
            return;
        }
        // A client may give up what it has read the answer of; what comes of that is the client's affair.
        let is_idle = |state: &CallState| {
            let is_read = state.answer_heard.is_some_and(|heard| state.cancelled > Some(heard));
            is_read && text == cancellation(&state.known[0])
        };
        // What a client has moved on from may be answered in that moment.
        let crosses = |state: &CallState| {
            let id = &self.calls[&state.work].known[0];
            let is_answered = state.answer_said.is_some_and(|said| self.now < said + self.race());
            is_answered && state.cancelled.is_some() && text == cancellation(id)
        };
        let may_come = self.calls.values().any(|state| is_idle(state) || crosses(state));
        if !may_come && !self.expires(text) {
            self.find("to-server", format!("the server got what no client sent: {text}"));
        }
    }

    fn say(&mut self, say: &Say) {
        let waits = |state: &&CallState| {
            state.over_said().is_none() && state.cancelled.is_none() && state.left.is_none()
        };
        let open = self.calls.values().filter(waits).map(|state| state.call.number).collect();
        let now = self.now;
        let is_ended = |state: &CallState| {
            let over = [state.over_said(), state.cancelled].into_iter().flatten().min();
            over.is_some_and(|over| self.race() == 0 || over + self.race() < now)
        };
        let ended = self.calls.values().filter(|state| is_ended(state));
        let ended = ended.map(|state| state.call.number).collect();
        let session = self.session_of(say.place);
        let mut of_session = self.calls.values().filter(|state| {
            session.is_none_or(|session| self.sessions[state.call.client] == *session)
        });
        let is_idle = of_session.all(is_ended);
        let recent = |state: &CallState| {
            // A call is over once: what comes of a cancelled call later does not count.
            let over = [state.over_said(), state.cancelled, state.left];
            over.into_iter().flatten().min().is_some_and(|over| over + SHARED_PAUSE > now)
        };
        let soon = self.calls.values().any(recent);
        let mut value = None;
        // What is about some work is about the call that waits for it.
        let mut say = say.clone();
        say.about = say.about.map(|work| self.waits.get(&work).copied().unwrap_or(work));
        if let Some(state) = say.about.and_then(|call| self.calls.get_mut(&call)) {
            value = state.value;
            if say.kind.ends_call() {
                state.answer_said.get_or_insert(self.now);
            } else if say.kind == Kind::Note {
                state.task_over_said.get_or_insert(self.now);
            } else if say.kind.is_progress() {
                state.reported.get_or_insert(self.now);
            } else if say.kind == Kind::Extra && state.left.is_some() {
                // Nobody reads it any more.
                state.has_foreign_answer = true;
            }
        }
        self.by_mark.insert(say.mark, self.said.len());
        let (at, stalled) = (self.now, self.stalled);
        let (heard, shown, fetched) = (Vec::new(), Vec::new(), None);
        let nameless = say.names == Names::Token && !self.has_name(&say);
        self.said.push(SaidState {
            at,
            say,
            open,
            ended,
            is_idle,
            nameless,
            soon,
            stalled,
            fetched,
            heard,
            shown,
            value,
        });
    }

    /// What may be late or early.
    fn tolerance(&self) -> u64 {
        if self.world.is_real() { self.slack } else { TOLERANCE }
    }

    /// For how long what crosses on two ways comes in any order.
    fn race(&self) -> u64 {
        match () {
            // Who has stopped reading reads several streams in any order afterwards.
            () if self.was_stalled && self.world.reads_streams() => AGES,
            () if self.world.is_real() => self.slack,
            () => 0,
        }
    }

    /// By how much the end of a time of Milepost's may lie elsewhere for the player.
    fn edge(&self) -> u64 {
        if self.world.is_real() { self.slack } else { 0 }
    }

    /// Whether clients have read some time after they were told.
    fn reads_late(&self) -> bool {
        self.was_stalled && !matches!(self.world, World::Wire { .. })
    }

    /// Whether the stream of a place has broken off at some time.
    fn was_broken(&self, place: Place) -> bool {
        let Place::Post(call) = place else { return false };
        self.calls.get(&call).is_some_and(|state| state.cut.is_some() || state.left.is_some())
    }

    /// The client who reads at a place.
    fn client_of(&self, place: Place) -> Option<usize> {
        match place {
            Place::Wire => None,
            Place::Home(client) => Some(client),
            Place::Post(call) => self.calls.get(&call).map(|state| state.call.client),
        }
    }

    /// Whether the client of a place is that of a call.
    fn is_at(&self, place: Place, call: &CallState) -> bool {
        match place {
            Place::Wire => true,
            Place::Post(number) => number == call.call.number,
            Place::Home(client) => self.sessions[client] == self.sessions[call.call.client],
        }
    }

    /// Whether progress of a call may come there. Where the stream of a call broke off, its progress passes on
    /// the stream of its session on which it came.
    fn passes_at(&self, place: Place, call: &CallState) -> bool {
        let broken = self.was_broken(Place::Post(call.call.number));
        self.is_at(place, call)
            || broken && self.session_of(place) == self.sessions.get(call.call.client)
    }

    /// The session of a stream.
    fn session_of(&self, place: Place) -> Option<&String> {
        match place {
            Place::Wire => None,
            Place::Home(client) => self.sessions.get(client),
            Place::Post(call) => {
                self.calls.get(&call).map(|state| &self.sessions[state.call.client])
            }
        }
    }

    fn heard(&mut self, place: Place, text: &str) {
        let Some(message) = members(text) else {
            return self.find("unreadable", format!("{place:?} reads {text}"));
        };
        if readable(text) != text {
            self.find("unicode", format!("{place:?} reads half a surrogate pair: {text}"));
        }
        let method = message.get("method").map(String::as_str);
        if method == Some(r#""notifications/progress""#) && !message.contains_key("id") {
            self.heard_progress(place, text, &message);
        } else {
            self.heard_other(place, text, &message);
        }
    }

    fn heard_other(&mut self, place: Place, text: &str, message: &BTreeMap<String, String>) {
        let Some(&index) = marks('m', text).first().and_then(|mark| self.by_mark.get(mark)) else {
            return self.heard_own(place, text, message);
        };
        let SaidState { say, heard, at, fetched, .. } = &self.said[index];
        let (say, at, again) = (say.clone(), fetched.unwrap_or(*at), !heard.is_empty());
        let about = say.about.and_then(|call| self.calls.get(&call));
        let [id, token] = about.map_or(["", ""], |state| [&state.call.id, &state.call.token]);
        let wanted = with_revision(readable(&say.with(id, token)));
        let mut wrong = Vec::new();
        // The id of an event with an array goes with the last message of the array, which may come elsewhere.
        let resumed = say.with_next && self.was_broken(say.place);
        if again && !resumed {
            wrong.push(("twice", format!("{place:?} reads once more {text}")));
        }
        match say.kind {
            // Without the other answer there is nothing extra.
            Kind::Extra if about.is_none_or(|state| state.answer_said.is_some()) => {
                wrong.push(("extra-answer", format!("{place:?} reads {text}")))
            }
            Kind::Extra => {}
            Kind::Odd => {
                // A response of HTTP needs some body, so JSON for who gave the call up passes as it came.
                let is_body = self.world.is_direct()
                    && about
                        .is_some_and(|state| state.begun.is_none() && state.cancelled.is_some());
                if !is_answer(id, message) && !is_body {
                    wrong.push(("odd-answer", format!("call {id} is answered with {text}")));
                }
            }
            kind if kind.is_progress() => {
                wrong.push(("dialect", format!("{place:?} reads progress as it came: {text}")));
            }
            _ if text != wanted => {
                wrong.push(("changed", format!("{place:?} reads {text}, not {wanted}")));
            }
            _ => {}
        }
        let right = match (self.world, say.kind, say.about) {
            (World::Wire { .. }, ..) => place == Place::Wire,
            (world, Kind::Answer | Kind::Odd, Some(call)) if world.reads_streams() => {
                // What is too large to be moved is told where it came.
                let is_moved = text.len() <= HELD_MAX || !world.is_direct();
                place == Place::Post(call) || !is_moved && place == say.place
            }
            (World::Shared, ..) => self.shared_note_may_be_at(index, place),
            (world, ..) if world.is_direct() => place == say.place,
            _ => self.client_of(place) == self.client_of(say.place),
        };
        if !right {
            wrong.push(("place", format!("{place:?} reads what belongs elsewhere: {text}")));
        }
        for (rule, text) in wrong {
            self.find(rule, text);
        }
        self.in_order(place, index);
        self.said[index].heard.push((self.now, place));
        if say.kind == Kind::Extra
            && let Some(state) = say.about.and_then(|call| self.calls.get_mut(&call))
        {
            state.has_foreign_answer = true;
        }
        if say.kind.ends_call()
            && let Some(state) = say.about.and_then(|call| self.calls.get_mut(&call))
        {
            state.answer_heard.get_or_insert(self.now);
            self.guarded(say.about.unwrap());
        }
        if say.kind == Kind::Note
            && let Some(state) = say.about.and_then(|call| self.calls.get_mut(&call))
        {
            state.task_over_heard.get_or_insert(self.now);
        }
        self.is_prompt(&say, at);
    }

    /// What names nobody on a shared server is for the only call there is, if none ended just now.
    fn shared_note_may_be_at(&self, index: usize, place: Place) -> bool {
        let SaidState { say, soon, .. } = &self.said[index];
        let is_own = say.about.is_some_and(|call| place == Place::Post(call));
        is_own || !self.has_strangers() || say.about.is_none() && !soon
    }

    /// Whether the server has clients that must not see each other's messages.
    fn has_strangers(&self) -> bool {
        self.world == World::Shared && self.sessions.len() > 1
    }

    /// Milepost answers a client itself only where the server is gone.
    fn heard_own(&mut self, place: Place, text: &str, message: &BTreeMap<String, String>) {
        let id = message.get("id").cloned().unwrap_or_default();
        let open = |state: &&mut CallState| state.call.id == id && state.answer_heard.is_none();
        let places: Vec<usize> = self
            .calls
            .values()
            .filter(|state| self.is_at(place, state))
            .map(|state| state.call.number)
            .collect();
        let mut calls = self.calls.values_mut().filter(|state| places.contains(&state.call.number));
        let state = calls.find(open);
        let now = self.now;
        let died = self.died.is_some();
        match state.filter(|state| (died || state.lost.is_some()) && message.contains_key("error"))
        {
            Some(state) => state.answer_heard = Some(now),
            None => self.find("invented", format!("{place:?} reads what nobody said: {text}")),
        }
    }

    /// Whether a message of the server is too large to be held in memory.
    fn is_too_large(&self, index: usize) -> bool {
        self.said[index].say.with("", "").len() > HELD_MAX
    }

    /// On one stream what is no progress keeps its order, but for answers that wait for their guard, or in a file.
    fn in_order(&mut self, place: Place, index: usize) {
        let later = |(of, other): &&(Place, usize)| {
            *of == place
                && self.said[index].fetched.is_none()
                && *other > index
                && self.said[*other].say.place == self.said[index].say.place
        };
        let kind = |index: usize| self.said[index].say.kind;
        let passes = |other: usize| {
            let is_in_file = |index: usize| kind(index).ends_call() && self.is_too_large(index);
            if is_in_file(index) {
                return true;
            }
            self.world.is_paced()
                && matches!(kind(other), Kind::Answer | Kind::Odd | Kind::Request)
                && kind(index) != Kind::Request
        };
        let passed = self.order.iter().filter(later).find(|(_, other)| !passes(*other)).copied();
        if let Some((_, other)) = passed.filter(|_| !self.was_broken(self.said[index].say.place)) {
            let texts = [other, index].map(|index| &self.said[index].say.text);
            let text = format!("{place:?} reads {} before {}", texts[0], texts[1]);
            self.find("order", text);
        }
        self.order.push((place, index));
    }

    /// Nothing that is no progress waits but for a guard, or for a client that does not read.
    fn is_prompt(&mut self, say: &Say, at: u64) {
        // An answer waits for its guard, and for progress that waits for the guard of another answer.
        let guards = if self.world.is_paced() { 2 * GUARD } else { 0 };
        let stalled = self.said.iter().any(|said| said.stalled) || self.was_broken(say.place);
        if self.now > at + guards + self.tolerance() && !stalled {
            self.find("slow", format!("{} ms for {}", self.now - at, say.text));
        }
    }

    /// On a paced wire an answer stands apart from the progress before it.
    fn guarded(&mut self, call: usize) {
        let last = self.calls[&call].progress.last().copied();
        // Of processes only the times of reading are known.
        let free =
            self.died.is_some() || self.calls[&call].cancelled.is_some() || self.world.is_real();
        let free = free || self.reads_late() || self.has_twin(call);
        if self.world.is_paced() && !free && last.is_some_and(|last| self.now < last + GUARD) {
            let text = format!(
                "the answer to call {call} follows {} ms after progress",
                self.now - last.unwrap()
            );
            self.find("guard", text);
        }
    }

    /// The call that a token at a place is that of.
    fn call_of_token(&self, place: Place, token: &str, text: &str) -> Option<usize> {
        // Who has left a stream may hear of its call on another.
        let gone =
            |state: &CallState| state.left.is_some() && place == Place::Post(state.call.number);
        let (now, race) = (self.now, self.race());
        let behind = if self.reads_late() { AGES } else { race };
        let open = |state: &&CallState| {
            let cancelled = state.cancelled.is_some_and(|over| now >= over + behind);
            let elsewhere = self.world.reads_streams() && place != Place::Post(state.call.number);
            let broken = self.was_broken(Place::Post(state.call.number));
            // A task and the stream of its request end in different places.
            let elsewhere = elsewhere || self.world.reads_streams() && state.call.is_task();
            let crossing = if elsewhere { race.max(u64::from(broken)) } else { 0 };
            let answered = state.over_heard().is_some_and(|over| now >= over + crossing);
            !answered && !cancelled && !gone(state)
        };
        let own = self.calls.values().filter(|state| same(&state.call.token, token));
        let own =
            own.filter(|state| open(state) && self.passes_at(place, state) && !token.is_empty());
        // A token may be that of a newer call too, where a client never got the answer to the older one.
        let meant = marks('m', text).first().and_then(|mark| self.by_mark.get(mark));
        let meant = meant.and_then(|index| self.said[*index].say.about);
        let is_other = |state: &CallState| meant != Some(state.call.number);
        // What nobody said is about a call that still waits for its answer, not about a task with its token.
        let is_told = |state: &CallState| meant.is_none() && state.answer_said.is_some();
        let rank = |state: &CallState| {
            let is_elsewhere = !self.is_at(place, state);
            let is_over = state.over_heard().is_some();
            (is_elsewhere, is_other(state), is_over, is_told(state))
        };
        let state = own.min_by_key(|state| rank(state));
        state.map(|state| state.call.number)
    }

    fn heard_progress(&mut self, place: Place, text: &str, message: &BTreeMap<String, String>) {
        let params = message.get("params").and_then(|params| members(params)).unwrap_or_default();
        let token = params.get("progressToken").cloned().unwrap_or_default();
        let (now, race) = (self.now, self.race());
        let Some(number) = self.call_of_token(place, &token, text) else {
            return self.find("token", format!("{place:?} reads a token of no open call: {text}"));
        };
        self.holds_for_schema(message, &params, text);
        let value: f64 =
            params.get("progress").and_then(|value| value.parse().ok()).unwrap_or(f64::NAN);
        // Progress that joins some work goes on from where it stands.
        let state = &self.calls[&number];
        let (before, last, asked) = (state.value, state.progress.last().copied(), state.began);
        // Under a token that a client gives twice each call has figures of its own.
        let apart = race > 0 && self.calls[&number].place != Some(place) || self.has_twin(number);
        self.calls.get_mut(&number).unwrap().place = Some(place);
        if !(value.is_finite() && before.is_none_or(|before| value > before || apart)) {
            self.find("rise", format!("{before:?}, then {text}"));
        }
        let total: Option<f64> = params.get("total").and_then(|total| total.parse().ok());
        if total.is_some_and(|total| total <= 0.0 || total < value) {
            self.find("total", format!("nothing can be {value} of {total:?}: {text}"));
        }
        if self.calls[&number].call.token != token {
            self.find(
                "token-text",
                format!("{place:?} reads another spelling of its token: {text}"),
            );
        }
        let begun = self.calls[&number].begun.filter(|_| self.calls[&number].left.is_none());
        let has_stream =
            begun.is_some_and(|begun| begun + race <= now) && !self.was_broken(Place::Post(number));
        if self.world.reads_streams() && place != Place::Post(number) && has_stream {
            self.find(
                "place",
                format!("progress of call {number} does not come on its stream: {text}"),
            );
        }
        let marks = marks('m', text);
        let said: Vec<usize> =
            marks.iter().filter_map(|mark| self.by_mark.get(mark)).copied().collect();
        for &index in &said {
            self.belongs(index, number, text);
            self.is_named(index, number, text);
        }
        let fresh = said.iter().any(|index| self.said[*index].heard.is_empty());
        if fresh {
            // The token of a task that runs may be given to another call.
            let alike = self.calls.values().filter(|state| same(&state.call.token, &token));
            let first = alike.filter(|state| state.over_heard().is_none());
            let first = first.map(|state| state.began).min().unwrap_or(asked);
            self.paced(number, &said, first);
            self.replaces_whole(number, &said, [Some(value), total], text);
            self.is_as_counted(number, &said, [before, Some(value), total], text);
        } else {
            // Who comes back may be told again what the server said of another call.
            let told_again = said.iter().any(|index| self.was_broken(self.said[*index].say.place));
            if !told_again {
                let last = last.unwrap_or(asked);
                self.is_beat(number, [before.unwrap_or(0.0), value], last, text);
            }
        }
        let now = self.now;
        for &index in &said {
            self.said[index].heard.push((now, place));
            self.said[index].shown.push(number);
        }
        let reported = said.iter().map(|index| self.said[*index].at).min();
        let state = self.calls.get_mut(&number).unwrap();
        state.reported = state.reported.or(reported);
        state.value = Some(value);
        state.progress.push(now);
    }

    fn holds_for_schema(
        &mut self,
        message: &BTreeMap<String, String>,
        params: &BTreeMap<String, String>,
        text: &str,
    ) {
        let is =
            |name: &str, fits: fn(&str) -> bool| params.get(name).is_none_or(|value| fits(value));
        let number = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
        let fits = message.get("jsonrpc").map(String::as_str) == Some("\"2.0\"")
            && is("total", number)
            && is("message", |text| text.starts_with('"'))
            && is("_meta", |text| text.starts_with('{'));
        if !fits {
            self.find("schema", text);
        }
    }

    /// Whether a report names a call. A server knows work that goes on by the names of the call that began it.
    fn is_name_of(&self, say: &Say, number: usize) -> bool {
        let known = |call: usize| &self.calls[&self.calls[&call].work].known;
        let name = match (&say.names, say.about.filter(|call| self.calls.contains_key(call))) {
            (Names::Token, Some(call)) => &known(call)[1],
            (Names::Id, Some(call)) => &known(call)[0],
            (Names::Other(text), _) => text,
            _ => return false,
        };
        let (target, known) = (&self.calls[&number].known, known(number));
        target.iter().chain(known).any(|own| same(name, own))
    }

    /// Whether a token of another session is the id of an open call beside this one.
    fn is_id_beside(&self, call: &Call, token: &str) -> bool {
        self.beside(call).any(|other| same(&other.known[0], token))
    }

    /// Whether a report may be shown for a call.
    fn belongs(&mut self, index: usize, number: usize, text: &str) {
        let SaidState { say, at, .. } = &self.said[index];
        let (say, at) = (say.clone(), *at);
        let about = say.about.and_then(|call| self.calls.get(&call));
        let shared = self.has_strangers();
        let target = &self.calls[&number].call;
        let scope = self.session_of(say.place);
        let foreign = about.is_some_and(|state| {
            scope.is_some_and(|scope| *scope != self.sessions[state.call.client])
        });
        let on_own = say.about.is_some_and(|call| say.place == Place::Post(call));
        let is_named = |call: usize| self.is_name_of(&say, call);
        let exact = !shared && !on_own && (is_named(number) || self.twins(number).any(is_named));
        // A name that a server invents twice is that of the call that had it first, or was taken to have it.
        let had = |earlier: &SaidState| {
            earlier.say.about == Some(number) || earlier.shown.contains(&number)
        };
        let invented = matches!(say.names, Names::Other(_))
            && self.said[..index]
                .iter()
                .any(|earlier| earlier.say.names == say.names && had(earlier));
        // Its own names in another spelling mean the call, unless they mean one that is over (`is_of_no_call`).
        let names = &self.calls[&number].known;
        let is_spelled =
            matches!(&say.names, Names::Other(name) if names.iter().any(|own| alike(own, name)));
        let exact = exact || (invented || is_spelled) && !shared;
        // In a scope of one client the only call that is open is taken for the author of what names
        // nobody who is known.
        let over = about.is_none_or(|state| {
            state.cancelled.is_some_and(|over| over <= at)
                || state.left.is_some_and(|over| over <= at)
        });
        let after_end = about.and_then(CallState::over_said).is_some_and(|over| over < at);
        let is_beside = |client: usize| self.sessions[client] == self.sessions[target.client];
        let same_client = about.is_none_or(|state| is_beside(state.call.client));
        let tokenless = about.is_some_and(|state| state.call.token.is_empty());
        let is_id_here = about.is_some_and(|state| self.is_id_beside(target, &state.known[1]));
        let unnamed = match say.names {
            // After its call a token means as little in another session as a name that a server invents:
            // servers may count their tokens, and each client's begin with the same.
            Names::Token => tokenless || foreign && (over || after_end || is_id_here),
            // Ids are not compared between sessions, because every client counts its own.
            Names::Id => foreign,
            Names::Other(_) | Names::Tool | Names::Nothing => true,
        };
        // On the stream of a call what names nobody, or a request elsewhere, is that call's.
        let on_stream = say.place == Place::Post(number) && (unnamed || say.names == Names::Id);
        // A report for a call without a token names nobody at all.
        let nameless = say.names == Names::Token && tokenless;
        // What names nobody may come in another session too.
        let astray = foreign && unnamed && (self.world.is_direct() || self.world.serves_streams());
        // Whether a name of such a report belongs to no call is judged below.
        let over = over || after_end && matches!(say.names, Names::Other(_));
        let guess = astray || on_stream || !shared && (nameless || unnamed && over && same_client);
        // Long after the end of its call nobody waits for what names nobody, and the only open call may be meant.
        let forgotten = about.is_some_and(|state| {
            let ends = [state.over_said(), state.cancelled, state.left];
            ends.into_iter().flatten().min().is_some_and(|over| over + SHARED_PAUSE <= at)
        });
        let guess = guess || shared && unnamed && forgotten;
        let standard = say.text.contains("notifications/progress");
        let was_left = |state: &CallState| {
            self.calls.values().any(|call| call.work == state.work && call.cancelled.is_some())
        };
        let ended = over || after_end || about.is_some_and(was_left);
        let rule = match () {
            () if foreign => "foreign-token",
            () if shared && unnamed => "shared-guess",
            () if ended && say.names == Names::Id && standard => "late-id-as-token",
            () => "attribution",
        };
        let unproven = ended && say.names == Names::Id && standard && !self.puts_ids(index);
        if say.about != Some(number) && !exact && !guess && !unproven {
            self.find(
                rule,
                format!("call {number} is shown what is about {:?}: {text}", say.about),
            );
        }
        let late = say.kind == Kind::Late && !exact;
        if late && after_end && say.about == Some(number) {
            self.find("late", format!("call {number} was answered: {text}"));
        }
    }

    /// A name in the place of a token means no other call, and compliant progress is as it came.
    fn is_named(&mut self, index: usize, number: usize, text: &str) {
        let Say { kind, about, names, .. } = self.said[index].say.clone();
        if let Names::Other(name) = names
            && self.is_of_no_call(index, number, &name)
        {
            let why = "a name of a call that is over, or of a job";
            self.find("ended-name", format!("call {number} is shown what has {why}: {text}"));
        }
        if kind == Kind::Compliant && about == Some(number) {
            self.is_as_it_came(index, number, text);
        }
    }

    /// Whether a name that a server puts in the place of a token means no open call: a call that is over had it in any
    /// spelling, or it came first while no call was open, or an answer of the last minute names a job so. The names of
    /// the open call itself go before, but exactly the name of an ended call goes before another spelling of them.
    fn is_of_no_call(&self, index: usize, number: usize, name: &str) -> bool {
        // On the response to a request, and where clients share a server, names mean something else.
        if self.world.serves_streams() || self.world == World::Shared {
            return false;
        }
        let said = &self.said[index];
        let session = self.session_of(said.say.place);
        let is_here =
            |client: usize| session.is_none_or(|session| self.sessions[client] == *session);
        let ended: Vec<&CallState> = said
            .ended
            .iter()
            .map(|call| &self.calls[call])
            .filter(|state| is_here(state.call.client))
            .collect();
        let [id, token] = &self.calls[&number].known;
        // An id that a client gives again is the id of the later call.
        let is_open_id = || {
            let mut others = self.calls.iter().filter(|(call, _)| !said.ended.contains(*call));
            others.any(|(_, state)| is_here(state.call.client) && same(&state.known[0], name))
        };
        let was_exact = || {
            let has = |of: usize| ended.iter().any(|state| same(&state.known[of], name));
            has(1) || has(0) && !is_open_id()
        };
        let fits_one_that_ended = |own: &String, of: std::ops::Range<usize>| {
            let has = |other: &String| alike(other, name) && !same(other, own);
            ended.iter().any(|state| state.known[of.clone()].iter().any(has))
        };
        let is_own = same(token, name)
            || same(id, name)
            || !was_exact()
                && (alike(token, name) && !fits_one_that_ended(token, 1..2)
                    || alike(id, name) && !fits_one_that_ended(id, 0..2));
        let earlier = || {
            self.said[..index]
                .iter()
                .filter(|earlier| self.session_of(earlier.say.place) == session)
        };
        let is_named = |earlier: &&SaidState| matches!(&earlier.say.names, Names::Other(own) if same(own, name));
        // What was shown for the call once is a name of the call.
        if is_own || earlier().filter(is_named).any(|earlier| earlier.shown.contains(&number)) {
            return false;
        }
        let is_job = |earlier: &SaidState| {
            earlier.say.kind == Kind::Answer
                && earlier.say.text.contains(&format!("\"jobId\":{name}}}"))
                && earlier.at + NAMED > said.at + self.edge()
                && self.remembers(earlier.say.mark)
                && earlier.heard.iter().any(|(heard, _)| *heard <= said.at)
        };
        ended.iter().any(|state| state.known.iter().any(|own| alike(own, name)))
            || earlier().any(is_job)
            || earlier().find(is_named).is_some_and(|first| first.is_idle)
    }

    /// Whether so little was answered since an answer that the names in it are remembered.
    fn remembers(&self, mark: usize) -> bool {
        let since = self.said.iter().filter(|said| said.say.mark >= mark);
        let answers = since.filter(|said| said.say.kind.ends_call());
        let bytes = answers.map(|said| said.say.with("", "").len().min(NAMED_BYTES_EACH));
        bytes.sum::<usize>() + 2 * NAMED_BYTES_EACH <= NAMED_BYTES_MAX
    }

    /// Whether the server was seen to put ids, and nothing but ids, in the place of tokens: of another an id
    /// there may be a token that it has invented.
    fn puts_ids(&self, index: usize) -> bool {
        let (mut tokens, mut ids) = (false, false);
        for SaidState { say, .. } in &self.said[..index] {
            tokens |= say.names == Names::Token && say.kind.is_progress();
            ids |= say.names == Names::Id && say.text.contains("notifications/progress");
        }
        ids && !tokens
    }

    /// Whether an earlier report about another call may have been taken for this call's, and may have begun its
    /// figures anew: it names no call, or came late under a token that is used again; or this report may be taken for
    /// another call's.
    fn is_mixed(&self, index: usize, number: usize) -> bool {
        let earlier_is_of_another = self.said[..index].iter().any(|earlier| {
            earlier.say.about != self.said[index].say.about
                && (earlier.shown.contains(&number)
                    || earlier.may_be_replaced()
                    || self.has_token_of(earlier, number))
        });
        earlier_is_of_another || self.has_twin(number)
    }

    /// Whether a report about another call has the token of this call, which was open by then.
    fn has_token_of(&self, said: &SaidState, number: usize) -> bool {
        let CallState { call, asked, .. } = &self.calls[&number];
        let other = said.say.about.and_then(|other| self.calls.get(&other));
        let has_same = other.is_some_and(|other| {
            other.call.client == call.client && same(&other.call.token, &call.token)
        });
        has_same && said.say.names == Names::Token && said.at >= *asked
    }

    /// Compliant progress that rises is not changed, except that a total of zero or less, or below the figure, is left
    /// out.
    fn is_as_it_came(&mut self, index: usize, number: usize, text: &str) {
        let SaidState { say, heard, .. } = &self.said[index];
        let CallState { call, value, .. } = &self.calls[&number];
        let said = say.with(&call.id, &call.token);
        let rises = value.is_none_or(|value| figure(&said) > value);
        let possible = without_impossible_total(said.clone());
        let wanted = readable(&possible);
        // A report that needs two repairs, or other names and a repair, is written anew with the same members.
        let work = &self.calls[&self.calls[&number].work];
        let is_renamed = work.known != [call.id.clone(), call.token.clone()];
        let is_rewritten = wanted != possible
            && (possible != said || is_renamed)
            && (have_same_members(&wanted, text)
                || have_same_members(&wanted, &without_task_name(text)));
        let is_right = wanted == text || is_rewritten;
        if heard.is_empty() && !is_right && rises && !self.is_mixed(index, number) {
            self.find("changed", format!("compliant progress is {text}, not {wanted}"));
        }
    }

    /// Where a server gives no numbers, the figure is that of its words, as long as these keep to one total;
    /// else it moves by next to nothing.
    fn is_as_counted(
        &mut self,
        number: usize,
        said: &[usize],
        [before, value, total]: [Option<f64>; 3],
        text: &str,
    ) {
        let own = &self.calls[&number].call;
        let is_of = |(index, other): &(usize, &SaidState)| {
            said.contains(index)
                || other.say.about == Some(number)
                || other.shown.contains(&number)
                || other.may_be_replaced()
        };
        let all = self.said.iter().enumerate().filter(is_of).map(|(_, said)| said);
        let all: Vec<&SaidState> = all.collect();
        let has_twin = self
            .calls
            .values()
            .any(|other| other.call.number != number && same(&other.call.token, &own.token));
        let plain = |said: &&SaidState| {
            let SaidState { say, .. } = said;
            say.kind.ends_call()
                || say.about == Some(number) && say.names == Names::Token && !has_number(&say.text)
        };
        if has_twin || self.race() > 0 || !all.iter().all(plain) {
            return;
        }
        let counted = |said: &&SaidState| in_words(&said.say.text);
        let counts: Vec<(f64, f64)> = all.iter().filter_map(counted).collect();
        let Some(newest) = said.iter().max().map(|index| &self.said[*index]) else { return };
        let value = value.unwrap_or(f64::NAN);
        let is_lift = value - before.unwrap_or(0.0) <= 0.01;
        let is_count = counts.iter().any(|(of, whole)| (*of, Some(*whole)) == (value, total));
        let own = in_words(&newest.say.text).filter(|(of, _)| before.is_none_or(|last| *of > last));
        let is_one = counts.iter().all(|(_, whole)| *whole == counts[0].1);
        let shown = self.calls[&number].counted;
        let missed = is_one && own.is_some_and(|own| (own.0, Some(own.1)) != (value, total));
        if missed || !is_lift && (!is_count || shown.is_some_and(|shown| Some(shown) != total)) {
            return self.find("words", format!("{before:?}, then {text}"));
        }
        if is_count && !is_lift {
            self.calls.get_mut(&number).unwrap().counted = total;
        }
    }

    /// On a paced wire progress comes neither early nor at once, elsewhere at once.
    fn paced(&mut self, number: usize, said: &[usize], asked: u64) {
        let newest = said.iter().map(|index| self.said[*index].at).max().unwrap_or(0);
        if !self.world.is_paced() {
            let broken = self.was_broken(Place::Post(number));
            let compliant = said.iter().any(|index| {
                let SaidState { say, value, heard, .. } = &self.said[*index];
                // Words are shown again with a report that has none.
                let is_fresh = heard.is_empty();
                let rises = value.is_none_or(|value| figure(&say.with("0", "0")) > value);
                let is_mixed = self.is_mixed(*index, number);
                is_fresh
                    && say.kind == Kind::Compliant
                    && say.about == Some(number)
                    && rises
                    && !is_mixed
            });
            let stalled = said.iter().any(|index| self.said[*index].stalled);
            // What waits for the interval between reports takes the newest with it.
            let others = self.said.iter().filter(|said| said.say.kind == Kind::Legacy);
            let waits =
                others.map(|said| said.at).any(|at| at <= newest && at + MIN_INTERVAL > newest);
            let pause = if waits { MIN_INTERVAL } else { 0 };
            if compliant && self.now > newest + pause + self.tolerance() && !stalled && !broken {
                self.find("slow", format!("compliant progress takes {} ms", self.now - newest));
            }
        } else if self.now < asked + FIRST_AFTER {
            self.find("first-after", format!("progress after {} ms", self.now - asked));
        } else if self.now < newest + HOLD && !self.replaces(said, newest) {
            self.find("hold", format!("progress after {} ms", self.now - newest));
        }
    }

    /// Whether a report takes the place of one that waits, and its moment.
    fn replaces(&self, said: &[usize], newest: u64) -> bool {
        self.said.iter().enumerate().any(|(index, other)| {
            other.stalled
                || other.say.kind.is_progress()
                    && !said.contains(&index)
                    && other.heard.is_empty()
                    && other.at + FIRST_AFTER + HOLD + MIN_INTERVAL > newest
        })
    }

    /// A report that says nothing but a figure, and that takes the place of one right before, has the words and the
    /// total of that one.
    fn replaces_whole(
        &mut self,
        number: usize,
        said: &[usize],
        [value, total]: [Option<f64>; 2],
        text: &str,
    ) {
        let Some(newest) = said.iter().max().filter(|newest| **newest > 0) else { return };
        let [before, own] = [newest - 1, *newest].map(|index| &self.said[index]);
        let is_bare = own.say.kind == Kind::Legacy && !own.say.text.contains("\"message\"");
        let is_whole = before.say.text.contains(r#""total":100000,"message""#);
        let is_pair = before.say.about == Some(number)
            && own.say.about == Some(number)
            && before.say.names == Names::Token
            && own.say.names == Names::Token
            && before.say.place == own.say.place
            && before.say.kind == Kind::Legacy
            && own.say.text.contains("_meta");
        let is_replaced = is_bare && is_whole && is_pair && before.heard.is_empty();
        let is_plain = !self.was_stalled
            && self.race() == 0
            && !self.has_twin(number)
            && !self.was_broken(own.say.place)
            && before.open.contains(&number);
        let has_words = said.contains(&(newest - 1));
        let has_total = total.is_some() || value > Some(100_000.0);
        if is_replaced && is_plain && !(has_words && has_total) {
            self.find(
                "replaced",
                format!("words or total of {} are lost: {text}", before.say.text),
            );
        }
    }

    /// Whether another call of this client has the same token: that of a task that runs may be given to another call.
    /// What the server says under the token is either's, and the other is told that it goes on.
    fn has_twin(&self, number: usize) -> bool {
        self.twins(number).next().is_some()
    }

    fn twins(&self, number: usize) -> impl Iterator<Item = usize> {
        let state = &self.calls[&number];
        let is_twin = move |other: &&CallState| {
            other.call.number != number
                && other.over_heard().is_none()
                && other.call.client == state.call.client
                && same(&other.call.token, &state.call.token)
        };
        self.calls.values().filter(is_twin).map(|other| other.call.number)
    }

    /// What the proxy says itself comes after a silence, and pretends no work.
    fn is_beat(&mut self, number: usize, [before, value]: [f64; 2], last: u64, text: &str) {
        let state = &self.calls[&number];
        let has_twin = self.has_twin(number);
        let is_task = state.call.is_task() && !self.reads_late();
        if is_task && state.answer_said.is_some_and(|said| said + self.race() < self.now) {
            self.find("beat-of-task", format!("call {number} is a task: {text}"));
        }
        let is_early = self.now + self.tolerance() < last + BEAT_AFTER && !has_twin;
        if is_early && !self.reads_late() {
            self.find(
                "beat-early",
                format!("call {number}, {} ms after the last: {text}", self.now - last),
            );
        }
        // Who reads several streams late reads their figures in any order. The figures under one token rise together.
        let in_order = !(self.reads_late() && self.world.reads_streams() || has_twin);
        if value - before > 0.01 && before.abs() < 16_384.0 && in_order {
            self.find("beat-size", format!("call {number}: from {before} to {value}"));
        }
    }

    fn finish(&mut self) {
        for index in 0..self.said.len() {
            self.was_heard(index);
        }
        let numbers: Vec<usize> = self.calls.keys().copied().collect();
        for number in numbers {
            self.has_beats(number);
            self.was_answered(number);
        }
        let lost: Vec<String> =
            self.gave.iter().filter(|gave| gave.2 == 0).map(|gave| gave.1.clone()).collect();
        let died = self.died.is_some();
        let crosses = |text: &String| {
            let is_over = |state: &CallState| {
                let id = &self.calls[&state.work].known[0];
                // Who has read the answer has nothing left to cancel.
                let is_read =
                    state.answer_heard.is_some_and(|heard| state.cancelled >= Some(heard));
                let is_over = is_read || self.world.is_real() && state.answer_said.is_some();
                is_over && *as_cancellation(text) == *cancellation(id)
            };
            self.calls.values().any(is_over)
        };
        let lost: Vec<String> = lost.into_iter().filter(|text| !died && !crosses(text)).collect();
        for text in lost {
            self.find("to-server", format!("the server did not get {text}"));
        }
    }

    fn was_heard(&mut self, index: usize) {
        let SaidState { at, say, heard, .. } = &self.said[index];
        let (at, say) = (*at, say.clone());
        if !heard.is_empty() || self.died.is_some_and(|died| died <= at) {
            return;
        }
        let about = say.about.and_then(|call| self.calls.get(&call));
        let gone = about
            .is_some_and(|state| [state.cancelled, state.left].into_iter().flatten().any(|_| true));
        let broken = self.was_broken(say.place)
            || say.about.is_some_and(|call| self.was_broken(Place::Post(call)));
        let waits = |state: &CallState| state.cut.is_some() && !state.returned;
        let stays_away = self.world.is_direct() && about.is_some_and(waits);
        // What a server says to nobody, until somebody comes back, is lost where it dies meanwhile.
        let ends_with_it = broken && self.died.is_some();
        let gone = gone || stays_away || ends_with_it || broken && say.kind.is_progress();
        let rule = match say.kind {
            Kind::Answer | Kind::Odd if !gone => "lost-answer",
            Kind::Note | Kind::Request if self.must_pass(&say) => "lost",
            Kind::Compliant if !gone => self.lost_update(index, about),
            Kind::Legacy if !gone => self.lost_report(index, about),
            _ => return,
        };
        let rule = match about {
            Some(state) if state.stranger && !rule.is_empty() => "stranger-cancel",
            _ => rule,
        };
        if !rule.is_empty() {
            self.now = at;
            self.find(rule, format!("nobody reads {}", say.text));
        }
    }

    /// Whether a message that is no progress and no answer has a reader.
    fn must_pass(&self, say: &Say) -> bool {
        let reader = |call: usize| {
            let state = &self.calls[&call];
            state.left.is_none() && state.cancelled.is_none()
        };
        match (self.world, say.place) {
            (World::Wire { .. }, _) => true,
            (World::Shared, _) => false,
            (_, Place::Post(call)) => reader(call) && !self.was_broken(say.place),
            (World::Pair { .. }, Place::Home(client)) if self.world.reads_streams() => {
                let gone = |state: &CallState| state.left.is_some() || state.cancelled.is_some();
                let is_own = |state: &&CallState| state.call.client == client;
                let some_gone = self.calls.values().filter(is_own).any(gone);
                self.listens.contains(&client) && (self.world.is_direct() || !some_gone)
            }
            (_, Place::Home(_) | Place::Wire) => true,
        }
    }

    /// Whether a call is a task whose client has no stream for what belongs to no request.
    fn has_no_reader(&self, state: &CallState, at: u64) -> bool {
        let due = at + FIRST_AFTER + MIN_INTERVAL + 2 * (GUARD + HOLD) + self.race();
        let is_task = state.call.is_task() && state.answer_said.is_some_and(|said| said <= due);
        is_task && self.world.reads_streams() && !self.listens.contains(&state.call.client)
    }

    /// Whether the proxy may have closed the response on which a message comes: the response to a request that is
    /// over is not read for ever.
    fn is_read_no_longer(&self, place: Place, at: u64) -> bool {
        let Place::Post(on) = place else { return false };
        self.calls.get(&on).is_some_and(|on| {
            let over = [on.over_said(), on.cancelled, on.left].into_iter().flatten().min();
            over.is_some_and(|over| over + LINGERS < at + self.edge())
        })
    }

    /// Compliant progress is lost only to its answer.
    fn lost_update(&self, index: usize, about: Option<&CallState>) -> &'static str {
        let SaidState { at, say, stalled, .. } = &self.said[index];
        let Some(state) = about.filter(|state| !state.call.token.is_empty() && !stalled) else {
            return "";
        };
        if self.has_no_reader(state, *at) {
            return "";
        }
        let wanted = say.with(&state.call.id, &state.call.token);
        if self.said[index].value.is_some_and(|value| figure(&wanted) <= value) {
            return "";
        }
        // Of processes the client may not have read yet what the server counted in words, which is no less.
        let counted = |earlier: &SaidState| {
            let is_no_less = |(done, _): (f64, f64)| done >= figure(&wanted);
            earlier.say.about == say.about && in_words(&earlier.say.text).is_some_and(is_no_less)
        };
        if self.world.is_real() && self.said[..index].iter().any(counted) {
            return "";
        }
        let session = &self.sessions[state.call.client];
        let rival = |other: &CallState| {
            let alike = other.known.iter().any(|name| same(name, &state.known[1]));
            other.call.number != state.call.number
                && alike
                && self.sessions[other.call.client] == *session
        };
        let is_own = say.place == Place::Post(state.call.number);
        if !is_own && self.is_read_no_longer(say.place, *at) {
            return "";
        }
        let foreign = self.session_of(say.place).is_some_and(|scope| scope != session);
        if foreign || !is_own && self.calls.values().any(rival) {
            return "";
        }
        // What names nobody may have been taken for this call's, and may have raised its figure.
        let mut earlier = self.said[..index].iter().map(|earlier| &earlier.say);
        if earlier.any(|earlier| earlier.about != say.about && !self.has_name(earlier)) {
            return "";
        }
        let early = self.world.is_paced() && *at < state.asked + FIRST_AFTER;
        let due = self.due(state, *at, is_own);
        let overtaken = state.over_said().is_some_and(|said| said <= due);
        // A newer report on another way of processes comes first, and figures do not fall.
        let crossed = |later: &SaidState| {
            later.at <= *at + self.race()
                && later.say.place != say.place
                && later.shown.contains(&state.call.number)
        };
        let overtaken = overtaken || self.said[index + 1..].iter().any(crossed);
        match () {
            () if overtaken || self.died.is_some_and(|died| died <= due) => "",
            () if early => "early-update",
            () => "lost-update",
        }
    }

    /// The time at which a report of a call that came at `at` is written at the latest, on the call's own stream or on
    /// another one.
    fn due(&self, call: &CallState, at: u64, is_own: bool) -> u64 {
        if !self.world.is_paced() {
            return if is_own { at } else { at + self.race() };
        }
        // It waits for answers of other calls that came before, and no longer than these may wait.
        let others = |other: &CallState| {
            other.answer_said.is_some_and(|said| said <= at && said + 2 * GUARD > at)
        };
        let behind = if self.calls.values().any(others) { 2 * GUARD } else { 0 };
        let due = (at + HOLD).max(call.asked + FIRST_AFTER) + behind;
        // It follows the task that comes before its time, which keeps its own distance.
        let follows = call.call.is_task() && call.answer_said.is_some_and(|said| said <= due);
        due + if follows { 2 * GUARD } else { 0 } + self.race()
    }

    /// Whether a report has a name that clients and servers have agreed on.
    fn has_name(&self, say: &Say) -> bool {
        match say.names {
            Names::Token => say.about.is_none_or(|call| !self.calls[&call].call.token.is_empty()),
            Names::Id => true,
            Names::Other(_) | Names::Tool | Names::Nothing => false,
        }
    }

    /// A report that can only mean one call is shown, or a newer one in its place.
    fn lost_report(&self, index: usize, about: Option<&CallState>) -> &'static str {
        let SaidState { at, say, stalled, open, .. } = &self.said[index];
        let Some(state) = about.filter(|state| !state.call.token.is_empty() && !stalled) else {
            return "";
        };
        if self.has_no_reader(state, *at) {
            return "";
        }
        let number = state.call.number;
        let session = &self.sessions[state.call.client];
        if self.session_of(say.place).is_some_and(|scope| scope != session) {
            return "";
        }
        if say.place != Place::Post(number) && self.is_read_no_longer(say.place, *at) {
            return "";
        }
        let mine = self.calls.values().filter(|other| {
            self.world == World::Shared || self.sessions[other.call.client] == *session
        });
        let mine = mine.filter(|other| {
            open.contains(&other.call.number)
                || other.asked <= *at
                    && other
                        .over_heard()
                        .is_none_or(|heard| heard + SHARED_PAUSE + self.edge() > *at)
        });
        let others: Vec<&CallState> = mine.filter(|other| other.call.number != number).collect();
        let taken =
            |name: &str| others.iter().any(|other| other.known.iter().any(|own| same(name, own)));
        let [id, token] = &state.known;
        let clear = match &say.names {
            Names::Token => !taken(token),
            Names::Id => !taken(id) && id != token,
            // A name that a server has invented for another call may be that one's.
            Names::Other(_) => others.is_empty() && !self.was_for_another(index),
            _ => others.is_empty(),
        };
        // The request of a POST's stream goes before an id that is no token, and before one that servers may have
        // invented for a request without a token.
        let of_other = match say.place {
            Place::Post(on) if on != number => self.calls.get(&on),
            _ => None,
        };
        let is_no_token = !say.text.contains("progressToken");
        let by_stream = matches!(say.names, Names::Id)
            && of_other.is_some_and(|on| is_no_token || on.call.token.is_empty());
        let clear = clear && !by_stream;
        let due = (at + HOLD).max(state.asked + FIRST_AFTER) + MIN_INTERVAL + 2 * (GUARD + HOLD);
        let due = due + self.race();
        let over = [state.over_said(), self.died];
        let overtaken = over.into_iter().flatten().any(|over| over <= due);
        let newer = self.said[index + 1..].iter().any(|said| said.shown.contains(&number));
        let streams = self.world.is_direct() && state.begun.is_none_or(|begun| begun > *at);
        if clear && !overtaken && !newer && !streams { "lost-report" } else { "" }
    }

    /// Whether the server has named another call by the same invented name before.
    fn was_for_another(&self, index: usize) -> bool {
        let say = &self.said[index].say;
        let mut before = self.said[..index].iter().map(|said| &said.say);
        before.any(|before| before.names == say.names && before.about != say.about)
    }

    /// In a silence the client of a call with a token is told that it goes on.
    fn has_beats(&mut self, number: usize) {
        let state = &self.calls[&number];
        let stalled = self.was_stalled;
        let begin = match self.world {
            World::Shared => None,
            world if world.is_direct() => state.begun,
            _ => Some(state.asked),
        };
        let heard = !state.call.token.is_empty() && !stalled && state.cut.is_none();
        let Some(begin) = begin.filter(|_| heard) else {
            return;
        };
        let over = [state.answer_said, state.cancelled, state.left, state.lost, self.died];
        let end = over.into_iter().flatten().min().unwrap_or(self.now);
        let stranger = state.stranger;
        let mut last = begin;
        let held = if state.repeats { HELD } else { 0 };
        // A call that joins some work may be told of it at once.
        let told = state.progress.contains(&begin);
        let mut silent = Vec::new();
        let sent = state.progress.iter().filter(|at| **at > begin && **at < end).copied();
        let sent = sent.chain([end]);
        for at in sent {
            let reported = state.reported.is_some_and(|reported| reported < at);
            let limit = match last {
                _ if reported => 2 * BEAT_EVERY,
                last if last == begin && !told => BEAT_AFTER.max(2000) + held,
                _ => BEAT_EVERY,
            };
            // A heartbeat waits behind answers that keep their distance.
            let guard = if self.world.is_paced() { 2 * GUARD } else { 0 };
            if at > last + limit + guard + self.tolerance() {
                silent.push((last, at));
            }
            last = at;
        }
        for (last, at) in silent {
            self.now = at;
            let rule = if stranger { "stranger-cancel" } else { "beat-missing" };
            self.find(rule, format!("call {number}: silence from {last} to {at} ms"));
        }
    }

    /// Where the server is gone each call that waits is told so.
    fn was_answered(&mut self, number: usize) {
        let state = &self.calls[&number];
        let waits = [state.answer_heard, state.cancelled, state.left, state.answer_said];
        let died = self.died.is_some_and(|died| state.asked < died);
        // Who can come back is not told.
        let can_return = state.numbered && (self.world.is_direct() || self.world.is_real());
        let gone = died && !can_return || state.lost.is_some();
        if gone && waits.iter().all(Option::is_none) {
            self.find("lost-answer", format!("call {number} waits for a server that is gone"));
        }
    }
}

/// Whether a message is an answer that clients take.
fn is_answer(id: &str, message: &BTreeMap<String, String>) -> bool {
    let has = |name: &str| message.contains_key(name);
    let id_is_own = message.get("id").is_some_and(|own| own == id);
    let error = message.get("error").map(|error| members(error).unwrap_or_default());
    let is_error = error.is_none_or(|error| {
        let is =
            |name: &str, fits: fn(&str) -> bool| error.get(name).is_some_and(|value| fits(value));
        is("code", |code| code.parse::<i64>().is_ok())
            && is("message", |text| text.starts_with('"'))
    });
    id_is_own && is_error && has("result") != has("error") && !has("method")
}

/// The cancellation of a request, without a reason. Each id has one spelling.
fn cancellation(id: &str) -> String {
    let id = plain(id);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

/// A cancellation as [`cancellation`] words it, without a reason; any other message as it is.
fn as_cancellation(text: &str) -> String {
    let is_cancel = text.contains("\"notifications/cancelled\"").then_some(text).and_then(members);
    let params = is_cancel.and_then(|message| members(message.get("params")?));
    let id = params.and_then(|params| params.get("requestId").cloned());
    id.map_or_else(|| text.to_owned(), |id| cancellation(&id))
}

/// Whether a report has something in the place of its number.
fn has_number(text: &str) -> bool {
    !text.contains(r#""method":"notifications/progress""#)
        || text.replace(r#""progress":null"#, "").contains(r#""progress":"#)
}

/// What a server counts in words, and up to what.
fn in_words(text: &str) -> Option<(f64, f64)> {
    let (_, words) = text.split_once("iteration ")?;
    let (done, rest) = words.split_once(" of ")?;
    Some((done.parse().ok()?, rest.split('"').next()?.parse().ok()?))
}

/// The figure of a progress notification.
fn figure(text: &str) -> f64 {
    let params = members(text).and_then(|message| members(message.get("params")?));
    params.and_then(|params| params.get("progress")?.parse().ok()).unwrap_or(f64::NAN)
}
