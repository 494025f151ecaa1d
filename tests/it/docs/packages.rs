//! The parts of packages: each exists, names things that exist, and can be read by its readers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::CommandFactory;
use milepost::commands::args::Cli;
use milepost::config::routes::Routes;
use serde_json::Value;
use toml::Table;

use crate::support::MILEPOST;
use crate::support::session::Session;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn manifest() -> Table {
    read("Cargo.toml").parse().unwrap()
}

fn commands() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

fn milepost(args: &[&str]) -> String {
    let output = Command::new(MILEPOST).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the completions that bash offers for the last of these words, typed in this directory.
fn completed(folder: &Path, words: &[&str]) -> Vec<String> {
    let output = Command::new(MILEPOST)
        .env("MILEPOST_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_IFS", "\n")
        .env("HOME", folder)
        .current_dir(folder)
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Runs a program if this machine has it.
fn run_if_there(program: &str, args: &[&str]) -> Option<Output> {
    Command::new(program).args(args).output().ok()
}

#[test]
fn shells_complete_every_command() {
    let known = completed(Path::new("."), &["milepost", ""]);
    for command in commands() {
        assert!(known.contains(&command), "{command} is not completed: {known:?}");
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = milepost(&["completions", shell]);
        assert!(
            script.contains("MILEPOST_COMPLETE") && script.contains(shell),
            "{shell}: {script}"
        );
    }
    let script = "source /dev/stdin && complete -p milepost";
    let Ok(mut bash) = Command::new("bash")
        .args(["--norc", "-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
    else {
        return;
    };
    let completions = milepost(&["completions", "bash"]);
    let mut input = bash.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, completions.as_bytes()).unwrap();
    drop(input);
    let output = bash.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().ends_with(" milepost\n"));
}

#[test]
fn shells_complete_the_names_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let complete = |words: &str| completed(folder.path(), &words.split(' ').collect::<Vec<_>>());
    let routes = "[[route]]\npath = \"/reports\"\nupstream.url = \"${NOWHERE}\"\n\
                  [[route]]\npath = \"/search\"\nupstream.demo = true\n";
    write("proxy.toml", routes);
    write("other.toml", &routes.replace("/search", "/find"));
    assert_eq!(complete("milepost tap --route "), ["/reports", "/search"]);
    assert_eq!(complete("milepost doctor --config other.toml --route "), ["/find", "/reports"]);
    assert_eq!(complete("milepost try --config=other.toml --route /f"), ["/find"]);
    // The values of an option are completed too.
    assert!(complete("milepost wrap --dialect tools").contains(&"tools-progress".to_owned()));
    assert!(complete("milepost wrap --preset swiss").contains(&"swissarmyhammer".to_owned()));
    write(".mcp.json", r#"{"mcpServers":{"reports":{"command":"a"},"search":{"url":"b"}}}"#);
    write("codex.toml", "[mcp_servers.shop]\ncommand = \"a\"\n");
    assert_eq!(complete("milepost adopt --server "), ["reports", "search"]);
    assert_eq!(complete("milepost adopt codex.toml --server "), ["shop"]);
    write("codex.toml", "[mcp_servers");
    assert_eq!(complete("milepost adopt codex.toml --server "), [""; 0]);
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    milepost(&["man", "--dir", folder.path().to_str().unwrap()]);
    let whole = milepost(&["man"]);
    let mut names = vec!["milepost".to_owned()];
    names.extend(commands().iter().map(|command| format!("milepost-{command}")));
    for name in &names {
        let page = fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        let title = format!(".TH {name} 1 ");
        assert!(page.contains(&title), "{page}");
        assert!(page.contains(concat!("milepost ", env!("CARGO_PKG_VERSION"))), "{page}");
        assert!(whole.contains(&page), "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), names.len());
    for section in ["FILES", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
        let heading = format!(".SH {section}\n").replace("EXIT STATUS", "\"EXIT STATUS\"");
        let heading = heading.replace("SEE ALSO", "\"SEE ALSO\"");
        assert!(whole.contains(&heading), "{section}");
    }
    let wrap = fs::read_to_string(folder.path().join("milepost-wrap.1")).unwrap();
    assert!(wrap.contains("heartbeat\\-after"), "{wrap}");
    // The complaints of a formatter are on its standard error.
    let all = folder.path().join("all");
    fs::write(&all, whole).unwrap();
    let args = ["-k", "-man", "-Tutf8", "-ww", "-z", all.to_str().unwrap()];
    if let Some(output) = run_if_there("groff", &args) {
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
    let file = folder.path().join("all").join("below");
    let failed = Command::new(MILEPOST).args(["man", "--dir"]).arg(file).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8(failed.stderr).unwrap().contains("cannot write manual pages into"));
}

/// The keys of a unit file, by section.
fn unit() -> BTreeMap<String, Vec<(String, String)>> {
    let mut sections: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut section = String::new();
    for line in read("packaging/systemd/milepost.service").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if !line.is_empty() && !line.starts_with('#') {
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
            let keys = sections.entry(section.clone()).or_default();
            keys.push((key.to_owned(), value.to_owned()));
        }
    }
    sections
}

#[test]
fn the_unit_starts_what_is_installed_and_gives_it_no_rights() {
    let unit = unit();
    let service = &unit["Service"];
    let value = |key: &str| {
        let found = service.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| &**value).unwrap_or_else(|| panic!("{key} is missing"))
    };
    assert_eq!(value("Type"), "notify");
    assert_eq!(value("ExecReload"), "/bin/kill -HUP $MAINPID");
    assert_eq!(value("DynamicUser"), "yes");
    assert_eq!(value("NoNewPrivileges"), "yes");
    assert_eq!(value("ProtectSystem"), "strict");
    assert_eq!(value("CapabilityBoundingSet"), "");
    let start: Vec<&str> = value("ExecStart").split(' ').collect();
    let cli = <Cli as clap::Parser>::try_parse_from(&start).unwrap();
    assert!(matches!(cli.command, milepost::commands::args::Command::Serve(_)));
    let destinations = assets().into_iter().map(|(_, to)| format!("/{to}")).collect::<Vec<_>>();
    for path in [start[0], start[2]] {
        assert!(destinations.iter().any(|to| to == path), "{path} is not installed");
    }
    // Longer than the default drain time.
    let stop: u64 = value("TimeoutStopSec").trim_end_matches('s').parse().unwrap();
    assert!(stop > 30);
    // The checker requires that the program exists.
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("milepost.service");
    let text = read("packaging/systemd/milepost.service").replace("/usr/bin/milepost", MILEPOST);
    fs::write(&place, text).unwrap();
    let args = ["verify", "--man=no", place.to_str().unwrap()];
    if let Some(output) = run_if_there("systemd-analyze", &args) {
        let said = String::from_utf8(output.stderr).unwrap();
        let of_ours = said.lines().any(|line| line.contains("milepost.service"));
        assert!(!of_ours, "{said}");
    }
}

#[test]
fn the_route_files_of_packages_are_good() {
    for name in ["packaging/proxy.toml", "packaging/docker/proxy.toml"] {
        let routes = Routes::load(&root().join(name)).unwrap();
        assert_eq!(routes.iter().count(), 1, "{name}");
    }
}

#[test]
fn the_image_is_made_of_what_is_there() {
    let text = read("Dockerfile");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let ignored = read(".dockerignore");
    let is_sent = |path: &str| {
        let shown = ignored.lines().filter_map(|line| line.strip_prefix('!'));
        let mut shown = shown.map(|shown| shown.trim_end_matches('*'));
        shown.any(|shown| path.starts_with(shown))
    };
    let mut copied = BTreeSet::new();
    for words in lines.iter().filter(|words| words.first() == Some(&"COPY")) {
        let (to, from) = words[1..].split_last().unwrap();
        copied.insert(*to);
        if from[0].starts_with("--from") || *from == ["."] {
            continue;
        }
        for from in from {
            assert!(root().join(from).exists(), "{from} does not exist");
            assert!(is_sent(from), "{from} is kept out by .dockerignore");
        }
    }
    // Cargo does not read the manifest without the files of these targets.
    let manifest = manifest();
    let targets = ["test", "bench", "bin"].map(|kind| manifest[kind].as_array().unwrap());
    for target in targets.into_iter().flatten() {
        let path = target.get("path").and_then(|path| path.as_str()).unwrap_or("benches/");
        assert!(is_sent(path), "{path} is kept out by .dockerignore");
    }
    for file in ["Cargo.toml", "Cargo.lock", "src/main.rs", "crates/core/src/lib.rs"] {
        assert!(is_sent(file), "{file} is kept out by .dockerignore");
    }
    // Files that the code includes from other directories are copied too.
    assert!(text.contains("--bin milepost") && text.contains("--locked"));
    let channel: Table = read("rust-toolchain.toml").parse().unwrap();
    let channel = channel["toolchain"]["channel"].as_str().unwrap().trim_end_matches(".0");
    assert!(text.contains(&format!("ARG BASE=rust:{channel}-alpine\n")), "{channel}");
    assert!(text.contains("cargo auditable build") && text.contains("--read-only"));
    let last =
        |key: &str| lines.iter().rfind(|words| words.first() == Some(&key)).unwrap()[1..].join(" ");
    assert_eq!(last("FROM"), "scratch");
    assert_ne!(last("USER").split(':').next(), Some("0"));
    let list = |key: &str| serde_json::from_str::<Vec<String>>(&last(key)).unwrap();
    let (entry, command) = (list("ENTRYPOINT"), list("CMD"));
    assert!(copied.contains(&*entry[0]), "{entry:?}");
    assert_eq!(command[0], "serve");
    assert!(copied.contains(&*command[1]), "{command:?}");
}

/// The files of the Debian package: from where, and their whole path.
fn assets() -> Vec<(String, String)> {
    let manifest = manifest();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
    let asset = |asset: &toml::Value| {
        let [from, to, _] = asset.as_array().unwrap().as_slice() else { panic!("{asset}") };
        let (from, to) = (from.as_str().unwrap(), to.as_str().unwrap());
        let name = Path::new(from).file_name().unwrap().to_str().unwrap();
        let to = if to.ends_with('/') { format!("{to}{name}") } else { to.to_owned() };
        (from.to_owned(), to)
    };
    assets.iter().map(asset).collect()
}

#[test]
fn the_debian_package_is_made_of_what_is_there() {
    let manifest = manifest();
    let deb = manifest["package"]["metadata"]["deb"].as_table().unwrap();
    let assemble = read("packaging/assemble");
    for (from, _) in assets() {
        if let Some(made) = from.strip_prefix("target/package/") {
            let (folder, name) = made.split_once('/').unwrap_or(("", made));
            let is_made = match folder {
                "man" => name == "*.1" && assemble.contains("--dir \"$out/man\""),
                _ => assemble.contains(&format!("> \"$out/{made}\"")),
            };
            assert!(is_made, "{from} is not made by packaging/assemble");
        } else if from != "target/release/milepost" {
            let folder = from.strip_suffix("*.md").unwrap_or(&from);
            assert!(root().join(folder).exists(), "{from} does not exist");
        }
    }
    let configuration = deb["conf-files"].as_array().unwrap();
    for file in configuration {
        let file = file.as_str().unwrap();
        assert!(assets().iter().any(|(_, to)| format!("/{to}") == file), "{file}");
    }
    let licence = deb["license-file"][0].as_str().unwrap();
    assert!(root().join(licence).exists());
    let units = &deb["systemd-units"];
    let folder = units["unit-scripts"].as_str().unwrap();
    let unit = format!("{}.service", units["unit-name"].as_str().unwrap());
    assert!(root().join(folder).join(unit).exists());
}

#[test]
fn scripts_can_be_read() {
    for script in [
        "packaging/action/check-progress",
        "packaging/archive",
        "packaging/assemble",
        "packaging/build",
        "packaging/crates",
        "packaging/release",
        "packaging/sbom",
        "packaging/static",
        "packaging/third-party",
        "packaging/try",
        "packaging/windows",
        "tests/all",
    ] {
        let path = root().join(script);
        let output = run_if_there("bash", &["-n", path.to_str().unwrap()]);
        assert!(output.is_none_or(|output| output.status.success()), "{script}");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o111, 0o111, "{script}");
    }
}

fn npm() -> Value {
    serde_json::from_str(&read("packaging/npm/package.json")).unwrap()
}

#[test]
fn the_npm_package_is_of_this_version() {
    let package = npm();
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
    let platforms = package["optionalDependencies"].as_object().unwrap();
    assert!(platforms.values().all(|version| version == env!("CARGO_PKG_VERSION")));
    let launcher = package["bin"]["milepost"].as_str().unwrap();
    assert!(root().join("packaging/npm").join(launcher).exists());
}

#[test]
fn descriptions_for_clients_and_registries_are_of_this_program() {
    let json = |name: &str| serde_json::from_str::<Value>(&read(name)).unwrap();
    let plugin = json("packaging/claude-code/.claude-plugin/plugin.json");
    assert_eq!(plugin["version"], env!("CARGO_PKG_VERSION"));
    // The commands of the plugin use existing options.
    for (command, page) in [("adopt", "adopt.md"), ("doctor", "doctor.md")] {
        let text = read(&format!("packaging/claude-code/commands/{page}"));
        assert!(text.contains(&format!("allowed-tools: Bash(milepost {command}:*)")), "{page}");
        let cli = Cli::command();
        let known = cli.find_subcommand(command).unwrap();
        for word in text.split(|sign: char| !(sign.is_alphanumeric() || sign == '-')) {
            let Some(name) =
                word.strip_prefix("--").filter(|name| name.starts_with(char::is_alphabetic))
            else {
                continue;
            };
            let mut names = known.get_arguments().filter_map(|option| option.get_long());
            assert!(names.any(|long| long == name), "{page}: --{name}");
        }
    }
    let server = json("packaging/registry/server.json");
    let arguments = server["packages"][0]["packageArguments"].as_array().unwrap();
    assert_eq!([&arguments[0]["value"], &arguments[1]["value"]], ["wrap", "--"]);
    let snippets = json("packaging/vscode/milepost.code-snippets");
    for snippet in snippets.as_object().unwrap().values() {
        let body = snippet["body"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        // The placeholders of a snippet are replaced by their words: `${2:command}` becomes `command`.
        let text = body.collect::<String>().replace("$3", "").replace('}', "").replace("{", "");
        let text = text.replace("$1:", "").replace("$2:", "").replacen(": ", ": {", 1);
        let entry: Value = serde_json::from_str(&format!("{{{text}}}}}")).unwrap();
        let args = &entry["name"]["args"];
        let args = args.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        <Cli as clap::Parser>::try_parse_from(["milepost"].into_iter().chain(args)).unwrap();
    }
    let wheel: Table = read("packaging/pypi/pyproject.toml").parse().unwrap();
    let about = manifest();
    assert_eq!(wheel["project"]["description"], about["package"]["description"]);
    assert_eq!(wheel["project"]["license"], about["workspace"]["package"]["license"]);
}

#[test]
fn the_archive_is_where_installers_look_for_it() {
    let place = "releases/download/v@VERSION@/milepost-@VERSION@-@TARGET@.tar.gz";
    assert!(read("packaging/homebrew/milepost.rb").contains(place));
    let about = manifest();
    let install = &about["package"]["metadata"]["binstall"];
    let url = install["pkg-url"].as_str().unwrap().replace("{ version }", "@VERSION@");
    assert!(url.replace("{ target }", "@TARGET@").ends_with(place), "{url}");
    let archive = read("packaging/archive");
    assert!(archive.contains("name=milepost-$version-$target\n"), "{archive}");
    assert!(archive.contains("\"$out/$name.tar.gz\""), "{archive}");
    for script in ["packaging/build", "packaging/release"] {
        assert!(read(script).contains("\npackaging/archive "), "{script}");
    }
    assert!(read("packaging/build").contains("\"$out/milepost-$version-$target.tar.gz\""));
    let workflow = read(".github/workflows/release.yml");
    let workflow: serde_yaml_ng::Value = serde_yaml_ng::from_str(&workflow).unwrap();
    let publish = &workflow["jobs"]["publish"]["needs"];
    let needed: Vec<&str> =
        publish.as_sequence().unwrap().iter().map(|job| job.as_str().unwrap()).collect();
    for job in needed {
        assert_eq!(workflow["jobs"][job]["needs"].as_str(), Some("check"), "{job}");
    }
}

/// The launcher, with this build's program; `None` without Node.js.
fn launcher() -> Option<Command> {
    run_if_there("node", &["--version"]).filter(|output| output.status.success())?;
    let mut command = Command::new("node");
    command.arg(root().join("packaging/npm/bin/milepost.js")).env("MILEPOST_BINARY", MILEPOST);
    Some(command)
}

#[test]
fn the_npm_launcher_stands_aside() {
    let Some(mut command) = launcher() else { return };
    let mut session = Session::start(command.args(["wrap", "--", "cat"]));
    let line = r#"{"jsonrpc":"2.0","method":"notifications/é"}"#;
    session.tell(line);
    assert_eq!(session.line(), line);
    let (rest, code, error) = session.finish();
    assert_eq!((&*rest, code), ("", Some(0)), "{error}");

    let mut command = launcher().unwrap();
    let (_, code, _) = Session::start(command.args(["wrap", "--", "sh", "-c", "exit 7"])).finish();
    assert_eq!(code, Some(7));

    // A signal that only the launcher gets.
    let mut command = launcher().unwrap();
    let script = "trap 'exit 5' TERM; echo '{\"jsonrpc\":\"2.0\",\"method\":\"up\"}'; while :; do sleep 0.05; done";
    let mut session = Session::start(command.args(["wrap", "--", "sh", "-c", script]));
    assert!(session.line().contains("up"));
    session.signal("TERM");
    let (_, code, error) = session.ended();
    assert_eq!(code, Some(5), "{error}");
}

#[test]
fn the_npm_launcher_finds_the_program_of_its_platform() {
    let Some(mut command) = launcher() else { return };
    let folder = tempfile::tempdir().unwrap();
    let modules = folder.path().join("node_modules");
    // Installed as a package, without a package for the platform.
    let package = modules.join("milepost");
    fs::create_dir_all(package.join("bin")).unwrap();
    for file in ["package.json", "bin/milepost.js"] {
        fs::copy(root().join("packaging/npm").join(file), package.join(file)).unwrap();
    }
    let start = |more: &str| {
        let mut command = Command::new("node");
        command.arg(package.join("bin/milepost.js")).arg(more).env_remove("MILEPOST_BINARY");
        command.output().unwrap()
    };
    let output = start("--version");
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8(output.stderr).unwrap().contains("MILEPOST_BINARY"));
    let platform = run_if_there("node", &["-p", "`${process.platform} ${process.arch}`"]).unwrap();
    let platform = String::from_utf8(platform.stdout).unwrap();
    let (os, cpu) = platform.trim().split_once(' ').unwrap();
    let made = Command::new("node")
        .arg(root().join("packaging/npm/platform.js"))
        .args([os, cpu, MILEPOST])
        .arg(&modules)
        .output()
        .unwrap();
    if !npm()["optionalDependencies"]
        .as_object()
        .unwrap()
        .contains_key(&format!("milepost-{os}-{cpu}"))
    {
        assert_eq!(made.status.code(), Some(2));
        return;
    }
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let output = start("--version");
    let expected = concat!("milepost ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    // A program that cannot be started.
    let output = command.env("MILEPOST_BINARY", "/nowhere/milepost").output().unwrap();
    assert_eq!(output.status.code(), Some(127));
}

/// `python3 -m milepost` in a folder laid out as `pip install --target` does it; `None` without Python.
fn module(folder: &Path) -> Option<Command> {
    run_if_there("python3", &["--version"]).filter(|output| output.status.success())?;
    let settings: Table = read("packaging/pypi/pyproject.toml").parse().unwrap();
    let maturin = &settings["tool"]["maturin"];
    let name = maturin["module-name"].as_str().unwrap();
    let source = Path::new("packaging/pypi").join(maturin["python-source"].as_str().unwrap());
    fs::create_dir_all(folder.join(name)).unwrap();
    for file in ["__init__.py", "__main__.py"] {
        let text = read(source.join(name).join(file).to_str().unwrap());
        fs::write(folder.join(name).join(file), text).unwrap();
    }
    let mut command = Command::new("python3");
    command.args(["-m", name]).env("PYTHONPATH", folder).current_dir("/");
    Some(command)
}

#[test]
fn the_module_of_the_wheel_becomes_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = module(folder.path()) else { return };
    let output = command.arg("--version").output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("milepost: the program milepost of this package"), "{error}");

    fs::create_dir(folder.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(MILEPOST, folder.path().join("bin/milepost")).unwrap();
    let mut command = module(folder.path()).unwrap();
    let mut session = Session::start(command.args(["wrap", "--", "sh", "-c", "cat; exit 7"]));
    let line = r#"{"jsonrpc":"2.0","method":"notifications/é"}"#;
    session.tell(line);
    assert_eq!(session.line(), line);
    let (rest, code, error) = session.finish();
    assert_eq!((&*rest, code), ("", Some(7)), "{error}");
}

/// Licences that a program may be given to others under, with their notices, whatever its own is.
const PERMISSIVE: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether one may choose permissive licences alone. Parts stand in parentheses only on one side of an
/// `AND`, so that a part is permissive if one of its alternatives is.
fn is_permissive(licence: &str) -> bool {
    let licence = licence.replace('/', " OR ").replace(['(', ')'], " ");
    licence.split(" AND ").all(|part| {
        let mut choices = part.split(" OR ").map(str::trim);
        choices.any(|choice| PERMISSIVE.contains(&choice))
    })
}

/// Returns the crates that are built into the program on Linux: name, version, licence and directory of each.
fn crates() -> BTreeSet<[String; 4]> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (node["id"].as_str().unwrap().to_owned(), node))
        .collect();
    let mut left = vec![metadata["resolve"]["root"].as_str().unwrap().to_owned()];
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        for dependency in list(&nodes[&id]["deps"]) {
            let is_normal =
                list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let package = dependency["pkg"].as_str().unwrap().to_owned();
            if is_normal && found.insert(package.clone()) {
                left.push(package);
            }
        }
    }
    // Features that only tests use bring in more crates.
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--edges", "normal", "--prefix", "none", "--locked", "--offline"])
        .args(["--package", "milepost", "--all-features", "--target", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let built: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap()))
        .collect();
    let is_built = |package: &Value| {
        let text = |key: &str| package[key].as_str().unwrap();
        // A package without a source is a part of this repository.
        let is_foreign = !package["source"].is_null();
        is_foreign && built.contains(&(text("name"), text("version"))) && found.contains(text("id"))
    };
    let packages = list(&metadata["packages"]).into_iter();
    packages
        .filter(is_built)
        .map(|package| {
            ["name", "version", "license", "repository"]
                .map(|key| package[key].as_str().unwrap_or("-").to_owned())
        })
        .collect()
}

#[test]
fn the_licences_of_what_is_built_in_are_listed() {
    let mut text = "# Licences\n\n\
        Milepost is MIT or Apache-2.0, at your option. This table lists the crates in the program on Linux, as \
        `Cargo.lock`\nhas them (`UPDATE_EXPECT=1 cargo test --test it licences` writes this page; \
        `packaging/assemble` collects the texts):\n\n\
        | crate | version | licence | from |\n|---|---|---|---|\n"
        .to_owned();
    for [name, version, licence, from] in crates() {
        assert!(is_permissive(&licence), "{name} {version}: {licence}");
        text += &format!("| {name} | {version} | {licence} | <{from}> |\n");
    }
    let place = root().join("docs/licences.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&place, &text).unwrap();
    }
    let stored = fs::read_to_string(&place).unwrap_or_default();
    assert!(stored == text, "docs/licences.md: run with UPDATE_EXPECT=1");
}

#[test]
fn cargo_deny_allows_the_same_licences_and_one_registry() {
    let deny: Table = read("deny.toml").parse().unwrap();
    let texts = |value: &toml::Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(&deny["licenses"]["allow"]), PERMISSIVE);
    assert_eq!(deny["sources"]["unknown-registry"].as_str(), Some("deny"));
    assert_eq!(deny["sources"]["unknown-git"].as_str(), Some("deny"));
    let registries = texts(&deny["sources"]["allow-registry"]);
    let lock: Table = read("Cargo.lock").parse().unwrap();
    for package in lock["package"].as_array().unwrap() {
        let Some(source) = package.get("source") else { continue };
        let source = source.as_str().unwrap().trim_start_matches("registry+");
        assert!(registries.iter().any(|known| known == source), "{package}");
    }
    assert!(read("tests/all").contains("check bans licenses sources"));
    assert!(read("packaging/release").contains("deny --locked check\n"));
}

#[test]
fn the_bill_of_materials_lists_what_is_built_in() {
    if run_if_there("jq", &["--version"]).is_none() {
        return;
    }
    let output = Command::new(root().join("packaging/sbom")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bill: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    assert_eq!(bill["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
    let components = bill["components"].as_array().unwrap();
    let (own, foreign): (Vec<&Value>, Vec<&Value>) =
        components.iter().partition(|component| component["name"] == "milepost-core");
    assert_eq!(own.len(), 1);
    let listed: BTreeSet<(&str, &str)> = foreign
        .iter()
        .map(|component| {
            let sum = component["hashes"][0]["content"].as_str().unwrap();
            assert_eq!(sum.len(), 64, "{component}");
            (component["name"].as_str().unwrap(), component["version"].as_str().unwrap())
        })
        .collect();
    let crates = crates();
    let built: BTreeSet<(&str, &str)> =
        crates.iter().map(|[name, version, ..]| (&**name, &**version)).collect();
    assert_eq!(listed, built);
}

#[test]
fn every_part_has_its_place_in_the_document() {
    let text = read("docs/packages.md");
    let mut parts: Vec<PathBuf> = vec!["Dockerfile".into()];
    parts
        .extend(fs::read_dir(root().join("packaging")).unwrap().map(|entry| entry.unwrap().path()));
    for part in parts {
        let name = part.strip_prefix(root()).unwrap_or(&part).to_str().unwrap();
        assert!(text.contains(name), "{name} is not in docs/packages.md");
    }
}
