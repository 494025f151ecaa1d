//! The shape of the engine, and of types whose methods are in several files. Imports do not show it: a method in another
//! file needs none. Each limit is the figure of today, and only falls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::{CORE, circles, product, within};

/// The outermost type of the engine.
const ENGINE: &str = "Filter";

/// Methods of [`ENGINE`], at most.
const METHODS_MAX: usize = 33;

/// Public methods of [`ENGINE`], at most.
const PUBLIC_METHODS_MAX: usize = 30;

/// Files with methods of [`ENGINE`], at most.
const FILES_MAX: usize = 2;

/// Methods of any type of the engine, at most.
const TYPE_METHODS_MAX: usize = 57;

/// Files with methods of any type of the engine, at most.
const TYPE_FILES_MAX: usize = 4;

/// The stages of the engine, with the file of each.
const STAGES: [(&str, &str); 5] = [
    (ENGINE, "progress/filter.rs"),
    ("Intake", "progress/intake/state.rs"),
    ("DetachedWork", "progress/detached/mod.rs"),
    ("Gate", "progress/gate/state.rs"),
    ("Correlator", "progress/correlate/correlator.rs"),
];

/// Pairs of a field of a stage and a file with methods of the stage that is not its own and uses the field, at most.
const FOREIGN_FIELDS_MAX: usize = 45;

/// Places outside `progress/correlate` that reach the ledger, at most.
const LEDGER_MAX: usize = 13;

/// The parts of `progress`, from the lowest to the highest.
const PARTS: [&str; 26] = [
    "verdict",
    "log_request",
    "ids",
    "value",
    "clients",
    "few_map",
    "payload",
    "transmit_queue",
    "kind_counts",
    "extract",
    "event",
    "client_habits",
    "durations",
    "one_line",
    "dialect",
    "policy",
    "topology",
    "streams",
    "arrived_message",
    "correlate",
    "gate",
    "detached",
    "intake",
    "filter",
    "failed_filter",
    "input",
];

/// The most pairs of parts in which the lower part imports the higher part.
const UPWARD_MAX: usize = 0;

/// Files whose methods of one type call each other in a circle, at most: for all types, and for those that have more.
const METHOD_CIRCLE_MAX: usize = 4;
const LARGER_CIRCLES: [(&str, usize); 3] = [("Examiner", 5), ("Inspection", 5), ("ModernFace", 7)];

/// The implementation of a type in a file.
struct Implementation {
    file: PathBuf,
    methods: BTreeSet<String>,
    public: usize,
    body: String,
}

/// The inherent implementations of all types, one for each file.
fn implementations() -> BTreeMap<String, Vec<Implementation>> {
    static HEAD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^impl(?:<[^>{]*>)? (\w+)(?:<[^{]*>)? \{$").unwrap());
    static METHOD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^    (pub(?:\([\w: ]+\))? )?(?:const |async )*fn (\w+)").unwrap()
    });
    let mut found: BTreeMap<String, Vec<Implementation>> = BTreeMap::new();
    for (path, text) in product() {
        for head in HEAD.captures_iter(&text) {
            let rest = &text[head.get(0).unwrap().end()..];
            let body = &rest[..rest.find("\n}").unwrap_or(rest.len())];
            let all = found.entry(head[1].to_owned()).or_default();
            if all.last().is_none_or(|last| last.file != path) {
                let file = path.clone();
                let body = String::new();
                all.push(Implementation { file, methods: BTreeSet::new(), public: 0, body });
            }
            let Some(own) = all.last_mut() else { continue };
            for method in METHOD.captures_iter(body) {
                own.methods.insert(method[2].to_owned());
                own.public +=
                    usize::from(method.get(1).is_some_and(|said| said.as_str() == "pub "));
            }
            own.body.push_str(body);
        }
    }
    found
}

/// The names that stand behind `self.` or `Self::` in a text.
fn own_names(text: &str) -> BTreeSet<&str> {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:self\s*\.|Self::)(\w+)").unwrap());
    NAME.captures_iter(text).map(|found| found.get(1).unwrap().as_str()).collect()
}

/// The file that an implementation is in, for people.
fn name(implementation: &Implementation) -> String {
    within(&implementation.file).with_extension("").display().to_string()
}

#[test]
fn methods_of_one_type_do_not_tie_its_files_together() {
    for (of, files) in implementations() {
        let calls: Vec<BTreeSet<usize>> = files
            .iter()
            .enumerate()
            .map(|(at, file)| {
                let called = own_names(&file.body);
                let is_called = |(to, other): &(usize, &Implementation)| {
                    *to != at && other.methods.iter().any(|method| called.contains(&**method))
                };
                files.iter().enumerate().filter(is_called).map(|(to, _)| to).collect()
            })
            .collect();
        let Some(largest) = circles(&calls).into_iter().next() else { continue };
        let named: Vec<String> = largest.iter().map(|at| name(&files[*at])).collect();
        println!(
            "{of}: a circle of {} of {} files: {}",
            named.len(),
            files.len(),
            named.join(", ")
        );
        let larger = LARGER_CIRCLES.iter().find(|(name, _)| *name == of);
        let limit = larger.map_or(METHOD_CIRCLE_MAX, |(_, limit)| *limit);
        assert!(named.len() <= limit, "methods of {of} call each other in a circle of {named:?}");
    }
}

#[test]
fn the_outermost_type_of_the_engine_becomes_no_larger() {
    let all = implementations();
    let files = &all[ENGINE];
    let methods: usize = files.iter().map(|file| file.methods.len()).sum();
    let public: usize = files.iter().map(|file| file.public).sum();
    let foreign: usize = STAGES.iter().map(|(of, home)| foreign_fields(&all[*of], of, home)).sum();
    let in_core = |files: &&Vec<Implementation>| files[0].file.starts_with(CORE);
    let types = || all.values().filter(in_core);
    let most_files = types().map(Vec::len).max().unwrap();
    let methods_of =
        |files: &Vec<Implementation>| files.iter().map(|file| file.methods.len()).sum::<usize>();
    let most_methods = types().map(methods_of).max().unwrap();
    let upward = upward();
    println!("imports upward: {upward:?}");
    let figures = [
        ("files with methods", files.len(), FILES_MAX),
        ("methods", methods, METHODS_MAX),
        ("public methods", public, PUBLIC_METHODS_MAX),
        ("files with methods of one type", most_files, TYPE_FILES_MAX),
        ("methods of one type", most_methods, TYPE_METHODS_MAX),
        ("fields used from other files", foreign, FOREIGN_FIELDS_MAX),
        ("places outside correlate that reach the ledger", ledger_places(), LEDGER_MAX),
        ("pairs of parts that import upward", upward.len(), UPWARD_MAX),
    ];
    for (what, count, limit) in figures {
        println!("{what}: {count}, at most {limit}");
    }
    for (what, count, limit) in figures {
        assert!(count <= limit, "{ENGINE}: {what}: {count}, at most {limit}");
    }
}

/// The fields of a stage that its files besides `home` use: each counts once for each file.
fn foreign_fields(files: &[Implementation], of: &str, home: &str) -> usize {
    let fields = fields(of);
    let elsewhere = files.iter().filter(|file| !file.file.ends_with(home));
    let used = |file: &Implementation| {
        own_names(&file.body).iter().filter(|name| fields.contains(**name)).count()
    };
    elsewhere.map(used).sum()
}

/// The fields of a type of the engine.
fn fields(of: &str) -> BTreeSet<String> {
    let head = format!("pub struct {of} {{\n");
    let files = product();
    let text = files.iter().find_map(|(_, text)| text.split_once(&*head)).unwrap().1;
    let fields = text.lines().take_while(|line| *line != "}");
    let name = |line: &str| Some(line.split_once(':')?.0.rsplit(' ').next()?.to_owned());
    fields.filter_map(name).collect()
}

fn ledger_places() -> usize {
    let files = product();
    let outside = files.iter().filter(|(path, _)| {
        path.starts_with(CORE) && part(path).is_some_and(|of| of != "correlate")
    });
    outside.map(|(_, text)| text.matches(".ledger").count()).sum()
}

/// The part of `progress` that a file is in.
fn part(path: &Path) -> Option<String> {
    let inside = within(path).strip_prefix("progress").ok()?.with_extension("");
    let part = inside.iter().next()?.to_str()?.to_owned();
    (part != "mod").then_some(part)
}

/// Returns the pairs of parts of `progress` in which the lower part imports the higher part. A name that
/// `progress/mod.rs` re-exports counts for the part that defines it.
fn upward() -> BTreeSet<(String, String)> {
    static PASSED_ON: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"use (\w+)(?:::\w+)*::(?:\{([^}]*)\}|(\w+));").unwrap());
    static IMPORT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"crate::progress::(\{[^;]*;|\w+)").unwrap());
    let files: Vec<_> = product().into_iter().filter(|(path, _)| path.starts_with(CORE)).collect();
    let list = &files.iter().find(|(path, _)| path.ends_with("progress/mod.rs")).unwrap().1;
    let mut origins: BTreeMap<&str, &str> = PARTS.into_iter().map(|part| (part, part)).collect();
    for passed in PASSED_ON.captures_iter(list) {
        let names = passed.get(2).or_else(|| passed.get(3)).unwrap().as_str();
        let of = passed.get(1).unwrap().as_str();
        origins.extend(names.split(',').map(|name| (name.trim(), of)));
    }
    let place = |part: &str| {
        let place = PARTS.iter().position(|known| *known == part);
        place.unwrap_or_else(|| panic!("{part} is in no list of parts"))
    };
    let mut found = BTreeSet::new();
    for (path, text) in &files {
        let Some(of) = part(path) else { continue };
        let imports = IMPORT.captures_iter(text).flat_map(|import| {
            let names = import.get(1).unwrap().as_str();
            names.split(|sign: char| !sign.is_alphanumeric() && sign != '_')
        });
        for to in imports.filter_map(|name| origins.get(name)) {
            if place(&of) < place(to) {
                found.insert((of.clone(), (*to).to_owned()));
            }
        }
    }
    found
}
