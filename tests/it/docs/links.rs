//! Links in the documents lead somewhere: to a file that is there, and to a heading that is in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::home;

/// The documents of the repository: at its root, in `docs` and in `examples`.
fn documents() -> Vec<PathBuf> {
    let folders = [home().to_owned(), home().join("docs"), home().join("examples")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found
}

/// A document without its blocks of code, which may hold what looks like a link or a heading.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// The targets of the links of a document.
fn targets(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The names under which headings can be reached, as GitHub makes them.
fn anchors(prose: &str) -> BTreeSet<String> {
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        words.chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// The fault of a link, if it has one.
fn fault(document: &Path, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let place = match file {
        "" => document.to_owned(),
        file => document.parent()?.join(file),
    };
    if !place.exists() {
        return Some("no such file".into());
    }
    if anchor.is_empty() {
        return None;
    }
    let text = std::fs::read_to_string(&place).ok()?;
    (!anchors(&prose(&text)).contains(anchor)).then(|| "no such heading".into())
}

#[test]
fn links_lead_somewhere() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for document in documents() {
        let text = prose(&std::fs::read_to_string(&document).unwrap());
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let fault = fault(&document, target);
            wrong.extend(fault.map(|fault| format!("{}: {target}: {fault}", document.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 10, "{seen}");
}

/// Each page is named in the index of the pages, and the README leads to the index, so that a reader finds every page.
#[test]
fn the_index_leads_to_every_page() {
    let read = |path: &str| std::fs::read_to_string(home().join(path)).unwrap();
    let (readme, index) = (read("README.md"), read("docs/README.md"));
    assert!(readme.contains("](docs/README.md"));
    for document in documents() {
        let name = document.strip_prefix(home()).unwrap().display().to_string();
        let page = name.strip_prefix("docs/").filter(|page| *page != "README.md");
        assert!(page.is_none_or(|page| index.contains(&format!("]({page})"))), "{name}");
    }
}

#[test]
fn faults_of_links_are_seen() {
    let readme = home().join("README.md");
    assert_eq!(fault(&readme, "docs/nowhere.md").as_deref(), Some("no such file"));
    assert_eq!(fault(&readme, "docs/verdicts.md#nothing").as_deref(), Some("no such heading"));
    assert_eq!(fault(&readme, "docs/verdicts.md#why-something-is-withheld"), None);
    assert_eq!(targets("a [b](c.md) and [`d`](e.md#f)"), ["c.md", "e.md#f"]);
    assert_eq!(prose("a\n```toml\n[x](y)\n```\nb"), "a\n\nb");
}
