//! Habits of a server that only several notifications together show: values, texts and frequency.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::order;

/// Number of usable notifications of one call within a second that count as a flood.
const FLOOD: usize = 50;

/// Maximum number of values of one call that are examined.
const VALUES_MAX: usize = 1000;

/// Minimum number of messages of a call that show whether they are pieces of one text.
const PIECES_MIN: usize = 3;

/// Minimum number of different values from which the unit of a value can be seen.
const VALUES_MIN: usize = 3;

/// Minimum number of values without a total, beside texts with a total, that count as a habit.
const BESIDE_WORDS_MIN: usize = 2;

/// The habits of one call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Habits {
    /// The values without a total.
    values: Vec<f64>,
    pub(super) has_total: bool,
    /// The number of values without a total whose texts have a value and its total.
    beside_words: usize,
    messages: usize,
    /// The number of messages that begin or end in the middle of a sentence.
    ragged: usize,
    last: String,
    /// The times of the notifications within the last second.
    times: VecDeque<Duration>,
    /// The largest number of notifications within a second.
    most: usize,
}

impl Habits {
    /// Notes a value without a total.
    pub fn see_value(&mut self, value: f64) {
        if self.values.len() < VALUES_MAX {
            self.values.push(value);
        }
    }

    /// Notes a value without a total whose text has a value and its total.
    pub fn see_figure_beside_counter(&mut self) {
        self.beside_words += 1;
    }

    /// Whether the values have no total, while the texts have one and are more informative.
    pub fn counts_beside_words(&self) -> bool {
        self.beside_words >= BESIDE_WORDS_MIN && !self.has_total
    }

    /// Notes a text. A text that continues the previous text from its beginning is not a piece.
    pub fn see_words(&mut self, words: &str) {
        let is_next = self.messages > 0 && !self.last.is_empty() && words.starts_with(&self.last);
        let is_ragged = words.starts_with(' ') || words.ends_with(' ');
        self.messages += 1;
        self.ragged += usize::from(is_ragged && !is_next);
        words.clone_into(&mut self.last);
    }

    /// Notes the time of a usable notification.
    pub fn see_time(&mut self, at: Duration) {
        self.times.push_back(at);
        while self.times.front().is_some_and(|first| *first + Duration::from_secs(1) < at) {
            self.times.pop_front();
        }
        self.most = self.most.max(self.times.len());
    }

    /// Returns the largest number of notifications within a second, if it is a flood.
    pub fn flood(&self) -> Option<usize> {
        (self.most >= FLOOD).then_some(self.most)
    }

    /// Whether the messages are pieces of one text.
    pub fn are_pieces(&self) -> bool {
        self.messages >= PIECES_MIN && self.ragged * 2 >= self.messages
    }

    /// Returns the unit in which values without a total seem to count, as a value of the setting `scale`.
    pub fn scale(&self) -> Option<&'static str> {
        let mut distinct: Vec<f64> = self.values.iter().copied().filter(|v| *v > 0.0).collect();
        let last = distinct.last().copied()?;
        order::sort_by(&mut distinct, f64::total_cmp);
        distinct.dedup();
        if self.has_total || distinct.len() < VALUES_MIN {
            return None;
        }
        let highest = distinct.last().copied()?;
        let tens = distinct.iter().all(|value| value % 10.0 == 0.0) && highest >= 50.0;
        if highest <= 1.0 {
            Some("unit")
        } else if highest <= 100.0 && (tens || last >= 100.0) {
            Some("percent")
        } else {
            None
        }
    }

    /// Returns the text of the last message.
    pub fn last_words(&self) -> &str {
        &self.last
    }

    /// Returns the first values without a total as text.
    pub fn shown_values(&self) -> String {
        let shown = self.values.iter().take(6).map(|value| value.to_string());
        shown.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(values: &[f64]) -> Option<&'static str> {
        let mut habits = Habits::default();
        values.iter().for_each(|value| habits.see_value(*value));
        habits.scale()
    }

    #[test]
    fn values_without_total_show_what_they_count() {
        assert_eq!(counts(&[0.0, 10.0, 20.0, 20.0, 40.0, 0.0, 70.0]), Some("percent"));
        assert_eq!(counts(&[3.0, 41.5, 100.0]), Some("percent"));
        assert_eq!(counts(&[0.1, 0.35, 1.0]), Some("unit"));
        assert_eq!(counts(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(counts(&[10.0, 20.0]), None);
        assert_eq!(counts(&[50.0, 100.0, 150.0]), None);
        let mut habits = Habits { has_total: true, ..Habits::default() };
        [10.0, 20.0, 30.0].into_iter().for_each(|value| habits.see_value(value));
        assert_eq!(habits.scale(), None);
    }

    #[test]
    fn pieces_begin_or_end_within_a_sentence_and_do_not_repeat() {
        let are_pieces = |words: &[&str]| {
            let mut habits = Habits::default();
            words.iter().for_each(|words| habits.see_words(words));
            habits.are_pieces()
        };
        assert!(are_pieces(&["All ", "seems ", "well."]));
        assert!(!are_pieces(&["All ", "All seems ", "All seems well."]));
        assert!(!are_pieces(&["Starting", "Reading", "Done"]));
    }

    #[test]
    fn a_flood_is_many_within_a_second() {
        let flood = |gap: u64| {
            let mut habits = Habits::default();
            (0..100).for_each(|at| habits.see_time(Duration::from_millis(at * gap)));
            habits.flood()
        };
        assert_eq!(flood(10), Some(100));
        assert_eq!(flood(50), None);
    }
}
