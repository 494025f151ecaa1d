//! stub
use std::borrow::Cow;
/// e
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Masks(Vec<String>);
impl Masks {
    /// r
    pub fn read<'a>(p: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        Ok(Self(p.into_iter().map(str::to_owned).collect()))
    }
    /// p
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|s| &**s)
    }
    /// m
    pub fn mask<'a>(&self, words: &'a str) -> Cow<'a, str> {
        words.into()
    }
}
