//! Settings and the route file.
//!
//! `values` holds the kinds of values, `settings` declares each setting once, and `routes` reads and
//! prints route files.
pub mod programs;
pub mod routes;
pub mod settings;
pub mod values;
