//! Which replica serves a session whose owner has ended, with a store and while the store fails.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost::gateway::fleet::heirs::{HeirClaim, OwnerStore, SessionKey};
use milepost::gateway::fleet::seal::Owner;
use tokio::time::Instant;

use super::replicas::{Client, HTTP, Replicas, Spread};
use super::scenarios::begin_over_http;
use crate::http::rig::{Answer, Asked, BOTH, check, ms, pass, secs, settle};
use crate::support::messages::{call, progress, result};

/// A store in this process.
#[derive(Default)]
struct Shelf {
    owners: Mutex<HashMap<SessionKey, Owner>>,
    asked: AtomicUsize,
    is_silent: AtomicBool,
}

impl OwnerStore for Shelf {
    fn settle(&self, claim: HeirClaim) -> BoxFuture<'static, Option<Owner>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.is_silent.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        let mut owners = self.owners.lock().unwrap();
        let owner = owners.entry(claim.session).or_insert(claim.claimant);
        if Some(*owner) == claim.gone {
            *owner = claim.claimant;
        }
        std::future::ready(Some(*owner)).boxed()
    }

    fn renew(&self, _: Owner, _: Vec<SessionKey>) {}
}

/// A call of the client's session at a replica.
async fn ask(replicas: &mut Replicas, client: &Client, to: usize, id: u32) -> (Answer, Asked) {
    let named = format!("Mcp-Session-Id: {}", client.session.as_deref().unwrap());
    let answer = replicas.send(to, "POST /r", &[&named, BOTH], call(id, id).as_bytes());
    settle().await;
    let asked = replicas.asked().await;
    asked.events(&[]);
    settle().await;
    (answer, asked)
}

/// Ends a call, and returns the messages of its client.
async fn finish(answer: &Answer, asked: &Asked, id: u32) -> Vec<String> {
    asked.say(progress(id, 50));
    asked.say(result(id));
    asked.end();
    settle().await;
    check([answer]);
    let told = answer.messages();
    assert_eq!(told.last(), Some(&result(id)), "{told:?}");
    assert!(told.contains(&progress(id, 50)), "{told:?}");
    told
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_that_take_over_at_once_one_is_the_owner() {
    let mut replicas = Replicas::with_store(3, HTTP, Arc::new(Shelf::default()));
    let client = begin_over_http(&mut replicas, Spread::Sticky, "s").await;
    replicas.kill(0).await;
    let one = ask(&mut replicas, &client, 1, 1).await;
    let two = ask(&mut replicas, &client, 2, 2).await;
    assert_eq!(replicas.events("passed-on"), 1, "the other knows the heir");
    pass(secs(12)).await;
    for ((answer, asked), id) in [(&one, 1), (&two, 2)] {
        let told = finish(answer, asked, id).await;
        assert!(told.len() > 2, "the heir breaks the silence: {told:?}");
    }
    // The heir has ended too.
    replicas.kill(1).await;
    let three = ask(&mut replicas, &client, 2, 3).await;
    pass(secs(12)).await;
    assert!(finish(&three.0, &three.1, 3).await.len() > 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_store_both_serve_and_neither_adds_anything() {
    let mut replicas = Replicas::new(3, HTTP);
    let client = begin_over_http(&mut replicas, Spread::Sticky, "s").await;
    replicas.kill(0).await;
    let one = ask(&mut replicas, &client, 1, 1).await;
    let two = ask(&mut replicas, &client, 2, 2).await;
    assert_eq!(replicas.events("passed-on"), 0);
    pass(secs(12)).await;
    for ((answer, asked), id) in [(&one, 1), (&two, 2)] {
        assert_eq!(finish(answer, asked, id).await, [progress(id, 50), result(id)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_falls_silent_or_forgets_costs_no_answer() {
    let shelf = Arc::new(Shelf::default());
    let mut replicas = Replicas::with_store(3, HTTP, shelf.clone());
    let client = begin_over_http(&mut replicas, Spread::Sticky, "s").await;
    replicas.kill(0).await;
    shelf.is_silent.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    let named = format!("Mcp-Session-Id: {}", client.session.as_deref().unwrap());
    for id in 1..=20 {
        let answer = replicas.send(1, "POST /r", &[&named, BOTH], call(id, id).as_bytes());
        if id == 1 {
            pass(ms(50)).await;
        }
        let asked = replicas.asked().await;
        asked.events(&[]);
        assert_eq!(finish(&answer, &asked, id).await, [progress(id, 50), result(id)]);
    }
    assert!(begun.elapsed() < ms(60), "once 50 ms: {:?}", begun.elapsed());
    assert_eq!(shelf.asked.load(Ordering::Relaxed), 1);
    // The store answers again within seconds.
    shelf.is_silent.store(false, Ordering::Relaxed);
    pass(secs(2)).await;
    let (answer, asked) = ask(&mut replicas, &client, 1, 21).await;
    pass(secs(12)).await;
    assert!(finish(&answer, &asked, 21).await.len() > 2, "the heir has heartbeats");
    // The store has lost its entries, as after a flush.
    for id in 22..=30 {
        shelf.owners.lock().unwrap().clear();
        pass(secs(4)).await;
        let to = 1 + usize::try_from(id).unwrap() % 2;
        let (answer, asked) = ask(&mut replicas, &client, to, id).await;
        finish(&answer, &asked, id).await;
    }
    assert_eq!(replicas.events("loop"), 0);
}
