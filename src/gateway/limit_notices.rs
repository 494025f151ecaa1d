//! Log lines about limits that are reached: which limit, for whom, and what to change. At most one line a minute for
//! each limit; the metrics count every case.

use std::time::Instant;

use crate::config::routes::Upstream;
use crate::gateway::client_limits::LimitedClient;
use crate::gateway::route_state::RouteState;
use crate::observe::log::{LogBudget, may_log_refusal};
use crate::observe::metrics::{RouteCounts, RouteLimit};
use crate::transport::http::request_body::RequestBodyError;

/// Counts a refusal because a limit of the route is reached, and logs it.
pub(crate) fn tell_of_full_route(state: &RouteState, limit: RouteLimit) {
    static TOLD: [LogBudget; RouteLimit::ALL.len()] =
        [const { LogBudget::one_a_minute() }; RouteLimit::ALL.len()];
    state.shared.counts.count_full(limit);
    let Some(left_out) = TOLD[limit as usize].take(Instant::now()) else { return };
    let route = &state.route;
    let (things, key, max) = match (limit, &route.upstream) {
        (RouteLimit::Streams, _) => ("open streams", "max_streams", route.max_streams),
        (RouteLimit::Children, Upstream::Command(stdio)) => {
            ("running children", "upstream.max_children", stdio.max_children)
        }
        _ => ("sessions", "max_sessions", route.max_sessions),
    };
    tracing::warn!(
        route = route.path,
        limit = key,
        max,
        left_out = (left_out > 0).then_some(left_out),
        "refused: the route has as many {things} as it may, and clients get 503: raise `{key}` of the route"
    );
}

/// Counts a request whose body was refused, and logs which limit is the reason.
pub(crate) fn tell_of_body(
    state: &RouteState,
    unread: &RequestBodyError,
    client: Option<&LimitedClient>,
) {
    static TOLD: [LogBudget; 7] = [const { LogBudget::one_a_minute() }; 7];
    state.shared.counts.refuse_body(unread.name());
    let Some((place, limit, what)) = notice(unread) else {
        if let Some(left_out) = may_log_refusal() {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::info!(route = state.route.path, why = %unread, left_out, "refused");
        }
        return;
    };
    if let Some(left_out) = TOLD[place].take(Instant::now()) {
        tracing::warn!(
            route = state.route.path,
            limit,
            client = client.map(|limited| tracing::field::display(&limited.client)),
            why = %unread,
            left_out = (left_out > 0).then_some(left_out),
            "refused: {what}"
        );
    }
}

/// Returns the index of the log budget for a refused body, the key of the limit, and what happened and what to do;
/// `None` if the reason is not an operator's limit.
fn notice(unread: &RequestBodyError) -> Option<(usize, Option<&'static str>, &'static str)> {
    Some(match unread {
        RequestBodyError::TooLarge(_) => (
            0,
            Some("max_request_bytes"),
            "the body of a request is longer than the route takes, and the client gets 413: raise `max_request_bytes` of \
             the route",
        ),
        RequestBodyError::TooLong(_) => (
            1,
            Some("body_timeout"),
            "the body of a request takes longer than it may, and the client gets 408: raise `body_timeout` of the route",
        ),
        RequestBodyError::TooSlow(_) => (
            2,
            Some("body_min_rate"),
            "the body of a request comes more slowly than it may, and the client gets 408: lower `body_min_rate` of the \
             route",
        ),
        RequestBodyError::NoRoom => (
            3,
            Some("max_unread_bytes of [server]"),
            "bodies of requests that are not whole hold as many bytes as they may, and clients get 503: raise \
             `max_unread_bytes` of [server]",
        ),
        RequestBodyError::Full => (
            4,
            Some("max_kept_bytes of [server]"),
            "messages that wait in memory hold as many bytes as they may, and clients get 503: find the server or the \
             client that does not read, or raise `max_kept_bytes` of [server]",
        ),
        RequestBodyError::ClientFull => (
            5,
            Some("max_kept_bytes of [server]"),
            "messages of one client that wait in memory hold a quarter of `max_kept_bytes`, and the client gets 429: raise \
             `max_kept_bytes` of [server], or name the front of many users in `trusted_proxies`",
        ),
        RequestBodyError::NotKept(_) => (
            6,
            None,
            "the body of a request cannot be kept in a temporary file, and the client gets 507: make room in the \
             directory that TMPDIR names",
        ),
        // The client disconnected or was silent, so no limit should be changed.
        RequestBodyError::Paused | RequestBodyError::Unreadable(_) => return None,
    })
}

/// Counts a message that was dropped because `limit` is reached for a client, and logs it.
pub(crate) fn tell_of_dropped_mail(counts: &RouteCounts, limit: &'static str) {
    static TOLD: LogBudget = LogBudget::one_a_minute();
    counts.count_dropped_mail();
    if let Some(left_out) = TOLD.take(Instant::now()) {
        tracing::warn!(
            route = counts.route(),
            limit,
            left_out = (left_out > 0).then_some(left_out),
            "dropped: as many messages wait as may for a client that does not read, and the client misses progress: let \
             the client read its responses, or close those that it does not read"
        );
    }
}
