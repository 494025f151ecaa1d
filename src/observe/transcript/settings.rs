//! The settings of a conversation, as words in a transcript.
//!
//! The words come from the declarations in [`crate::config::settings`]. [`SettingsText`] lists each setting that has no
//! word, so that no recording loses a setting silently.

use crate::config::settings::SettingScope;
use crate::config::values::{OFF, read_switch};
use crate::progress::{CallPolicy, Policy};

/// The settings that differ from the defaults.
pub struct SettingsText {
    /// `key=value` pairs, separated by spaces.
    pub words: String,
    /// Settings that have no word in a transcript. For a replay they must come from flags or a route file.
    pub missing: Vec<&'static str>,
}

/// Returns the switches that follow from a route's transport and not from a setting, by name.
fn switches(policy: &mut Policy) -> [(&'static str, &mut bool); 2] {
    [
        ("spare-known-clients", &mut policy.call.spare_known_clients),
        ("bare-results", &mut policy.bare_results),
    ]
}

/// Writes the settings that differ from the defaults.
pub fn write(policy: &Policy) -> SettingsText {
    let mut words = Vec::new();
    let mut missing = Vec::new();
    if !policy.tools.is_empty() {
        missing.push("settings of single tools");
    }
    write_scope(policy, &mut words, &mut missing);
    let (mut own, mut usual) = (policy.clone(), Policy::default());
    for ((name, on), (_, by_default)) in switches(&mut own).into_iter().zip(switches(&mut usual)) {
        if on != by_default {
            words.push(format!("{name}={}", if *on { "on" } else { OFF }));
        }
    }
    write_scope(&policy.call, &mut words, &mut missing);
    if policy.needs_durations() {
        missing.push("what was known of durations");
    }
    SettingsText { words: words.join(" "), missing }
}

fn write_scope<S: SettingScope>(
    scope: &S,
    words: &mut Vec<String>,
    missing: &mut Vec<&'static str>,
) {
    for setting in S::SETTINGS {
        let name = match setting.key.split('.').next().unwrap_or_default() {
            "dialects" => "dialects of a route file",
            key => key,
        };
        match setting.write_words(scope) {
            Some(more) => words.extend(more),
            None if missing.contains(&name) => {}
            None => missing.push(name),
        }
    }
}

/// Changes `policy` by the words of a line.
///
/// # Errors
/// The unknown word, and what is expected.
pub fn read(policy: &mut Policy, words: &str) -> Result<(), String> {
    for said in words.split_whitespace() {
        let (key, value) = said
            .split_once('=')
            .ok_or_else(|| format!("{said:?} is not a setting; key=value is expected"))?;
        read_one(policy, key, value).map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(())
}

fn read_one(policy: &mut Policy, key: &str, value: &str) -> Result<(), String> {
    for (name, switch) in switches(policy) {
        if name == key {
            *switch = read_switch(value)?;
            return Ok(());
        }
    }
    let of_route = Policy::SETTINGS.iter().find_map(|one| one.read_word(policy, key, value));
    let call = || CallPolicy::SETTINGS.iter();
    let read =
        of_route.or_else(|| call().find_map(|one| one.read_word(&mut policy.call, key, value)));
    read.unwrap_or_else(|| Err("no such setting is known".to_owned()))
}

#[cfg(test)]
mod tests {
    use schemars::SchemaGenerator;
    use serde_json::Value;

    use super::*;
    use crate::config::settings::Setting;
    use crate::policy_file::setting::DescribedScope;

    #[test]
    fn what_is_written_is_read_again() {
        let said = "spare-known-clients=off mode=enforce dialects=standard,log,stderr first-after=0ns \
                    hold=1.5ms guard=2s coalesce=all response-id=off token-is=request_id \
                    heartbeat=off heartbeat-value=elapsed on-fall=drop scale=250 messages=append \
                    call-timeout=90s";
        let mut policy = Policy::default();
        read(&mut policy, &said.replace("0ns", "0s")).unwrap();
        assert_eq!(write(&policy).words, said);
        assert_eq!(write(&Policy::default()).words, "");
        assert!(read(&mut policy, "hold").is_err() && read(&mut policy, "hold=1").is_err());
        assert!(read(&mut policy, "nonsense=on").is_err());
    }

    /// Returns two values of the setting as texts of a flag, made from its JSON Schema.
    fn examples<S: DescribedScope>(setting: &Setting<S>) -> [String; 2] {
        let schema: Value = setting.schema(&mut SchemaGenerator::default()).into();
        let schema = schema.pointer("/items").unwrap_or(&schema);
        let one = schema.pointer("/anyOf/0").unwrap_or(schema);
        let named = ["enum", "examples"].into_iter().find_map(|name| one[name].as_array());
        let texts = match (setting.key, one["type"].as_str(), named) {
            (_, _, Some(all)) => return [0, 1].map(|at| all[at].as_str().unwrap().to_owned()),
            ("dialects", ..) => ["standard", "lsp"],
            (_, Some("boolean"), _) => ["on", "off"],
            (_, Some("integer"), _) => ["100001", "100002"],
            (_, Some("object"), _) => [r#"{"a":1}"#, r#"{"b":"c"}"#],
            _ => ["(?<percent>[0-9]+)%", "(?<percent>[0-9]+)p"],
        };
        texts.map(str::to_owned)
    }

    /// Sets each setting to a value other than the default, and checks that the words restore the value or the setting
    /// is listed as missing.
    fn nothing_is_lost<S: DescribedScope>(put: impl Fn(&mut Policy) -> &mut S) {
        for setting in S::SETTINGS {
            let mut lost = 0;
            for example in examples(setting) {
                let mut policy = Policy::default();
                let change = setting.read_flag(&[example]).unwrap();
                change.apply(put(&mut policy));
                if format!("{policy:?}") == format!("{:?}", Policy::default()) {
                    lost += 1;
                    continue;
                }
                let written = write(&policy);
                let mut again = Policy::default();
                read(&mut again, &written.words).unwrap();
                let is_same = format!("{again:?}") == format!("{policy:?}");
                assert!(
                    is_same || !written.missing.is_empty(),
                    "{}: {}",
                    setting.key,
                    written.words
                );
            }
            assert!(lost < 2, "{}: both examples are the default", setting.key);
        }
    }

    #[test]
    fn no_setting_is_lost() {
        nothing_is_lost(|policy| policy);
        nothing_is_lost(|policy| &mut policy.call);
    }
}
