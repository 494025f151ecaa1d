//! The kinds of values that name files and folders, and the environment of a command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::toml_text::{ShowText, list, path, plain};
use crate::config::routes::{Authorities, InheritedEnv};
use crate::config::values::compound::WordOrList;
use crate::config::values::{OFF, StateDir, nearest};
use crate::policy_file::format::{Format, last};

/// A file or folder, relative to the route file.
pub(crate) struct FilePath;

impl Format for FilePath {
    type Written = String;
    type Value = PathBuf;
    type Field = PathBuf;

    fn check(written: String) -> Result<PathBuf, String> {
        Ok(written.into())
    }
    fn read(texts: &[String]) -> Result<PathBuf, String> {
        Self::check(last(texts).to_owned())
    }
    fn value(field: &PathBuf) -> Option<Value> {
        Some(field.to_string_lossy().into())
    }
    fn print(field: &PathBuf, _: ShowText<'_>) -> Option<String> {
        Some(path(field))
    }
}

/// A file of certificate authorities, or a list of such files in which the word `system` may stand too.
pub(crate) struct AuthorityFiles;

impl Format for AuthorityFiles {
    type Written = WordOrList;
    type Value = Authorities;
    type Field = Authorities;

    fn check(written: WordOrList) -> Result<Authorities, String> {
        match written {
            WordOrList::Word(file) => Ok(Authorities::one(file)),
            WordOrList::List(names) => Self::read(&names),
        }
    }
    fn read(texts: &[String]) -> Result<Authorities, String> {
        if texts.is_empty() {
            return Err("a file or a list of files is expected".to_owned());
        }
        Ok(Authorities::list(texts.to_vec()))
    }
    fn value(field: &Authorities) -> Option<Value> {
        let mut names = field.elements(str::to_owned, |file| file.to_string_lossy().into_owned());
        Some(if field.is_bare { names.remove(0).into() } else { names.into() })
    }
    fn print(field: &Authorities, _: ShowText<'_>) -> Option<String> {
        let mut texts = field.elements(plain, |file| path(file));
        Some(if field.is_bare { texts.remove(0) } else { list(texts) })
    }
}

/// The folder of data that outlives the process, or `off`.
pub(crate) struct StateFolder;

impl Format for StateFolder {
    type Written = String;
    type Value = StateDir;
    type Field = StateDir;

    fn check(written: String) -> Result<StateDir, String> {
        match nearest(&written, [OFF]) {
            _ if written == OFF => Ok(StateDir::Off),
            _ if written.is_empty() => Err("a folder is expected, or \"off\"".to_owned()),
            // A misspelt `of` or `Off` would create a directory of that name and keep data although the user wants
            // none.
            Some(off) => {
                Err(format!("did you mean {off:?}? A folder of this name is \"./{written}\""))
            }
            None => Ok(StateDir::At(written.into())),
        }
    }
    fn read(texts: &[String]) -> Result<StateDir, String> {
        Self::check(last(texts).to_owned())
    }
    fn value(field: &StateDir) -> Option<Value> {
        Some(field.to_string().into())
    }
    fn print(field: &StateDir, _: ShowText<'_>) -> Option<String> {
        Some(match field {
            StateDir::Off => plain(OFF),
            StateDir::At(folder) => path(folder),
        })
    }
}

/// Variables of the environment of a command, by name.
pub(crate) struct CommandEnv;

impl Format for CommandEnv {
    type Written = BTreeMap<String, String>;
    type Value = Vec<(OsString, OsString)>;
    type Field = Vec<(OsString, OsString)>;

    fn check(written: Self::Written) -> Result<Self::Value, String> {
        Ok(written.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
    fn read(texts: &[String]) -> Result<Self::Value, String> {
        let pairs = texts.iter().map(|text| text.split_once('=').unwrap_or((text, "")));
        Ok(pairs.map(|(name, value)| (name.into(), value.into())).collect())
    }
    fn value(field: &Self::Field) -> Option<Value> {
        let pair = |(name, value): &(OsString, OsString)| {
            (name.to_string_lossy().into_owned(), Value::from(value.to_string_lossy()))
        };
        let mut pairs = Map::new();
        pairs.extend(field.iter().map(pair));
        (!pairs.is_empty()).then(|| pairs.into())
    }
}

/// The variables that a command inherits: `all`, `safe` or a list of names.
pub(crate) struct Inherited;

impl Format for Inherited {
    type Written = WordOrList;
    type Value = InheritedEnv;
    type Field = InheritedEnv;

    fn check(written: WordOrList) -> Result<InheritedEnv, String> {
        match written {
            WordOrList::Word(word) => Self::read(&[word]),
            WordOrList::List(names) => Ok(InheritedEnv::Names(names)),
        }
    }
    fn read(texts: &[String]) -> Result<InheritedEnv, String> {
        match last(texts) {
            "all" => Ok(InheritedEnv::All),
            "safe" => Ok(InheritedEnv::Safe),
            _ => Err("\"all\", \"safe\" or a list of names of variables is expected".to_owned()),
        }
    }
    fn value(field: &InheritedEnv) -> Option<Value> {
        Some(match field {
            InheritedEnv::All => "all".into(),
            InheritedEnv::Safe => "safe".into(),
            InheritedEnv::Names(names) => names.clone().into(),
        })
    }
}
