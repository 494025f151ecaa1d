//! Fleets behind fleets, and requests that no replica has to own.

use super::replicas::{HTTP, Replicas, Spread};
use super::scenarios::{begin_over_http, over_http};
use crate::http::rig::{Answer, BOTH, check, settle};
use crate::support::messages::{call, headers_of, modern_call, progress, result};

#[tokio::test(start_paused = true)]
async fn three_fleets_of_three_replicas_are_like_one_proxy() {
    let one = over_http(&mut Replicas::alone(HTTP), Spread::Sticky, "s").await;
    let middle = Replicas::before(Replicas::new(3, HTTP), 3);
    let mut outer = Replicas::before(middle, 3);
    for seed in 0..10 {
        let told = over_http(&mut outer, Spread::Chance(seed), &format!("s-{seed}")).await;
        assert_eq!(told, one, "seed {seed}");
    }
    let mut client = begin_over_http(&mut outer, Spread::RoundRobin, "s").await;
    let answer = client.post(&outer, call(1, 1));
    let asked = outer.asked().await;
    let via = asked.request.all("via").join(",");
    assert_eq!(via.split(',').count(), 3, "one for each fleet, whatever passed on what: {via}");
    asked.json(&[], &result(1));
    settle().await;
    assert_eq!(answer.text(), result(1));
}

/// A call of 2026-07-28 at a replica.
fn modern(replicas: &Replicas, to: usize, id: u32) -> Answer {
    let said = modern_call(id, id);
    let lines = headers_of(&said);
    let mut headers = vec![BOTH];
    headers.extend(lines.iter().map(String::as_str));
    replicas.send(to, "POST /r", &headers, said.as_bytes())
}

#[tokio::test(start_paused = true)]
async fn requests_of_2026_07_28_have_no_owner_and_survive_every_other_replica() {
    let mut replicas = Replicas::new(3, HTTP);
    let mut answers = Vec::new();
    for id in 1..=30 {
        let to = usize::try_from(id).unwrap() % 3;
        let answer = modern(&replicas, to, id);
        let asked = replicas.asked().await;
        asked.events(&[]);
        asked.say(progress(id, 1));
        settle().await;
        if id % 10 == 5 {
            replicas.kill(to).await;
            assert!(answer.is_broken() || answer.is_over());
            replicas.restart(to, Some(&super::replicas::table(to, &[super::replicas::KEY]))).await;
            continue;
        }
        (2..=5).for_each(|figure| asked.say(progress(id, figure)));
        asked.say(result(id));
        asked.end();
        settle().await;
        let told = (1..=5).map(|figure| progress(id, figure)).chain([result(id)]);
        assert_eq!(answer.messages(), told.collect::<Vec<_>>(), "{id}");
        answers.push(answer);
    }
    check(&answers);
    assert_eq!(replicas.events("passed-on"), 0);
    assert_eq!(replicas.tries(), 0);
}
