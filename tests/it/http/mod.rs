//! HTTP on the side of the clients: the direct path and the bridge in memory and in virtual time, the
//! listeners on loopback, and `milepost serve` as a process.

mod bridge;
pub(crate) mod direct;
mod fleet;
mod heap;
mod listeners;
pub(crate) mod raw;
mod recording;
pub(crate) mod rig;
pub(crate) mod serve;
