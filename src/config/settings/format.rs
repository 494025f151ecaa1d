//! The kinds of values that only the settings in `declared.rs` have.

use std::fmt::Debug;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::values::text::AtLeast;
use crate::policy_file::format::{Format, last};
use crate::policy_file::toml_text::ShowText;

/// A value that may be absent, because it has no default.
pub(crate) struct Maybe<F>(PhantomData<F>);

impl<F: Format<Field = <F as Format>::Value>> Format for Maybe<F> {
    type Written = F::Written;
    type Value = F::Value;
    type Field = Option<F::Value>;

    fn check(written: F::Written) -> Result<F::Value, String> {
        F::check(written)
    }
    fn read(texts: &[String]) -> Result<F::Value, String> {
        F::read(texts)
    }
    fn value(field: &Self::Field) -> Option<Value> {
        F::value(field.as_ref()?)
    }
    fn print(field: &Self::Field, show: ShowText<'_>) -> Option<String> {
        F::print(field.as_ref()?, show)
    }
    fn choices() -> Vec<&'static str> {
        F::choices()
    }
    fn word(field: &Self::Field, name: &str) -> Option<String> {
        F::word(field.as_ref()?, name)
    }
    fn read_word(field: &mut Self::Field, _: &str, text: &str) -> Result<(), String> {
        *field = Some(F::read(&[text.to_owned()])?);
        Ok(())
    }
}

impl<const MIN: usize> Format for AtLeast<MIN> {
    type Written = Self;
    type Value = usize;
    type Field = usize;

    fn check(written: Self) -> Result<usize, String> {
        Ok(written.0)
    }
    fn read(texts: &[String]) -> Result<usize, String> {
        let text = last(texts);
        let number: i64 = text.parse().map_err(|_| format!("{text:?} is not a whole number"))?;
        Self::of(number).map(|count| count.0)
    }
    fn value(field: &usize) -> Option<Value> {
        Some((*field).into())
    }
}

/// A list of strings.
pub(crate) struct Strings;

impl Format for Strings {
    type Written = Vec<String>;
    type Value = Vec<String>;
    type Field = Vec<String>;

    fn check(written: Vec<String>) -> Result<Vec<String>, String> {
        Ok(written)
    }
    fn read(texts: &[String]) -> Result<Vec<String>, String> {
        Ok(texts.to_vec())
    }
    fn value(field: &Vec<String>) -> Option<Value> {
        Some(field.clone().into())
    }
    fn read_word(field: &mut Vec<String>, _: &str, text: &str) -> Result<(), String> {
        *field = text.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        Ok(())
    }
}

/// A table that the type `T` reads and writes.
pub(crate) struct TypedTable<T>(PhantomData<T>);

impl<T> Format for TypedTable<T>
where
    T: DeserializeOwned + Serialize + Clone + Debug + Send + Sync + 'static,
{
    type Written = T;
    type Value = T;
    type Field = T;

    fn check(written: T) -> Result<T, String> {
        Ok(written)
    }
    fn read(texts: &[String]) -> Result<T, String> {
        serde_json::from_str(last(texts)).map_err(|error| error.to_string())
    }
    fn value(field: &T) -> Option<Value> {
        serde_json::to_value(field).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_a_word_and_a_minimum_everywhere() {
        let read = |text: &str| <AtLeast<5> as Format>::read(&[text.to_owned()]);
        assert_eq!(read("5"), Ok(5));
        assert_eq!(read("4"), Err("at least 5 is expected".to_owned()));
        let mut field = 9;
        let word = <AtLeast<5> as Format>::word(&field, "count").unwrap();
        <AtLeast<5> as Format>::read_word(&mut field, "count", "7").unwrap();
        assert_eq!((&*word, field), ("9", 7));
        assert!(<AtLeast<5> as Format>::read_word(&mut field, "count", "4").is_err());
    }
}
