//! The report on a server, as text and as JSON.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::cure::Cure;
use super::findings::{Answer, Examined, Finding, ObservedCall, shown};
use super::negotiate::{RevisionSupport, ServerFacts};
use super::rules::{Rule, Weight};
use super::traffic::TransportKind;
use crate::progress::clients;

/// The form of the report for machines. It changes when a member changes its meaning or goes.
const FORM: u32 = 1;

/// Tools that are named in the report for people.
const TOOLS_SHOWN: usize = 20;

/// Everything that was seen.
pub(super) struct DoctorReport {
    /// The command or address of the server.
    pub(super) server: String,
    pub(super) wire: TransportKind,
    pub(super) known: ServerFacts,
    /// The revision in which tools were called.
    pub(super) revision: Option<&'static str>,
    /// A tool was called.
    pub(super) called: bool,
    pub(super) client: Option<String>,
    pub(super) before: Examined,
    pub(super) cure: Cure,
    /// Behind the proxy; why that could not be done otherwise.
    pub(super) after: Option<Result<Examined, String>>,
}

impl DoctorReport {
    /// For people.
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
        let _ = writeln!(to, "\nRevisions");
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
        let _ = writeln!(to, "\nTools ({}): {}{more}", tools.len(), shown.join(", "));
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
        let _ = writeln!(to, "\nCalls, in {revision}");
        for call in &self.before.calls {
            let token = match &call.token {
                Some(token) => format!("with token {token}"),
                None => "without a token".to_owned(),
            };
            let end = match call.answer {
                Answer::None => format!("no answer after {}", time(call.took)),
                answer => format!("answered ({}) after {}", answer.name(), time(call.took)),
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
    }

    fn findings(&self, to: &mut String) {
        let _ = writeln!(to, "\nFindings");
        if self.before.findings.is_empty() {
            let _ = writeln!(to, "  none");
        }
        for finding in &self.before.findings {
            let rule = finding.rule;
            let name = finding.name.as_ref().map(|name| format!(" ({})", shown(name.as_bytes())));
            let name = name.unwrap_or_default();
            let weight = match rule.weight() {
                Weight::Fault => "fault",
                Weight::Note => "note ",
            };
            let _ = writeln!(
                to,
                "  {weight}  {}{name}, {}x: {}",
                rule.name(),
                finding.count,
                rule.what()
            );
            let _ = writeln!(to, "         e.g.  {}", finding.example);
            let _ = writeln!(to, "         spec  {}", rule.specification());
            let remedy = match rule.remedy() {
                "" => "none: the server has to be mended",
                remedy => remedy,
            };
            let _ = writeln!(to, "         cure  {remedy}");
        }
    }

    fn cures(&self, to: &mut String) {
        if self.before.findings.is_empty() {
            return;
        }
        let _ = writeln!(to, "\nCure");
        match &self.cure.lines {
            None => {
                let _ = writeln!(to, "  nothing to set: {}", self.cure.command);
            }
            Some(lines) => {
                let _ = writeln!(to, "  in proxy.toml, for `{}`:\n", self.cure.command);
                for line in lines.lines() {
                    let _ = writeln!(to, "{}", format!("    {line}").trim_end());
                }
            }
        }
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
        let _ = writeln!(to, "\nThrough Milepost             without   with  content");
        for rule in rules(&self.before, after) {
            let (without, with) = (self.before.count(rule), after.count(rule));
            let content = match self.arrives(rule, after) {
                Some(true) => "  arrives",
                Some(false) => "  does not arrive",
                None => "",
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
    }

    /// Whether the content of the findings of a rule arrives; `None` without such findings.
    fn arrives(&self, rule: Rule, after: &Examined) -> Option<bool> {
        let findings = self.before.findings.iter().filter(|finding| finding.rule == rule);
        findings.filter_map(|finding| after.receives(finding)).reduce(|one, other| one && other)
    }

    /// The same for machines, by the names of rules.
    fn content(&self, after: &Examined) -> Value {
        let rules = rules(&self.before, after).into_iter();
        let arrives = rules.filter_map(|rule| Some((rule.name(), self.arrives(rule, after)?)));
        arrives
            .map(|(name, arrives)| (name.to_owned(), arrives.into()))
            .collect::<Map<_, _>>()
            .into()
    }

    fn clients(&self, to: &mut String) {
        let Some(name) = &self.client else { return };
        let Some(row) = clients::find(name, "") else {
            let _ = writeln!(to, "\nNothing is known of the client {name:?} (docs/clients.md).");
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
        let words = |safe: bool| if safe { "safe" } else { "not safe" };
        let far = if self.called { "" } else { ", as far as this goes without a call," };
        let is = words(self.before.is_safe());
        let _ = write!(to, "\nA plain client is{far} {is} with this server");
        if let Some(Ok(after)) = &self.after {
            let _ = write!(to, ", and {} through Milepost", words(after.is_safe()));
            if self.before.findings.iter().any(|finding| after.receives(finding) == Some(false)) {
                let _ = write!(to, ", where the content of some findings does not arrive");
            }
        }
        let _ = writeln!(to, ".");
    }

    /// For machines, on one line.
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
            "safe": self.before.is_safe(),
            "calls": calls(&self.before),
            "findings": findings(&self.before),
            "cure": { "command": self.cure.command, "lines": self.cure.lines },
            "through": self.after.as_ref().map(|after| match after {
                Ok(after) => json!({
                    "safe": after.is_safe(),
                    "calls": calls(after),
                    "findings": findings(after),
                    "content": self.content(after),
                }),
                Err(why) => json!({ "error": why }),
            }),
        });
        format!("{report}\n")
    }
}

/// Every rule that either has broken.
fn rules(before: &Examined, after: &Examined) -> BTreeSet<Rule> {
    before.findings.iter().chain(&after.findings).map(|finding| finding.rule).collect()
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

fn findings(examined: &Examined) -> Value {
    let one = |finding: &Finding| {
        let rule = finding.rule;
        json!({
            "rule": rule.name(),
            "name": finding.name,
            "fault": rule.weight() == Weight::Fault,
            "count": finding.count,
            "what": rule.what(),
            "example": finding.example,
            "specification": rule.specification(),
            "remedy": Some(rule.remedy()).filter(|remedy| !remedy.is_empty()),
        })
    };
    examined.findings.iter().map(one).collect()
}

/// A time as the report shows it.
fn time(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
