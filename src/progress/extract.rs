//! stub
use super::meter::Figure;
/// e
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Extract(Vec<String>);
impl Extract {
    /// r
    pub fn read<'a>(p: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        Ok(Self(p.into_iter().map(str::to_owned).collect()))
    }
    /// p
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|s| &**s)
    }
    /// f
    pub fn figure(&self, words: &str) -> Option<Figure> {
        super::dialect::figure_in_words(words)
    }
}
