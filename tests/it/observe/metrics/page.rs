//! A strict reader of what `/metrics` says (OpenMetrics 1.0).

use std::collections::{BTreeMap, BTreeSet};

/// The lines about one metric.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    unit: Option<String>,
    /// Names of its samples and of their labels.
    pub(crate) samples: BTreeMap<String, BTreeSet<String>>,
}

type Labels = BTreeMap<String, String>;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) families: BTreeMap<String, Family>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Page {
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let text = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
        let mut page = Self::default();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(said) = line.strip_prefix("# ") {
                let (what, rest) = said.split_once(' ').unwrap();
                let (name, text) = rest.split_once(' ').unwrap();
                if name != current {
                    let new = page.families.insert(name.to_owned(), Family::default()).is_none();
                    assert!(new, "{name} is told of twice");
                    name.clone_into(&mut current);
                }
                let family = page.families.get_mut(name).unwrap();
                assert!(family.samples.is_empty(), "{line} stands behind samples");
                match what {
                    "HELP" => text.clone_into(&mut family.help),
                    "TYPE" => text.clone_into(&mut family.kind),
                    "UNIT" => family.unit = Some(text.to_owned()),
                    _ => panic!("what is {line:?}?"),
                }
                continue;
            }
            page.sample(&current, line);
        }
        for (name, family) in &page.families {
            let unit = family.unit.as_ref();
            assert!(unit.is_none_or(|unit| name.ends_with(&format!("_{unit}"))), "{name} {unit:?}");
            assert!(!family.kind.is_empty() && family.help.ends_with('.'), "{name}: {family:?}");
        }
        page.check_histograms();
        page
    }

    #[track_caller]
    fn sample(&mut self, family: &str, line: &str) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
        let known = self.families.get_mut(family).unwrap();
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is in {family}"));
        let fits = match known.kind.as_str() {
            "counter" => suffix == "_total",
            "gauge" => suffix.is_empty(),
            "info" => suffix == "_info",
            "histogram" => ["_bucket", "_count", "_sum"].contains(&suffix),
            other => panic!("what is a {other}?"),
        };
        assert!(fits, "{line} is no sample of a {}", known.kind);
        let allowed = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.starts_with("milepost_") && name.chars().all(allowed), "{name}");
        let (labels, value) = match rest.strip_prefix('{') {
            None => (Labels::new(), rest),
            Some(rest) => labels(rest),
        };
        let value = value.strip_prefix(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value >= 0.0, "{line}");
        let names = labels.keys().cloned().collect();
        let before =
            known.samples.entry(name.to_owned()).or_insert_with(|| BTreeSet::clone(&names));
        assert_eq!(*before, names, "{line} has other labels than those before");
        let twice = self.samples.insert((name.to_owned(), labels), value);
        assert!(twice.is_none(), "{line} is there twice");
    }

    fn check_histograms(&self) {
        let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            let Some(family) = name.strip_suffix("_bucket") else { continue };
            let mut labels = labels.clone();
            let le = labels.remove("le").unwrap();
            let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
            buckets.entry((family.to_owned(), labels)).or_default().push((le, *value));
        }
        for ((family, labels), mut buckets) in buckets {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{family}: {buckets:?}");
            let count = self.samples[&(format!("{family}_count"), labels)];
            assert_eq!(buckets.last().unwrap(), &(f64::INFINITY, count), "{family}");
        }
    }

    /// The sum of the samples that have these labels.
    #[track_caller]
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has =
            |own: &Labels| labels.iter().all(|(k, v)| own.get(*k).is_some_and(|own| own == v));
        let mut found =
            self.samples.iter().filter(|((own, l), _)| own == name && has(l)).peekable();
        assert!(found.peek().is_some(), "there is no {name} with {labels:?}");
        found.map(|(_, value)| value).sum()
    }

    /// How many samples there are.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// How many samples there are of this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.samples.keys().filter(|(own, _)| own == name).count()
    }

    /// The labels of samples of this name.
    pub(crate) fn labels(&self, name: &str) -> Option<&BTreeSet<String>> {
        self.families.values().find_map(|family| family.samples.get(name))
    }

    /// Whether a sample has this label.
    pub(crate) fn has(&self, name: &str, label: &str, value: &str) -> bool {
        let mut samples = self.samples.keys().filter(|(own, _)| own == name);
        samples.any(|(_, labels)| labels.get(label).is_some_and(|own| own == value))
    }
}

/// Returns the labels, and the text after them.
fn labels(text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        if let Some(behind) = rest.strip_prefix('}') {
            return (labels, behind);
        }
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        let mut own = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => own.push('\n'),
                    c @ ('"' | '\\') => own.push(c),
                    c => panic!("\\{c} in {text}"),
                },
                (_, c) => own.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), own).is_none(), "{name} twice in {text}");
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}
