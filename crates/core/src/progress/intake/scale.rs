//! The scale of the values of a route whose server sends no totals.

use crate::progress::dialect::report::Report;
use crate::progress::policy::Scale;
use crate::progress::value::{Number, spell};
use crate::progress::verdict::Repair;

/// Adds the total that the route knows to a value without a total, or with a total of zero or less.
pub(crate) fn apply_scale(report: &mut Report, scale: Option<Scale>) {
    let (Some(scale), Some(figure)) = (scale, &mut report.figure) else { return };
    if figure.total.as_ref().is_none_or(|total| total.value <= 0.0) {
        figure.total = Some(total_of(scale));
        report.repairs.add(Repair::Total);
    }
}

/// The total of a scale.
pub(crate) fn total_of(scale: Scale) -> Number {
    let value = match scale {
        Scale::Percent => 100.0,
        Scale::Unit => 1.0,
        Scale::Of(total) => total,
    };
    Number { value, text: spell(value) }
}
