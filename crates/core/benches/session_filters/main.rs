//! Compares the cost of one filter for a whole session over Streamable HTTP with that of today's filters: one for each
//! request, and one for the session that knows the requests as shadows. Both are driven as `src/gateway/direct` drives
//! its filters, without the rest of the proxy, which is the same for both: the mailbox, the token leases, the log and
//! the bytes of HTTP.
//!
//! `cargo bench -p milepost-core --bench session_filters` prints the tables of docs/performance.md; with the name of a
//! table (`counts`, `memory`, `contention`) it prints only this table. Instructions need valgrind.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod apart;
mod contention;
mod counts;
mod joint;
mod load;
mod memory;
mod shell;

fn main() {
    // Removes the argument that Cargo adds.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.first().is_some_and(|word| word == counts::CHILD) {
        return counts::run_child(&words[1..]);
    }
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    if is_wanted("counts") {
        counts::print();
    }
    if is_wanted("memory") {
        memory::print();
    }
    if is_wanted("contention") {
        contention::print();
    }
}
