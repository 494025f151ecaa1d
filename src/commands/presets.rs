//! `milepost presets`: lists the presets, or shows the settings of one preset.

use crate::commands::args::PresetsArgs;
use crate::config::routes::Preset;
use crate::config::values::Word;

/// Returns the output of `milepost presets`.
pub fn run(args: &PresetsArgs) -> String {
    if let Some(preset) = args.name {
        return format!("# {}\n{}", preset.servers, preset.lines);
    }
    let all = || Preset::WORDS.iter().map(|(_, preset)| preset);
    let width = all().map(|preset| preset.name.len()).max().unwrap_or_default();
    all().map(|preset| format!("{:width$}  {}\n", preset.name, preset.servers)).collect()
}
