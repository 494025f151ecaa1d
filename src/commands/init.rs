//! `milepost init`: writes a route file for a server, from its arguments or by asking.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::iter;
use std::path::{Path, PathBuf};

use url::Url;

use crate::commands::show_calls::name_of_command;
use crate::config::routes::{Environment, Routes, RoutesError};
use crate::config::settings::toml_text::{list, plain};

/// Maximum number of invalid answers before `init` gives up.
const TRIES_MAX: usize = 3;

/// The first lines of a new file.
const HEAD: &str = "# The routes of `milepost serve`. `milepost check --print` shows every setting, and \
                    docs/settings.md explains them.\n\n\
                    # Health checks, metrics and the live page, at http://127.0.0.1:7333:\n# [admin]\n";

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "proxy.toml")]
    pub file: PathBuf,
    /// The path of the route [default: made of the server's name]
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Add the route to a file that is there
    #[arg(long)]
    pub add: bool,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`) [default: asked
    /// for in a terminal]
    #[arg(trailing_var_arg = true, value_name = "CMD|URL")]
    pub server: Vec<OsString>,
}

/// The reason why no route file was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The file exists already.
    #[error("{} is there already; --add adds the route to it", .0.display())]
    Exists(PathBuf),
    /// No server was named, and there is no terminal to ask at.
    #[error(
        "no server is named, and there is no terminal to ask at; `milepost init -- node server.js` names one"
    )]
    NoServer,
    /// A word of the command is not Unicode text.
    #[error("{0:?} is not Unicode, which a route file needs")]
    NoText(OsString),
    /// The routes would not be usable.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// The file cannot be written.
    #[error("cannot write {}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The questions or the result cannot be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Writes the file and prints the next steps. `asked` reads the user's answers, if there is a user.
///
/// # Errors
/// The reason why nothing was written.
pub fn run(
    args: &InitArgs,
    out: &mut dyn Write,
    asked: Option<&mut dyn BufRead>,
) -> Result<(), InitError> {
    let is_there = args.file.exists();
    if is_there && !args.add {
        return Err(InitError::Exists(args.file.clone()));
    }
    let unwritable = |source| InitError::Unwritable { path: args.file.clone(), source };
    let before = match is_there {
        true => fs::read_to_string(&args.file).map_err(unwritable)? + "\n",
        false => format!("{HEAD}\n"),
    };
    let usual_path = |words: &[String]| free_path(path_of(words), &paths_in(&before));
    let (words, path) = match words(&args.server)? {
        words if words.is_empty() => {
            ask(args, &usual_path, out, asked.ok_or(InitError::NoServer)?)?
        }
        words => {
            let path = args.path.clone().unwrap_or_else(|| usual_path(&words));
            (words, path)
        }
    };
    let text = before + &route(&path, &words);
    let routes = Routes::parse(&args.file, &text, &Environment::of_process())?;
    let write = if is_there { replace } else { write_new };
    write(&args.file, &text).map_err(unwritable)?;
    told(out, &args.file, &routes, &path)?;
    Ok(())
}

/// Returns the words of a command line as text.
fn words(server: &[OsString]) -> Result<Vec<String>, InitError> {
    let text = |word: &OsString| {
        word.to_str().map(str::to_owned).ok_or_else(|| InitError::NoText(word.clone()))
    };
    server.iter().map(text).collect()
}

/// Asks for the server and for the path of its route.
fn ask(
    args: &InitArgs,
    usual_path: &dyn Fn(&[String]) -> String,
    out: &mut dyn Write,
    answers: &mut dyn BufRead,
) -> Result<(Vec<String>, String), InitError> {
    let mut answer = |question: &str| -> Result<String, InitError> {
        write!(out, "{question}")?;
        out.flush()?;
        let mut line = String::new();
        answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    };
    for _ in 0..TRIES_MAX {
        let words = split(&answer("The server's command, or its URL: ")?);
        if words.is_empty() {
            continue;
        }
        let usual = usual_path(&words);
        let path = match &args.path {
            Some(path) => path.clone(),
            None => Some(answer(&format!("The path of its route [{usual}]: "))?)
                .filter(|path| !path.is_empty())
                .unwrap_or(usual),
        };
        return Ok((words, path));
    }
    Err(InitError::NoServer)
}

/// Splits a command into words as a shell does; only quotes and backslashes are special.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match (sign, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(signs.next()),
            (sign, Some(open)) if sign == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(sign);
                word.get_or_insert_default();
            }
            (sign, None) if sign.is_whitespace() => words.extend(word.take()),
            (sign, _) => word.get_or_insert_default().push(sign),
        }
    }
    words.extend(word);
    words
}

/// Returns the URL of the server, if the only word is a URL.
fn address(words: &[String]) -> Option<Url> {
    let [only] = words else { return None };
    Url::parse(only).ok().filter(|url| ["http", "https"].contains(&url.scheme()))
}

/// Returns a path made from the server's name: the program, or the program that a launcher starts, without its
/// directory and extension, or the host of a URL.
fn path_of(words: &[String]) -> String {
    let name = match address(words) {
        Some(url) => {
            let mut segments = url.path_segments().into_iter().flatten();
            let telling = segments.rfind(|part| !["", "mcp", "sse"].contains(part));
            // An IP address gives no useful name.
            let host = || url.domain().filter(|domain| *domain != "localhost")?.split('.').next();
            telling.or_else(host).unwrap_or_default().to_owned()
        }
        None => {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let name = name_of_command(&words);
            name.split(['@', '.']).next().unwrap_or_default().to_owned()
        }
    };
    let fits = |sign: char| if sign.is_ascii_alphanumeric() { sign } else { '-' };
    let name: String = name.to_lowercase().chars().map(fits).collect();
    let name = name.trim_matches('-');
    format!("/{}", if name.is_empty() { "server" } else { name })
}

/// Returns the path, with a number appended if a route already has it.
fn free_path(path: String, taken: &[String]) -> String {
    let numbered = (2..=u32::MAX).map(|number| format!("{path}-{number}"));
    iter::once(path.clone()).chain(numbered).find(|path| !taken.contains(path)).unwrap_or(path)
}

/// Returns the lines of the route.
fn route(path: &str, words: &[String]) -> String {
    // `${` in the user's words is text, so it is escaped to prevent its use as a variable.
    let quoted = |word: &str| plain(&word.replace("${", "$${"));
    let upstream = match address(words) {
        Some(url) if url.path().ends_with("/sse") => {
            format!("upstream.sse = {}", quoted(url.as_str()))
        }
        Some(url) => format!("upstream.url = {}", quoted(url.as_str())),
        None => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("upstream.command = {}", list(words))
        }
    };
    format!("[[route]]\npath = {}\n{upstream}\n", quoted(path))
}

/// Writes a new file; fails if the path exists.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(path)?.permissions())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Prints what was written, and the next steps.
fn told(out: &mut dyn Write, file: &Path, routes: &Routes, path: &str) -> io::Result<()> {
    let shown = file.display();
    let listen = routes.server().listen;
    writeln!(out, "{shown} has the route {path}. Next:")?;
    writeln!(out, "  milepost check {shown}")?;
    writeln!(out, "  milepost serve {shown}        clients connect to http://{listen}{path}")?;
    writeln!(
        out,
        "  milepost wrap --config {shown} --route {path}        in a client's file of servers"
    )?;
    writeln!(
        out,
        "  milepost try --config {shown} --route {path}        calls a tool and shows both sides"
    )?;
    writeln!(out, "  milepost doctor --config {shown} --route {path} --call TOOL")
}

/// Returns the paths of the routes in the text of a file; none if the text is not TOML.
pub(super) fn paths_in(text: &str) -> Vec<String> {
    let Ok(file) = text.parse::<toml::Table>() else { return Vec::new() };
    let routes = file.get("route").and_then(toml::Value::as_array).into_iter().flatten();
    routes.filter_map(|route| Some(route.get("path")?.as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_path_is_the_name_of_the_server() {
        for (server, path) in [
            ("node dist/reports-server.js --fast", "/reports-server"),
            ("npx -y @scope/server-files@1.2 /home", "/server-files"),
            ("/usr/bin/scout", "/scout"),
            ("target/kuzumem --generation k1", "/kuzumem"),
            ("uvx mcp_server_git --repository /x", "/mcp-server-git"),
            ("https://reports.example.com/mcp", "/reports"),
            ("https://example.com/team/mcp", "/team"),
            ("http://127.0.0.1:8080/mcp", "/server"),
            ("http://[::1]:8080/", "/server"),
            ("http://localhost:8080/reports/sse", "/reports"),
            ("---", "/server"),
        ] {
            assert_eq!(path_of(&words_of(server)), path, "{server}");
        }
    }

    #[test]
    fn a_typed_command_is_split_as_a_shell_splits_it() {
        assert_eq!(
            split(r#" node  'a b.js' "c \"d\"" e\ f '' "#),
            ["node", "a b.js", "c \"d\"", "e f", ""]
        );
        assert!(split("  ").is_empty());
    }

    #[test]
    fn a_file_is_written_by_asking_or_from_arguments_and_never_over_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        let args = |server: &str, add: bool| InitArgs {
            file: file.clone(),
            path: None,
            add,
            server: server.split_whitespace().map(OsString::from).collect(),
        };
        let mut out = Vec::new();
        assert!(matches!(run(&args("", false), &mut out, None), Err(InitError::NoServer)));
        run(&args("", false), &mut out, Some(&mut &b"\nnode x.js\n/own\n"[..])).unwrap();
        assert!(matches!(run(&args("a", false), &mut out, None), Err(InitError::Exists(_))));
        run(&args("https://b.example/mcp", true), &mut out, None).unwrap();
        run(&args("https://b.example/mcp?2", true), &mut out, None).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let expected = "[[route]]\npath = \"/own\"\nupstream.command = [\"node\", \"x.js\"]\n\n[[route]]\npath = \"/b\"\nupstream.url = \"https://b.example/mcp\"\n\n[[route]]\npath = \"/b-2\"\nupstream.url = \"https://b.example/mcp?2\"\n";
        assert_eq!(text, format!("{HEAD}\n{expected}"));
        // A route whose path collides with another is refused, and nothing is written.
        assert!(matches!(
            run(&InitArgs { path: Some("/own/sse".to_owned()), ..args("c", true) }, &mut out, None),
            Err(InitError::Routes(_))
        ));
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert!(String::from_utf8(out).unwrap().contains("http://127.0.0.1:7332/own"));
    }
}
