//! The scene of every fault: two clients, each with an open call of the same id and token.

use serde_json::{Value, json};

use crate::observe::metrics::page::Page;
use crate::pairs::Transport::{Http, Sse, Stdio};
use crate::pairs::client::{Client, HOME};
use crate::pairs::server::Heard;
use crate::pairs::{Pair, Transport};
use crate::support::{runs, until};

/// The keys of a route whose clients vanish.
pub(super) fn keys(server: Transport) -> &'static str {
    match server {
        Stdio => "upstream.idle_timeout = \"6s\"\nkeep_alive = \"100ms\"",
        Http | Sse => "keep_alive = \"100ms\"",
    }
}

/// The pipe to the watchdog, which begins with the first server.
const WATCHDOG: usize = 1;

/// A client that suffers a fault, and another client.
pub(super) struct Scene<'a> {
    pub(super) pair: &'a mut Pair,
    pub(super) one: Client,
    pub(super) other: Client,
    /// Where the call of the first is answered.
    pub(super) stream: usize,
    theirs: (usize, Heard),
}

impl<'a> Scene<'a> {
    /// The scene, and the first client's call, of which progress has come.
    #[track_caller]
    pub(super) fn begin(pair: &'a mut Pair) -> (Self, Heard) {
        let (mut scene, call) = Self::begin_silent(pair);
        call.progress(1, 9);
        scene.one.hear_progress(scene.stream, "t");
        (scene, call)
    }

    /// The same, of which nothing has come.
    #[track_caller]
    pub(super) fn begin_silent(pair: &'a mut Pair) -> (Self, Heard) {
        let (mut one, mut other) = (pair.client(), pair.client());
        let stream = one.call(1, "t");
        let call = pair.server.hear("tools/call");
        let their_stream = other.call(1, "t");
        let theirs = pair.server.hear("tools/call");
        assert_eq!((call.session, theirs.session), (one.session, other.session));
        theirs.progress(1, 9);
        other.hear_progress(their_stream, "t");
        (Self { pair, one, other, stream, theirs: (their_stream, theirs) }, call)
    }

    /// The other client is told of its own call, and of nothing else.
    #[track_caller]
    pub(super) fn other_goes_on(&mut self) {
        let (stream, call) = &self.theirs;
        call.progress(2, 9);
        self.other.hear_progress(*stream, "t");
        call.answer("theirs");
        self.other.hear_result(*stream, 1, "theirs");
        self.other.hears_nothing(&mut self.pair.server, 2);
    }

    /// The call is answered with an error of Milepost's.
    #[track_caller]
    pub(super) fn call_fails(&mut self) {
        let told = self.one.hear();
        check_error(&told.json(), &json!(1));
        assert_eq!(told.stream, self.stream, "{told:?}");
    }

    /// The call is answered by its server, and nothing follows.
    #[track_caller]
    pub(super) fn call_succeeds(&mut self, call: &Heard) {
        call.answer("done");
        self.one.hear_result(self.stream, 1, "done");
        self.one.hears_nothing(&mut self.pair.server, 2);
    }

    /// After the end of the connection on which the call was to be answered: the session continues if it has other
    /// connections or gets a new one, and is over otherwise. Then all clients disconnect.
    #[track_caller]
    pub(super) fn end_after_death(mut self) {
        match (self.pair.client, self.pair.server.transport()) {
            (_, Http) | (Stdio | Http, Sse) => {
                let fence = json!({"jsonrpc": "2.0", "id": 3, "method": "fence"});
                let stream = self.one.say(&fence);
                let heard = self.pair.server.hear("fence");
                self.one.session = heard.session;
                heard.answer("again");
                self.one.hear_result(stream, 3, "again");
                return self.end();
            }
            (Stdio | Sse, _) => self.one.hear_end(HOME),
            (Http, Stdio) => until("the session is gone", || {
                let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
                self.one.status("POST", ping).0 == 404
            }),
        }
        self.end_without_one();
    }

    /// All clients disconnect; no process or connection is left.
    #[track_caller]
    pub(super) fn end(mut self) {
        leave(self.pair, &mut self.one);
        self.end_without_one();
    }

    /// The same, if the first client is gone already.
    #[track_caller]
    pub(super) fn end_without_one(self) {
        self.end_but_for(0);
    }

    /// The same, if Milepost keeps the session of the first client, which may come back.
    #[track_caller]
    pub(super) fn end_with_session_of_one(self) {
        // One connection to a server over HTTP+SSE stays.
        let kept = usize::from(self.pair.server.transport() == Sse);
        self.end_but_for(kept);
    }

    #[track_caller]
    fn end_but_for(mut self, kept: usize) {
        self.one.vanish();
        leave(self.pair, &mut self.other);
        let pids = [&self.one, &self.other].map(|client| self.pair.server.pid(client.session));
        until("no server runs", || !pids.iter().flatten().any(|pid| runs(*pid)));
        self.pair.kept += kept;
        let Some(proxy) = self.pair.proxy.as_ref().filter(|_| self.pair.is_alone()) else { return };
        let most = self.pair.descriptors + WATCHDOG + self.pair.kept;
        until("no connection and no pipe is left", || proxy.descriptors() <= most);
        until("no server is a child", || proxy.servers() == 0);
        for gauge in ["milepost_calls_in_flight", "milepost_streams"] {
            until(gauge, || Page::read(&proxy.probe("/metrics").1).sum(gauge, &[]) == 0.0);
        }
        let log = proxy.log();
        assert!(!log.contains("panic"), "{log}");
    }
}

/// A client ends its session, its server gets the end, and both end.
#[track_caller]
pub(super) fn leave(pair: &mut Pair, client: &mut Client) {
    client.leave();
    pair.server.hear_end(client.session);
    pair.server.close(client.session);
    if pair.client == Stdio {
        client.hear_end(HOME);
        let code = client.code();
        assert!(code.is_some(), "{code:?}");
    }
    client.vanish();
}

/// An error in the place of an answer.
#[track_caller]
pub(super) fn check_error(message: &Value, id: &Value) {
    assert_eq!(&message["id"], id, "{message}");
    assert!(message["error"]["code"].is_i64(), "{message}");
    assert_eq!(message["error"]["data"]["proxy"], "milepost", "{message}");
}
