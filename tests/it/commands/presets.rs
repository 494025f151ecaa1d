//! Presets: settings for known servers, in a route, as a flag and as a list.

use milepost::config::routes::{Preset, PresetSettings, Route, Routes, Upstream};
use milepost::config::values::Word;
use milepost::progress::{CallPolicy, Policy};

use crate::commands::route_files::{parse, shape};
use crate::support::milepost;

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = milepost().args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn all() -> impl Iterator<Item = Preset> {
    Preset::WORDS.iter().map(|(_, preset)| *preset)
}

/// A route file with one route, which has these keys.
fn route(keys: &str) -> Routes {
    let head = "[[route]]\npath = \"/a\"\nupstream.url = \"http://127.0.0.1:9/mcp\"\n";
    parse(&format!("{head}{keys}\n")).unwrap_or_else(|error| panic!("{keys}: {error}"))
}

fn only(routes: &Routes) -> (&Route, Policy) {
    let route = routes.find(None).unwrap();
    (route, routes.policy(route))
}

#[test]
fn a_preset_stands_for_its_lines() {
    for preset in all() {
        let named = route(&format!("preset = {:?}", preset.name));
        let head = "[[route]]\npath = \"/a\"\nupstream.url = \"http://127.0.0.1:9/mcp\"\n";
        let written = parse(&preset.lines.replace("[[route]]\n", head)).unwrap();
        let ((of_name, policy), (of_lines, same)) = (only(&named), only(&written));
        assert_eq!(shape(&policy), shape(&same), "{}", preset.name);
        assert_ne!(
            (shape(&policy), of_name.own_get, of_name.lifecycle().is_some()),
            (shape(&Policy::default()), false, false),
            "{} changes nothing",
            preset.name
        );
        assert_eq!(of_name.own_get, of_lines.own_get, "{}", preset.name);
        assert!(of_name.lifecycle() == of_lines.lifecycle(), "{}", preset.name);
        let printed = named.print();
        assert!(printed.contains(&format!("\npreset = {:?}\n", preset.name)), "{printed}");
        let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again.print(), printed);
        assert_eq!(shape(&only(&again).1), shape(&policy));
    }
}

#[test]
fn a_route_takes_a_scale_and_a_token_rule_of_its_preset_back() {
    for preset in all() {
        let named = format!("preset = {:?}", preset.name);
        let of_preset = only(&route(&named)).1.call;
        let own = format!("{named}\nscale = \"raw\"\ntoken_is = \"learned\"");
        let call = only(&route(&own)).1.call;
        assert_eq!((call.scale, call.token_is), (None, None), "{}", preset.name);
        let same = CallPolicy { scale: of_preset.scale, token_is: of_preset.token_is, ..call };
        assert_eq!(same, of_preset, "{}", preset.name);
    }
    let sets = |is: fn(&CallPolicy) -> bool| {
        all().any(|preset| is(&only(&route(&format!("preset = {:?}", preset.name))).1.call))
    };
    assert!(sets(|call| call.scale.is_some()) && sets(|call| call.token_is.is_some()));
}

#[test]
fn the_keys_of_a_route_go_before_its_preset_and_the_preset_before_the_defaults() {
    let head = "[defaults]\ncoalesce = \"repaired\"\nmessages = \"append\"\nown_get = true\n";
    let route = "[[route]]\npath = \"/a\"\nupstream.command = [\"x\"]\n";
    let preset = "preset = \"mcp-devtools\"\n";
    let text = format!("{head}{route}{preset}dialects = [\"defaults\"]\n");
    let routes = parse(&text).unwrap();
    let (_, policy) = only(&routes);
    let names: Vec<&str> = policy.call.dialects.iter().map(|dialect| dialect.name()).collect();
    assert_eq!(names, ["standard", "tools-progress", "tool-notifications", "overheard"]);
    assert!(format!("{policy:?}").contains("coalesce: All"));
    assert!(format!("{policy:?}").contains("messages: Append"));
    assert!(policy.of(Some("project_actions")).ask.token_in_arguments);
    assert!(!policy.of(Some("other")).ask.token_in_arguments);

    let off = "ask = { token_in_arguments = false }\n";
    let routes = parse(&format!("{route}{preset}{off}")).unwrap();
    assert!(!only(&routes).1.of(Some("project_actions")).ask.token_in_arguments);
    let routes = parse(&format!("{route}preset = \"scout\"\nown_get = false\n")).unwrap();
    assert!(!only(&routes).0.own_get);
}

#[test]
fn the_lifecycle_of_a_preset_is_for_an_endpoint_and_gives_way_to_that_of_the_route() {
    let own = "upstream.lifecycle = { tools = \"/list\" }\npreset = \"kuzumem-handwritten\"";
    let routes = route(own);
    let lifecycle = only(&routes).0.lifecycle().unwrap();
    assert_eq!(lifecycle.tools.as_ref().unwrap().path(), "/list");
    assert!(lifecycle.initialize.is_none());
    let command = "[[route]]\npath = \"/a\"\nupstream.command = [\"x\"]\n";
    let routes = parse(&format!("{command}preset = \"kuzumem-handwritten\"\n")).unwrap();
    assert!(matches!(only(&routes).0.upstream, Upstream::Command(_)));
}

#[test]
fn a_dialect_of_the_file_takes_the_place_of_one_of_the_preset() {
    let own = "[[dialect]]\nname = \"plexus-data\"\nsource = \"log\"\nmessage = \"/data/text\"\n";
    let head = "[[route]]\npath = \"/a\"\nupstream.command = [\"x\"]\npreset = \"plexus\"\n";
    let routes = parse(&format!("{own}{head}")).unwrap();
    assert_eq!(routes.dialects().iter().filter(|own| own.name() == "plexus-data").count(), 1);
    let shown = shape(&only(&routes).1);
    assert!(shown.contains("/data/text") && shown.contains("\"/error\""), "{shown}");
    // Two routes may have the same preset.
    let other = head.replace("/a", "/b");
    assert_eq!(parse(&format!("{head}{other}")).unwrap().dialects().len(), 2);
}

#[test]
fn the_flag_lays_the_same_over_the_settings_of_a_file() {
    for preset in all() {
        let settings = PresetSettings::new(preset, &[]).unwrap();
        let mut policy = Policy::default();
        settings.apply(&mut policy);
        let routes = route(&format!("preset = {:?}", preset.name));
        let (of_file, mut expected) = only(&routes);
        expected.bare_results = policy.bare_results;
        assert_eq!(shape(&policy), shape(&expected), "{}", preset.name);
        let bare = route("");
        let mut of_flag = bare.find(None).unwrap().clone();
        settings.merge_into(&mut of_flag).unwrap();
        assert_eq!(of_flag.own_get, of_file.own_get);
        assert!(of_flag.lifecycle() == of_file.lifecycle());
    }
}

#[test]
fn the_list_names_every_preset_and_shows_each() {
    let (code, list, errors) = run(&["presets"]);
    assert_eq!((code, &*errors), (Some(0), ""));
    let names: Vec<&str> =
        list.lines().filter_map(|line| line.split_once("  ")).map(|(n, _)| n).collect();
    assert_eq!(names, all().map(|preset| preset.name).collect::<Vec<_>>());
    assert!(names.is_sorted(), "{names:?}");
    for preset in all() {
        let (code, lines, _) = run(&["presets", preset.name]);
        assert_eq!(code, Some(0));
        assert_eq!(lines, format!("# {}\n{}", preset.servers, preset.lines));
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_right_one() {
    for args in [&["presets", "mcp-devtool"][..], &["wrap", "--preset", "mcp-devtool", "--", "x"]] {
        let (code, _, errors) = run(args);
        assert_eq!(code, Some(2));
        assert!(errors.contains("a similar value exists: 'mcp-devtools'"), "{errors}");
    }
}
