//! Wraps a server that has a URL. The values of its headers become environment variables, because every user of the
//! machine can read command lines.

use std::ops::Range;
use std::path::Path;

use http::HeaderName;
use jsonc_parser::ast::{ObjectProp, StringLit, Value};
use jsonc_parser::common::Ranged;
use url::{Host, Url};

use super::document::Edit;
use super::entry::{Alone, Choice, ServerObject, quote, range};
use super::our_command::OurCommand;
use crate::config::routes::Authorities;
use crate::protocol::secret::{is_secret, is_secret_value};

/// The transports in clients' files through which `wrap` can reach a server at a URL.
pub(super) const TRANSPORTS: [&str; 4] = ["http", "sse", "streamable-http", "streamableHttp"];

/// The keys whose value is the server's URL. If an entry has a key other than the first and no `type`, an option of
/// `wrap` names the transport, so that `--undo` can restore the key.
pub(super) const ADDRESSES: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// The transport's name in the options of `wrap`, for each key that implies a transport.
const SPELLINGS: [(&str, &str); 2] = [("httpUrl", "http"), ("serverUrl", "streamable-http")];

/// Keys with which a client signs in to a server at a URL. Only the client can, so such a server stays unchanged.
const SIGN_IN: [&str; 4] = ["headersHelper", "oauth", "auth", "authProviderType"];

/// The variable in which clients that run in Node.js name a PEM file with additional certificate authorities.
const NODE_AUTHORITIES: &str = "NODE_EXTRA_CA_CERTS";

/// The prefix of the environment variables that hold header values.
pub(super) const HEADER_VARIABLE: &str = "MILEPOST_HEADER_";

impl ServerObject<'_> {
    pub(super) fn wrap_address(
        &self,
        (member, url): (&ObjectProp<'_>, &StringLit<'_>),
        ours: &OurCommand,
        choice: Choice,
    ) -> Result<Vec<Edit>, Alone> {
        for key in SIGN_IN {
            if let Some(member) = self.member(key)? {
                let why = format!("the server has {key:?}: only the client can sign in");
                return Err(Alone::new(member.start(), why));
            }
        }
        let authorities = self.node_authorities()?;
        for key in ["env", "args"] {
            if let Some(member) =
                self.member(key)?.filter(|_| key == "args" || authorities.is_none())
            {
                let why = format!("the server has {key:?} beside its address");
                return Err(Alone::new(member.start(), why));
            }
        }
        let host = may_be_shown(&url.value).map_err(|why| Alone::new(url.start(), why))?;
        let mut words: Vec<String> = ours.args().map(quote).collect();
        let mut edits = Vec::new();
        if let Some((_, kind)) = self.string("type")? {
            words.extend([quote("--transport"), self.raw(kind).to_owned()]);
            edits.push(Edit::replace(range(kind), quote("stdio")));
        } else if let Some((_, spelling)) =
            SPELLINGS.iter().find(|(key, _)| *key == member.name.as_str())
        {
            words.extend([quote("--transport"), quote(spelling)]);
        }
        // Node.js trusts the file in addition to its own authorities. The variable stays, so that the change can be
        // undone.
        if let Some(file) = authorities.filter(|_| url.value.starts_with("https:")) {
            for authority in [quote("system"), self.raw(file).to_owned()] {
                words.extend([quote("--ca-file"), authority]);
            }
        }
        let headers = self.headers()?;
        if let Some(headers) = &headers {
            edits.push(Edit::replace(headers.key.clone(), quote("env")));
            for header in &headers.all {
                let pair = format!("{}={}", header.name, header.variable);
                words.extend([quote("--header-env"), quote(&pair)]);
                edits.push(Edit::replace(header.key.clone(), quote(&header.variable)));
            }
        }
        let has_key =
            headers.is_some_and(|headers| headers.all.iter().any(|header| header.is_secret));
        if !(has_key || choice == Choice::ByName || is_loopback(&host)) {
            let why = "the server may ask for a sign-in (OAuth), which only the client can do; \
                `--server NAME` wraps the server anyway";
            return Err(Alone::new(url.start(), why));
        }
        words.push(self.raw(url).to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        edits.push(Edit::replace(range(&member.name), quote("command")));
        let command = quote(&ours.program) + &self.args_member(member, &words);
        edits.push(Edit::replace(range(url), command));
        Ok(edits)
    }

    /// Returns the file that [`NODE_AUTHORITIES`] names, if `env` has only that variable and the server has no headers
    /// (their values would be moved to `env`).
    fn node_authorities(&self) -> Result<Option<&StringLit<'_>>, Alone> {
        let Some(env) = self.member("env")?.and_then(|env| env.value.as_object()) else {
            return Ok(None);
        };
        let [variable] = &env.properties[..] else { return Ok(None) };
        let (name, value) = (variable.name.as_str(), variable.value.as_string_lit());
        let (NODE_AUTHORITIES, Some(file), None) = (name, value, self.member("headers")?) else {
            return Ok(None);
        };
        let wrong = |why: &str| Alone::new(file.start(), format!("{NODE_AUTHORITIES}: {why}"));
        if !Path::new(&*file.value).is_absolute() {
            return Err(wrong("the whole path of a file is expected"));
        }
        // Check the file first: Node.js continues without a file that it cannot read, but `wrap` would fail.
        let check = Authorities::list(vec![file.value.to_string()]).check();
        check.map_err(|why| wrong(&why)).map(|()| Some(file))
    }

    /// Returns the headers, each with the variable for its value.
    fn headers(&self) -> Result<Option<ServerHeaders>, Alone> {
        let Some(member) = self.member("headers")? else { return Ok(None) };
        let expected = || Alone::new(member.value.start(), "\"headers\" is not an object");
        let mut headers: Vec<Header> = Vec::new();
        for header in &member.value.as_object().ok_or_else(expected)?.properties {
            let name = header.name.as_str();
            if name.parse::<HeaderName>().is_err() {
                let why = format!("{name:?} is not the name of a header");
                return Err(Alone::new(header.start(), why));
            }
            let Some(value) = header.value.as_string_lit() else {
                let why = format!("the value of the header {name:?} is not a string");
                return Err(Alone::new(header.value.start(), why));
            };
            let fits =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            let plain: String = HEADER_VARIABLE.chars().chain(name.chars().map(fits)).collect();
            let others = (2..).map(|number| format!("{plain}_{number}"));
            let is_free = |variable: &String| headers.iter().all(|h| h.variable != *variable);
            let variable = std::iter::once(plain.clone()).chain(others).find(is_free);
            headers.push(Header {
                key: range(&header.name),
                name: name.to_owned(),
                variable: variable.unwrap_or_else(|| plain.clone()),
                is_secret: is_secret(name, &value.value),
            });
        }
        Ok(Some(ServerHeaders { key: range(&member.name), all: headers }))
    }

    /// Restores a server's URL from its `wrap` command. `options` are the options of `wrap` before the URL, `target`.
    pub(super) fn unwrap_address(
        &self,
        member: &ObjectProp<'_>,
        command: &StringLit<'_>,
        target: &Value<'_>,
        options: &[String],
    ) -> Result<Vec<Edit>, Alone> {
        let given = |flag: &str| values(options, flag);
        for flag in ["--header", "--bearer-env", "--bearer-file", "--config", "--forward-proxy"] {
            if !given(flag).is_empty() {
                let why = format!("{flag} was not put there by `adopt`");
                return Err(Alone::new(member.start(), why));
            }
        }
        let transport = given("--transport").first().copied();
        let has_type = self.string("type")?.is_some();
        let key = SPELLINGS.iter().find(|(_, spelling)| transport == Some(*spelling) && !has_type);
        let key = key.map_or(ADDRESSES[0], |(key, _)| *key);
        let mut edits = vec![
            Edit::replace(range(&member.name), quote(key)),
            Edit::replace(range(command), self.raw(target)),
        ];
        edits.extend(self.without("args")?);
        if let Some((_, kind)) = self.string("type")? {
            edits.push(Edit::replace(range(kind), quote(transport.unwrap_or("http"))));
        }
        let mut headers: Vec<(&str, &str)> =
            given("--header-env").iter().filter_map(|pair| pair.split_once('=')).collect();
        let env = self.member("env")?;
        let variables = env.and_then(|env| env.value.as_object());
        if variables.is_some_and(|all| all.get(NODE_AUTHORITIES).is_some() && headers.is_empty()) {
            return Ok(edits);
        }
        if !given("--ca-file").is_empty() {
            let why = format!("--ca-file was put there for no {NODE_AUTHORITIES} in \"env\"");
            return Err(Alone::new(member.start(), why));
        }
        for variable in variables.iter().flat_map(|variables| &variables.properties) {
            let name = variable.name.as_str();
            let Some(at) = headers.iter().position(|(_, variable)| *variable == name) else {
                let why = format!("the variable {name:?} belongs to no header");
                return Err(Alone::new(variable.start(), why));
            };
            let (header, _) = headers.swap_remove(at);
            edits.push(Edit::replace(range(&variable.name), quote(header)));
        }
        if let Some((header, variable)) = headers.first() {
            let why = format!(
                "the value of the header {header:?} is not in \"env\", but in the variable {variable}"
            );
            return Err(Alone::new(member.start(), why));
        }
        edits.extend(env.map(|env| Edit::replace(range(&env.name), quote("headers"))));
        Ok(edits)
    }
}

/// The headers of a server at a URL.
struct ServerHeaders {
    /// The place of the key that contains all headers.
    key: Range<usize>,
    all: Vec<Header>,
}

/// One header of a server.
struct Header {
    key: Range<usize>,
    name: String,
    /// The environment variable that holds the header's value once Milepost is in front.
    variable: String,
    is_secret: bool,
}

/// Returns the host of a URL, if the URL may be on a command line, which every user of the machine can read. Otherwise
/// returns the reason why it may not.
fn may_be_shown(url: &str) -> Result<Host, String> {
    if url.contains("${") {
        return Err("the client fills in the address, perhaps with a secret".to_owned());
    }
    let parsed = Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    let Some((url, host)) = parsed.and_then(|url| Some((url.clone(), url.host()?.to_owned())))
    else {
        return Err("the address is not an http:// or https:// URL".to_owned());
    };
    let has_secret = !url.username().is_empty()
        || url.password().is_some()
        || url.query_pairs().any(|(name, value)| is_secret(&name, &value))
        || url.path().split('/').any(is_secret_value);
    if has_secret {
        let why = "the address holds a value that looks like a secret, and every user of the machine can read \
            command lines";
        return Err(why.to_owned());
    }
    Ok(host)
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// Returns the values that a flag has among the arguments.
fn values<'a>(options: &'a [String], flag: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.strip_prefix(flag) {
            Some("") => found.extend(options.next().map(String::as_str)),
            Some(rest) => found.extend(rest.strip_prefix('=')),
            None => {}
        }
    }
    found
}
