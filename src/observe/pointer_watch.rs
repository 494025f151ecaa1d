//! Watches the pointers of dialects that a route file defines. A pointer that never finds a value is usually misspelt,
//! so a warning is logged.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litemap::LiteMap;

use super::events::{EventKind, FilterId, Observer, ObserverEvent, ObserverFactory, Scope};
use super::fitting_member::progress_member;
use super::printable::{TextForm, printable};
use crate::progress::Policy;
use crate::progress::dialect::{CustomDialect, Dialect};
use crate::progress::input::Input;
use crate::protocol::jsonrpc::{Kind, Message};

/// The number of messages of a dialect that are searched for another member.
const SEARCHED_MAX: u64 = 8;

/// A pointer that has not found a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PointerMiss {
    /// The name of the dialect.
    pub dialect: String,
    /// The key of the pointer in the route file.
    pub key: &'static str,
    /// The pointer as written.
    pub pointer: String,
    /// The number of the dialect's messages in which the pointer was tried.
    pub messages: u64,
    /// The pointer that was probably meant: it finds a value, because it also goes into a string that contains JSON.
    pub meant: Option<String>,
    /// Another pointer that finds a value of the kind, and that value as JSON.
    pub other: Option<(String, String)>,
}

impl fmt::Display for PointerMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dialect, key, pointer, messages, meant, other } = self;
        let messages = match messages {
            1 => "the only message".to_owned(),
            count => format!("any of {count} messages"),
        };
        write!(f, "the dialect {dialect:?}: `{key}` ({pointer}) found nothing in {messages}")?;
        match (meant, other) {
            (Some(meant), _) => {
                write!(f, "; a string of JSON stands there, did you mean {meant:?}?")
            }
            (None, Some((pointer, value))) => {
                write!(f, "; did you mean {pointer:?}, which finds {value}?")
            }
            (None, None) => Ok(()),
        }
    }
}

/// Whether a pointer has found a value, and otherwise the pointer that was probably meant.
#[derive(Debug, Clone, Default)]
struct PointerFate {
    is_found: bool,
    meant: Option<String>,
    other: Option<(String, String)>,
}

impl PointerFate {
    fn add(&mut self, other: Self) {
        self.is_found |= other.is_found;
        self.meant = self.meant.take().or(other.meant);
        self.other = self.other.take().or(other.other);
    }
}

/// Pointers, by key and text.
type FoundPointers = LiteMap<(&'static str, String), PointerFate>;

/// Which pointers of dialects have found values.
#[derive(Debug, Clone, Default)]
pub struct PointerFinds {
    /// By the name of the dialect: its messages, and for each pointer whether it has found a value.
    dialects: LiteMap<String, (u64, FoundPointers)>,
}

impl PointerFinds {
    /// Tries the pointers in a server message.
    pub fn see(&mut self, policy: &Policy, message: &Message) {
        if message.kind() != Kind::Notification {
            return;
        }
        let Some(method) = message.method() else { return };
        for dialect in own_dialects(policy) {
            if dialect.methods.iter().any(|claimed| **claimed == *method) {
                let (count, finds) = self.dialects.entry(dialect.name.clone()).or_default();
                *count += 1;
                let found = dialect.finds(message.raw());
                let known: Vec<&str> = found.iter().map(|find| find.pointer).collect();
                for find in found {
                    let is_searched =
                        find.key == "progress" && !find.is_found && *count <= SEARCHED_MAX;
                    let other = is_searched.then(|| progress_member(message.raw(), &known));
                    let other = other.flatten().map(|(at, value)| {
                        (
                            printable(&at, TextForm::Plain),
                            printable(&value.to_string(), TextForm::Plain),
                        )
                    });
                    let fate = finds.entry((find.key, find.pointer.to_owned())).or_default();
                    fate.add(PointerFate { is_found: find.is_found, meant: find.meant, other });
                }
            }
        }
    }

    /// Adds the results of another filter.
    fn add(&mut self, other: &Self) {
        for (name, (count, finds)) in &other.dialects {
            let (all, known) = self.dialects.entry(name.clone()).or_default();
            *all += count;
            for (pointer, fate) in finds {
                known.entry(pointer.clone()).or_default().add(fate.clone());
            }
        }
    }

    /// Returns the pointers that have never found a value, although their dialect had messages.
    pub fn missed(&self) -> Vec<PointerMiss> {
        let mut missed = Vec::new();
        for (name, (count, finds)) in &self.dialects {
            for ((key, pointer), fate) in finds {
                if !fate.is_found {
                    missed.push(PointerMiss {
                        dialect: name.clone(),
                        key,
                        pointer: pointer.clone(),
                        messages: *count,
                        meant: fate.meant.clone(),
                        other: fate.other.clone(),
                    });
                }
            }
        }
        missed
    }
}

/// Returns each dialect of the route file that reads messages.
fn own_dialects(policy: &Policy) -> impl Iterator<Item = &Arc<CustomDialect>> {
    let mut seen = BTreeSet::new();
    let calls = std::iter::once(&policy.call).chain(policy.tools.values());
    let all = calls.flat_map(|call| &call.dialects).filter_map(|dialect| match dialect {
        Dialect::Custom(own) if !own.methods.is_empty() => Some(own),
        _ => None,
    });
    all.filter(move |own| seen.insert(own.name.clone()))
}

/// Observes the filters of routes with dialects from the route file. At the end of a connection, the log names each
/// pointer that has never found a value, once for each route.
#[derive(Debug, Clone, Default)]
pub struct PointerWatch {
    routes: Arc<Mutex<WatchedRoutes>>,
}

#[derive(Debug, Default)]
struct WatchedRoutes {
    finds: LiteMap<String, PointerFinds>,
    /// The pointers that the log has named, with their routes.
    told: BTreeSet<(String, String, &'static str)>,
}

impl PointerWatch {
    fn lock(&self) -> MutexGuard<'_, WatchedRoutes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pointers of all routes that have never found a value.
    pub fn missed(&self) -> Vec<PointerMiss> {
        self.lock().finds.values().flat_map(PointerFinds::missed).collect()
    }
}

impl ObserverFactory for PointerWatch {
    fn begin(
        &self,
        _: FilterId,
        route: &str,
        _: Scope,
        policy: &Arc<Policy>,
    ) -> Option<Box<dyn Observer>> {
        // Do not observe filters of routes without such dialects, which are most.
        own_dialects(policy).next()?;
        Some(Box::new(PointerObserver {
            watch: self.clone(),
            route: route.to_owned(),
            policy: Arc::clone(policy),
            finds: PointerFinds::default(),
        }))
    }
}

/// The observer of one filter.
#[derive(Debug)]
struct PointerObserver {
    watch: PointerWatch,
    route: String,
    policy: Arc<Policy>,
    finds: PointerFinds,
}

impl Observer for PointerObserver {
    fn on_event(&mut self, event: &ObserverEvent) {
        let EventKind::Input(
            Input::ServerMessage(_, message) | Input::HandleForeign(_, message),
            _,
        ) = &event.kind
        else {
            return;
        };
        match message.kind() {
            Kind::Batch => {
                message.elements().for_each(|element| self.finds.see(&self.policy, &element));
            }
            _ => self.finds.see(&self.policy, message),
        }
    }
}

impl Drop for PointerObserver {
    fn drop(&mut self) {
        let mut watched = self.watch.lock();
        let watched = &mut *watched;
        let all = watched.finds.entry(self.route.clone()).or_default();
        all.add(&self.finds);
        for miss in all.missed() {
            let is_new = watched.told.insert((self.route.clone(), miss.dialect.clone(), miss.key));
            // A connection reports only dialects that it has used; other connections report the others.
            let was_tried = self.finds.dialects.contains_key(&miss.dialect);
            if is_new && was_tried {
                let route = Some(&*self.route).filter(|route| !route.is_empty());
                tracing::warn!(
                    route,
                    dialect = miss.dialect,
                    key = miss.key,
                    pointer = miss.pointer,
                    meant = miss.meant,
                    messages = miss.messages,
                    "a pointer of a dialect has found nothing; `milepost doctor --config` shows the messages"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::progress::dialect::{Count, Pointer};

    #[test]
    fn a_pointer_that_never_finds_anything_is_named() {
        let pointer = |text| Some(Pointer::read(text).unwrap());
        let own = CustomDialect {
            name: "farm".to_owned(),
            methods: vec!["farm/tick".to_owned()],
            sources: Vec::new(),
            request_id: None,
            token: pointer("/params/s/of"),
            progress: pointer("/params/at"),
            total: pointer("/params/ende"),
            message: pointer("/params/words"),
            last: None,
            scale: Count::Raw,
        };
        let mut policy = Policy::default();
        policy.call.dialects.push(Dialect::Custom(Arc::new(own)));
        let mut finds = PointerFinds::default();
        let mut see = |text: &'static str| {
            finds.see(&policy, &Message::parse(Bytes::from_static(text.as_bytes())));
        };
        see(r#"{"jsonrpc":"2.0","method":"farm/tick","params":{"at":1,"end":3}}"#);
        see(
            r#"{"jsonrpc":"2.0","method":"farm/tick","params":{"words":"x","end":3,"s":"{\"of\":9}"}}"#,
        );
        see(r#"{"jsonrpc":"2.0","method":"farm/else","params":{"ende":3}}"#);
        let missed: Vec<String> = finds.missed().iter().map(ToString::to_string).collect();
        let nothing = "found nothing in any of 2 messages";
        let meant = r#"; a string of JSON stands there, did you mean "/params/s#/of"?"#;
        assert_eq!(
            missed,
            [
                format!(r#"the dialect "farm": `token` (/params/s/of) {nothing}{meant}"#),
                format!(r#"the dialect "farm": `total` (/params/ende) {nothing}"#),
            ]
        );
    }
}
