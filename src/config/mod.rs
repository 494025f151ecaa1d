//! Settings and the route file.
pub mod routes;
pub mod settings;
