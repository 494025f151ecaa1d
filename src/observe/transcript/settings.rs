//! The settings of a conversation in the words of a transcript.

use std::time::Duration;

use crate::config::settings::{OFF, Word};
use crate::progress::dialect::{self, Dialect};
use crate::progress::extract::Extract;
use crate::progress::policy::masks::Masks;
use crate::progress::{
    CallPolicy, Coalesce, HeartbeatValue, Messages, Mode, OnFall, Policy, Scale, TokenIs,
};

use super::{read_time, time};

/// What was set otherwise than it is by default.
pub struct Written {
    /// `key=value`, separated by spaces.
    pub words: String,
    /// What has no words here: a replay needs it from flags or a route file.
    pub missing: Vec<&'static str>,
}

fn word<T: Word + PartialEq>(value: T) -> &'static str {
    T::WORDS.iter().find(|(_, known)| *known == value).map_or("", |(word, _)| *word)
}

const fn switch(on: bool) -> &'static str {
    if on { "on" } else { OFF }
}

/// Writes what differs from the defaults.
pub fn write(policy: &Policy) -> Written {
    let usual = Policy::default();
    let mut words: Vec<String> = Vec::new();
    let mut put = |key: &str, differs: bool, value: &dyn Fn() -> String| {
        if differs {
            words.push(format!("{key}={}", value()));
        }
    };
    let millis = |given: Duration| time(given);
    put("mode", policy.mode != usual.mode, &|| word(policy.mode).to_owned());
    let (pacing, paced) = (policy.pacing, usual.pacing);
    put("first-after", pacing.first_after != paced.first_after, &|| millis(pacing.first_after));
    put("hold", pacing.hold != paced.hold, &|| millis(pacing.hold));
    put("guard", pacing.guard != paced.guard, &|| millis(pacing.guard));
    let spares = policy.spare_known_clients;
    put("spare-known-clients", spares != usual.spare_known_clients, &|| switch(spares).to_owned());
    put("min-interval", policy.min_interval != usual.min_interval, &|| millis(policy.min_interval));
    put("coalesce", policy.coalesce != usual.coalesce, &|| word(policy.coalesce).to_owned());
    for (name, on, by_default) in [
        ("response-id", policy.answers.response_id, usual.answers.response_id),
        ("error-shape", policy.answers.error_shape, usual.answers.error_shape),
        ("bare-result", policy.answers.bare_result, usual.answers.bare_result),
        ("orphan-answer", policy.answers.orphan_answer, usual.answers.orphan_answer),
        ("missing-id", policy.answers.missing_id, usual.answers.missing_id),
        ("bare-results", policy.bare_results, usual.bare_results),
        ("keep-original", policy.keep_original, usual.keep_original),
        ("words-in-2024", policy.words_in_2024, usual.words_in_2024),
        ("estimate", policy.call.estimate, usual.call.estimate),
        ("heartbeat", policy.call.heartbeat.enabled, usual.call.heartbeat.enabled),
    ] {
        put(name, on != by_default, &|| switch(on).to_owned());
    }
    if let Some(token_is) = policy.token_is {
        put("token-is", true, &|| word(token_is).to_owned());
    }
    let (call, plain) = (&policy.call, &usual.call);
    let (beat, beats) = (call.heartbeat, plain.heartbeat);
    put("heartbeat-after", beat.after != beats.after, &|| millis(beat.after));
    put("heartbeat-every", beat.every != beats.every, &|| millis(beat.every));
    put("heartbeat-max", beat.max != beats.max, &|| millis(beat.max));
    put("heartbeat-value", beat.value != beats.value, &|| word(beat.value).to_owned());
    put("on-fall", call.on_fall != plain.on_fall, &|| word(call.on_fall).to_owned());
    put("messages", call.messages != plain.messages, &|| word(call.messages).to_owned());
    put("scale", call.scale != plain.scale, &|| match call.scale {
        Some(Scale::Percent) => "percent".to_owned(),
        Some(Scale::Of(total)) => total.to_string(),
        _ => "unit".to_owned(),
    });
    if let Some(time) = call.call_timeout {
        put("call-timeout", true, &|| millis(time));
    }
    let built_in = call.dialects.iter().all(|known| !matches!(known, Dialect::Custom(_)));
    put("dialects", built_in && call.dialects != plain.dialects, &|| {
        call.dialects.iter().map(Dialect::name).collect::<Vec<_>>().join(",")
    });
    let missing = missing(policy, call, built_in);
    Written { words: words.join(" "), missing }
}

fn missing(policy: &Policy, call: &CallPolicy, built_in: bool) -> Vec<&'static str> {
    let asks = call.ask != CallPolicy::default().ask
        || !policy.capabilities.is_empty()
        || policy.log_level.is_some();
    let all = [
        (!policy.tools.is_empty(), "settings of single tools"),
        (!built_in, "dialects of a route file"),
        (call.extract.is_some(), "extract"),
        (call.masks != Masks::default(), "mask"),
        (asks, "ask"),
        (policy.estimates(), "what was known of durations"),
    ];
    all.into_iter().filter_map(|(is, name)| is.then_some(name)).collect()
}

/// Lays the words of a line over `policy`.
///
/// # Errors
/// The word that is not understood.
pub fn read(policy: &mut Policy, words: &str) -> Result<(), String> {
    for said in words.split_whitespace() {
        let (key, value) = said
            .split_once('=')
            .ok_or_else(|| format!("{said:?} is no setting; key=value is expected"))?;
        read_one(policy, key, value).map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(())
}

fn on(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        OFF => Ok(false),
        _ => Err(format!("{value:?} is neither on nor off")),
    }
}

fn read_one(policy: &mut Policy, key: &str, value: &str) -> Result<(), String> {
    let (call, answers) = (&mut policy.call, &mut policy.answers);
    match key {
        "mode" => policy.mode = Mode::read(value)?,
        "first-after" => policy.pacing.first_after = read_time(value)?,
        "hold" => policy.pacing.hold = read_time(value)?,
        "guard" => policy.pacing.guard = read_time(value)?,
        "spare-known-clients" => policy.spare_known_clients = on(value)?,
        "min-interval" => policy.min_interval = read_time(value)?,
        "coalesce" => policy.coalesce = Coalesce::read(value)?,
        "response-id" => answers.response_id = on(value)?,
        "error-shape" => answers.error_shape = on(value)?,
        "bare-result" => answers.bare_result = on(value)?,
        "orphan-answer" => answers.orphan_answer = on(value)?,
        "missing-id" => answers.missing_id = on(value)?,
        "bare-results" => policy.bare_results = on(value)?,
        "keep-original" => policy.keep_original = on(value)?,
        "words-in-2024" => policy.words_in_2024 = on(value)?,
        "estimate" => call.estimate = on(value)?,
        "heartbeat" => call.heartbeat.enabled = on(value)?,
        "token-is" => policy.token_is = Some(TokenIs::read(&value.replace('-', "_"))?),
        "heartbeat-after" => call.heartbeat.after = read_time(value)?,
        "heartbeat-every" => call.heartbeat.every = read_time(value)?,
        "heartbeat-max" => call.heartbeat.max = read_time(value)?,
        "heartbeat-value" => call.heartbeat.value = HeartbeatValue::read(value)?,
        "on-fall" => call.on_fall = OnFall::read(value)?,
        "messages" => call.messages = Messages::read(value)?,
        "scale" => call.scale = Some(crate::config::settings::scale(value)?),
        "call-timeout" => call.call_timeout = Some(read_time(value)?),
        "extract" => call.extract = Some(Extract::read([value])?),
        "dialects" => {
            let named = |name| dialect::named(name).ok_or_else(|| format!("{name:?} is not known"));
            call.dialects = value.split(',').map(named).collect::<Result<_, _>>()?;
        }
        _ => return Err("no such setting is known".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let said = "mode=enforce first-after=0ns hold=1.5ms guard=2s spare-known-clients=off \
                    coalesce=all response-id=off heartbeat=off token-is=request_id \
                    heartbeat-value=elapsed on-fall=drop messages=append scale=250 \
                    call-timeout=90s dialects=standard,log,stderr";
        let mut policy = Policy::default();
        read(&mut policy, &said.replace("0ns", "0s")).unwrap();
        assert_eq!(write(&policy).words, said);
        assert_eq!(write(&Policy::default()).words, "");
        assert!(read(&mut policy, "hold").is_err() && read(&mut policy, "hold=1").is_err());
        assert!(read(&mut policy, "nonsense=on").is_err());
    }
}
