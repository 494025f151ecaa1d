//! The report on a server, as text and as JSON.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::client_choice::ClientChoice;
use super::cure::Cure;
use super::findings::{Answer, Examined, Finding, ObservedCall, shown};
use super::grade::{Grade, ShownReports, missed_content};
use super::negotiate::{RevisionSupport, ServerFacts};
use super::rules::{Rule, Weight};
use super::traffic::TransportKind;
use crate::lab::color::Palette;

/// The version of the JSON report. It is raised when a member changes its meaning or is removed.
const FORM: u32 = 2;

/// Maximum number of tools that the text report names.
const TOOLS_SHOWN: usize = 20;

/// The results of the examination.
pub(super) struct DoctorReport {
    /// The command or address of the server.
    pub(super) server: String,
    pub(super) wire: TransportKind,
    pub(super) known: ServerFacts,
    /// The revision in which tools were called.
    pub(super) revision: Option<&'static str>,
    /// Whether a tool was called.
    pub(super) called: bool,
    /// Number of calls in all sessions.
    pub(super) made: usize,
    /// The examined route of a route file, and the name of that file.
    pub(super) configured: Option<(String, String)>,
    pub(super) client: Option<ClientChoice>,
    pub(super) colors: Palette,
    pub(super) before: Examined,
    pub(super) cure: Cure,
    /// The result behind the proxy, or the reason why it could not be measured.
    pub(super) after: Option<Result<Examined, String>>,
}

impl DoctorReport {
    /// Returns the report as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.head(&mut text);
        self.calls(&mut text);
        self.findings(&mut text);
        self.cures(&mut text);
        self.comparison(&mut text);
        self.clients(&mut text);
        self.verdict(&mut text);
        text
    }

    fn head(&self, to: &mut String) {
        let name = self.known.name.as_deref().unwrap_or("a server that does not say its name");
        let _ = writeln!(to, "{name}, over {}: {}", self.wire.name(), self.server);
        if let Some((file, path)) = &self.configured {
            let _ = writeln!(to, "as the route {path} of {file} reaches it");
        }
        let _ = writeln!(to, "\n{}", self.colors.heading("Revisions"));
        for (date, spoken) in &self.known.revisions {
            let words = match spoken {
                RevisionSupport::Yes => "yes".to_owned(),
                RevisionSupport::Other(other) => format!("no: the server answers with {other}"),
                RevisionSupport::No(why) => format!("no: {why}"),
            };
            let _ = writeln!(to, "  {date}  {words}");
        }
        let tools = &self.known.tools;
        let names = tools.iter().take(TOOLS_SHOWN).map(|name| shown(name.as_bytes()));
        let shown = names.collect::<Vec<_>>();
        let more = match tools.len().saturating_sub(TOOLS_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let head = self.colors.heading(&format!("Tools ({}):", tools.len()));
        let _ = writeln!(to, "\n{head} {}{more}", shown.join(", "));
    }

    fn calls(&self, to: &mut String) {
        if !self.called {
            let _ = writeln!(
                to,
                "No tool was called: `--call NAME --args JSON` shows what its progress is like."
            );
            return;
        }
        let revision = self.revision.unwrap_or("no revision, as no client can begin");
        let _ = writeln!(to, "\n{}", self.colors.heading(&format!("Calls, in {revision}")));
        for call in &self.before.calls {
            let token = match &call.token {
                Some(token) => format!("with token {token}"),
                None => "without a token".to_owned(),
            };
            let end = match call.answer {
                Answer::None => format!("no answer after {}", time(call.took)),
                answer => {
                    let words = call.refusal.as_ref().map(|words| format!(": {words}"));
                    let (name, words) = (answer.name(), words.unwrap_or_default());
                    format!("answered ({name}{words}) after {}", time(call.took))
                }
            };
            let _ = writeln!(to, "  {} {token}: {end}", call.tool);
            let late = |at: Option<Duration>| at.map_or_else(|| "never".to_owned(), time);
            let _ = writeln!(
                to,
                "    first byte {}, first usable progress {}, longest silence {}; {} of {} reports can be used",
                late(call.first_byte),
                late(call.first_progress),
                time(call.silence),
                call.usable,
                call.reports,
            );
        }
        let _ = writeln!(to, "  real calls in all: {}", self.made);
    }

    fn findings(&self, to: &mut String) {
        let _ = writeln!(to, "\n{}", self.colors.heading("Findings"));
        if self.before.findings.is_empty() {
            let _ = writeln!(to, "  none");
        }
        for finding in &self.before.findings {
            let rule = finding.rule;
            let name = finding.name.as_ref().map(|name| format!(" ({})", shown(name.as_bytes())));
            let name = name.unwrap_or_default();
            let weight = format!("{:<5}", rule.weight().name());
            let weight = match rule.weight() {
                Weight::Fault => self.colors.bad(&weight),
                Weight::Risk => self.colors.doubtful(&weight),
                Weight::Note => self.colors.dim(&weight),
            };
            let _ = writeln!(
                to,
                "  {weight}  {}{name}, {}x: {}",
                rule.name(),
                finding.count,
                rule.what()
            );
            let _ = writeln!(to, "         e.g.  {}", self.colors.dim(&finding.example));
            let _ = writeln!(to, "         spec  {}", rule.specification());
            let _ = writeln!(to, "         cure  {}", self.cure_of(finding));
        }
    }

    fn cures(&self, to: &mut String) {
        let is_cured = self.before.findings.iter().any(|finding| self.is_cured(finding));
        if self.before.findings.is_empty() || (!is_cured && self.cure.uncured.is_empty()) {
            return;
        }
        let _ = writeln!(to, "\n{}", self.colors.heading("Cure"));
        if let Some((file, path)) = &self.configured {
            return self.additions(to, file, path);
        }
        match (&self.cure.lines, &self.cure.flags) {
            (None, _) if is_cured => {
                let command = self.colors.command(&self.cure.command);
                let _ = writeln!(to, "  Milepost's defaults: {command}");
            }
            (None, _) => {}
            (Some(lines), flags) => {
                if let Some(flags) = flags {
                    let _ = writeln!(to, "  {}", self.colors.command(flags));
                }
                let or = if flags.is_some() { "\n  or " } else { "  " };
                let command = self.colors.command(&self.cure.command);
                let _ = writeln!(to, "{or}in proxy.toml, for `{command}`:\n");
                indented(to, lines);
            }
        }
        self.uncured(to);
    }

    /// Writes the lines that an examined route lacks.
    fn additions(&self, to: &mut String, file: &str, path: &str) {
        if self.cure.additions.is_empty() {
            let _ = writeln!(to, "  the route has what Milepost can set");
        } else {
            let _ = writeln!(to, "  in the route {path} of {file}:\n");
            indented(to, &self.cure.additions);
        }
        self.uncured(to);
    }

    fn uncured(&self, to: &mut String) {
        let names = self.cure.uncured.join(", ");
        if names.is_empty() {
            return;
        }
        let _ = match (&self.after, &self.configured) {
            (Some(Ok(_)), None) => {
                writeln!(to, "  not cured (counted behind Milepost): {names}")
            }
            _ => writeln!(to, "  no setting cures {names}"),
        };
    }

    /// Returns Milepost's cure of a finding as text.
    fn cure_of(&self, finding: &Finding) -> String {
        let is_tried = matches!(self.after, Some(Ok(_)));
        match (remedy(finding), self.counted_again(finding)) {
            (Ok(_), again @ 1..) => format!("none: counted {again}x behind Milepost"),
            (Err(_), 0) if is_tried && finding.rule.weight() != Weight::Note => {
                "not counted behind Milepost".to_owned()
            }
            (Err(why), _) => format!("none: {why}"),
            (Ok(remedy), 0) => remedy.to_owned(),
        }
    }

    /// Returns how often a fault or risk was counted behind Milepost.
    fn counted_again(&self, finding: &Finding) -> usize {
        match &self.after {
            Some(Ok(after)) if finding.rule.weight() != Weight::Note => after.count(finding.rule),
            _ => 0,
        }
    }

    /// Whether Milepost cures a finding.
    fn is_cured(&self, finding: &Finding) -> bool {
        // Such lines are no certain fault: Milepost cannot know whether they are for users.
        let is_hint = matches!(finding.rule, Rule::AsideText | Rule::StdoutText);
        remedy(finding).is_ok() && !is_hint && self.counted_again(finding) == 0
    }

    fn comparison(&self, to: &mut String) {
        let Some(after) = &self.after else {
            if self.called && !self.before.findings.is_empty() {
                let _ = writeln!(to, "\nWith --through the same is done behind Milepost.");
            }
            return;
        };
        let after = match after {
            Ok(after) => after,
            Err(why) => {
                let _ = writeln!(to, "\nThrough Milepost it could not be done: {why}");
                return;
            }
        };
        let head = self.colors.heading("Through Milepost");
        let _ = writeln!(to, "\n{head}             without   with  content");
        for rule in rules(&self.before, after) {
            let (without, with) = (self.before.count(rule), after.count(rule));
            let content = match self.arrives(rule, after) {
                Some(true) => self.colors.good("  arrives"),
                Some(false) => self.colors.bad("  does not arrive"),
                None => String::new(),
            };
            let _ = writeln!(to, "  {:<24} {without:>9} {with:>6}{content}", rule.name());
        }
        let sum = |examined: &Examined, of: fn(&ObservedCall) -> usize| -> usize {
            examined.calls.iter().map(of).sum()
        };
        let (without, with) = (sum(&self.before, |c| c.usable), sum(after, |c| c.usable));
        let _ = writeln!(to, "  {:<24} {without:>9} {with:>6}", "usable progress");
        let added = sum(after, |c| c.added);
        if added > 0 {
            let _ = writeln!(to, "  {:<24} {:>9} {added:>6}", "heartbeats", 0);
        }
        let silence = |examined: &Examined| {
            let calls = examined.calls.iter().filter(|call| call.token.is_some());
            calls.map(|call| call.silence).max().map_or_else(|| "-".to_owned(), time)
        };
        let (without, with) = (silence(&self.before), silence(after));
        let _ = writeln!(to, "  {:<24} {without:>9} {with:>6}", "longest silence");
        for miss in &after.missed {
            let _ = writeln!(to, "  {}", self.colors.doubtful(&miss.to_string()));
        }
        if after.overtaken > 0 {
            let count = after.overtaken;
            let _ = writeln!(to, "  withheld so that the answer is not mistaken: {count}");
        }
    }

    /// Whether the content of a rule's findings reaches the client; `None` if the rule has no findings with content.
    fn arrives(&self, rule: Rule, after: &Examined) -> Option<bool> {
        let findings = self.before.findings.iter().filter(|finding| finding.rule == rule);
        findings.filter_map(|finding| after.receives(finding)).reduce(|one, other| one && other)
    }

    /// Returns, as JSON, whether the content of findings reaches the client, by the names of rules.
    fn content(&self, after: &Examined) -> Value {
        let rules = rules(&self.before, after).into_iter();
        let arrives = rules.filter_map(|rule| Some((rule.name(), self.arrives(rule, after)?)));
        let mut content = Map::new();
        content.extend(arrives.map(|(name, arrives)| (name.to_owned(), arrives.into())));
        content.into()
    }

    fn clients(&self, to: &mut String) {
        let Some(client) = &self.client else { return };
        let Some(row) = client.row else {
            let near = client.near.map(|near| format!("; did you mean {near:?}?"));
            let near = near.unwrap_or_else(|| " (docs/clients.md).".to_owned());
            let _ = writeln!(to, "\nNothing is known of the client {:?}{near}", client.name);
            return;
        };
        let _ = writeln!(to, "\n{} (as of {})", row.client, row.as_of);
        let facts = [
            ("sends tokens", row.token),
            ("shows progress", row.shows),
            ("resets its timer", row.resets),
        ];
        for (what, fact) in facts {
            let _ = writeln!(to, "  {what}: {fact}");
        }
        if !row.limits.is_empty() {
            let _ = writeln!(to, "  limits: {}", row.limits);
        }
        let _ = writeln!(to, "  {}", row.set);
    }

    fn verdict(&self, to: &mut String) {
        let has_failed = |call: &ObservedCall| call.refusal.is_some();
        let far = match (self.called, self.before.calls.iter().all(has_failed)) {
            (false, _) => ", as far as this goes without a call,",
            (true, true) => ", as far as a call that fails tells,",
            (true, false) => "",
        };
        let (grade, besides) = self.graded(&self.before);
        let joint = if Grade::of(&self.before) == Grade::ShowsLess { "of" } else { "with" };
        let _ = write!(to, "\nA plain client{far} {grade} {joint} this server{besides}");
        if let Some(Ok(after)) = &self.after {
            let (grade, besides) = self.graded(after);
            let _ = write!(to, "; through Milepost it {grade}{besides}");
            let shows_any = |of: &Examined| ShownReports::of(of).shown > 0;
            let lacks = ShownReports::of(&self.before).words().is_some();
            if self.before.findings.iter().any(|finding| after.receives(finding) == Some(false)) {
                let _ = write!(to, ", and the content of some findings does not arrive");
            } else if lacks
                && !shows_any(&self.before)
                && shows_any(after)
                && missed_content(after).is_none()
            {
                let _ = write!(to, ", and shows them");
            }
        }
        let _ = writeln!(to, ".");
    }

    /// Returns the grade of a session as the predicate of a sentence, and an addition to that sentence.
    fn graded(&self, of: &Examined) -> (String, String) {
        let reports = ShownReports::of(of);
        let (less, unless) = (reports.words(), reports.exception());
        match (Grade::of(of), less) {
            (Grade::Fine, _) if of.has_risk() => {
                (self.colors.doubtful("is fine"), ", but for a risk".to_owned())
            }
            (Grade::Fine, _) => (self.colors.good("is fine"), String::new()),
            (Grade::ShowsLess, less) => {
                let less = less.or_else(|| missed_content(of));
                let less = less.unwrap_or_else(|| "does not show some messages".to_owned());
                (self.colors.doubtful(&less), unless.to_owned())
            }
            (Grade::MayBreak, less) => {
                let less = less.map(|less| format!(", and {less}{unless}")).unwrap_or_default();
                (self.colors.bad("may break"), less)
            }
        }
    }

    fn findings_json(&self, examined: &Examined) -> Value {
        let one = |finding: &Finding| {
            let rule = finding.rule;
            json!({
                "rule": rule.name(),
                "name": finding.name,
                "fault": rule.weight() == Weight::Fault,
                "weight": rule.weight().name(),
                "count": finding.count,
                "what": rule.what(),
                "example": finding.example,
                "specification": rule.specification(),
                "remedy": remedy(finding).ok().filter(|_| self.is_cured(finding)),
            })
        };
        examined.findings.iter().map(one).collect()
    }

    /// Returns the report as JSON, on one line.
    pub(super) fn json(&self) -> String {
        let revisions = self.known.revisions.iter().map(|(date, spoken)| {
            let (speaks, answer) = match spoken {
                RevisionSupport::Yes => (true, Value::Null),
                RevisionSupport::Other(other) => (false, other.clone().into()),
                RevisionSupport::No(why) => (false, why.clone().into()),
            };
            json!({ "revision": date, "spoken": speaks, "answer": answer })
        });
        let report = json!({
            "form": FORM,
            "milepost": env!("CARGO_PKG_VERSION"),
            "server": { "name": self.known.name, "reached": self.server, "transport": self.wire.name() },
            "revisions": revisions.collect::<Vec<_>>(),
            "tools": self.known.tools,
            "revision": self.revision,
            "grade": Grade::of(&self.before).name(),
            "reports": reports(&self.before),
            "callsMade": self.made,
            "calls": calls(&self.before),
            "findings": self.findings_json(&self.before),
            "cure": {
                "command": self.cure.command,
                "lines": self.cure.lines,
                "flags": self.cure.flags,
                "uncured": self.cure.uncured,
            },
            "through": self.after.as_ref().map(|after| match after {
                Ok(after) => json!({
                    "grade": Grade::of(after).name(),
                    "reports": reports(after),
                    "calls": calls(after),
                    "findings": self.findings_json(after),
                    "content": self.content(after),
                    "overtaken": after.overtaken,
                    "missed": after.missed.iter().map(ToString::to_string).collect::<Vec<_>>(),
                }),
                Err(why) => json!({ "error": why }),
            }),
        });
        format!("{report}\n")
    }
}

/// Returns the name of Milepost's cure for a finding, or why there is no cure.
fn remedy(finding: &Finding) -> Result<&'static str, &'static str> {
    match (finding.rule, finding.rule.remedy()) {
        (_, "") => Err("the server has to be mended"),
        (Rule::MethodUnknown, _) if finding.draft.is_none() => {
            Err("no member of the messages tells how far the call is")
        }
        (Rule::MethodOther, _) if finding.draft.is_none() => {
            Err("the messages tell nothing of the call that progress does not tell")
        }
        (_, remedy) => Ok(remedy),
    }
}

/// Writes lines of a file, indented.
fn indented(to: &mut String, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(to, "{}", format!("    {line}").trim_end());
    }
}

/// Returns every rule that was broken in one of both sessions.
fn rules(before: &Examined, after: &Examined) -> BTreeSet<Rule> {
    before.findings.iter().chain(&after.findings).map(|finding| finding.rule).collect()
}

fn reports(examined: &Examined) -> Value {
    let ShownReports { shown, sent, .. } = ShownReports::of(examined);
    json!({ "sent": sent, "shown": shown })
}

fn calls(examined: &Examined) -> Value {
    let seconds = |time: Duration| (time.as_secs_f64() * 1e3).round() / 1e3;
    let one = |call: &ObservedCall| {
        json!({
            "tool": call.tool,
            "token": call.token,
            "answer": call.answer.name(),
            "seconds": seconds(call.took),
            "firstByteSeconds": call.first_byte.map(seconds),
            "firstProgressSeconds": call.first_progress.map(seconds),
            "longestSilenceSeconds": seconds(call.silence),
            "reports": call.reports,
            "usable": call.usable,
            "added": call.added,
        })
    };
    examined.calls.iter().map(one).collect()
}

/// Returns a time as the report shows it.
fn time(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
