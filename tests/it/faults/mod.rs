//! Faults, each on every pair of transports that can have it: no possible answer is lost, a call whose server has died
//! gets an error, other clients are not affected, and no process or connection is left.
//!
//! Each test plays its fault once, or `FAULTS_ROUNDS` times: `tests/faults/run` plays all of them so.

mod children;
mod clients;
mod machine;
mod proxies;
mod scene;
mod servers;
mod soak;
mod starts;

use std::thread;

use crate::pairs::{Pair, Transport};

/// A fault after which Milepost works as before.
type Fault = fn(&mut Pair);

/// Plays a fault as often as is wanted.
fn play(mut fault: impl FnMut()) {
    let rounds = std::env::var("FAULTS_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for _ in 0..rounds {
        fault();
    }
}

/// All rounds are played before the same process of `serve`.
fn play_again_and_again(fault: Fault, client: Transport, server: Transport) {
    let mut pair = Pair::with(client, server, scene::keys(server));
    play(|| fault(&mut pair));
}

/// A module for a fault, with a test for each pair.
macro_rules! fault {
    (on $place:ident::$fault:ident: $($pair:ident $client:ident $server:ident),*) => {
        mod $fault {
            $(#[test]
            fn $pair() {
                use crate::pairs::Transport::{$client as Client, $server as Server};
                super::play_again_and_again(super::$place::$fault, Client, Server);
            })*
        }
    };
    (anew $place:ident::$fault:ident: $($pair:ident $client:ident $server:ident),*) => {
        mod $fault {
            $(#[test]
            fn $pair() {
                use crate::pairs::Transport::{$client as Client, $server as Server};
                super::play(|| super::$place::$fault(Client, Server));
            })*
        }
    };
}

/// Faults that every pair can have.
macro_rules! on_all_pairs {
    ($($how:ident $place:ident::$fault:ident),* $(,)?) => {
        $(fault! { $how $place::$fault:
            stdio_to_stdio Stdio Stdio, stdio_to_http Stdio Http, stdio_to_sse Stdio Sse,
            http_to_stdio Http Stdio, http_to_http Http Http, http_to_sse Http Sse,
            sse_to_stdio Sse Stdio, sse_to_http Sse Http, sse_to_sse Sse Sse
        })*
    };
}

/// Faults of servers that are children.
macro_rules! before_children {
    ($($how:ident $place:ident::$fault:ident),* $(,)?) => {
        $(fault! { $how $place::$fault:
            stdio_to_stdio Stdio Stdio, http_to_stdio Http Stdio, sse_to_stdio Sse Stdio
        })*
    };
}

/// The same, where Milepost gives the child seconds to end by itself: the pairs wait together.
macro_rules! before_patient_milepost {
    ($($place:ident::$fault:ident),* $(,)?) => {
        $(#[test]
        fn $fault() {
            play(|| thread::scope(|scope| {
                for client in [Transport::Stdio, Transport::Http, Transport::Sse] {
                    scope.spawn(move || $place::$fault(client, Transport::Stdio));
                }
            }));
        })*
    };
}

/// Faults of servers at an address.
macro_rules! before_addresses {
    ($($how:ident $place:ident::$fault:ident),* $(,)?) => {
        $(fault! { $how $place::$fault:
            stdio_to_http Stdio Http, stdio_to_sse Stdio Sse, http_to_http Http Http,
            http_to_sse Http Sse, sse_to_http Sse Http, sse_to_sse Sse Sse
        })*
    };
}

/// Faults of servers of Streamable HTTP.
macro_rules! before_streamable_http {
    ($($how:ident $place:ident::$fault:ident),* $(,)?) => {
        $(fault! { $how $place::$fault:
            stdio_to_http Stdio Http, http_to_http Http Http, sse_to_http Sse Http
        })*
    };
}

/// Faults of `serve`.
macro_rules! on_serve {
    ($($how:ident $place:ident::$fault:ident),* $(,)?) => {
        $(fault! { $how $place::$fault:
            http_to_stdio Http Stdio, http_to_http Http Http, http_to_sse Http Sse,
            sse_to_stdio Sse Stdio, sse_to_http Sse Http, sse_to_sse Sse Sse
        })*
    };
}

/// Faults after which Milepost works as before, and whether the client disconnects without ending its session.
const LASTING: [(bool, Fault); 13] = [
    (false, servers::dies_before_its_answer),
    (false, servers::dies_in_an_event),
    (false, servers::dies_in_a_chunk),
    (false, servers::dies_between_events),
    (false, servers::dies_after_the_text_of_its_answer),
    (false, servers::is_killed_between_events),
    (false, servers::says_garbage),
    (false, servers::answers_byte_for_byte),
    (true, clients::leaves_in_a_call),
    (true, clients::leaves_while_idle),
    (true, clients::breaks_off),
    (false, clients::reads_late),
    (false, clients::writes_byte_for_byte),
];

on_all_pairs! {
    on servers::dies_before_its_answer,
    on servers::dies_in_an_event,
    on servers::dies_in_a_chunk,
    on servers::dies_between_events,
    on servers::dies_after_the_text_of_its_answer,
    on servers::is_killed_between_events,
    anew servers::is_gone_for_good,
    on servers::says_garbage,
    on servers::answers_byte_for_byte,
    on clients::leaves_in_a_call,
    on clients::leaves_while_idle,
    on clients::breaks_off,
    on clients::reads_late,
    on clients::writes_byte_for_byte,
    anew proxies::is_killed,
    anew proxies::cannot_log,
    anew proxies::has_its_clock_set,
    anew proxies::has_no_descriptors,
}

before_streamable_http! {
    on servers::answers_with_another_type,
}

before_children! {
    anew children::exits_with_0,
    anew children::exits_with_1,
    anew children::crashes,
    on children::reads_nothing,
    anew children::leaves_a_grandchild,
    anew starts::is_no_program,
    anew starts::exits_at_once,
}

before_patient_milepost! {
    children::closes_its_output,
    children::ignores_sigterm,
}

before_addresses! {
    anew starts::is_a_black_hole,
    anew starts::has_no_address,
    anew starts::refuses_tls,
    anew starts::speaks_another_type,
}

on_serve! {
    anew proxies::is_terminated,
    anew proxies::reads_a_broken_file,
}
