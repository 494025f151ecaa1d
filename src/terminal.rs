//! stub
#[derive(Default, Debug)]
/// t
pub struct Terminal(Vec<u8>);
impl Terminal {
    /// f
    pub fn feed(&mut self, bytes: &[u8], line: &mut dyn FnMut(&str)) {
        for b in bytes {
            if *b == b'\n' || *b == b'\r' { self.flush(line) } else { self.0.push(*b) }
        }
    }
    /// f
    pub fn flush(&mut self, line: &mut dyn FnMut(&str)) {
        let t = String::from_utf8_lossy(&self.0).trim().to_owned();
        self.0.clear();
        if !t.is_empty() {
            line(&t)
        }
    }
}
