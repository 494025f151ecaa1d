//! The command lines of `milepost ls`, `milepost tap` and `milepost top`.

use clap::Args;
use url::form_urlencoded::Serializer;

use super::admin::AdminArgs;
use crate::observe::calls::PATH_OF_TAP;

/// `milepost ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Print JSON: an object with `servers`, `processes` and `unreadable` (docs/watching.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `milepost tap`.
#[derive(Debug, Args)]
pub struct TapArgs {
    /// The admin listener, if one is named.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Only messages of this route, or of this server of `wrap`
    #[arg(long, value_name = "PATH")]
    route: Option<String>,
    /// Only messages of calls of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only messages of which this became: forwarded, repaired, withheld, added, or the name of a reason or
    /// a repair (docs/verdicts.md)
    #[arg(long, value_name = "NAME")]
    verdict: Option<String>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl TapArgs {
    /// Returns the path and the query of the request.
    pub fn target(&self) -> String {
        let mut query = Serializer::new(String::new());
        for (name, value) in
            [("route", &self.route), ("tool", &self.tool), ("verdict", &self.verdict)]
        {
            query.extend_pairs(value.iter().map(|value| (name, value)));
        }
        query.extend_pairs(self.json.then_some(("format", "json")));
        match query.finish() {
            query if query.is_empty() => PATH_OF_TAP.to_owned(),
            query => format!("{PATH_OF_TAP}?{query}"),
        }
    }
}

/// `milepost top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The admin listener, if one is named.
    #[command(flatten)]
    pub admin: AdminArgs,
}
