//! The real calls of a tool: the limit, the number made so far, and whether the user agrees to them.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::findings::shown;

/// The maximum number of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallLimit {
    /// The maximum with these options.
    pub(super) at_most: usize,
    /// The maximum if `--once` were also given.
    pub(super) once: usize,
}

impl CallLimit {
    /// Returns the numbers of calls as text.
    fn words(self) -> String {
        let Self { at_most, once } = self;
        let times = match at_most {
            1 => "once".to_owned(),
            many => format!("up to {many} times"),
        };
        match once < at_most {
            true => format!("{times} (with --once: {once})"),
            false => times,
        }
    }
}

/// The calls of one run.
#[derive(Debug)]
pub(super) struct RealCalls {
    /// The tool's name, in the form that is shown.
    tool: String,
    limit: CallLimit,
    made: AtomicUsize,
    is_agreed: AtomicBool,
}

impl RealCalls {
    /// The calls of a tool. The user is asked before them.
    pub(super) fn new(tool: &str, limit: CallLimit) -> Self {
        Self {
            tool: shown(tool.as_bytes()),
            limit,
            made: AtomicUsize::new(0),
            is_agreed: AtomicBool::new(false),
        }
    }

    /// The same calls, to which the user has agreed already.
    pub(super) fn agreed(self) -> Self {
        Self { is_agreed: AtomicBool::new(true), ..self }
    }

    /// Writes on standard error how often the tool is called, before the first call.
    pub(super) fn announce(&self) {
        if self.limit.at_most > 0 {
            let _ = writeln!(io::stderr(), "milepost: {}", self.announcement());
        }
    }

    fn announcement(&self) -> String {
        format!("calls {} {}; each is a real call", self.tool, self.limit.words())
    }

    /// Counts calls that begin now. Returns the text to show while they last.
    pub(super) fn begin(&self, at_once: usize) -> String {
        let first = self.made.fetch_add(at_once, Ordering::Relaxed) + 1;
        let number = match at_once {
            1 => format!("call {first}"),
            several => format!("calls {first} to {}", first + several - 1),
        };
        format!("calling {}, {number} of at most {}", self.tool, self.limit.at_most)
    }

    /// Returns the number of calls made so far.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Whether the user must be asked: only on a terminal, and only once.
    pub(super) fn has_to_ask(&self) -> bool {
        let has_user = || io::stdin().is_terminal() && io::stderr().is_terminal();
        !self.is_agreed.load(Ordering::Relaxed) && has_user()
    }

    /// Asks the user on the terminal, and returns whether the calls may be made. No answer means no.
    pub(super) async fn ask(&self) -> bool {
        let question = self.question();
        let asked = tokio::task::spawn_blocking(move || {
            asked(&question, &mut io::stdin().lock(), &mut io::stderr())
        });
        let is_agreed = matches!(asked.await, Ok(Ok(true)));
        self.is_agreed.store(is_agreed, Ordering::Relaxed);
        is_agreed
    }

    fn question(&self) -> String {
        let Self { tool, limit, .. } = self;
        let times = limit.words();
        format!("{tool} may change something: it has no `readOnlyHint`. Call it {times}?")
    }
}

/// Asks a question that is answered with `y` or `n`.
fn asked(question: &str, answers: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<bool> {
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_announced_and_counted() {
        for (at_most, once, announced) in [
            (1, 1, "calls t once; each is a real call"),
            (2, 2, "calls t up to 2 times; each is a real call"),
            (4, 2, "calls t up to 4 times (with --once: 2); each is a real call"),
        ] {
            let calls = RealCalls::new("t", CallLimit { at_most, once });
            assert_eq!(calls.announcement(), announced);
        }
        let calls = RealCalls::new("t\u{1b}[2J", CallLimit { at_most: 4, once: 2 });
        assert_eq!(calls.begin(2), "calling t [2J, calls 1 to 2 of at most 4");
        assert_eq!(calls.begin(1), "calling t [2J, call 3 of at most 4");
        assert_eq!(calls.made(), 3);
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for (typed, is_agreed) in
            [("y\n", true), (" Yes \n", true), ("n\n", false), ("\n", false), ("", false)]
        {
            let mut out = Vec::new();
            assert_eq!(asked("Call it?", &mut typed.as_bytes(), &mut out).unwrap(), is_agreed);
            assert_eq!(out, b"Call it? [y/N] ");
        }
    }

    #[test]
    fn nobody_is_asked_after_a_yes() {
        let limit = CallLimit { at_most: 1, once: 1 };
        assert!(!RealCalls::new("t", limit).agreed().has_to_ask());
    }
}
