//! Bytes to be written: pieces of a received message, and pieces that replace parts of it.

use std::ops::Range;

use bytes::Bytes;

use crate::protocol::jsonrpc::{Framing, Key, Kind, Message};
use crate::protocol::{json, mcp, sse};

/// How bytes to be written relate to bytes that arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Form {
    /// The bytes are unchanged, with their frame.
    #[default]
    AsCame,
    /// The bytes are one message without a frame. The message replaces the content of the frame in this field.
    Own(Option<Bytes>),
}

/// Bytes to be written: pieces of the received bytes, and pieces that Milepost has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    // Stored separately, because a payload usually has one piece and then needs no vector.
    first: Bytes,
    rest: Vec<Bytes>,
    form: Form,
}

impl Payload {
    /// Returns the payload of an unchanged message.
    pub fn of(message: &Message) -> Self {
        match message.framing() {
            Framing::Itself => message.raw().clone().into(),
            Framing::Within(frame) | Framing::Renamed(frame) => frame.clone().into(),
            Framing::Apart(frame) => {
                Self { form: Form::Own(frame.clone()), ..message.raw().clone().into() }
            }
        }
    }

    /// Returns the payload of a message that Milepost has written.
    pub fn own(message: Bytes) -> Self {
        Self { form: Form::Own(None), ..message.into() }
    }

    /// Makes the payload replace the content of `framing`.
    #[must_use]
    pub fn in_place_of(mut self, framing: &Framing) -> Self {
        self.form = Form::Own(match framing {
            Framing::Itself => None,
            Framing::Within(frame) | Framing::Renamed(frame) => Some(frame.clone()),
            Framing::Apart(frame) => frame.clone(),
        });
        self
    }

    /// Removes the event id, if the payload is an event or replaces the content of an event.
    #[must_use]
    pub(crate) fn without_event_id(mut self) -> Self {
        match &mut self.form {
            Form::AsCame => self = sse::without_id(&self.to_bytes()).into(),
            Form::Own(Some(frame)) => *frame = sse::without_id(frame),
            Form::Own(None) => {}
        }
        self
    }

    /// Returns the payload without the object member whose value is `value`, a slice of the bytes that arrived. All
    /// other bytes stay. `None` if the payload has no such member.
    pub(crate) fn without_member(&self, value: &Bytes) -> Option<Self> {
        let mut pieces = Vec::with_capacity(self.rest.len() + 2);
        let mut is_found = false;
        for piece in self.pieces() {
            let member = within(piece, value).filter(|_| !is_found);
            match member.and_then(|place| json::member_around(piece, place)) {
                Some(range) => {
                    pieces.push(piece.slice(..range.start));
                    pieces.push(piece.slice(range.end..));
                    is_found = true;
                }
                None => pieces.push(piece.clone()),
            }
        }
        let form = self.form.clone();
        is_found.then(|| Self { form, ..Self::from_pieces(pieces) })
    }

    /// Returns a payload in which `new` replaces a range of `raw`.
    pub fn splice(raw: &Bytes, range: Range<usize>, new: Bytes) -> Self {
        let rest = vec![new, raw.slice(range.end..)];
        Self { first: raw.slice(..range.start), rest, form: Form::AsCame }
    }

    /// Joins pieces into one payload.
    pub fn from_pieces(pieces: Vec<Bytes>) -> Self {
        Self { first: Bytes::new(), rest: pieces, form: Form::AsCame }
    }

    /// Returns how the payload relates to the received bytes.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Returns the pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.pieces().map(Bytes::len).sum()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the whole payload in one piece.
    pub fn to_bytes(&self) -> Bytes {
        if self.rest.is_empty() {
            self.first.clone()
        } else {
            self.pieces().flatten().copied().collect()
        }
    }
}

impl From<Bytes> for Payload {
    fn from(first: Bytes) -> Self {
        Self { first, rest: Vec::new(), form: Form::AsCame }
    }
}

/// The part of a message that a [`Transmit`] carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    /// The whole message.
    Whole,
    /// A piece of a message that is too large to be kept whole. More pieces follow.
    Piece,
    /// The last piece of a message.
    End,
    /// The last piece of a message whose rest will not arrive. No client may take the pieces for a complete message.
    Broken,
}

/// The kind of a message for a client, and the requests that the message answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransmitKind {
    /// An answer, with the client's id of the answered request; `None` if the answer is for no request.
    Answer(Option<Key>),
    /// A request of the server.
    Request,
    /// A progress notification.
    Progress,
    /// An array, with the ids of the requests that its elements answer. The flag tells whether the array contains only
    /// answers.
    Batch(Vec<Key>, bool),
    /// Any other message, or a piece of a message.
    Other,
}

impl TransmitKind {
    /// Returns the kind of `message` for its client.
    pub fn of(message: &Message) -> Self {
        let is_answer = |one: &Message| one.kind() == Kind::Response;
        match message.kind() {
            Kind::Response => Self::Answer(message.id_key()),
            Kind::Request => Self::Request,
            Kind::Batch => {
                let answers = message.elements().filter(is_answer);
                let only = message.elements().all(|one| is_answer(&one));
                Self::Batch(answers.filter_map(|one| one.id_key()).collect(), only)
            }
            _ if message.is_method(mcp::PROGRESS) => Self::Progress,
            _ => Self::Other,
        }
    }

    /// Returns the ids of the answered requests.
    pub fn answers(&self) -> &[Key] {
        match self {
            Self::Answer(id) => id.as_slice(),
            Self::Batch(ids, _) => ids,
            _ => &[],
        }
    }
}

/// A message, or a piece of a message, that is to be written on a client stream now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The kind of the message.
    pub kind: TransmitKind,
    /// The bytes, and whether they have a frame.
    pub payload: Payload,
    /// Which part of a message the bytes are.
    pub part: Fragment,
}

impl Transmit {
    /// Returns an unchanged message in the form in which it is written.
    pub fn of(message: &Message) -> Self {
        Self::whole(TransmitKind::of(message), Payload::of(message))
    }

    /// Returns a whole message in the form in which it is written.
    pub fn whole(kind: TransmitKind, payload: Payload) -> Self {
        Self { kind, payload, part: Fragment::Whole }
    }

    /// Returns the mark for the end of a message whose rest will not arrive.
    pub fn broken() -> Self {
        Self::part(Payload::default(), Fragment::Broken)
    }

    /// Returns a piece of a message that is too large to be kept whole, or the end of such a message.
    pub fn part(payload: Payload, part: Fragment) -> Self {
        Self { kind: TransmitKind::Other, payload, part }
    }
}

/// Returns the range of `part` in `raw`; `None` if `part` is not a slice of `raw`.
pub(crate) fn within(raw: &Bytes, part: &Bytes) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(raw.as_ptr() as usize)?;
    let end = start.checked_add(part.len()).filter(|end| *end <= raw.len())?;
    Some(start..end)
}

/// Returns a message in which some ranges are replaced. The message is unchanged if there are no ranges.
pub(crate) fn spliced(message: &Message, mut splices: Vec<(Range<usize>, Bytes)>) -> Payload {
    if splices.is_empty() {
        return Payload::of(message);
    }
    let raw = message.raw();
    // The ranges may be found in any order, but the pieces are cut from left to right.
    splices.sort_by_key(|(range, _)| range.start);
    let mut pieces = Vec::with_capacity(2 * splices.len() + 1);
    let mut from = 0;
    for (range, new) in splices.into_iter() {
        // Two names may be at the same place (a token that is also the id), which is then replaced only once.
        if range.start < from {
            continue;
        }
        pieces.push(raw.slice(from..range.start));
        pieces.push(new);
        from = range.end;
    }
    pieces.push(raw.slice(from..));
    Payload::from_pieces(pieces).in_place_of(message.framing())
}
