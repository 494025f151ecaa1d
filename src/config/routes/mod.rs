//! Route files (`proxy.toml`): read as written, then resolved.
//!
//! Configuration errors are found while a file is loaded and never later. An error names the file, the line, the key
//! and what is expected.

mod authorities;
mod bearer_file;
mod client_maxima;
mod env;
mod faults;
mod file;
pub(crate) mod fleet;
pub(crate) mod front_header;
mod header_rules;
mod import;
mod import_forms;
mod inherited_env;
mod keys;
mod lifecycle;
mod oversights;
mod pem;
mod presets;
mod print;
mod referenced_files;
mod resolve;
pub(crate) mod route;
mod route_file;
mod schema;
#[cfg(test)]
mod table_schemas;
mod wrapped_server;
mod writers;

pub use authorities::Authorities;
pub use bearer_file::{BearerFile, TokenFileFault};
pub use client_maxima::ClientMaxima;
pub use env::Environment;
pub use faults::{ConfigFault, ConfigFaults, Severity};
pub use fleet::{Fleet, FleetKey};
pub use front_header::FrontHeader;
pub use header_rules::HeaderRules;
pub use import::import;
pub use inherited_env::InheritedEnv;
pub use lifecycle::{Lifecycle, ServerInfo};
pub use presets::Preset;
pub use referenced_files::named_files;
pub use resolve::PresetSettings;
pub use route::{
    Admin, Cors, ForwardedRule, HttpUpstream, Route, Secret, Server, ServerTls, StdioUpstream,
    Upstream,
};
pub use route_file::{Routes, RoutesError, read_text};
pub use schema::schema;
pub use wrapped_server::WrappedServer;
