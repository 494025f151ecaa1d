//! Adds a route's members to the requests of clients.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

use crate::progress::ids::MappedId;
use crate::progress::payload::{Payload, spliced, within};
use crate::progress::policy::ask::{Ask, JsonObject, TokenType};
use crate::progress::policy::{CallPolicy, Policy};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::{json, mcp};

/// Returns the member of an object, if it occurs exactly once.
fn sole_member(object: &Bytes, name: &str) -> Option<Bytes> {
    let mut found =
        json::Members::new(object).filter(|member| json::key_is(&object[member.key.clone()], name));
    let first = found.next()?;
    found.next().is_none().then(|| object.slice(first.value))
}

/// Returns the tool that a request calls.
pub(crate) fn tool_of(method: &str, params: &Bytes) -> Option<String> {
    let name = (method == mcp::TOOLS_CALL).then(|| json::member(params, "name")).flatten()?;
    Some(json::decode_str(&name)?.into_owned())
}

impl Policy {
    /// Whether members are added to requests for any tool.
    fn asks(&self) -> bool {
        let asks = |call: &CallPolicy| {
            !call.observes() && (!self.capabilities.is_empty() || !call.ask.is_empty())
        };
        self.everywhere().any(asks)
    }

    /// Returns the additions to requests for a tool; `None` if no tool has additions, or the tool is only observed.
    fn ask_of(&self, tool: Option<&str>) -> Option<&Ask> {
        let call = self.of(tool);
        (!call.observes() && self.asks()).then_some(&call.ask)
    }

    /// Returns the token of a request: the client's text, which is `client`, and the text for the server.
    pub(crate) fn token_in(
        &self,
        request: &Message,
        params: &Bytes,
        tool: Option<&str>,
        client: Bytes,
    ) -> Option<MappedId> {
        let key = Key::read(&client)?;
        // A token that occurs twice stays unchanged, because Milepost might change the one that the server does not
        // read.
        let sole = || sole_member(&sole_member(params, "_meta")?, "progressToken");
        let ask = self.ask_of(tool).filter(|_| !request.repeats_a_key() && sole().is_some());
        Some(match ask.and_then(|ask| ask.token(&key)) {
            Some(server) => MappedId { client, server, translated: true },
            None => MappedId::same(client, key),
        })
    }

    /// Returns a token that Milepost has chosen, in the type that the server of a tool gets.
    pub(crate) fn own_token(&self, tool: Option<&str>, token: Key) -> Key {
        self.ask_of(tool).and_then(|ask| ask.token(&token)).unwrap_or(token)
    }

    /// Returns the copy of the token for the arguments of a call; `None` if the tool gets no copy.
    pub(crate) fn copy_of(
        &self,
        method: &str,
        tool: Option<&str>,
        token: Option<&MappedId>,
    ) -> Option<Key> {
        let copies = method == mcp::TOOLS_CALL && self.ask_of(tool)?.token_in_arguments;
        Some(match &token.filter(|_| copies)?.server {
            Key::Text(text) => Key::Text(text.clone()),
            number => Key::Text(number.to_string().into()),
        })
    }

    /// Whether any tool gets a copy of the token in its arguments.
    pub(crate) fn copies_tokens(&self) -> bool {
        self.everywhere().any(|call| !call.observes() && call.ask.token_in_arguments)
    }

    /// Returns the token that the client has put into the arguments of a call, at the place where the server looks for
    /// one.
    pub(crate) fn token_in_arguments(&self, call: &Message, tool: Option<&str>) -> Option<Bytes> {
        let is_call = call.method().as_deref() == Some(mcp::TOOLS_CALL);
        let _ask = self.ask_of(tool).filter(|ask| is_call && ask.token_in_arguments)?;
        let arguments = json::member(&call.params()?, "arguments")?;
        json::member(&json::member(&arguments, "_meta")?, "progressToken")
    }

    /// Whether any tool gets tokens of another type than the client's.
    pub(crate) fn renames_tokens(&self) -> bool {
        self.everywhere().any(|call| !call.observes() && call.ask.token_type != TokenType::Same)
    }

    /// Whether any tool gets tokens as strings.
    pub(crate) fn gives_strings(&self) -> bool {
        self.everywhere().any(|call| !call.observes() && call.ask.token_type == TokenType::String)
    }

    /// Returns a client's message with the additions for its server; `None` if it stays unchanged. Not for servers that
    /// several clients share, because the filter makes the additions there.
    pub fn with_members(&self, message: &Message) -> Option<Bytes> {
        if !self.asks() {
            return None;
        }
        match message.kind() {
            Kind::Request => self.request_with_members(message),
            Kind::Batch => {
                let elements = message.elements().filter(|one| one.kind() == Kind::Request);
                let changed = elements.filter_map(|one| {
                    let place = within(message.raw(), one.raw())?;
                    Some((place, self.request_with_members(&Message::parse(one.raw().clone()))?))
                });
                let splices: Vec<(Range<usize>, Bytes)> = changed.collect();
                (!splices.is_empty()).then(|| spliced(message, splices).to_bytes())
            }
            _ => None,
        }
    }

    /// Returns a message with the additions for its server (`ask`).
    pub(crate) fn for_server(&self, message: &Message) -> Payload {
        self.with_members(message).unwrap_or_else(|| message.raw().clone()).into()
    }

    fn request_with_members(&self, request: &Message) -> Option<Bytes> {
        // A request that JSON readers may read in two ways stays unchanged.
        if request.repeats_a_key() || request.id_key().is_none() {
            return None;
        }
        let method = request.method().unwrap_or_default();
        let params = request.params().unwrap_or_default();
        let tool = tool_of(&method, &params);
        let meta = json::member(&params, "_meta").unwrap_or_default();
        let text = json::member(&meta, "progressToken");
        let token = text.and_then(|text| self.token_in(request, &params, tool.as_deref(), text));
        let bare = self.without_token(request, tool.as_deref(), token.as_ref());
        let sent = bare.as_ref().unwrap_or(request);
        let mut splices = self.members_for(sent, tool.as_deref(), token.as_ref());
        let renamed = token.filter(|token| token.translated);
        splices.extend(
            renamed.and_then(|token| {
                Some((within(sent.raw(), &token.client)?, token.server.to_json()))
            }),
        );
        let is_changed = bare.is_some() || !splices.is_empty();
        is_changed.then(|| spliced(sent, splices).to_bytes())
    }

    /// Returns a request without its token, for a server that must not get one; `None` if the token stays, or the
    /// request has none. If `_meta` has no other member it is removed too, because some servers refuse every call with
    /// `_meta`.
    pub(crate) fn without_token(
        &self,
        request: &Message,
        tool: Option<&str>,
        token: Option<&MappedId>,
    ) -> Option<Message> {
        let _ask = self.ask_of(tool).filter(|ask| ask.token_type == TokenType::None)?;
        // A token that occurs twice stays unchanged, as in `token_in`.
        let meta = sole_member(&request.params().filter(|_| !request.repeats_a_key())?, "_meta")?;
        let text = sole_member(&meta, "progressToken")?;
        // A token that Milepost cannot read stays. The client cannot get progress for it anyway.
        let _read = token.filter(|token| *token.client == *text)?;
        let raw = request.raw();
        let whole = within(raw, &meta)?;
        let member = json::member_around(raw, within(raw, &text)?)?;
        let is_alone = json::Members::new(&meta).count() == 1;
        let place = if is_alone { json::member_around(raw, whole)? } else { member };
        Some(Message::parse(spliced(request, vec![(place, Bytes::new())]).to_bytes()))
    }

    /// Returns the members that are added to a request, without its token.
    pub(crate) fn members_for(
        &self,
        request: &Message,
        tool: Option<&str>,
        token: Option<&MappedId>,
    ) -> Vec<(Range<usize>, Bytes)> {
        let mut splices = Vec::new();
        if let Some(ask) = self.ask_of(tool)
            && let Some(params) = request.params()
        {
            let method = request.method().unwrap_or_default();
            let mut wanted = JsonObject::new();
            if method == mcp::TOOLS_CALL {
                let mut arguments = ask.arguments.clone();
                if let Some(copy) = self.copy_of(&method, tool, token) {
                    put(&mut arguments, "_meta", with_token(&copy));
                }
                put(&mut wanted, "arguments", arguments);
                put(&mut wanted, "_meta", ask.meta.clone());
            }
            if method == mcp::INITIALIZE {
                put(&mut wanted, "capabilities", self.capabilities.clone());
            }
            let meta = json::member(&params, "_meta").unwrap_or_default();
            if json::member(&meta, mcp::META_CAPABILITIES).is_some() {
                let capabilities = Value::Object(self.capabilities.clone());
                put(&mut wanted, "_meta", member(mcp::META_CAPABILITIES, capabilities));
            }
            merge(request.raw(), &params, &wanted, &mut splices);
        }
        splices
    }
}

/// Returns a request with this token, for a request whose client has given none.
pub(crate) fn with_token_in_meta(request: &Message, token: &str) -> Message {
    let Some(params) = request.params() else { return request.clone() };
    let mut wanted = JsonObject::new();
    put(&mut wanted, "_meta", member("progressToken", Value::from(token)));
    let mut splices = Vec::new();
    merge(request.raw(), &params, &wanted, &mut splices);
    Message::parse(spliced(request, splices).to_bytes())
}

/// Adds `members` under `name`, as an object. Does nothing if there are none.
fn put(wanted: &mut JsonObject, name: &str, members: JsonObject) {
    if !members.is_empty()
        && let Value::Object(known) = wanted.entry(name).or_insert_with(|| JsonObject::new().into())
    {
        known.extend(members);
    }
}

/// Returns `_meta` with a copy of a token, in a form that every JSON reader reads in the same way.
fn with_token(copy: &Key) -> JsonObject {
    let text = match copy {
        Key::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    text.map(|text| member("progressToken", Value::from(text))).unwrap_or_default()
}

/// Returns an object with one member.
fn member(name: &str, value: Value) -> JsonObject {
    let mut object = JsonObject::new();
    object.insert(name.to_owned(), value);
    object
}

/// Adds the members that are missing in an object, which is a part of `raw`. Existing members stay. A value that is not
/// an object, or that JSON readers may read in two ways, stays unchanged.
fn merge(
    raw: &Bytes,
    object: &Bytes,
    wanted: &JsonObject,
    splices: &mut Vec<(Range<usize>, Bytes)>,
) {
    let mut members = json::Members::new(object);
    let there: Vec<json::Member> = members.by_ref().collect();
    let Some(place) = within(raw, object).filter(|_| members.end() == Some(object.len())) else {
        return;
    };
    let mut new = Vec::new();
    for (name, value) in wanted {
        let mut same = there.iter().filter(|one| json::key_is(&object[one.key.clone()], name));
        match (same.next(), same.next(), value) {
            (None, ..) => {
                new.extend_from_slice(&json::quote(name));
                new.push(b':');
                new.extend_from_slice(value.to_string().as_bytes());
                new.push(b',');
            }
            // The recursion is as deep as the object in the route file, and does not depend on what a client sends.
            (Some(own), None, Value::Object(value)) => {
                merge(raw, &object.slice(own.value.clone()), value, splices);
            }
            _ => {}
        }
    }
    if there.is_empty() {
        new.pop();
    }
    if !new.is_empty() {
        splices.push((place.start + 1..place.start + 1, new.into()));
    }
}
