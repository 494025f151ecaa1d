//! The durations of each tool's calls, and the estimates that are made from them for silent calls.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::progress::client_habits::LearnedClients;
use crate::progress::event::summary::{Outcome, Summary};

/// Limit of the calls of one tool that are remembered. With more, a tool that has changed would be judged by its old
/// durations for longer.
pub const REMEMBERED: usize = 64;

/// Limit of the tools of one route whose durations are remembered. The tool unused for longest is replaced.
pub const TOOLS_MAX: usize = 512;

/// Limit of the bytes of a tool's name under which durations are remembered. The specification asks for shorter names.
pub const NAME_MAX: usize = 128;

/// The number of remembered calls that an estimate needs, because a single call may have been unusual.
const ENOUGH: usize = 2;

/// The largest estimated fraction. It is below 1, because only the answer shows that the work is done.
const FRACTION_MAX: f64 = 0.99;

/// One successful call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The duration in milliseconds.
    pub millis: u32,
    /// Whether the server reported progress values for the call.
    pub has_figure: bool,
}

/// What is learned from the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleOutcome {
    /// The call succeeded.
    Took(Sample),
    /// The call failed with a protocol error or a tool error.
    Failed,
    /// The client or the proxy gave the call up.
    GivenUp,
}

impl SampleOutcome {
    /// Returns what is learned from a call; `None` for a call that became a task or lost its server.
    fn of(call: &Summary) -> Option<Self> {
        let took = call.ended.saturating_duration_since(call.opened).as_millis();
        let millis = u32::try_from(took).unwrap_or(u32::MAX);
        match call.outcome {
            Outcome::Result => Some(Self::Took(Sample { millis, has_figure: call.has_figure })),
            Outcome::Error | Outcome::ToolError => Some(Self::Failed),
            Outcome::Cancelled | Outcome::CancelledByOperator | Outcome::TimedOut => {
                Some(Self::GivenUp)
            }
            Outcome::Interim
            | Outcome::Settled
            | Outcome::ServerGone
            | Outcome::ProxyStopped
            | Outcome::TaskEnded
            | Outcome::ClientLeft => None,
        }
    }
}

/// The remembered calls of one tool: the durations of the last [`REMEMBERED`] successful calls, and the numbers of
/// failed and of given-up calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    samples: VecDeque<Sample>,
    /// Number of calls that ended with an error.
    pub errors: u64,
    /// Number of calls that their clients gave up.
    pub given_up: u64,
}

impl Durations {
    /// Returns the durations of these successful calls, oldest first, with the numbers of other calls.
    pub fn new(samples: impl IntoIterator<Item = Sample>, errors: u64, given_up: u64) -> Self {
        let mut all = Self { samples: VecDeque::new(), errors, given_up };
        samples.into_iter().for_each(|sample| all.note(SampleOutcome::Took(sample)));
        all
    }

    /// Adds a call.
    pub fn note(&mut self, ended: SampleOutcome) {
        match ended {
            SampleOutcome::Took(sample) => {
                if self.samples.len() == REMEMBERED {
                    self.samples.pop_front();
                }
                self.samples.push_back(sample);
            }
            SampleOutcome::Failed => self.errors = self.errors.saturating_add(1),
            SampleOutcome::GivenUp => self.given_up = self.given_up.saturating_add(1),
        }
    }

    /// Adds calls that ended before those remembered here.
    pub fn precede(&mut self, older: &Self) {
        let room = REMEMBERED - self.samples.len();
        older.samples.iter().rev().take(room).for_each(|sample| self.samples.push_front(*sample));
        self.errors = self.errors.saturating_add(older.errors);
        self.given_up = self.given_up.saturating_add(older.given_up);
    }

    /// Returns the successful calls, oldest first.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Sample> {
        self.samples.iter().copied()
    }

    /// Returns the smallest duration, in milliseconds, that at least the fraction `share` (0 to 1) of the calls did not
    /// exceed; `None` without calls.
    pub fn quantile(&self, share: f64) -> Option<u32> {
        let sorted = self.sorted();
        let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "64 at most")]
        let rank = rank as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }

    /// Whether the server reported values in one of the calls.
    pub fn are_figured(&self) -> bool {
        self.samples.iter().any(|sample| sample.has_figure)
    }

    fn sorted(&self) -> Vec<u32> {
        let mut sorted: Vec<u32> = self.samples.iter().map(|sample| sample.millis).collect();
        sorted.sort_unstable();
        sorted
    }

    /// Returns the durations from which the duration of a silent call is estimated; `None` if the estimate would be
    /// unreliable or is not needed.
    fn usual(&self) -> Option<Usual> {
        // Values that the server reports are better than an estimate, so tools with such values get none.
        let enough = self.samples.len() >= ENOUGH && !self.are_figured();
        enough.then(|| Usual { sorted: self.sorted().into() })
    }
}

/// The remembered durations of a tool's calls, shortest first. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usual {
    sorted: Arc<[u32]>,
}

/// The expected duration of an open call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Expected {
    /// The call will probably take this long in total. The fraction has already passed.
    About(Duration, f64),
    /// The call already takes longer than all remembered calls. The duration is the longest of theirs.
    Longer(Duration),
}

impl Expected {
    /// Returns the fraction of the work that is probably done; `None` if the call takes longer than every remembered
    /// call.
    pub(crate) fn part(self) -> Option<f64> {
        match self {
            Self::About(_, part) => Some(part),
            Self::Longer(_) => None,
        }
    }
}

impl Usual {
    /// Returns the expected total duration of a call that has been running for `running`: the median of the remembered
    /// durations that are longer. Of two middle values the longer one is used, because a progress bar that ends too
    /// early is worse than one that waits at its end.
    pub(crate) fn expected(&self, running: Duration) -> Expected {
        let millis = running.as_millis();
        let passed = self.sorted.partition_point(|took| u128::from(*took) < millis);
        let longer = self.sorted.get(passed..).unwrap_or_default();
        let time =
            |millis: Option<&u32>| Duration::from_millis(millis.copied().map_or(0, u64::from));
        match longer.get(longer.len() / 2) {
            None => Expected::Longer(time(self.sorted.last())),
            middle => {
                let about = time(middle);
                let part = running.as_secs_f64() / about.as_secs_f64();
                // Rounded down to three digits, which are easier to read than sixteen.
                let part = (part.min(FRACTION_MAX) * 1e3).floor() / 1e3;
                Expected::About(about, part)
            }
        }
    }
}

/// A listener that gets the outcome of each call, with the name under which its tool is remembered.
type SampleListener = Box<dyn Fn(&str, SampleOutcome) + Send + Sync>;

/// The learned durations of one route's tools. All filters of the route share them.
#[derive(Default)]
pub struct LearnedDurations {
    /// The habits of the route's clients, which have the same lifetime as the durations.
    pub clients: LearnedClients,
    tools: Mutex<Tools>,
    listener: Option<SampleListener>,
}

#[derive(Default)]
struct Tools {
    known: BTreeMap<Box<str>, Tool>,
    uses: u64,
}

#[derive(Default)]
struct Tool {
    durations: Durations,
    /// The estimate from the durations; `None` until it is requested.
    usual: Option<Option<Usual>>,
    used: u64,
}

impl LearnedDurations {
    /// Returns learned durations without any calls, which report each call to `listener`. The listener is called while
    /// messages pass, so it must not wait.
    pub fn with_listener(
        clients: LearnedClients,
        listener: impl Fn(&str, SampleOutcome) + Send + Sync + 'static,
    ) -> Self {
        Self { clients, tools: Mutex::default(), listener: Some(Box::new(listener)) }
    }

    /// Learns from a call that has ended.
    pub fn learn(&self, call: &Summary) {
        let Some(tool) = call.tool.as_deref() else { return };
        let Some(ended) = SampleOutcome::of(call) else { return };
        let name = name_of(tool);
        // A tool is added only with its first success: clients can call any name, and invented names must not fill the
        // table.
        let took = matches!(ended, SampleOutcome::Took(_));
        let mut tools = self.lock();
        if took {
            tools.enter(&name);
        }
        tools.change(&name, |durations| durations.note(ended));
        drop(tools);
        if let Some(listener) = &self.listener {
            listener(&name, ended);
        }
    }

    /// Adds durations that were learned earlier.
    pub fn remember(&self, tool: &str, older: &Durations) {
        let (name, mut tools) = (name_of(tool), self.lock());
        tools.enter(&name);
        tools.change(&name, |durations| durations.precede(older));
    }

    /// Returns the durations known for a tool.
    pub fn of(&self, tool: &str) -> Option<Durations> {
        self.lock().known.get(&*name_of(tool)).map(|known| known.durations.clone())
    }

    /// Returns the usual durations of a tool's calls, if enough are known and the tool reports no values.
    pub(crate) fn usual(&self, tool: &str) -> Option<Usual> {
        let mut tools = self.lock();
        let Tool { durations, usual, .. } = tools.known.get_mut(&*name_of(tool))?;
        usual.get_or_insert_with(|| durations.usual()).clone()
    }

    /// Locks the tools. A poisoned lock is used too, because a panic while it was held loses one call at most.
    fn lock(&self) -> MutexGuard<'_, Tools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tools {
    /// Adds a tool, unless it is known.
    fn enter(&mut self, name: &str) {
        if self.known.contains_key(name) {
            return;
        }
        if self.known.len() >= TOOLS_MAX {
            let oldest = self.known.iter().min_by_key(|(_, tool)| tool.used);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| self.known.remove(&name));
        }
        self.known.insert(name.into(), Tool::default());
    }

    /// Changes the durations of a known tool.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Durations)) {
        let Some(tool) = self.known.get_mut(name) else { return };
        self.uses += 1;
        tool.used = self.uses;
        // Computed again when a heartbeat needs the estimate, which happens less often than the end of a call.
        tool.usual = None;
        change(&mut tool.durations);
    }
}

impl fmt::Debug for LearnedDurations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Learned")
    }
}

/// Returns the name under which a tool is remembered. A long name is replaced by its beginning and a number that
/// distinguishes names with the same beginning.
fn name_of(tool: &str) -> Cow<'_, str> {
    if tool.len() <= NAME_MAX {
        return tool.into();
    }
    let end = tool.floor_char_boundary(NAME_MAX - "#0123456789abcdef".len());
    let begin = tool.get(..end).unwrap_or_default();
    format!("{begin}#{:016x}", fingerprint([tool.as_bytes()])).into()
}

/// Returns a number for these parts that is the same in every version of the program (64-bit FNV-1a, with a zero byte
/// after each part). The number distinguishes names, but does not protect secrets.
pub fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    fnv_1a(parts.into_iter().flat_map(|part| part.iter().copied().chain([0])))
}

/// Returns the 64-bit FNV-1a hash of the bytes.
pub(crate) fn fnv_1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.into_iter().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(seconds: &[u32]) -> Durations {
        let sample = |s: &u32| Sample { millis: s * 1000, has_figure: false };
        Durations::new(seconds.iter().map(sample), 0, 0)
    }

    /// Compares the estimates after each of these numbers of seconds.
    #[track_caller]
    fn check(seconds: &[u32], told: &[(u64, &str)]) {
        let usual = durations(seconds).usual().unwrap();
        for (running, expected) in told {
            let said = match usual.expected(Duration::from_secs(*running)) {
                Expected::About(about, part) => format!("{part} of {}", about.as_secs()),
                Expected::Longer(most) => format!("longer than {}", most.as_secs()),
            };
            assert_eq!(said, *expected, "after {running}");
        }
    }

    #[test]
    fn a_call_is_measured_by_the_middle_one_of_those_that_took_longer() {
        check(&[40, 41], &[(0, "0 of 41"), (12, "0.292 of 41"), (40, "0.975 of 41")]);
        check(&[40, 41], &[(41, "0.99 of 41"), (100, "longer than 41")]);
        check(
            &[40, 20, 30],
            &[(12, "0.4 of 30"), (20, "0.666 of 30"), (21, "0.525 of 40"), (39, "0.975 of 40")],
        );
        // After 5 s, durations of 2 s are no longer possible.
        check(&[2, 2, 2, 60, 2, 64], &[(1, "0.5 of 2"), (5, "0.078 of 64"), (62, "0.968 of 64")]);
        check(&[1000, 1000], &[(999, "0.99 of 1000")]);
        check(&[0, 0], &[(0, "0.99 of 0"), (1, "longer than 0")]);
    }

    #[test]
    fn one_call_alone_or_one_with_figures_says_nothing() {
        assert_eq!(durations(&[40]).usual(), None);
        let mut some = durations(&[40, 40]);
        some.note(SampleOutcome::Took(Sample { millis: 40_000, has_figure: true }));
        assert_eq!(some.usual(), None);
        for _ in 0..REMEMBERED {
            some.note(SampleOutcome::Took(Sample { millis: 1000, has_figure: false }));
        }
        assert!(some.usual().is_some(), "long ago");
        assert_eq!(some.samples().len(), REMEMBERED);
    }

    #[test]
    fn quantiles_are_calls_that_happened() {
        let some = durations(&[9, 1, 5, 3, 7]);
        let told = [0.0, 0.5, 0.9, 1.0].map(|share| some.quantile(share).unwrap() / 1000);
        assert_eq!(told, [1, 5, 9, 9]);
        assert_eq!(Durations::default().quantile(0.5), None);
    }

    #[test]
    fn what_was_known_before_comes_before_and_the_oldest_go() {
        let mut own = durations(&[3, 4]);
        own.note(SampleOutcome::Failed);
        own.precede(&Durations::new(durations(&[1, 2]).samples(), 2, 7));
        let told: Vec<u32> = own.samples().map(|sample| sample.millis / 1000).collect();
        assert_eq!((&told[..], own.errors, own.given_up), (&[1, 2, 3, 4][..], 3, 7));
        own.precede(&durations(&[9; REMEMBERED]));
        assert_eq!(own.samples().len(), REMEMBERED);
        assert_eq!(own.samples().last().unwrap().millis, 4000);
    }

    #[test]
    fn tools_are_bounded_and_the_unused_one_goes() {
        let learned = LearnedDurations::default();
        for number in 0..=TOOLS_MAX {
            learned.remember(&format!("t{number}"), &durations(&[1, 1]));
            learned.remember("t0", &Durations::default());
        }
        assert!(learned.of("t0").is_some() && learned.of("t1").is_none());
        assert_eq!(learned.lock().known.len(), TOOLS_MAX);
    }

    #[test]
    fn long_names_are_cut_and_told_apart() {
        let long = "é".repeat(500);
        let names = [long.clone(), long + "x"].map(|name| name_of(&name).into_owned());
        assert!(names.iter().all(|name| name.len() <= NAME_MAX), "{names:?}");
        assert_ne!(names[0], names[1]);
        assert_eq!(name_of("short"), "short");
    }
}
