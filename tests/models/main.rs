//! Models of what the tasks of `serve` share: the mailbox of a response, the replay buffer of a
//! stream, and the signals to the relay of a session. Each model plays every order in which its threads
//! can go on, with at most [`PREEMPTIONS_MAX`] interruptions.
//!
//! The files are those of the product. Only the locks, the atomic values and the wakers are others
//! (`parts`): they tell `loom` what happens. A reader whose wake-up is lost waits for ever, which
//! `loom` reports as a deadlock with the order that leads to it.

#![allow(clippy::unwrap_used, dead_code, unused_imports, unreachable_pub, unused_qualifications)]

mod bell;
mod mailbox;
mod parts;
mod store;

#[path = "../../src/transport/byte_budget.rs"]
#[allow(dead_code)]
mod byte_budget;

/// The product's files, and what little they need of others.
#[path = "../../src/gateway"]
mod gateway {
    pub(crate) mod direct {
        pub(crate) mod mailbox;
    }
    pub(crate) mod bridge {
        pub(crate) mod frame;
        pub(crate) mod replay_buffer;
        pub(crate) mod signals;
        pub(crate) mod subscription;
    }
    pub(crate) mod route_state {
        pub(crate) struct StreamPermit;
    }
}

mod progress {
    pub(crate) use milepost::progress::{StreamId, TransmitKind};
}

mod protocol {
    pub(crate) use milepost::protocol::{jsonrpc, sse};
}

mod relay {
    pub(crate) use milepost::relay::SOLE_STREAM;
}

mod transport {
    pub(crate) use crate::byte_budget;
    pub(crate) use crate::parts as sync;
    pub(crate) mod http {
        pub(crate) use crate::parts as body;
    }
    pub(crate) mod mcp_http {
        pub(crate) use crate::parts as content;
    }
}

/// Interruptions of a thread in one order. Nearly all known faults of this kind need one or two.
const PREEMPTIONS_MAX: usize = 3;

/// Steps of one order. Fewer are enough, so that a model that never ends fails.
const STEPS_MAX: usize = 20_000;

/// Plays every order of a model.
fn explore(name: &str, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.max_branches = STEPS_MAX;
    builder.check(model);
    eprintln!("{name}: ok");
}

fn main() {
    // `cargo test NAME` gives words that choose among the models.
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let models = [mailbox::MODELS, store::MODELS, bell::MODELS].concat();
    for (name, model) in models {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            explore(name, model);
        }
    }
}
