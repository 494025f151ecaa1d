//! The leg towards servers that are reached over HTTP, in memory and in virtual time: what a stdio client
//! is told, and what the server is asked, byte for byte.

mod answers;
mod asked;
mod detection;
mod modern;
mod rig;
mod sessions;
mod streams;
