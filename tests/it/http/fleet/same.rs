//! Whichever replica gets a request, the client is told the same as by one proxy alone.

use super::replicas::{HTTP, Replicas, SSE, STDIO, Spread, table};
use super::scenarios::{View, over_http, over_stdio, sse_to_sse, sse_to_stdio};
use crate::http::rig::settle;

/// Sessions of each cell; `FLEET_SESSIONS=200` plays more.
pub(super) fn sessions() -> u64 {
    std::env::var("FLEET_SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(25)
}

macro_rules! cell {
    ($name:ident, $route:expr, $script:path, $spread:expr) => {
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let mut alone = Replicas::alone($route);
            let one: View = $script(&mut alone, Spread::Sticky, "the-only-session").await;
            let mut replicas = Replicas::new(3, $route);
            for session in 0..sessions() {
                let spread: fn(u64) -> Spread = $spread;
                let id = format!("550e8400-e29b-41d4-a716-{session:012}");
                let told: View = $script(&mut replicas, spread(session), &id).await;
                assert_eq!(told, one, "session {session}");
            }
            assert_eq!(
                replicas.withheld(),
                alone.withheld() * sessions(),
                "nothing is taken for a stranger's"
            );
            let [sent, received] = ["passed-on", "received"].map(|event| replicas.events(event));
            assert_eq!(sent, received);
            for event in ["loop", "failed", "lost", "taken-over"] {
                assert_eq!(replicas.events(event), 0, "{event}");
            }
        }
    };
}

cell!(http_round_robin, HTTP, over_http, |_| Spread::RoundRobin);
cell!(http_sticky, HTTP, over_http, |_| Spread::Sticky);
cell!(http_by_chance, HTTP, over_http, Spread::Chance);
cell!(stdio_round_robin, STDIO, over_stdio, |_| Spread::RoundRobin);
cell!(stdio_by_chance, STDIO, over_stdio, Spread::Chance);
cell!(http_sse_client_of_stdio, STDIO, sse_to_stdio, |_| Spread::RoundRobin);
cell!(http_sse_client_of_http_sse, SSE, sse_to_sse, Spread::Chance);

/// Every request but the first goes to a replica that has not begun the session.
#[tokio::test(start_paused = true)]
async fn each_request_goes_over_one_hop_if_the_balancer_is_always_wrong() {
    let one = over_http(&mut Replicas::alone(HTTP), Spread::Sticky, "s").await;
    let mut replicas = Replicas::new(3, HTTP);
    let told = over_http(&mut replicas, Spread::NeverOwner, "s").await;
    assert_eq!(told, one);
    // initialized, GET, 1, 2, 3, 4, 5, the answer, 6, its cancellation, 7, and the GET of the client that is back.
    assert_eq!(replicas.events("passed-on"), 12);
    assert_eq!(replicas.events("received"), 12);
}

#[tokio::test(start_paused = true)]
async fn equal_ids_and_tokens_on_different_replicas_do_not_cross() {
    let mut replicas = Replicas::new(3, STDIO);
    let one = over_stdio(&mut Replicas::alone(STDIO), Spread::Sticky, "").await;
    // 1,000 sessions with FLEET_SESSIONS=200.
    for round in 0..sessions() * 5 / 2 {
        // Two sessions with equal ids and tokens, one after the other on other replicas.
        let mut clients = Vec::new();
        for seed in [round, round + 1000] {
            clients.push(
                super::scenarios::begin_over_stdio(&mut replicas, Spread::Chance(seed)).await,
            );
        }
        let asked: Vec<_> = clients
            .iter_mut()
            .map(|(client, _)| client.post(&replicas, crate::support::messages::call(1, 1)))
            .collect();
        settle().await;
        for (number, (_, server)) in clients.iter().enumerate() {
            let text = format!("of {number}");
            server.say(crate::support::messages::report(1, 1, &text));
            server.say(crate::support::messages::answer(
                1,
                format!("{{\"content\":[],\"of\":{number}}}"),
            ));
        }
        settle().await;
        for (number, answer) in asked.iter().enumerate() {
            let told = answer.messages();
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told[0].contains(&format!("of {number}")), "{told:?}");
            assert!(told[1].contains(&format!("\"of\":{number}")), "{told:?}");
        }
    }
    assert_eq!(over_stdio(&mut replicas, Spread::RoundRobin, "").await, one);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_changed_without_losing_a_session() {
    const NEW: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
    const OLD: &str = super::replicas::KEY;
    let mut replicas = Replicas::new(3, HTTP);
    let one = over_http(&mut Replicas::alone(HTTP), Spread::Sticky, "s").await;
    let mut old = super::scenarios::begin_over_http(&mut replicas, Spread::RoundRobin, "old").await;
    for keys in [&[OLD, NEW][..], &[NEW, OLD], &[NEW]] {
        // The replicas restart one after the other, and sessions continue meanwhile.
        for number in 0..3 {
            replicas.restart(number, Some(&table(number, keys))).await;
            assert_eq!(
                over_http(&mut replicas, Spread::RoundRobin, "s").await,
                one,
                "{keys:?} {number}"
            );
            if keys.contains(&OLD) {
                let answer = old.post(&replicas, crate::support::messages::call(1, 1));
                let asked = replicas.asked().await;
                assert_eq!(asked.request.header("mcp-session-id"), Some("old"));
                asked.json(&[], &crate::support::messages::result(1));
                settle().await;
                assert_eq!(answer.text(), crate::support::messages::result(1));
            }
        }
    }
}

/// The first rollout of a fleet: replicas without the table, with the table but without sealing, and with the complete
/// table.
#[tokio::test(start_paused = true)]
async fn a_fleet_is_brought_in_without_losing_a_session() {
    let mut replicas = Replicas::none(HTTP);
    (0..3).for_each(|_| replicas.add(None));
    let opens = |number: usize| format!("{}seal = false\n", table(number, &[super::replicas::KEY]));
    let mut plain =
        super::scenarios::begin_over_http(&mut replicas, Spread::RoundRobin, "plain").await;
    for step in 0..6 {
        let number = step % 3;
        let whole = table(number, &[super::replicas::KEY]);
        let table = if step < 3 { opens(number) } else { whole };
        replicas.restart(number, Some(&table)).await;
        let mut client =
            super::scenarios::begin_over_http(&mut replicas, Spread::Chance(step as u64), "new")
                .await;
        for client in [&mut plain, &mut client] {
            for id in 1..=3 {
                let answer = client.post(&replicas, crate::support::messages::call(id, id));
                replicas.asked().await.json(&[], &crate::support::messages::result(id));
                settle().await;
                assert_eq!(answer.text(), crate::support::messages::result(id), "step {step}");
            }
        }
    }
}
