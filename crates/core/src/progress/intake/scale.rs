//! Adds the totals of a route's scale to values of servers that send no totals.

use crate::progress::dialect::report::Report;
use crate::progress::policy::Scale;
use crate::progress::value::{Number, spell};
use crate::progress::verdict::Repair;

/// Adds the total of the route's `scale` to a value whose total is missing, zero or negative.
pub(crate) fn apply_scale(report: &mut Report, scale: Option<Scale>) {
    let (Some(scale), Some(figure)) = (scale, &mut report.figure) else { return };
    if figure.total.as_ref().is_none_or(|total| total.value <= 0.0) {
        figure.total = Some(total_of(scale));
        report.repairs.add(Repair::Total);
    }
}

/// Returns the total of a scale.
pub(crate) fn total_of(scale: Scale) -> Number {
    let value = match scale {
        Scale::Percent => 100.0,
        Scale::Unit => 1.0,
        Scale::Of(total) => total,
    };
    Number { value, text: spell(value) }
}
