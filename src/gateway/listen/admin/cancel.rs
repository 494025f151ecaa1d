//! `POST /calls/N/cancel`: an operator cancels a call.

use std::error::Error;

use bytes::Bytes;
use http::StatusCode;
use http::header::{ALLOW, HeaderValue};
use http_body::Body;

use super::{AdminResponse, plain, read_short};
use crate::observe::calls::{CancelError, Table};

/// Returns the number in a path such as `/calls/7/cancel`, as text; `None` for other paths.
pub(in crate::gateway::listen) fn call_to_cancel(path: &str) -> Option<&str> {
    path.strip_prefix("/calls/")?.strip_suffix("/cancel")
}

/// Cancels the call with this number, with the body of the request as the reason. `by`: where the operator's request
/// came from, as one word.
pub(in crate::gateway::listen) async fn cancel<B>(
    calls: &Table,
    number: &str,
    by: &str,
    body: B,
) -> AdminResponse
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let Ok(number) = number.parse() else {
        let why = "milepost: the number of a call is expected, as in /calls/7/cancel\n";
        return plain(StatusCode::NOT_FOUND, why);
    };
    let Some(reason) = read_short(body).await else {
        let why = "milepost: no reason has come; send a short text, or nothing\n";
        return plain(StatusCode::BAD_REQUEST, why);
    };
    match calls.cancel(number, by, &String::from_utf8_lossy(&reason)).await {
        Ok(()) => plain(StatusCode::OK, &format!("call {number} is cancelled\n")),
        Err(error) => plain(status(error), &format!("milepost: {error}\n")),
    }
}

/// Returns the response to a method other than POST.
pub(in crate::gateway::listen) fn only_post() -> AdminResponse {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "milepost: use POST\n");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    answer
}

fn status(error: CancelError) -> StatusCode {
    match error {
        CancelError::Unknown(_) => StatusCode::NOT_FOUND,
        CancelError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        CancelError::Over(..)
        | CancelError::Ends(_)
        | CancelError::IsTask(_)
        | CancelError::Observed(_)
        | CancelError::Begins(_) => StatusCode::CONFLICT,
    }
}
