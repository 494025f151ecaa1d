//! The places of members with known names: how sure such a place holds the value, its total or the text.

use super::guess::has_words;
use super::places::MemberPlace;
use crate::lab::doctor::member_names::{NO_VALUES, PERCENTS, TOTALS, VALUES, WORDS};
use crate::progress::extract::Extract;

/// Minimum number of messages after which a value or a text that never changes counts as pub(super) constant.
pub(super) const STILL_MIN: usize = 3;

/// How sure a place of a known name holds the value; `None`: the place holds none, or its name is not known.
pub(super) fn rank_of_value(place: &MemberPlace, total: Option<&MemberPlace>) -> Option<i32> {
    let numbers = place.numbers();
    let in_words = || {
        let presets = Extract::presets();
        place.all(|value| value.as_str().is_some_and(|text| presets.figure(text).is_some()))
    };
    let position = VALUES.iter().position(|name| place.name == *name);
    let is_percent = PERCENTS.contains(&&*place.name);
    if numbers.is_empty() {
        return ((is_percent || position.is_some()) && in_words()).then_some(25);
    }
    let is_plain = numbers.iter().all(|value| (0.0..1e12).contains(value));
    if NO_VALUES.contains(&&*place.name) || numbers.len() != place.values.len() || !is_plain {
        return None;
    }
    let rises = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
    let moves = numbers.windows(2).any(|pair| pair[0] != pair[1]);
    let by_name = match (is_percent, position) {
        (true, _) => 30,
        (false, Some(0..=2)) => 28,
        (false, Some(at)) if at < 15 => 22,
        (false, Some(_)) => 12,
        (false, None) => return None,
    };
    // Another number may be more informative.
    if !moves && numbers.len() >= STILL_MIN {
        return None;
    }
    let movement = match (numbers.len(), rises && moves) {
        (1, _) => 0,
        (_, true) => 10,
        (2, false) => -5,
        (_, false) if moves => -8,
        (_, false) => -15,
    };
    // A number of a name that means many things counts something only if it rises towards a total.
    let is_sure = by_name >= 20 || (total.is_some() && rises && moves && numbers.len() > 2);
    let rank = by_name
        + movement
        + if total.is_some() { 15 } else { 0 }
        + i32::from(place.is_inside_progress()) * 5;
    (is_sure && rank >= 10).then_some(rank)
}

/// The place of the total of a value: a member beside it that is named for a total and is never less.
pub(super) fn named_total_of<'a>(
    value: &MemberPlace,
    places: &[&'a MemberPlace],
) -> Option<&'a MemberPlace> {
    let numbers = value.numbers();
    let fits = |place: &&MemberPlace| {
        let totals = place.numbers();
        let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
        TOTALS.contains(&&*place.name)
            && place.parent == value.parent
            && place.pointer != value.pointer
            && !totals.is_empty()
            && !numbers.is_empty()
            && totals.len() == place.values.len()
            && least > 0.0
            && numbers.iter().all(|value| *value <= least)
    };
    places.iter().copied().find(fits)
}

/// Returns how likely a place with a known name contains text for people; `None` if it contains none, or its name is
/// unknown.
pub(super) fn rank_of_words(place: &MemberPlace) -> Option<i32> {
    let texts: Vec<&str> = place.values.iter().filter_map(|(_, value)| value.as_str()).collect();
    if texts.len() != place.values.len() || !texts.iter().any(|text| has_words(text)) {
        return None;
    }
    let position = WORDS.iter().position(|name| place.name == *name)?;
    let by_name = 40 - i32::try_from(position).unwrap_or(0);
    let has_sentences = texts.iter().any(|text| text.trim().contains(' '));
    Some(by_name + i32::from(has_sentences) * 10 + i32::from(!place.is_constant()) * 5)
}
