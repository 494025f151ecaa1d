//! The settings of `[fleet]`.

use milepost_core::settings;

use super::super::format::Maybe;
use crate::config::routes::fleet::FleetSettings;
use crate::config::values::text::{Address, FleetKeyText, Hidden};
use crate::policy_file::format::{List, Switch};

settings! { #[cfg(test)] FleetSettings, Self::default();
    /// The keys that all replicas share: 64 hexadecimal digits each, as from `openssl rand -hex 32`. The first
    /// seals ids, every one opens them. To change a key without losing a session, roll out `[old, new]`, then
    /// `[new, old]`, then `[new]`.
    "key" List<FleetKeyText> => key { default: "none, and the table needs one" }
    /// The address where other replicas pass requests on to this one. A request that was not sent by a replica with the
    /// same key gets 403.
    "listen" Address => listen {}
    /// The address under which other replicas reach `listen`, an address and not a name.
    "advertise" Maybe<Address> => advertise { default: "none, and the table needs one" }
    /// The address of a Valkey or Redis that all replicas reach, such as `rediss://user:password@valkey:6379`: when a
    /// replica has ended, one other replica inherits each of its sessions and sends heartbeats in it. Without a store,
    /// or if the store does not answer, these sessions continue without heartbeats. Needs a program with the feature
    /// `fleet-valkey`, as the packages have it.
    "valkey" Maybe<Hidden> => valkey { default: "none" }
    /// Seals the ids of new sessions. With false the replica opens ids and passes requests on, but seals nothing: use
    /// it while only some replicas have this table.
    "seal" Switch => seal {}
}
