//! [`Policy`] read from TOML, with the keys of the proxy's `[defaults]`.
//!
//! The module needs the feature `toml`; without the feature the engine cannot read settings from text. A program reads
//! a [`Policy`] with [`Policy::from_toml`] and needs nothing else of this module. The proxy reads its routes with the
//! submodules, because it has tables and settings of its own as well.
//!
//! - [`setting`], [`mod@format`], [`text`], [`values`]: what a setting is, and the kinds of values.
//! - `declared_call.rs`, `declared_policy.rs`: the declaration of each setting, once.
//! - [`table`], [`dialects`], [`variables`]: the tables and variables of a file.
//! - [`all_errors`], [`diagnostics`], [`fault`]: what is wrong, where, and what would be right.

pub mod all_errors;
pub mod compound;
mod declared_call;
mod declared_policy;
pub mod diagnostics;
pub mod dialects;
pub mod fault;
pub mod format;
pub mod key_groups;
#[cfg(feature = "schema")]
mod schemas;
pub mod setting;
mod syntax;
pub mod table;
pub mod text;
pub mod toml_text;
pub mod values;
pub mod variables;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use self::diagnostics::{ConfigError, DIALECT};
pub use self::fault::{PolicyFault, PolicyFaults};
use self::table::{OtherKeys, SettingsTable};
use crate::progress::Policy;

impl Policy {
    /// Reads the settings that `text` names; all others have their defaults.
    ///
    /// The text is TOML with `[[dialect]]` and with those keys of `[defaults]` in the proxy's route file that are about
    /// progress (`docs/settings.md` lists them). Settings of connections, such as `connect_timeout`, and variables of
    /// the environment are unknown here.
    ///
    /// # Errors
    /// Everything that is wrong in the text: each fault with its line, its column, its key, and what would be right.
    ///
    /// ```
    /// use milepost_core::progress::Policy;
    ///
    /// let policy = Policy::from_toml("heartbeat.after = \"10s\"\ntools.scan = { on_fall = \"rebase\" }").unwrap();
    /// assert_eq!(policy.call.heartbeat.after.as_secs(), 10);
    ///
    /// let faults = Policy::from_toml("hartbeat.after = \"10s\"").unwrap_err();
    /// assert_eq!(faults.to_string(), "1:1: hartbeat: unknown key; did you mean `heartbeat`?");
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, PolicyFaults> {
        let policy = all_errors::read(text, &|table| read(table, text), &|_, what| what);
        policy.map_err(|errors| PolicyFaults::of(text, errors))
    }
}

/// Reads the table of a policy. `text` is the source of the table.
fn read(mut table: Spanned<DeTable<'_>>, text: &str) -> Result<Policy, ConfigError> {
    variables::refuse(table.get_mut(), text)?;
    let mut dialects = Vec::new();
    let mut read_dialects = |_: &table::FileKey<'_>, value: table::FileValue<'_>| {
        dialects = table::read(value)?;
        Ok(())
    };
    let others = OtherKeys { before: &[DIALECT], after: &[], read: &mut read_dialects };
    let table = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    let settings = SettingsTable::read(table, others)?;
    let own = dialects::read(&dialects)?;
    let mut policy = Policy::default();
    dialects::choose(settings.settings(), settings.dialects(), &own)?.apply(&mut policy);
    Ok(policy)
}
