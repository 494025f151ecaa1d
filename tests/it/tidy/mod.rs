//! The rules of the house, as far as a test can hold them.

mod shape;
mod test_data;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use milepost::progress::{Reason, Repair};

/// Where the code of the product is: the proxy and its engine.
const PRODUCT: [&str; 2] = ["src", CORE];

/// The folders of [`PRODUCT`] are the layers: each imports those above it in this list, never one below.
const LAYERS: [&str; 12] = [
    "protocol",
    "progress",
    "policy_file",
    "conversation",
    "platform",
    "config",
    "observe",
    "transport",
    "relay",
    "gateway",
    "lab",
    "commands",
];

/// Files above all layers.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// Files that import each other in a circle, at most. A circle of three or more is named in
/// ARCHITECTURE.md.
const CIRCLE_MAX: usize = 4;

/// The sans-IO engine, a package of its own.
const CORE: &str = "crates/core/src";

/// Packages that the engine is built from, itself counted, at most.
const CORE_PACKAGES_MAX: usize = 20;

/// Packages that the engine is built from with its feature `toml`, itself counted, at most.
const CORE_WITH_TOML_MAX: usize = 27;

/// Packages that the engine is never built from: tasks, sockets, logs, command lines, chance.
const IMPURE_PACKAGES: [&str; 7] =
    ["clap", "getrandom", "hyper", "milepost", "rand", "tokio", "tracing"];

/// Parts of the standard library that the engine must not touch: I/O, clocks, the environment, unordered iteration.
const IMPURE: [&str; 8] = [
    "std::io",
    "std::fs",
    "std::env",
    "std::net",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "HashMap",
];

/// The layer that has all code for one system.
const PLATFORM: &str = "platform";

/// The second implementation of that layer: its types have the same names.
const WINDOWS: &str = "src/platform/windows";

/// Names that only that layer may use.
const OF_ONE_SYSTEM: [&str; 13] = [
    "nix::",
    "sd_notify",
    "process_wrap",
    "os::unix",
    "os::windows",
    "os::linux",
    "os::fd",
    "signal::unix",
    "signal::windows",
    "net::unix",
    "UnixStream",
    "target_os",
    "/proc/",
];

/// Lines of code in one file of the product, tests not counted.
const LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![root().join(folder)];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
        }
    }
    found.sort();
    found
}

/// A file without its tests.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// The path of a file within the folder of [`PRODUCT`] that it is in.
fn within(path: &Path) -> &Path {
    PRODUCT.iter().find_map(|folder| path.strip_prefix(folder).ok()).unwrap()
}

/// The layer of a file.
fn layer(path: &Path) -> &str {
    within(path).components().next().unwrap().as_os_str().to_str().unwrap()
}

/// All files of the product.
fn product_sources() -> Vec<(PathBuf, String)> {
    PRODUCT.into_iter().flat_map(sources).collect()
}

/// The code of the product without tests: each file with its text.
fn product() -> Vec<(PathBuf, String)> {
    let is_test = |path: &Path| {
        path.file_name().is_some_and(|name| name == "tests.rs")
            || path.components().any(|part| part.as_os_str() == "tests")
    };
    let files = product_sources().into_iter().filter(|(path, _)| !is_test(path));
    let no_comments = |text: &str| -> String {
        code(text).lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect()
    };
    files.map(|(path, text)| (path, no_comments(&text))).collect()
}

/// The path of the module in a file.
fn module(path: &Path) -> Vec<String> {
    let path = within(path).with_extension("");
    let mut parts: Vec<String> =
        path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// The paths in a tree of imports, such as `a::{b, c::d}`.
fn leaves(before: &[String], tree: &str, out: &mut Vec<Vec<String>>) {
    let (head, inner) = match tree.split_once('{') {
        Some((head, inner)) => {
            (head, Some(inner.rsplit_once('}').map_or(inner, |(inner, _)| inner)))
        }
        None => (tree.split(" as ").next().unwrap(), None),
    };
    let names = head.split("::").map(str::trim).filter(|name| !name.is_empty());
    let mut path = before.to_vec();
    path.extend(names.map(str::to_owned));
    let Some(inner) = inner else { return out.push(path) };
    let (mut depth, mut start) = (0, 0);
    for (at, sign) in inner.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                leaves(&path, &inner[start..at], out);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        leaves(&path, &inner[start..], out);
    }
}

/// The paths of modules of ours that a file names, in imports and elsewhere. The children that a folder's
/// own file lists and passes on are a table of contents, and no dependency.
fn paths(module: &[String], text: &str) -> Vec<Vec<String>> {
    let is_name = |sign: char| sign.is_alphanumeric() || sign == '_';
    let mut found = Vec::new();
    for start in ["crate", "super"] {
        for (at, _) in text.match_indices(&format!("{start}::")) {
            let before = &text[..at];
            if before.ends_with(is_name) || before.ends_with("::") {
                continue;
            }
            let rest = &text[at..];
            let mut end = rest.find(|sign| !is_name(sign) && sign != ':').unwrap_or(rest.len());
            if rest[..end].ends_with("::") && rest[end..].starts_with('{') {
                end = rest.find(';').unwrap_or(rest.len());
            }
            let mut all = Vec::new();
            leaves(&[], &rest[..end], &mut all);
            found.extend(all);
        }
    }
    let absolute = |path: Vec<String>| {
        let mut base = module.to_vec();
        let mut names = path.into_iter().peekable();
        if names.peek().is_some_and(|name| name == "crate") {
            base.clear();
            names.next();
        }
        while names.next_if(|name| name == "super").is_some() {
            base.pop();
        }
        base.extend(names);
        base
    };
    found.into_iter().map(absolute).collect()
}

/// Which files import which, by their places in the list of files.
fn imports(files: &[(PathBuf, String)]) -> Vec<BTreeSet<usize>> {
    let modules: BTreeMap<Vec<String>, usize> =
        files.iter().enumerate().map(|(at, (path, _))| (module(path), at)).collect();
    let of = |(at, (path, text)): (usize, &(PathBuf, String))| {
        let own = module(path);
        let paths = paths(&own, text).into_iter();
        let file = |path: Vec<String>| {
            (1..=path.len()).rev().find_map(|end| modules.get(&path[..end]).copied())
        };
        paths.filter_map(file).filter(|to| *to != at).collect()
    };
    files.iter().enumerate().map(of).collect()
}

/// Files that import each other in a circle, the largest circle first.
fn circles(imports: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
    let reached = |from: usize| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(at) = left.pop() {
            left.extend(imports[at].iter().filter(|to| seen.insert(**to)));
        }
        seen
    };
    let all: Vec<BTreeSet<usize>> = (0..imports.len()).map(reached).collect();
    let circle = |at: usize| -> BTreeSet<usize> {
        all[at].iter().copied().filter(|to| all[*to].contains(&at)).collect()
    };
    let found: BTreeSet<BTreeSet<usize>> =
        (0..imports.len()).map(circle).filter(|circle| circle.len() > 1).collect();
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

#[test]
fn imports_point_downward() {
    let files = product();
    let rank = |path: &Path| {
        let name = layer(path);
        let place = LAYERS.iter().position(|layer| *layer == name);
        place.unwrap_or_else(|| panic!("{} is in no layer", path.display()))
    };
    for ((path, _), imported) in files.iter().zip(imports(&files)) {
        if ROOTS.contains(&layer(path)) {
            continue;
        }
        for (to, _) in imported.into_iter().map(|to| &files[to]) {
            let down = !ROOTS.contains(&layer(to)) && rank(to) <= rank(path);
            assert!(down, "{} must not import {}", path.display(), to.display());
        }
    }
}

#[test]
fn no_circle_of_imports_is_large() {
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let files = product();
    let circles = circles(&imports(&files));
    let names = |circle: &BTreeSet<usize>| -> Vec<String> {
        circle.iter().map(|at| module(&files[*at].0).join("/")).collect()
    };
    println!("{} files, {} circles of imports", files.len(), circles.len());
    for circle in circles.iter().map(names) {
        println!("a circle of {}: {}", circle.len(), circle.join(", "));
    }
    for circle in circles.iter().map(names) {
        assert!(circle.len() <= CIRCLE_MAX, "too many files import each other: {circle:?}");
        let named = circle.iter().all(|file| architecture.contains(file.as_str()));
        assert!(circle.len() < 3 || named, "ARCHITECTURE.md does not name {circle:?}");
    }
}

#[test]
fn a_type_has_a_name_of_its_own() {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in product().into_iter().filter(|(path, _)| !path.starts_with(WINDOWS)) {
        for line in text.lines() {
            let Some(name) = type_name(line) else { continue };
            types.entry(name).or_default().push(path.display().to_string());
        }
    }
    types.retain(|_, places| places.len() > 1);
    assert!(types.is_empty(), "names of types that occur more than once: {types:#?}");
}

/// Returns the name of the type that a line defines. Types within functions and implementations need not be unique.
fn type_name(line: &str) -> Option<String> {
    let line = match line.strip_prefix("pub") {
        Some(rest) => {
            rest.strip_prefix("(crate)").or_else(|| rest.strip_prefix("(super)")).unwrap_or(rest)
        }
        None => line,
    };
    let line = line.strip_prefix(' ').unwrap_or(line);
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    Some(rest.chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect())
}

/// The engine may depend only on the packages of its manifest, and the lock file has no others.
#[test]
fn the_engine_is_pure() {
    for (features, limit) in [("", CORE_PACKAGES_MAX), ("toml", CORE_WITH_TOML_MAX)] {
        let packages = packages_of("milepost-core", features);
        println!("features {features:?}: {} packages: {packages:?}", packages.len());
        assert!(packages.len() <= limit, "{} packages: {packages:?}", packages.len());
        for impure in IMPURE_PACKAGES {
            assert!(!packages.contains(impure), "the engine is built from {impure}");
        }
    }
    for (path, text) in sources(CORE) {
        for (number, line) in code(&text).lines().enumerate() {
            let said = line.split("//").next().unwrap();
            for impure in IMPURE {
                assert!(!said.contains(impure), "{}:{}: {impure}", path.display(), number + 1);
            }
        }
    }
}

/// The names of all packages that a package is built from with some features, its own among them.
fn packages_of(package: &str, features: &str) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = ["tree", "--locked", "--offline", "--edges=normal", "--prefix=none", "--package"];
    let mut command = Command::new(cargo);
    command.args(tree).args([package, "--features", features]).current_dir(root());
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn code_for_one_system_is_in_one_layer() {
    for (path, text) in product().iter().filter(|(path, _)| layer(path) != PLATFORM) {
        for (number, line) in text.lines().enumerate() {
            let of_one = |name: &&str| line.contains(*name);
            let is_condition = line.contains("cfg") && ["unix", "windows"].iter().any(of_one);
            let named = OF_ONE_SYSTEM.iter().any(of_one);
            assert!(!named && !is_condition, "{}:{}: {line}", path.display(), number + 1);
        }
    }
    let names = |folder: &str| -> BTreeSet<String> {
        let files = product().into_iter().filter(|(path, _)| path.starts_with(folder));
        files
            .flat_map(|(_, text)| text.lines().filter_map(public_name).collect::<Vec<_>>())
            .collect()
    };
    let (windows, unix) = (names(WINDOWS), names("src/platform/unix"));
    assert!(unix.len() > 40, "{unix:?}");
    let missing: Vec<_> = unix.difference(&windows).collect();
    assert!(missing.is_empty(), "Windows lacks {missing:?}");
}

/// The name of a public item of the platform, which a line defines.
fn public_name(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = rest.strip_prefix("(in crate::platform)").unwrap_or(rest).strip_prefix(' ')?;
    let rest = rest.strip_prefix("async ").unwrap_or(rest);
    let kinds = ["fn ", "struct ", "type ", "const "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    Some(rest.chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect())
}

#[test]
fn every_file_says_what_it_is_and_stays_short() {
    for folder in ["src", CORE, "examples", "tests/it"] {
        for (path, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{} does not say what it is", path.display());
            let lines = code(&text).lines().count();
            let limit = if PRODUCT.contains(&folder) { LINES_MAX } else { usize::MAX };
            assert!(lines <= limit, "{} has {lines} lines", path.display());
        }
    }
}

/// Returns the group of a line that imports: the standard library, packages, this package. An import from an `enum` or
/// a module of the same file has no group.
fn import_group(line: &str) -> Option<usize> {
    let first = line.strip_prefix("use ")?.split([':', ';', ' ']).next()?;
    match first {
        "std" => Some(0),
        "crate" | "super" | "self" => Some(2),
        _ if first.starts_with(char::is_uppercase) => None,
        _ => Some(1),
    }
}

#[test]
fn imports_stand_in_one_order() {
    for folder in ["src", CORE, "crates/core/tests", "tests", "examples", "benches"] {
        for (path, text) in sources(folder) {
            let is_own = |line: &&str| {
                let module = line.strip_prefix("use ").and_then(|path| path.split("::").next());
                module.is_some_and(|name| text.contains(&format!("\nmod {name};\n")))
            };
            let imports = text.lines().filter(|line| !is_own(line));
            let groups: Vec<usize> = imports.filter_map(import_group).collect();
            let place = path.display();
            assert!(groups.is_sorted(), "{place}: std, then packages, then this package");
        }
    }
}

#[test]
fn every_reason_and_repair_is_explained_and_shown() {
    let documents = std::fs::read_to_string(root().join("docs/verdicts.md")).unwrap();
    let transcripts: String =
        crate::core::transcripts::transcripts().into_iter().map(|one| one.text).collect();
    // Reasons that a transcript cannot show: they need bytes on a line, a large message or a failure.
    let elsewhere = [Reason::Noise, Reason::TooLong, Reason::FailedOpen];
    for reason in Reason::ALL {
        let name = reason.name();
        assert!(documents.contains(&format!("| `{name}` |")), "{name} is not explained");
        let shown = transcripts.contains(&format!("\nx {name}\n"));
        assert!(shown || elsewhere.contains(&reason), "{name} is in no transcript");
    }
    for repair in Repair::ALL {
        let name = repair.name();
        assert!(documents.contains(&format!("| `{name}` |")), "{name} is not explained");
        // Only HTTP has events: `names_of_events_are_repaired_and_counted` shows this repair.
        if repair == Repair::EventName {
            continue;
        }
        let told = [format!("[{name} "), format!(", {name} ")];
        let summary = |line: &str| line.starts_with("~ ") && told.iter().any(|t| line.contains(t));
        assert!(transcripts.lines().any(summary), "{name} is in no transcript");
    }
}

#[test]
fn no_file_tells_of_the_machine_it_was_written_on() {
    let mut files = product_sources();
    for folder in ["tests", "examples", "benches"] {
        if root().join(folder).exists() {
            files.extend(sources(folder));
        }
    }
    for (path, text) in files {
        if path.ends_with("tidy/mod.rs") {
            continue;
        }
        for foreign in ["../shared", "\"/home/", "\"/root/", "\"/work/"] {
            assert!(!text.contains(foreign), "{}: {foreign}", path.display());
        }
    }
}
