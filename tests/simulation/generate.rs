//! A conversation from a seed. Each seed has a mixture of its own: which servers' habits, which clients' habits,
//! how much at once.

use crate::conversation::{
    Between, Call, Conversation, Kind, Names, Place, Say, Speaks, Step, TASK_TOOL, World,
};
use crate::dice::Dice;
use crate::names::{alike, same};

/// Ids and tokens of JSON; two spellings of one number or string stand beside each other.
const NAMES: [&str; 24] = [
    "0",
    "1",
    "\"0\"",
    "\"1\"",
    "\"a\"",
    "\"b\"",
    "7",
    "41",
    "\"7\"",
    "\"41\"",
    "\"tok-1\"",
    "-1",
    "1000000000000001",
    "9007199254740993",
    "\"\"",
    "\"é\"",
    "\"a\\u0062\"",
    "\"x/y\"",
    "12",
    "4",
    "\"12\"",
    "\"4\"",
    "3",
    "5",
];

/// Ids and tokens that are no plain integers, in turn those of requests and those of tokens.
const FRACTIONS: [&str; 10] = [
    "7.5",
    "1.50",
    "1e3",
    "1.51e2",
    "-0.25",
    "0.7310598251",
    "\"7.5\"",
    "\"2.5\"",
    "1.8e+1",
    "17000000000015E-1",
];

const TOOLS: [&str; 3] = ["scan", "fix", "report"];

const WAITS: [u64; 14] = [1, 5, 20, 31, 49, 60, 100, 151, 250, 600, 1100, 2500, 7000, 21_000];

/// Where the clock is real.
const REAL_WAITS: [u64; 14] = [1, 1, 5, 5, 20, 31, 60, 151, 250, 600, 600, 600, 600, 3500];

/// What a server says of its work, each behind a mark.
const WORDS: [&str; 11] = [
    "reading",
    "",
    "sorting \\\"all\\\" \\\\ of it",
    "Stra\u{df}e \u{20ac} \u{1d11e}",
    "a\\u2028b \\ud83d\\ude00",
    "line\\nline\\ttab",
    "\\/slash\\/",
    "wait",
    "a\u{2028}b\u{85}c\u{feff}",
    "data: id: 3",
    "\\ud800 alone",
];

/// One call as the server sees it.
struct Open {
    call: Call,
    /// The server has answered, or will not.
    over: bool,
    cancelled: bool,
    left: bool,
    begun: bool,
    /// The call whose client waits for this work, which this call has begun or has joined.
    waiter: Option<usize>,
    /// The call has joined the work of another; nothing is said about it.
    joined: bool,
    /// The server has answered with a task that is not over.
    is_running_task: bool,
    /// The call is reported by the letter; the others have every defect.
    compliant: bool,
    /// The highest figure so far, and whether the server has said anything.
    figure: u64,
    reported: bool,
    total: &'static str,
    /// The name of a job that its answer gives.
    job: Option<String>,
    /// The server answers the request with 202, and says the rest on the GET stream.
    is_elsewhere: bool,
}

/// Habits of clients and servers that public bug reports tell of. By dice of their own: the conversation of a seed
/// without them is otherwise the same.
struct Habits {
    /// Every request of a session has the id 1, and with `tokens` the token 1.
    ones: bool,
    tokens: bool,
    /// Ids and tokens have fractions and exponents.
    fractions: bool,
    /// Servers report under names of calls that are over, in another spelling.
    respelled: bool,
    /// Answers name jobs, which report later.
    jobs: bool,
    /// Reports without words and total right behind others.
    bare: bool,
    /// Totals that are soon passed.
    low_totals: bool,
    /// Requests are answered with 202, and the answers come on the GET stream.
    elsewhere: bool,
}

impl Habits {
    fn of(world: World, seed: u64, clocks: bool, alike: bool) -> Self {
        let mut dice = Dice::new(seed ^ 0x4ab1_7500);
        let mut often = |times: usize| dice.once_in(times);
        let is_quick = !world.is_fleet() && !world.is_real();
        Self {
            ones: often(4) && world.finds_answers_by_id() && !clocks,
            tokens: often(2),
            fractions: often(5),
            respelled: often(5) && world != World::Shared && !world.serves_streams() && !clocks,
            jobs: often(5) && !world.serves_streams() && !clocks,
            bare: often(5),
            low_totals: often(5),
            elsewhere: often(4) && world.serves_streams() && is_quick && !alike,
        }
    }
}

/// What is in a mixture.
struct Mix {
    respells: bool,
    reuses: bool,
    late: bool,
    loose: bool,
    json: bool,
    /// Clients of one session id have the same ids and tokens.
    twins: bool,
    /// Events have ids.
    numbered: bool,
    /// Messages come in arrays.
    batches: bool,
    cuts: bool,
    crosses: bool,
    legacy: usize,
    cancels: usize,
    notes: usize,
    requests: usize,
    stalls: bool,
    pauses: bool,
    large: bool,
    open_max: usize,
    /// Clients whose clock runs out, and who may ask again.
    clocks: bool,
}

pub(crate) struct Generator {
    dice: Dice,
    habits: Habits,
    habit_dice: Dice,
    world: World,
    sessions: Vec<String>,
    mix: Mix,
    calls: Vec<Open>,
    /// Calls that were given up by a clock, and that the same call may join.
    kept: Vec<usize>,
    marks: usize,
    steps: Vec<Step>,
    waiting: Vec<usize>,
    stalled: bool,
}

/// The conversation of a seed in a world.
pub(crate) fn generate(world: World, seed: u64) -> Conversation {
    let mut dice = Dice::new(seed ^ (as_number(world) << 56));
    let mut often = |times: usize| dice.once_in(times);
    let mix = Mix {
        respells: often(3),
        reuses: often(2),
        late: often(2),
        loose: often(3),
        json: often(3),
        twins: false,
        numbered: false,
        batches: false,
        cuts: false,
        crosses: often(3),
        legacy: if often(2) { 4 } else { 0 },
        cancels: usize::from(often(2)),
        notes: if often(2) { 3 } else { 0 },
        requests: usize::from(often(3)),
        stalls: often(6),
        pauses: often(6),
        large: often(6),
        open_max: 0,
        // By dice of their own: the conversation of a seed is otherwise the same.
        clocks: world.can_be_late() && Dice::new(seed ^ 0x1a7e).once_in(4),
    };
    let open_max = 1 + dice.below(5);
    let clients = if world.has_clients() { 1 + dice.below(3) } else { 1 };
    // Who shares a server and comes back has a name, and every client with that name is the same one.
    let is_named = world == World::Shared && mix.clocks;
    let clients = if is_named { 1 } else { clients };
    let is_direct = world.is_pair() && world.is_direct();
    let alike = dice.once_in(3) && (is_direct || world == World::Shared);
    let sessions = (0..clients).map(|client| format!("s{}", if alike { 0 } else { client }));
    let mix = Mix {
        open_max,
        numbered: dice.once_in(2),
        batches: dice.once_in(4),
        cuts: dice.once_in(4),
        // There the end of a stream is the end of a client's patience.
        cancels: if is_named { 0 } else { mix.cancels },
        ..mix
    };
    let mix = if alike && is_direct && dice.once_in(2) {
        // What is said elsewhere could mean either, and so could a cancel.
        Mix { twins: true, crosses: false, json: false, cancels: 0, cuts: false, ..mix }
    } else {
        mix
    };
    let habits = Habits::of(world, seed, mix.clocks, alike);
    let mix = match habits.ones {
        // Where requests cross, nobody knows which of two a cancellation means.
        true if world.is_real() => Mix { cancels: 0, ..mix },
        _ => mix,
    };
    let mut generator = Generator {
        habits,
        habit_dice: Dice::new(seed ^ 0x000d_1ce5),
        sessions: sessions.collect(),
        mix,
        dice,
        world,
        calls: Vec::new(),
        kept: Vec::new(),
        marks: 0,
        steps: Vec::new(),
        waiting: Vec::new(),
        stalled: false,
    };
    generator.talk();
    let late = generator.mix.clocks;
    Conversation { world, sessions: generator.sessions, late, steps: generator.steps }
}

fn as_number(world: World) -> u64 {
    match world {
        World::Wire { paced: true } => 1,
        World::Wire { paced: false } => 2,
        World::Shared => 4,
        World::Pair { client, server, by } => {
            let number = |speaks: Speaks| match speaks {
                Speaks::Stdio => 0,
                Speaks::Http => 1,
                Speaks::Sse => 2,
            };
            let place = match by {
                Between::Memory => 0,
                Between::Processes => 9,
                Between::Fleet => 18,
            };
            5 + number(client) * 3 + number(server) + place
        }
    }
}

impl Generator {
    fn talk(&mut self) {
        for client in 0..self.sessions.len() {
            if self.world.client() == Some(Speaks::Http) && !self.dice.once_in(4) {
                self.steps.push(Step::Listen(client));
            }
        }
        let many = if self.dice.once_in(4) { 39 } else { 8 };
        let requests = 2 + self.dice.below(many);
        let mut left = 20 * requests;
        let dies = self.dice.once_in(6);
        while (self.calls.len() < requests || self.open().next().is_some()) && left > 0 {
            left -= 1;
            let open = self.open().count();
            if dies && open > 0 && self.dice.once_in(20) {
                return self.steps.push(Step::Die);
            }
            let weights = self.weights(requests, open, dies);
            match self.dice.weigh(&weights) {
                0 => self.call(),
                1 => self.progress(false),
                2 => self.progress(true),
                3 => self.answer(),
                4 => self.cancel(),
                5 => self.note(),
                6 => self.request(),
                7 => self.wait(),
                8 => {
                    self.stalled = !self.stalled;
                    self.steps.push(Step::Stall(self.stalled));
                }
                9 => self.late(),
                10 => self.extra(),
                12 => self.cut(),
                13 => {
                    let waits: &[u64] =
                        if self.world.is_real() { &[5, 60, 600] } else { &[5, 600, 2500, 7000] };
                    let time = *self.dice.pick(waits);
                    self.steps.push(Step::Pause(time));
                }
                14 if self.kept.is_empty() || self.dice.once_in(3) => self.give_up(),
                14 => self.ask_again(),
                15 => self.late_in_another_spelling(),
                16 => self.job_report(),
                17 => self.bare_report(),
                _ => {
                    let mark = self.waiting.swap_remove(0);
                    self.steps.push(Step::Reply(mark));
                }
            }
        }
        while self.open().next().is_some() {
            self.answer();
        }
    }

    /// How often each thing comes next: `requests` in all, `open` of them without an answer.
    fn weights(&self, requests: usize, open: usize, dies: bool) -> [usize; 18] {
        let asks = usize::from(self.calls.len() < requests && open < self.mix.open_max) * 4;
        let Mix { legacy, cancels, notes, requests: asks_client, stalls, .. } = self.mix;
        let some = usize::from(open > 0);
        [
            asks,
            some * 6,
            some * legacy,
            some * 3,
            some * cancels,
            notes * some.max(1),
            asks_client,
            5,
            usize::from(stalls && self.world.client() != Some(Speaks::Stdio)),
            usize::from(self.mix.late) * 2,
            usize::from(self.mix.late && !(dies && self.world.serves_streams())),
            self.waiting.len(),
            usize::from(self.mix.cuts) * some,
            usize::from(self.mix.pauses && self.world != World::Shared) * some,
            usize::from(self.mix.clocks) * (some * 2 + self.kept.len().min(1) * 3),
            usize::from(self.habits.respelled) * 3,
            usize::from(self.habits.jobs) * 3,
            usize::from(self.habits.bare) * some * 3,
        ]
    }

    fn wait(&mut self) {
        let waits = if self.world.is_real() { REAL_WAITS } else { WAITS };
        let long = if self.dice.once_in(3) { waits.len() } else { 9 };
        let time = waits[self.dice.below(long)];
        self.steps.push(Step::Wait(time));
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        let open: Vec<usize> =
            (0..self.calls.len()).filter(|call| !self.calls[*call].over).collect();
        open.into_iter()
    }

    fn pick_open(&mut self) -> Option<usize> {
        let open: Vec<usize> = self.open().collect();
        (!open.is_empty()).then(|| *self.dice.pick(&open))
    }

    fn mark(&mut self) -> usize {
        self.marks += 1;
        self.marks
    }

    /// A name that no open call of the client has, and, unless names are reused, none before.
    /// Of a server that takes ids for tokens no value is both.
    fn name(&mut self, client: usize, of: fn(&Call) -> &String, side: usize) -> String {
        let session = self.sessions[client].clone();
        if self.habits.ones && (side == 0 || self.habits.tokens) {
            return "1".to_owned();
        }
        loop {
            // Few names are soon those of two clients at once.
            let many = if self.mix.twins { 6 } else { NAMES.len() };
            let mut which = self.dice.below(many);
            let mut number = 100 + self.dice.below(200);
            if self.mix.legacy > 0 {
                which = which / 2 * 2 + side;
                number = number / 2 * 2 + side;
            }
            let mut name = NAMES[which].to_owned();
            if self.calls.len() > 12 || self.dice.once_in(6) {
                name = number.to_string();
            }
            if self.habits.fractions && self.habit_dice.once_in(2) {
                let which = self.habit_dice.below(FRACTIONS.len() / 2) * 2;
                let any = if self.mix.legacy > 0 { side } else { self.habit_dice.below(2) };
                name = FRACTIONS[which + any].to_owned();
            }
            let users = |call: &&Open| {
                let same =
                    same(of(&call.call), &name) || !self.mix.loose && alike(of(&call.call), &name);
                same && self.sessions[call.call.client] == session
                    && (!self.mix.twins || call.call.client == client)
            };
            // A client that gives a name again has read the answer, which may wait for its guard.
            let free = self.calls.iter().filter(users).all(|call| {
                call.over
                    && !call.cancelled
                    && !call.left
                    && call.waiter == Some(call.call.number)
                    && self.mix.reuses
                    && self.rested(call.call.number)
            });
            if free {
                return name;
            }
        }
    }

    /// Whether some time has passed since a call was answered, with its client reading.
    fn rested(&self, number: usize) -> bool {
        let answered = self.steps.iter().rposition(
            |step| matches!(step, Step::Say(say) if say.about == Some(number) && say.kind.ends_call()),
        );
        let since = answered.map_or(&[][..], |at| &self.steps[at..]);
        let long = |step: &Step| matches!(step, Step::Wait(600..));
        since.iter().any(long) && !self.stalled && !self.mix.stalls
    }

    fn call(&mut self) {
        let client = self.dice.below(self.sessions.len());
        self.move_on(client);
        let id = self.name(client, |call| &call.id, 0);
        let mut token = self.name(client, |call| &call.token, 1);
        if self.dice.once_in(5) {
            token = String::new();
        } else if self.mix.legacy == 0 && self.dice.once_in(4) && self.is_free_token(client, &id) {
            token = id.clone();
        }
        let mut tool = (*self.dice.pick(&TOOLS)).to_owned();
        // By dice of their own: the conversation of a seed is otherwise the same.
        let mut dice = Dice::new((self.steps.len() * 1000 + self.calls.len()) as u64);
        if self.world.has_tasks() && !token.is_empty() && dice.once_in(8) {
            tool = TASK_TOOL.to_owned();
        }
        self.ask(Call { number: self.calls.len(), client, id, token, tool, again: None });
    }

    /// A client asks for work that nobody does yet.
    fn ask(&mut self, call: Call) {
        self.steps.push(Step::Call(call.clone()));
        let compliant = self.mix.legacy == 0 || self.dice.once_in(2);
        let mut total = *self.dice.pick(&["", "", "", "100000", "100000", "1e5", "0", "-1"]);
        if self.habits.low_totals && self.habit_dice.once_in(2) {
            total = "7";
        }
        let begun = self.world.serves_streams() && !(self.mix.json && self.dice.once_in(2));
        let has_get = self.world.client() != Some(Speaks::Http)
            || self.steps.contains(&Step::Listen(call.client));
        let is_elsewhere = self.habits.elsewhere && has_get && self.habit_dice.once_in(2);
        let begun = begun && !is_elsewhere;
        if is_elsewhere {
            self.steps.push(Step::Accept(call.number));
        }
        if begun {
            self.steps.push(Step::Begin(call.number, self.mix.numbered));
        }
        let (over, cancelled, left, reported, figure) = (false, false, false, false, 0);
        self.calls.push(Open {
            waiter: Some(call.number),
            joined: false,
            call,
            over,
            cancelled,
            left,
            begun,
            is_running_task: false,
            compliant,
            figure,
            reported,
            total,
            job: None,
            is_elsewhere,
        });
    }

    /// The clock of a client runs out; the server goes on.
    fn give_up(&mut self) {
        let Some(call) = self.pick_open() else { return };
        let open = &mut self.calls[call];
        if open.cancelled || open.left || open.call.is_task() {
            return;
        }
        let Some(waiter) = open.waiter.take() else { return };
        self.kept.push(call);
        self.steps.push(Step::GiveUp(waiter));
    }

    /// The client of a call that was given up makes the same call again, or another client does.
    fn ask_again(&mut self) {
        let call = *self.dice.pick(&self.kept);
        let first = self.calls[call].call.clone();
        let own = first.client;
        let client = if self.dice.once_in(4) { self.dice.below(self.sessions.len()) } else { own };
        let number = self.calls.len();
        if client != own {
            self.move_on(client);
        }
        let id = self.name(client, |call| &call.id, 0);
        let token = match &*first.token {
            "" => String::new(),
            _ => self.name(client, |call| &call.token, 1),
        };
        let again = Some(first.first());
        let next = Call { number, client, id, token, tool: first.tool, again };
        if client != own {
            return self.ask(next);
        }
        self.kept.retain(|kept| *kept != call);
        self.calls[call].waiter = Some(number);
        self.steps.push(Step::Call(next.clone()));
        let open = &self.calls[call];
        let (begun, compliant, total) = (open.begun, open.compliant, open.total);
        self.calls.push(Open {
            call: next,
            over: true,
            cancelled: false,
            left: false,
            begun,
            waiter: None,
            joined: true,
            is_running_task: false,
            compliant,
            figure: 0,
            reported: false,
            total,
            job: None,
            is_elsewhere: false,
        });
    }

    /// A client that makes another call has moved on: what it gave up is not wanted any more. Most servers stop.
    fn move_on(&mut self, client: usize) {
        let calls = &self.calls;
        let is_of = |call: &usize| calls[*call].call.client == client;
        let (left, kept): (Vec<usize>, Vec<usize>) = self.kept.drain(..).partition(is_of);
        self.kept = kept;
        for call in left {
            let goes_on = self.calls[call].over || self.dice.once_in(3);
            let open = &mut self.calls[call];
            open.cancelled = true;
            open.over |= !goes_on;
        }
    }

    fn is_free_token(&self, client: usize, token: &str) -> bool {
        let session = &self.sessions[client];
        self.calls.iter().all(|call| {
            !alike(&call.call.token, token) || self.sessions[call.call.client] != *session
        })
    }

    /// Where the server says something about a call.
    fn place(&mut self, call: usize) -> Place {
        match self.world {
            World::Wire { .. } | World::Shared => Place::Wire,
            _ if self.world.serves_streams() => self.crossed(call),
            World::Pair { .. } => Place::Home(self.calls[call].call.client),
        }
    }

    /// Mostly on the call's own stream; servers also confuse streams, or even sessions.
    fn crossed(&mut self, call: usize) -> Place {
        let client = self.calls[call].call.client;
        let own = if self.calls[call].begun { Place::Post(call) } else { Place::Home(client) };
        if !self.mix.crosses || !self.dice.once_in(3) {
            return own;
        }
        // Which sessions use a token is known among the sessions of one replica only.
        let is_near = |other: usize| !self.world.is_fleet() || other == client;
        let begun = self.open().filter(|call| self.calls[*call].begun);
        let begun: Vec<usize> =
            begun.filter(|call| is_near(self.calls[*call].call.client)).collect();
        match self.dice.below(4) {
            0 if !begun.is_empty() => Place::Post(*self.dice.pick(&begun)),
            1 if !self.world.is_fleet() => Place::Home(self.dice.below(self.sessions.len())),
            _ => Place::Home(client),
        }
    }

    fn say(&mut self, kind: Kind, about: Option<usize>, names: Names, mark: usize, text: String) {
        let place = match about {
            Some(call) if kind.ends_call() || kind == Kind::Extra => match self.world {
                _ if self.world.serves_streams() && !self.calls[call].is_elsewhere => {
                    Place::Post(call)
                }
                World::Pair { .. } => Place::Home(self.calls[call].call.client),
                _ => Place::Wire,
            },
            Some(call) => self.place(call),
            None => Place::Wire,
        };
        self.push(Say { mark, kind, about, names, place, text, with_next: false });
    }

    /// Some messages come in one array with the next of the same place.
    fn push(&mut self, say: Say) {
        if self.mix.batches
            && self.dice.once_in(2)
            && let Some(Step::Say(last)) = self.steps.last_mut()
            && last.may_join(&say)
            && !(last.kind.ends_call() && matches!(last.place, Place::Post(_)))
        {
            last.with_next = true;
        }
        self.steps.push(Step::Say(say));
    }

    /// The server breaks off a response; where it numbers its events, the client comes back.
    fn cut(&mut self) {
        let Some(call) = self.pick_open() else { return };
        let open = &mut self.calls[call];
        let orphan = |step: &Step| matches!(step, Step::Say(say) if say.kind == Kind::Extra && say.place == Place::Post(call));
        let is_apt =
            self.world.serves_streams() && !open.left && !open.cancelled && !open.is_elsewhere;
        if !is_apt || self.steps.iter().any(orphan) {
            return;
        }
        self.steps.push(Step::Cut(call));
        if !(open.begun && self.mix.numbered) {
            open.over = true;
        } else if self.world.reads_streams() {
            self.steps.push(Step::Return(call));
        }
    }

    fn words(&mut self, mark: usize) -> String {
        let long = if self.mix.large && self.dice.once_in(6) {
            "long ".repeat(300)
        } else {
            String::new()
        };
        format!("m{mark}. {}{long}", self.dice.pick(&WORDS))
    }

    fn progress(&mut self, legacy: bool) {
        let Some(call) = self.pick_open() else { return };
        let mark = self.mark();
        let words = self.words(mark);
        let total = match self.calls[call].total {
            "" => String::new(),
            total => format!(r#","total":{total}"#),
        };
        // By the letter: the id of a task's request means nothing any more.
        if legacy && self.calls[call].is_running_task {
            return;
        }
        if legacy {
            return self.legacy(call, mark, &words, &total);
        }
        if !self.calls[call].compliant || self.calls[call].call.token.is_empty() {
            return;
        }
        let first = !std::mem::replace(&mut self.calls[call].reported, true);
        self.calls[call].figure += 1 + self.dice.below(9) as u64;
        let whole = self.calls[call].figure;
        let figure = match self.dice.below(8) {
            0 => format!("{whole}.0"),
            1 => format!("{whole}.25"),
            2 => format!("{whole}e0"),
            3 if first => "0".to_owned(),
            _ => whole.to_string(),
        };
        let message = if self.dice.once_in(8) {
            // Who says nothing has the mark elsewhere.
            format!(r#","_meta":{{"x/y":"m{mark}."}}"#)
        } else {
            format!(r#","message":"{words}""#)
        };
        let text = match self.dice.below(4) {
            0 => format!(
                r#"{{"method":"notifications/progress","params":{{"progress":{figure}{total}{message},"progressToken":<token>}},"jsonrpc":"2.0"}}"#
            ),
            1 => format!(
                r#"{{"jsonrpc": "2.0", "method": "notifications/progress", "params": {{"progressToken": <token>, "progress": {figure}{total}{message}, "more": [1.50]}}}}"#
            ),
            _ => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":<token>,"progress":{figure}{total}{message}}}}}"#
            ),
        };
        self.say(Kind::Compliant, Some(call), Names::Token, mark, text);
    }

    /// Progress as servers say it that do not keep to the specification.
    fn legacy(&mut self, call: usize, mark: usize, words: &str, total: &str) {
        self.calls[call].reported = true;
        let open = &self.calls[call];
        let (figure, tool) = (open.figure, open.call.tool.clone());
        let standard = |token: &str, figure: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{figure}"message":"{words}"}}}}"#
            )
        };
        // A call that is otherwise reported by the letter keeps its scale.
        let kinds = if open.compliant { 4 } else { 17 };
        let invented = format!("\"shell_{}\"", self.dice.below(3));
        // Some count in words what they give no number for, and now and then something else. By dice of
        // their own: the conversation of a seed is otherwise the same.
        let mut dice = Dice::new(mark as u64);
        let whole = if dice.once_in(4) { 7 } else { 40 };
        let counted = match dice.below(3) {
            0 => format!("m{mark}. iteration {} of {whole}", 1 + dice.below(whole)),
            _ => words.to_owned(),
        };
        let (names, text) = match self.dice.below(kinds) {
            0 => (Names::Token, standard("<token>", &format!("\"progress\":{figure}{total},"))),
            1 => (Names::Token, standard("<token>", "").replace(words, &counted)),
            2 => {
                let text = standard("<token>", "\"progress\":null,\"total\":null,");
                (Names::Token, text.replace(words, &counted))
            }
            3 => {
                (Names::Token, standard("<token>", &format!("\"progress\":{}{total},", figure / 2)))
            }
            4 => (Names::Id, standard("<id>", &format!("\"progress\":{},", figure + 1))),
            5 => (Names::Other(invented.clone()), standard(&invented, "\"progress\":3,")),
            6 => (Names::Nothing, standard("null", "\"progress\":4,")),
            7 => (
                Names::Id,
                format!(
                    r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":<id>,"content":[{{"type":"text","text":"{{\"status\":\"in_progress\",\"message\":\"m{mark}.\"}}"}}],"isFinal":false}}}}"#
                ),
            ),
            8 => (
                Names::Tool,
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{{"toolName":"{tool}","progress":{figure},"message":"{words}"}}}}"#
                ),
            ),
            9 => (
                Names::Id,
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{{"requestId":<id>,"progress":0.5,"message":"{words}"}}}}"#
                ),
            ),
            10 => (Names::Token, standard("<token>", "\"progress\":1e400,\"total\":1e400,")),
            11 => (Names::Token, standard("<token>", "\"progress\":-5,\"total\":\"ten\",")),
            12 => (Names::Token, standard("<token>", "\"progress\":9007199254740993,")),
            13 => (
                Names::Token,
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":<token>,"progress":[{figure}],"message":{{"m":"{words}"}}}}}}"#
                ),
            ),
            14 => (
                Names::Token,
                format!(
                    r#"{{"method":"notifications/progress","params":{{"progressToken":<token>,"progress":{figure},"message":"{words}","metadata":{{"stream":"stdout"}}}}}}"#
                ),
            ),
            // No JSON, and so no part of an array.
            15 if !self.mix.batches => (Names::Token, standard("<token>", "\"progress\":NaN,")),
            _ => (Names::Token, standard("<token>", &format!("\"progress\":\"{}\",", figure + 1))),
        };
        if !self.calls[call].compliant {
            self.calls[call].figure += 1;
        }
        self.say(Kind::Legacy, Some(call), names, mark, text);
    }

    fn answer(&mut self) {
        let Some(call) = self.pick_open() else { return };
        let mark = self.mark();
        let words = self.words(mark);
        if self.calls[call].call.is_task() {
            return self.task(call, mark, &words);
        }
        self.calls[call].over = true;
        let large = self.mix.large && self.dice.once_in(3);
        // A long answer that nobody waits for is not kept. If it comes after all, it has the id that the server knows.
        let Open { waiter, cancelled, .. } = &self.calls[call];
        let large = large && (*waiter == Some(call) || waiter.is_some() && !cancelled);
        let rows = match self.dice.below(60) {
            _ if !large => String::new(),
            // Longer than what is held whole of a JSON answer, or of any. What is not held passes, also to nobody.
            0 if !self.calls[call].cancelled => ",\"<rows 300000>\"".to_owned(),
            0..4 => ",\"<rows 70000>\"".to_owned(),
            _ => ",\"<rows 1200>\"".to_owned(),
        };
        if self.mix.respells && self.dice.once_in(2) && !large {
            return self.odd_answer(call, mark, &words);
        }
        let job = match self.habits.jobs && rows.is_empty() && self.habit_dice.once_in(2) {
            true => self.job(call),
            false => String::new(),
        };
        let text = match self.dice.below(6) {
            0 => format!(
                r#"{{"jsonrpc":"2.0","id":<id>,"error":{{"code":-32001,"message":"{words}"}}}}"#
            ),
            1 => format!(
                r#"{{"result":{{"content":["{words}"{rows}],"isError":true}},"id":<id>,"jsonrpc":"2.0"}}"#
            ),
            2 => format!(
                r#"{{"jsonrpc": "2.0", "id": <id>, "result": {{"content": ["{words}"{rows}], "n": 1.50, "z": null}}}}"#
            ),
            _ => {
                format!(
                    r#"{{"jsonrpc":"2.0","id":<id>,"result":{{"content":["{words}"{rows}]{job}}}}}"#
                )
            }
        };
        if !job.is_empty() && !text.contains(&job) {
            self.calls[call].job = None;
        }
        self.say(Kind::Answer, Some(call), Names::Id, mark, text);
    }

    /// A task instead of a result, and later its end.
    fn task(&mut self, call: usize, mark: usize, words: &str) {
        let ends = std::mem::replace(&mut self.calls[call].is_running_task, true);
        self.calls[call].over = ends;
        let (kind, names, text) = if ends {
            let status = ["completed", "failed", "cancelled"][mark % 3];
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{"taskId":"t{call}","status":"{status}","statusMessage":"{words}"}}}}"#
            );
            (Kind::Note, Names::Nothing, text)
        } else {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":<id>,"result":{{"task":{{"taskId":"t{call}","status":"working","statusMessage":"{words}"}}}}}}"#
            );
            (Kind::Answer, Names::Id, text)
        };
        self.say(kind, Some(call), names, mark, text);
    }

    fn odd_answer(&mut self, call: usize, mark: usize, words: &str) {
        let id = self.calls[call].call.id.clone();
        let respelled = match id.strip_prefix('"').and_then(|id| id.strip_suffix('"')) {
            Some(inner) if inner.parse::<u64>().is_ok_and(|number| number.to_string() == inner) => {
                inner.to_owned()
            }
            Some(_) => String::new(),
            None => format!("\"{id}\""),
        };
        let alone =
            !self.habits.ones && self.calls.iter().all(|other| !same(&other.call.id, &respelled));
        let is_moved = |step: &Step| matches!(step, Step::Cut(of) | Step::Return(of) | Step::Leave(of) if *of == call);
        // On the response to its request an answer needs no id that anybody knows.
        let is_clear = self.world.serves_streams()
            && !self.mix.batches
            && !self.calls[call].cancelled
            && !self.calls[call].is_elsewhere
            && !self.steps.iter().any(is_moved);
        let text = match self.dice.below(4) {
            3 if is_clear => format!(
                r#"{{"jsonrpc":"2.0","id":"foreign{mark}","result":{{"content":["{words}"]}}}}"#
            ),
            0 if alone && !respelled.is_empty() && self.world != World::Shared => {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{respelled},"result":{{"content":["{words}"]}}}}"#
                )
            }
            1 => format!(r#"{{"jsonrpc":"2.0","id":<id>,"error":"{words}"}}"#),
            _ => format!(r#"{{"id":<id>,"error":{{"message":"{words}"}}}}"#),
        };
        self.say(Kind::Odd, Some(call), Names::Id, mark, text);
    }

    fn cancel(&mut self) {
        let Some(call) = self.pick_open() else { return };
        let open = &mut self.calls[call];
        if open.cancelled || open.left || open.is_running_task {
            return;
        }
        let Some(waiter) = open.waiter else { return };
        if waiter != call {
            open.cancelled = true;
            open.over = !self.dice.once_in(3);
            return self.steps.push(Step::Cancel(waiter));
        }
        let http = self.world.client() == Some(Speaks::Http);
        if self.world.is_pair() {
            match self.dice.below(6) {
                0 if self.world.is_direct() => return self.steps.push(Step::Stranger(call)),
                1 => return self.steps.push(Step::Reload),
                2 if http && open.begun && self.mix.numbered && self.dice.once_in(2) => {
                    self.steps.push(Step::Leave(call));
                    return self.steps.push(Step::Return(call));
                }
                2 if http => {
                    open.left = true;
                    open.over = true;
                    return self.steps.push(Step::Leave(call));
                }
                _ => {}
            }
        }
        // A cancellation that may mean two requests reaches no server.
        if !self.habits.ones || self.open().count() == 1 {
            let open = &mut self.calls[call];
            open.cancelled = true;
            // Most servers stop, some go on.
            open.over = !self.dice.once_in(3);
        }
        self.steps.push(Step::Cancel(call));
    }

    /// The name of a job that the server begins for a call, as a member of the answer.
    fn job(&mut self, call: usize) -> String {
        let name = match self.habit_dice.below(3) {
            0 => format!("\"render-{call}\""),
            1 => format!("\"8c1f{call}-0b\""),
            _ => (4711 + call).to_string(),
        };
        let member = format!(r#","structuredContent":{{"jobId":{name}}}"#);
        self.calls[call].job = Some(name);
        member
    }

    /// Progress of a job that an answer has named.
    fn job_report(&mut self) {
        let jobs: Vec<(usize, String)> = (0..self.calls.len())
            .filter_map(|call| Some((call, self.calls[call].job.clone()?)))
            .collect();
        if !jobs.is_empty() {
            let (call, name) = self.habit_dice.pick(&jobs).clone();
            self.report_under(call, name);
        }
    }

    /// Progress of a call that is over, under one of its names in another spelling.
    fn late_in_another_spelling(&mut self) {
        let over: Vec<usize> =
            (0..self.calls.len()).filter(|call| self.calls[*call].over).collect();
        if over.is_empty() || self.habits.ones {
            return;
        }
        let call = *self.habit_dice.pick(&over);
        let Call { id, token, .. } = &self.calls[call].call;
        let name = if self.habit_dice.once_in(2) && !token.is_empty() { token } else { id };
        let text = name.trim_matches('"');
        if !text.parse::<f64>().is_ok_and(f64::is_finite)
            || serde_json::from_str::<serde_json::Value>(text).is_err()
        {
            return;
        }
        let is_plain = !name.starts_with('"') && text.bytes().all(|byte| byte.is_ascii_digit());
        let name = match self.habit_dice.below(3) {
            0 if is_plain => format!("{text}.0"),
            1 if is_plain => format!("\"{text}.0\""),
            _ if name.starts_with('"') => text.to_owned(),
            _ => format!("\"{text}\""),
        };
        self.report_under(call, name);
    }

    /// Progress of what a call has begun, although the call is over.
    fn report_under(&mut self, call: usize, name: String) {
        let mark = self.mark();
        let figure = self.calls[call].figure + 1;
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{name},"progress":{figure},"message":"m{mark}."}}}}"#
        );
        self.say(Kind::Late, Some(call), Names::Other(name), mark, text);
    }

    /// Two reports that need a repair, of which the second says nothing but a figure.
    fn bare_report(&mut self) {
        let Some(call) = self.pick_open() else { return };
        let open = &mut self.calls[call];
        if open.compliant || open.call.token.is_empty() || open.is_running_task {
            return;
        }
        open.reported = true;
        open.figure += 2;
        let figure = open.figure;
        let [first, second] = [self.mark(), self.mark()];
        let words = self.words(first);
        let rest = [
            (first, figure, format!(r#""total":100000,"message":"{words}""#)),
            (second, figure + 1, format!(r#""_meta":{{"x/y":"m{second}."}}"#)),
        ];
        for (mark, figure, rest) in rest {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":<token>,"progress":"{figure}",{rest}}}}}"#
            );
            self.say(Kind::Legacy, Some(call), Names::Token, mark, text);
        }
    }

    fn note(&mut self) {
        let mark = self.mark();
        let words = self.words(mark);
        let text = match self.dice.below(4) {
            0 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"x":"m{mark}."}}}}"#
            ),
            1 => format!(r#"{{"method": "acme/odd", "params": {{"n": 1e400, "m": "{words}"}}}}"#),
            _ => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{words}"}}}}"#
            ),
        };
        self.say_elsewhere(Kind::Note, mark, text);
    }

    /// Something that is about no call, on any stream.
    fn say_elsewhere(&mut self, kind: Kind, mark: usize, text: String) {
        let begun: Vec<usize> = self.open().filter(|call| self.calls[*call].begun).collect();
        let place = match self.world {
            World::Pair { .. } if !begun.is_empty() && self.dice.once_in(2) => {
                Place::Post(*self.dice.pick(&begun))
            }
            World::Pair { .. } => Place::Home(self.dice.below(self.sessions.len())),
            _ => Place::Wire,
        };
        let (about, names) = (None, Names::Nothing);
        self.push(Say { mark, kind, about, names, place, text, with_next: false });
    }

    fn request(&mut self) {
        if self.world == World::Shared {
            return;
        }
        let mark = self.mark();
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":"s{mark}","method":"sampling/createMessage","params":{{"m":"m{mark}."}}}}"#
        );
        self.waiting.push(mark);
        self.say_elsewhere(Kind::Request, mark, text);
    }

    /// Progress for a call that was answered.
    fn late(&mut self) {
        let over = (0..self.calls.len())
            .filter(|call| self.calls[*call].over && !self.calls[*call].joined);
        let over: Vec<usize> = over.collect();
        if over.is_empty() {
            return;
        }
        let call = *self.dice.pick(&over);
        if self.calls[call].call.token.is_empty() || self.world.serves_streams() {
            return;
        }
        let mark = self.mark();
        let figure = self.calls[call].figure + 1;
        let (names, text) = if self.dice.once_in(3) {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":<id>,"content":[{{"type":"text","text":"m{mark}."}}]}}}}"#
            );
            (Names::Id, text)
        } else {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":<token>,"progress":{figure},"message":"m{mark}."}}}}"#
            );
            (Names::Token, text)
        };
        self.say(Kind::Late, Some(call), names, mark, text);
    }

    /// A second answer, or one to nobody.
    fn extra(&mut self) {
        let unique = |call: &usize| {
            let own = &self.calls[*call];
            let has_it = |other: &&Open| alike(&other.call.id, &own.call.id);
            let is_own = own.waiter == Some(own.call.number);
            is_own && own.over && !own.cancelled && self.calls.iter().filter(has_it).count() == 1
        };
        let over: Vec<usize> = (0..self.calls.len()).filter(unique).collect();
        let mark = self.mark();
        if over.is_empty() || self.mix.reuses || self.world.serves_streams() || self.dice.once_in(2)
        {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":"nobody{mark}","result":{{"x":"m{mark}."}}}}"#);
            let begun: Vec<usize> = self.open().filter(|call| self.calls[*call].begun).collect();
            let place = match self.world {
                _ if !begun.is_empty() => Place::Post(*self.dice.pick(&begun)),
                _ if self.world.serves_streams() => return,
                World::Pair { .. } => Place::Home(self.dice.below(self.sessions.len())),
                _ => Place::Wire,
            };
            let (kind, about, names) = (Kind::Extra, None, Names::Nothing);
            self.push(Say { mark, kind, about, names, place, text, with_next: false });
        } else {
            let call = *self.dice.pick(&over);
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":<id>,"result":{{"content":["m{mark}."]}}}}"#);
            self.say(Kind::Extra, Some(call), Names::Id, mark, text);
        }
    }
}
