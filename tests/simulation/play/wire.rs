//! The filter alone, one client on one wire. The clock is a number.

use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost::progress::{
    CallPolicy, Disposition, Filter, Fragment, Origin, Pacing, Policy, StreamId, StreamKind,
    StreamPacing,
};
use milepost::protocol::jsonrpc::Message;

use super::{Server, call, cancelled, given_up, is_possible, reply};
use crate::conversation::{Conversation, Kind, Place, Step};
use crate::judge::{Entry, What};

const WIRE: StreamId = StreamId(0);

/// Longer than anything waits.
const AGES: u64 = 1000;

/// Longer than the work of a call goes on without its client.
const KEPT: u64 = 1_900_000;

/// How often the filter may ask for its turn at one moment.
const ROUNDS_MAX: u32 = 10_000;

struct Player {
    filter: Filter,
    start: Instant,
    now: u64,
    stalled: bool,
    partial: Vec<u8>,
    server: Server,
    /// What is to come in one array with what follows.
    joined: Vec<String>,
    log: Vec<Entry>,
}

pub(crate) fn play(paced: bool, conversation: &Conversation) -> Vec<Entry> {
    let Conversation { late, steps, .. } = conversation;
    let pacing = if paced { Pacing::PACED } else { Pacing::IMMEDIATE };
    let mut call = CallPolicy { pacing, ..CallPolicy::default() };
    call.late.enabled = *late;
    let mut filter = Filter::new(Policy { call, ..Policy::default() });
    filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::ByCall);
    let mut player = Player {
        filter,
        start: Instant::now(),
        now: 0,
        stalled: false,
        partial: Vec::new(),
        server: Server::default(),
        joined: Vec::new(),
        log: Vec::new(),
    };
    for step in steps {
        player.step(steps, step);
    }
    player.say_joined();
    player.stalled = false;
    player.drain();
    player.pass(AGES);
    // After half an hour there are no more heartbeats for what is open.
    if *late && player.filter.open_calls() == 0 {
        player.pass(KEPT);
    }
    player.finish(steps);
    player.log
}

impl Player {
    fn at(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn note(&mut self, what: What) {
        self.log.push(Entry { at: self.now, what });
    }

    fn step(&mut self, steps: &[Step], step: &Step) {
        if step.needs().is_some_and(|call| !self.server.works_for(steps, call)) {
            return;
        }
        if matches!(step, Step::Say(say) if !is_possible(say, &self.log)) {
            return;
        }
        if !matches!(step, Step::Say(_)) {
            self.say_joined();
        }
        match step {
            Step::Wait(time) => self.pass(*time),
            Step::Call(call) => {
                self.note(What::Asked(call.clone()));
                self.give(&call.text(false));
            }
            Step::Cancel(number) => {
                let call = call(steps, *number).unwrap();
                self.note(What::Cancelled(*number));
                self.note(What::Gave(self.server.cancelled(steps, call)));
                self.give(&cancelled(call));
            }
            Step::GiveUp(number) => {
                self.note(What::GaveUp(*number));
                self.give(&given_up(call(steps, *number).unwrap()));
            }
            Step::Say(say) => {
                let text = self.server.say(say).unwrap();
                self.note(What::Said(say.clone()));
                if say.with_next || !self.joined.is_empty() {
                    self.joined.push(text);
                } else {
                    self.say(&text, say.kind == Kind::Answer && text.len() > 4000);
                }
                if !say.with_next {
                    self.say_joined();
                }
            }
            Step::Reply(mark) => {
                let heard = |entry: &Entry| matches!(&entry.what, What::Heard { text, .. } if text.contains(&format!("\"s{mark}\"")));
                if self.log.iter().any(heard) {
                    let text = reply(*mark);
                    self.note(What::Gave(text.clone()));
                    self.give(&text);
                }
            }
            Step::Stall(stalled) => {
                self.note(What::Stalled(*stalled));
                self.stalled = *stalled;
            }
            Step::Die => {
                self.note(What::Died);
                self.filter.server_gone(self.at(), "the server has exited", None);
            }
            Step::Begin(..)
            | Step::Accept(_)
            | Step::Cut(_)
            | Step::Return(_)
            | Step::Leave(_)
            | Step::Listen(_)
            | Step::Stranger(_)
            | Step::Pause(_)
            | Step::Reload => {}
        }
        self.drain();
    }

    fn give(&mut self, text: &str) {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        let given = self.filter.client_message(self.at(), WIRE, &message).to_bytes();
        let given = String::from_utf8(given.to_vec()).unwrap();
        if !given.is_empty() {
            self.server.take(&given);
            self.note(What::Took(given));
        }
        self.drain();
    }

    /// Says what comes in one array.
    fn say_joined(&mut self) {
        let joined = std::mem::take(&mut self.joined);
        if !joined.is_empty() {
            self.say(&format!("[{}]", joined.join(",")), false);
        }
    }

    fn say(&mut self, text: &str, in_pieces: bool) {
        let now = self.at();
        if in_pieces {
            for (index, piece) in text.as_bytes().chunks(1500).enumerate() {
                let piece = Bytes::copy_from_slice(piece);
                let range = 0..piece.len();
                if index == 0 {
                    self.filter.intake_mut().begin_large(now, Origin::Shared, piece, range);
                } else {
                    self.filter.intake_mut().large_piece(now, Origin::Shared, piece, range);
                }
                self.drain();
            }
            self.filter.intake_mut().finish_large(now, Origin::Shared);
            return;
        }
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        if let Disposition::NotAMessage(_) =
            self.filter.server_message(now, Origin::Shared, &message)
        {
            self.note(What::Odd(format!("this was taken for noise: {text}")));
        }
    }

    /// Lets time pass, stopping wherever the filter wants to be asked.
    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        let mut rounds = 0;
        while !self.stalled
            && let Some(due) = self.filter.poll_timeout()
        {
            let due = due.saturating_duration_since(self.start).as_micros().div_ceil(1000);
            let due = u64::try_from(due).unwrap().max(self.now);
            if due > end {
                break;
            }
            rounds = if due > self.now { 0 } else { rounds + 1 };
            if rounds > ROUNDS_MAX {
                self.note(What::Odd(
                    "the filter asks for its turn at once, again and again".to_owned(),
                ));
                break;
            }
            self.now = due;
            self.drain();
        }
        self.now = end;
        self.drain();
    }

    fn drain(&mut self) {
        while !self.stalled
            && let Some(transmit) = self.filter.poll_transmit(self.at(), WIRE)
        {
            self.partial.extend_from_slice(&transmit.payload.to_bytes());
            if transmit.part != Fragment::Piece {
                let text = String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned();
                self.note(What::Heard { place: Place::Wire, text });
            }
            self.filter.written(self.at(), WIRE);
        }
        while let Some(own) = self.filter.poll_to_server() {
            let text = String::from_utf8_lossy(&own.to_bytes()).into_owned();
            self.note(What::Took(text));
        }
        while self.filter.poll_event().is_some() {}
    }

    /// Nothing may be left over.
    fn finish(&mut self, steps: &[Step]) {
        let answered = |number: usize| {
            let work = call(steps, number).and_then(|call| self.server.work_of(steps, call));
            steps.iter().any(|step| match step {
                Step::Say(say) => say.about == work.or(Some(number)) && say.kind.ends_call(),
                Step::Cancel(call) | Step::GiveUp(call) => *call == number,
                Step::Die => true,
                _ => false,
            })
        };
        let calls = steps.iter().filter_map(|step| match step {
            Step::Call(call) => Some(call.number),
            _ => None,
        });
        let open = calls.filter(|number| !answered(*number)).count();
        if self.filter.open_calls() != open {
            let text = format!("{} calls are open, not {open}", self.filter.open_calls());
            self.note(What::Odd(text));
        }
        if !self.filter.calls().streams().is_drained() || !self.partial.is_empty() {
            self.note(What::Odd("something waits to be written".to_owned()));
        }
        let task_ends = |number: usize| {
            steps.iter().any(|step| matches!(step, Step::Say(say) if say.about == Some(number) && say.kind == Kind::Note))
        };
        let is_running = |step: &Step| matches!(step, Step::Call(call) if call.is_task() && !task_ends(call.number));
        let tasks = steps.iter().filter(|step| is_running(step)).count();
        if open + tasks == 0 && self.filter.poll_timeout().is_some() {
            self.note(What::Odd("the filter waits for something".to_owned()));
        }
    }
}
