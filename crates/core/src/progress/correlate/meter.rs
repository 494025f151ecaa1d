//! The last progress value of one token at one client. The value only rises.

use bytes::Bytes;

use crate::progress::policy::OnFall;
use crate::progress::value::{Number, NumberView, ProgressView, is_total_of, spell};
use crate::progress::verdict::{Reason, Repair, Repairs};

/// The step of a value before the server has sent a value, and the largest step while values are fractions of 1. The
/// step is small enough to keep the scale of a later `1/10`.
const SMALL_STEP: f64 = 1e-6;

/// Some clients keep progress as a 32-bit float. Below this value at least 1,000 distinct `f32` values fit between two
/// whole numbers.
const F32_STEPS_BELOW: f64 = 16_384.0;

/// One progress value as it is sent to the client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EmittedProgress {
    /// The value.
    pub value: f64,
    /// The total. If the value was repaired, this is the meter's total (`Meter::total_text`), else the server's.
    pub total: Option<f64>,
    /// The repair that made the value, if it is not the server's own value.
    pub repair: Option<Repair>,
}

impl EmittedProgress {
    /// Removes a total that is less than the value, or not above zero.
    pub(crate) fn within_total(mut self, repairs: &mut Repairs) -> Self {
        if self.total.is_some_and(|total| !is_total_of(total, self.value)) {
            self.total = None;
            repairs.add(Repair::Total);
        }
        self
    }
}

/// The progress value of one client's token. Only [`Meter::take`], [`Meter::rise`] and heartbeats change the value, and
/// only upwards.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    emitted: Option<f64>,
    /// The server's last value, as the server sent it.
    claimed: Option<f64>,
    /// The server's highest value.
    highest: Option<f64>,
    /// The server's last total, in the client's scale.
    total: Option<Number>,
    /// The sum of the earlier phases' values, which is added to the server's values.
    base: f64,
    /// Whether a value of 1 or more has been seen.
    past_one: bool,
    /// Whether the last values sent are estimates.
    estimated: bool,
    /// Whether the last values sent are seconds ([`Meter::count_seconds`]).
    in_seconds: bool,
    /// Whether the server's last value was read from a text.
    in_words: bool,
}

impl Meter {
    /// Returns the last value sent to the client.
    pub(crate) fn emitted(&self) -> Option<f64> {
        self.emitted
    }

    /// Raises the value to that of another request with the same token: clients identify progress by its token.
    pub(crate) fn raise_to(&mut self, emitted: Option<f64>) {
        if emitted > self.emitted {
            self.emitted = emitted;
        }
    }

    /// Resets the meter to the last value that the client has received, because the server repeats the values after it.
    pub(crate) fn go_back_to(&mut self, sent: Option<f64>) {
        self.emitted = sent;
        self.claimed = sent.map(|sent| sent - self.base);
        self.highest = self.claimed;
        self.past_one |= self.claimed.is_some_and(|claimed| claimed >= 1.0);
    }

    /// Whether a value would be forwarded unchanged.
    pub(crate) fn would_rise(&self, value: f64) -> bool {
        self.base == 0.0 && self.emitted.is_none_or(|emitted| value > emitted)
    }

    /// Whether a number above the last value exists.
    pub(crate) fn can_rise(&self) -> bool {
        self.lifted().is_ok()
    }

    /// Notes whether the server's next value comes from a text. After values from texts, the first number of the server
    /// has a scale of its own, so it is not added to them.
    pub(crate) fn note_source(&mut self, in_words: bool) {
        if std::mem::replace(&mut self.in_words, in_words) && !in_words {
            (self.claimed, self.highest, self.total, self.base) = (None, None, None, 0.0);
        }
    }

    /// Turns a value of the server into the value for the client.
    pub(crate) fn take(
        &mut self,
        figure: Option<&ProgressView<'_>>,
        on_fall: OnFall,
    ) -> Result<EmittedProgress, Reason> {
        let Some(figure) = figure else {
            let value = self.lifted()?;
            return Ok(self.emit(value, Repair::Number));
        };
        let value = figure.value.value;
        // Called before `claimed` changes, because a value has fallen only if it is below the server's last value. The
        // client's value may be higher because of heartbeats.
        self.begin_phase_if_fallen(figure, on_fall);
        self.claimed = Some(value);
        let highest = self.highest;
        self.highest = Some(highest.map_or(value, |highest| highest.max(value)));
        self.past_one |= value >= 1.0;
        self.note_total(figure.total);
        if self.would_rise(value) {
            self.emitted = Some(value);
            let total = figure.total.map(|total| total.value);
            return Ok(EmittedProgress { value, total, repair: None });
        }
        let raised = self.base + value;
        if self.base != 0.0
            && raised.is_finite()
            && self.emitted.is_none_or(|emitted| raised > emitted)
        {
            return Ok(self.emit(raised, Repair::Rebase));
        }
        // A value that is only below a heartbeat's value has not fallen.
        if on_fall == OnFall::Drop && highest.is_some_and(|highest| value <= highest) {
            return Err(Reason::Fell);
        }
        let value = self.lifted()?;
        Ok(self.emit(value, Repair::Lift))
    }

    /// Accepts a value that rises and needs no repair. Returns false and changes nothing for any other value.
    pub(crate) fn rise(&mut self, value: f64, total: Option<NumberView<'_>>) -> bool {
        if !self.would_rise(value) || self.claimed.is_some_and(|claimed| value < claimed) {
            return false;
        }
        (self.estimated, self.in_seconds, self.in_words) = (false, false, false);
        self.emitted = Some(value);
        self.claimed = Some(value);
        self.highest = Some(self.highest.map_or(value, |highest| highest.max(value)));
        self.past_one |= value >= 1.0;
        self.note_total(total);
        true
    }

    /// Returns the value of a heartbeat without an estimate: `value`, or the next lift if `value` would not rise.
    pub(crate) fn heartbeat(&mut self, value: Option<f64>) -> Result<EmittedProgress, Reason> {
        let lifted = self.lifted()?;
        let value = value.filter(|value| self.emitted.is_none_or(|emitted| *value > emitted));
        Ok(self.emit(value.unwrap_or(lifted), Repair::Number))
    }

    /// Returns the value of a heartbeat without a text: the elapsed seconds of the call, as long as they rise. Only for
    /// a call whose server has sent no value, of a tool whose earlier calls had none either. If the server sends a
    /// value later, the value is added to the seconds and keeps its scale.
    pub(crate) fn count_seconds(&mut self, seconds: f64) -> Result<EmittedProgress, Reason> {
        let emitted = self.heartbeat(Some(seconds))?;
        self.in_seconds = true;
        Ok(emitted)
    }

    /// Returns the value of a heartbeat with an estimate: `part`, the elapsed part of the usual duration, or the
    /// smallest step if `part` is not above the last value. Only for a call whose server has sent no value.
    pub(crate) fn estimate(&mut self, part: Option<f64>) -> Result<EmittedProgress, Reason> {
        let lifted = self.lifted()?;
        self.total = Some(Number { value: 1.0, text: Bytes::from_static(b"1") });
        self.estimated = true;
        let part = part.filter(|part| *part >= lifted);
        Ok(self.emit(part.unwrap_or(lifted), Repair::Number))
    }

    /// Returns the text of the server's last total, in the client's scale.
    pub(crate) fn total_text(&self) -> &[u8] {
        self.total.as_ref().map_or(&[], |total| &total.text)
    }

    fn begin_phase_if_fallen(&mut self, figure: &ProgressView<'_>, on_fall: OnFall) {
        if std::mem::take(&mut self.in_seconds) && !self.would_rise(figure.value.value) {
            self.base = self.emitted.unwrap_or(self.base);
            return;
        }
        if std::mem::take(&mut self.estimated) && !self.would_rise(figure.value.value) {
            // Fractions of 1 are added to the estimates. Values of a larger scale soon exceed them anyway.
            let value = figure.value.value;
            let total = figure.total.as_ref().map_or(1.0, |total| total.value);
            let is_part = total <= 1.0 && value < 1.0 && (value > 0.0 || figure.total.is_some());
            self.base = self.emitted.filter(|_| is_part).unwrap_or(self.base);
            self.estimated = !is_part;
            return;
        }
        // Under `lift`, a fall together with another total begins a new phase (download, then unpack); a fall with the
        // same total is a step back within the phase. `self.total` includes the base.
        let fell = self.claimed.is_some_and(|claimed| figure.value.value < claimed);
        let base = self.base;
        let other_total = match (&self.total, &figure.total) {
            (Some(last), Some(new)) => last.value != new.value + base,
            _ => false,
        };
        if fell && (on_fall == OnFall::Rebase || (on_fall == OnFall::Lift && other_total)) {
            self.base = self.emitted.unwrap_or(0.0);
        }
    }

    /// Notes the total that came with the server's last value.
    fn note_total(&mut self, total: Option<NumberView<'_>>) {
        let base = self.base;
        let known = self.total.as_ref();
        // The usual case: the total is unchanged.
        if base == 0.0 && known.map(|known| &known.text[..]) == total.map(|total| total.text) {
            return;
        }
        self.total = total.map(|NumberView { value, text }| {
            if base == 0.0 {
                // Copied, because the meter outlives the buffer of the message.
                return Number { value, text: Bytes::copy_from_slice(text) };
            }
            let value = base + value;
            Number { value, text: spell(value) }
        });
    }

    fn emit(&mut self, value: f64, repair: Repair) -> EmittedProgress {
        self.emitted = Some(value);
        let total = self.total.as_ref().map(|total| total.value);
        // The sum of a base and a total may be infinite, which JSON cannot express.
        let total = total.filter(|total| is_total_of(*total, value) && total.is_finite());
        EmittedProgress { value, total, repair: Some(repair) }
    }

    /// Returns the smallest value above the last one (a lift).
    fn lifted(&self) -> Result<f64, Reason> {
        let emitted = self.emitted.unwrap_or(0.0);
        // While the values are fractions of 1, a step of 1 would exceed the total.
        let parts_of_one =
            !self.past_one || self.total.as_ref().is_some_and(|total| total.value <= 1.0);
        let step = if parts_of_one {
            SMALL_STEP
        } else if emitted.abs() < F32_STEPS_BELOW {
            f32_step(emitted).max(SMALL_STEP)
        } else {
            (emitted.abs().next_up() - emitted.abs()).max(SMALL_STEP)
        };
        let mut next = emitted + step;
        if step == SMALL_STEP {
            // Rounded to six decimals, because sums of many small steps are hard to read.
            let round = ((emitted / SMALL_STEP + 1e-3).floor() + 1.0) / 1e6;
            if round - emitted >= f32_step(emitted).min(SMALL_STEP / 2.0) {
                next = round;
            }
        }
        // The rounding of a large value may swallow a small step.
        let next = if next > emitted { next } else { emitted.next_up() };
        if next.is_finite() { Ok(next) } else { Err(Reason::Exhausted) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the step of the narrower type is asked for")]
fn f32_step(value: f64) -> f64 {
    let narrow = value.abs() as f32;
    f64::from(narrow.next_up()) - f64::from(narrow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::value::ProgressValue;

    fn figure(text: &str) -> Option<ProgressValue> {
        let number = |text: &str| Number {
            value: text.parse().unwrap(),
            text: Bytes::copy_from_slice(text.as_bytes()),
        };
        let (value, total) = text.split_once('/').unwrap_or((text, ""));
        (text != "-").then(|| ProgressValue {
            value: number(value),
            total: (!total.is_empty()).then(|| number(total)),
        })
    }

    fn spelled(value: f64) -> String {
        String::from_utf8(spell(value).to_vec()).unwrap()
    }

    fn take(meter: &mut Meter, claim: &str, on_fall: OnFall) -> Result<EmittedProgress, Reason> {
        meter.take(figure(claim).as_ref().map(ProgressValue::view).as_ref(), on_fall)
    }

    /// Returns the text of a value that the meter made, with its total.
    fn told(meter: &Meter, emitted: &EmittedProgress) -> String {
        let total = || format!("/{}", String::from_utf8_lossy(meter.total_text()));
        spelled(emitted.value) + &emitted.total.map_or_else(String::new, |_| total())
    }

    /// Checks what is sent for each value of the server: `=` for the same value, else the sent value; `x` for none.
    #[track_caller]
    fn check(on_fall: OnFall, claims: &str, emitted: &str) {
        let mut meter = Meter::default();
        let said = claims.split(' ').map(|claim| match take(&mut meter, claim, on_fall) {
            Err(_) => "x".to_owned(),
            Ok(EmittedProgress { repair: None, .. }) => "=".to_owned(),
            Ok(emitted) => told(&meter, &emitted),
        });
        assert_eq!(said.collect::<Vec<_>>().join(" "), emitted);
    }

    #[test]
    fn what_rises_is_passed_on_as_it_is() {
        check(OnFall::Lift, "0/10 0.1 1/10 1.5 150/100 151/200 152/0", "= = = = = = =");
        check(OnFall::Lift, "-5 -1 -3", "= = -0.999999");
    }

    #[test]
    fn what_repeats_or_falls_is_lifted_by_the_smallest_step() {
        check(OnFall::Lift, "3/10 3/10 2/10 4/10", "= 3.000001/10 3.000002/10 =");
        check(
            OnFall::Lift,
            "50/100 40/100 50/100 60/100",
            "= 50.000003814697266/100 50.00000762939453/100 =",
        );
        check(OnFall::Lift, "0.5/1 0.5/1 1/1 1/1", "= 0.500001/1 = 1.000001");
    }

    #[test]
    fn a_lift_past_the_total_loses_it_until_a_figure_is_below_again() {
        check(OnFall::Lift, "2/2 - 1/2 3/4", "= 2.000001 2.000002 =");
    }

    #[test]
    fn without_any_figure_steps_stay_far_below_one() {
        check(OnFall::Lift, "- - - 0/10 1/10", "0.000001 0.000002 0.000003 0.000004/10 =");
    }

    #[test]
    fn a_fall_with_another_total_begins_a_phase() {
        check(OnFall::Lift, "4/5 5/5 1/3 2/3 3/3", "= = 6/8 7/8 8/8");
        check(
            OnFall::Lift,
            "0/100 100/100 0/100 50/100",
            "= = 100.00000762939453 100.00001525878906",
        );
        check(OnFall::Rebase, "0/100 100/100 0/100 50/100", "= = 100.00000762939453/200 150/200");
    }

    #[test]
    fn declared_values_keep_their_scale_after_values_in_words() {
        let mut meter = Meter::default();
        let mut said = |claim, in_words| {
            meter.note_source(in_words);
            spelled(take(&mut meter, claim, OnFall::Rebase).unwrap().value)
        };
        assert_eq!(said("5/7", true), "5");
        assert_eq!(said("1/3", true), "6");
        assert_eq!(said("2/100", false), "6.000001");
        assert_eq!(said("23/100", false), "23");
        assert_eq!(said("1/3", false), "24");
    }

    #[test]
    fn a_route_can_drop_falls_instead() {
        check(OnFall::Drop, "5 5 3 6", "= x x =");
    }

    #[test]
    fn what_the_server_says_after_estimates_takes_over() {
        let emitted = |part, claims: &str| {
            let mut meter = Meter::default();
            meter.estimate(Some(0.25)).unwrap();
            let estimate = meter.estimate(part).unwrap();
            assert_eq!(estimate.total, Some(1.0));
            let said = claims.split(' ').map(|claim| {
                let emitted = take(&mut meter, claim, OnFall::Lift).unwrap();
                told(&meter, &emitted)
            });
            let said: Vec<String> = said.collect();
            (spelled(estimate.value), said.join(" "))
        };
        let check = |part, claims, estimate: &str, said: &str| {
            assert_eq!(emitted(part, claims), (estimate.to_owned(), said.to_owned()));
        };
        check(Some(0.5), "1/10 2/10", "0.5", "1/10 2/10");
        check(Some(0.5), "0/10 0/10 1/10", "0.5", "0.500001/10 0.500002/10 1/10");
        check(Some(0.5), "0 0 1 2", "0.5", "0.500001 0.500002 1 2");
        check(Some(0.5), "0.25/1 0.5/1 1/1", "0.5", "0.75/1.5 1/1.5 1.5/1.5");
        check(Some(0.5), "0/1 0.5/1 1/1", "0.5", "0.500001/1.5 1/1.5 1.5/1.5");
        check(Some(0.5), "0 0.25 0.375", "0.5", "0.500001 0.750001 0.875001");
        check(Some(0.5), "0.75/1 0.8/1", "0.5", "0.75/1 0.8/1");
        check(Some(0.5), "- 25/100", "0.5", "0.500001/1 25/100");
        check(Some(0.2), "-5 3", "0.250001", "0.250002 3");
        check(None, "- -", "0.250001", "0.250002/1 0.250003/1");
    }

    #[test]
    fn what_the_server_says_after_seconds_keeps_its_scale() {
        let check = |claims: &str, said: &str| {
            let mut meter = Meter::default();
            meter.count_seconds(2.0).unwrap();
            let seconds = meter.count_seconds(40.0).unwrap();
            assert_eq!(told(&meter, &seconds), "40");
            assert_eq!(spelled(meter.count_seconds(40.0).unwrap().value), "40.000001");
            meter.count_seconds(45.0).unwrap();
            let values = claims.split(' ').map(|claim| {
                let emitted = take(&mut meter, claim, OnFall::Lift).unwrap();
                told(&meter, &emitted)
            });
            assert_eq!(values.collect::<Vec<_>>().join(" "), said);
        };
        check("1/10 2/10 10/10", "46/55 47/55 55/55");
        check("0.25/1 0.5/1", "45.25/46 45.5/46");
        check("50/100 60/100", "50/100 60/100");
        check("- 1/10", "45.000001 46.000001/55.000001");
    }

    proptest::proptest! {
        #[test]
        fn numbers_are_spelled_as_the_standard_library_does(
            millionths in 0_u64..2_000_000_000_000_000,
            digits in 0_u32..7,
            any in proptest::num::f64::POSITIVE | proptest::num::f64::NEGATIVE,
        ) {
            let value = (millionths / 10_u64.pow(digits) * 10_u64.pow(digits)) as f64 / 1e6;
            for value in [value, value.next_up(), -value, any, any.fract()] {
                if value == 0.0 || (1e-7..1e21).contains(&value.abs()) {
                    proptest::prop_assert_eq!(spelled(value), value.to_string());
                }
            }
        }
    }

    #[test]
    fn steps_are_distinct_as_f32_or_at_least_as_f64() {
        for start in ["1", "8191.5", "16383.9", "20000", "1e12", "9007199254740993", "1e300"] {
            let mut meter = Meter::default();
            take(&mut meter, start, OnFall::Lift).unwrap();
            let before = meter.emitted().unwrap();
            meter.take(None, OnFall::Lift).unwrap();
            let after = meter.emitted().unwrap();
            assert!(after > before, "{start}");
            if before < F32_STEPS_BELOW {
                assert!(after as f32 > before as f32, "{start}");
                assert!((after - before) * 1000.0 < 1.0, "{start}");
            }
        }
    }

    #[test]
    fn where_no_number_is_larger_nothing_is_told() {
        let max = f64::MAX.to_string();
        check(OnFall::Lift, &format!("{max} -"), "= x");
    }
}
