//! Decides from the words around a number what the number means.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::progress::value::Number;

type WordSet = LazyLock<BTreeSet<&'static str>>;

/// Limit of the words before or after a value that are examined.
const NEAR: usize = 5;

/// What a number means, according to the words around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The number counts finished work.
    Done,
    /// The number counts work that is left.
    Left,
    /// The number means something else, or its meaning is not clear.
    Other,
}

/// Words that do not affect the meaning of a number.
static FILLERS: WordSet = LazyLock::new(|| {
    "a about an approx are around at currently in is it no now number of only reached so \
    stands the to total was with"
        .split_whitespace()
        .collect()
});

/// Words near a percentage which show that it measures something other than work.
static MEASURES: WordSet = LazyLock::new(|| {
    "acc accuracy accurate alpha auc availability available battery below better bigger \
    brightness busy by capacity certain chance charge charged cheaper ci compressed \
    compression confidence confident coverage covered cpu cpus decrease decreased deviation \
    discount down dropout error errors exceeded exceeds f1 failed failure failures fall faster \
    fee fewer filled free full gpu growth heap height higher hit hits humidity identical idle \
    improved improvement increase increased iowait larger least less likely limit load loss \
    lower margin max maximum met min minimum more most occupied off opacity overhead packet \
    passed percentile precision probability quality quantile quota rate ratio recall reduced \
    reduction saved savings score similar similarity sla slo slower smaller sparsity speedup \
    success sure target tax than threshold tolerance up uptime usage used utilization utilized \
    variance volume wait width zoom"
        .split_whitespace()
        .collect()
});

/// Names of storage. A percentage near such a name is a fill level and not progress, unless the text speaks of work on
/// the storage ("Writing to disk: 45%").
static STORES: WordSet = LazyLock::new(|| {
    "branches cache disk functions lines mem memory ram space statements storage swap user"
        .split_whitespace()
        .collect()
});

/// Words before a pair of numbers which show that the pair is not progress.
static PAIRS: WordSet = LazyLock::new(|| {
    "acc accuracy active aspect attempt attempts auc battery bind binding bound budget code confidence \
    connections core cores cpu cpus credits cron disk errors exit failed failures found get \
    gid gpu gpus grade heap hit hits http ip limit listen listening load loss matched mem memory need odds passed php \
    pool port ports precision priority python quota ram rank rated rating ratio ready recall \
    relevance resolution retried retries retry retrying scale score scored severity similarity size slots ssl status \
    swap tcp threads tls tokens udp usage used"
        .split_whitespace()
        .collect()
});

/// Words after a pair of numbers which show that the pair is not progress.
static OUTCOMES: WordSet = LazyLock::new(|| {
    "active attempts available bit bits broken busy chance core cores correct cpu cpus cup \
    cups deprecated error errors expired failed failing failure failures fps free full gpu \
    gpus healthy hour hours idle inch inches incorrect invalid mah majority memory missing mph \
    offline online outdated passed passing pending points queued ram ready rejected retries \
    rpm skipped slots stale stars threads tries unavailable unhealthy unreachable unused used \
    votes vulnerable warnings workers wrong"
        .split_whitespace()
        .collect()
});

/// Words which show that two small numbers are a date.
static DATES: WordSet = LazyLock::new(|| {
    "after before by date dated day deadline due expires fri friday from mon monday on sat \
    since sun thu tue until updated wed week"
        .split_whitespace()
        .collect()
});

/// Words ending in -ing that do not name work, or only name the observation of work.
static NO_WORK: WordSet = LazyLock::new(|| {
    "checking downgrading listening monitoring rating remaining retrying scaling string training \
    upgrading using warning"
        .split_whitespace()
        .collect()
});

/// Words that name work.
static WORK: WordSet = LazyLock::new(|| {
    "complete completed done epoch finished processed progress stage step task"
        .split_whitespace()
        .collect()
});

/// The meaning of a percentage in brackets, behind this text.
pub(super) fn role_of_bracketed(before: &str) -> Role {
    let name = names_before(before, 1);
    // Words that pytest prints before its percentage.
    match name.first().is_some_and(|name| !["passed", "failed", "error"].contains(&&**name)) {
        true => role_by_names(&name),
        false => Role::Done,
    }
}

/// The meaning of a percentage between these texts.
pub(super) fn role_of_percentage(before: &str, after: &str) -> Role {
    if role_by_names(&names_before(before, NEAR)) == Role::Other {
        return Role::Other;
    }
    let ahead = ahead(after, 2);
    let is_other = |word: &String| {
        let word = word.as_str();
        MEASURES.contains(word) || STORES.contains(word) || is_left(word) || OUTCOMES.contains(word)
    };
    if ahead.iter().any(is_other) { Role::Other } else { Role::Done }
}

/// The last words before a percentage, the nearest first.
fn names_before(before: &str, most: usize) -> Vec<String> {
    words_backwards(clause(before.trim_end_matches(['[', ' ']))).take(most).collect()
}

/// The meaning of a percentage behind these words.
fn role_by_names(names: &[String]) -> Role {
    let works = names.iter().any(|name| is_work(name));
    let told = names.iter().filter(|name| !FILLERS.contains(name.as_str())).enumerate();
    for (at, name) in told {
        // In "Setting up 45%" the word `up` is a particle of the verb.
        let is_particle = works && ["down", "off", "up"].contains(&name.as_str());
        // If the text also names work, a word for a measure counts only directly before the number.
        let is_measure = MEASURES.contains(name.as_str()) && (at < 2 || !works) && !is_particle;
        if is_measure || (STORES.contains(name.as_str()) && !works) {
            return Role::Other;
        }
    }
    Role::Done
}

/// Returns the meaning of a fraction that stands between these texts.
pub(super) fn role_of_fraction(before: &str, after: &str) -> Role {
    // Removes the bracket in texts such as "retrying (1/3)".
    let before = before.strip_suffix('(').unwrap_or(before);
    let after_comma = before.rsplit(',').next().unwrap_or(before);
    let names: Vec<String> = words_backwards(clause(after_comma)).take(NEAR).collect();
    let works = names.iter().any(|name| is_work(name));
    let mut told = names.iter().filter(|name| !FILLERS.contains(name.as_str())).take(2);
    if told.any(|name| PAIRS.contains(name.as_str()) && !(works && STORES.contains(name.as_str())))
    {
        return Role::Other;
    }
    let ahead = ahead(after, 2);
    if ahead.iter().any(|word| OUTCOMES.contains(word.as_str())) {
        return Role::Other;
    }
    let left = ahead.iter().any(|word| is_left(word));
    let allowed = ["calls", "credits", "quota", "requests", "tokens"];
    match left {
        true if ahead.iter().any(|word| allowed.contains(&word.as_str())) => Role::Other,
        true => Role::Left,
        false => Role::Done,
    }
}

fn is_left(word: &str) -> bool {
    matches!(word, "left" | "remaining" | "remain" | "go")
}

/// Whether a text begins with the name of a webpack phase.
pub(super) fn is_phase(text: &str) -> bool {
    let word = text.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
    is_work(word) || ["after", "before", "cache", "setup"].contains(&word)
}

/// Whether the words before a number show that work is in progress.
pub(super) fn tells_progress(before: &str) -> bool {
    words_backwards(clause(before)).take(NEAR).any(|word| is_work(&word))
}

fn is_work(word: &str) -> bool {
    let is_doing = word.len() > 5 && word.ends_with("ing") && !NO_WORK.contains(&word);
    is_doing || WORK.contains(&word)
}

/// Whether two numbers may be a day or a year. `start` and `end` are their positions in their line.
pub(super) fn is_date(one: &Number, other: &Number, line: &str, start: usize, end: usize) -> bool {
    let (before, written) = line.split_at(start);
    let (written, after) = written.split_at(end - start);
    let is_year = |value: f64| (1990.0..2100.0).contains(&value);
    if is_year(one.value) && other.value == one.value + 1.0 {
        return true;
    }
    let day = |month: f64, day: f64| (1.0..=12.0).contains(&month) && (1.0..=31.0).contains(&day);
    let is_month_of_year = written.len() == 7 && one.value <= 12.0 && is_year(other.value);
    if !day(one.value, other.value) && !day(other.value, one.value) && !is_month_of_year {
        return false;
    }
    let rest = after.trim_start();
    let clock = rest.split(char::is_whitespace).next().unwrap_or_default();
    let is_clock = rest.len() < after.len()
        && clock.starts_with(|c: char| c.is_ascii_digit())
        && clock.contains(':');
    let named = words_backwards(before).next().is_some_and(|word| DATES.contains(&*word));
    // "11/22" and "11/22 Server started" are dates, "11/22 files" and "7/22" are not.
    let is_written_out = written.len() == 5 || is_month_of_year;
    let opens = before.trim_matches([' ', '[', '(']).is_empty();
    let stands_alone = after.trim_matches([' ', ']', ')']).is_empty()
        || after.starts_with(' ') && rest.starts_with(|c: char| c.is_ascii_uppercase());
    let is_slash = written.contains('/');
    is_slash
        && (is_clock || named || (is_written_out && opens && stands_alone && before.is_empty()))
}

/// Returns the end of a text, starting at the last separator of two statements.
fn clause(text: &str) -> &str {
    let text = text.rsplit(['|', ';', '(', ')', '[', ']', '{', '}']).next().unwrap_or(text);
    text.rfind(" - ").map_or(text, |at| text.split_at(at + 3).1)
}

/// Returns the words of a text in lower case, without file names, the last word first.
fn words_backwards(text: &str) -> impl Iterator<Item = String> {
    let is_name = |token: &str| {
        token.contains(['/', '\\'])
            || token.trim_matches(|c: char| !c.is_alphanumeric()).contains('.')
    };
    text.split_whitespace()
        .rev()
        .filter(move |token| !is_name(token))
        .flat_map(|token| token.rsplit(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.chars().any(char::is_alphabetic))
        .map(str::to_lowercase)
}

/// Returns the next words of a sentence in lower case, without filler words.
fn ahead(text: &str, count: usize) -> Vec<String> {
    let end = text.find(['|', ';', '(', ')', '[', ']', '{', '}', ',', ':']).unwrap_or(text.len());
    let thought = text.split_at(end).0;
    let thought = thought.split(" - ").next().unwrap_or_default();
    let words = thought
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase());
    words
        .filter(|word| !word.is_empty() && !FILLERS.contains(word.as_str()))
        .take_while(|word| !word.starts_with(|c: char| c.is_ascii_digit()))
        .take(count)
        .collect()
}
