//! Repairs an answer that is too large to be kept whole. The id, the form of an error and a bare result are repaired
//! piece by piece, while the pieces are forwarded or read from a file.

use std::ops::Range;

use bytes::Bytes;

use crate::progress::ids::MappedId;
use crate::progress::payload::Payload;
use crate::progress::policy::AnswerRepairs;
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::jsonrpc::{INTERNAL_ERROR, Scan, ScannedBody};

/// Limit of the bytes that are held back from the beginning of an unfinished id until the id is complete.
const ID_HELD_MAX: usize = 4 << 10;

/// The text that has to be put around the result or the error of a large answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrap {
    /// No text is added.
    AsItIs,
    /// A bare result becomes the text of a tool result.
    Text,
    /// An error that is a string becomes the message of an error.
    Message,
    /// An error that is neither an object nor a string becomes the `data` of an error.
    Data,
    /// An error object gets the members that it lacks, at its end.
    Members,
}

impl Wrap {
    /// Decides which text a result or an error needs, from what has been read so far.
    fn of(body: &ScannedBody) -> Self {
        match (body.is_error, body.first) {
            (true, b'{') => Self::Members,
            (true, b'"') => Self::Message,
            (true, _) => Self::Data,
            // An object of which no member has been read yet may be a tool result, so it stays unchanged.
            (false, b'{') if body.is_tool_result || !body.has_members => Self::AsItIs,
            (false, _) => Self::Text,
        }
    }

    fn repair(self) -> Option<Repair> {
        match self {
            Self::AsItIs => None,
            Self::Text => Some(Repair::BareResult),
            Self::Message | Self::Data | Self::Members => Some(Repair::ErrorShape),
        }
    }
}

/// The state of the repairs of one large answer.
#[derive(Debug, Clone, Default)]
pub struct LargeRepairs {
    /// The id of the answered request, once the request is known.
    id: Option<MappedId>,
    /// Whether the server knows each request by an id of Milepost's own.
    is_renamed: bool,
    switches: Option<AnswerRepairs>,
    /// The text around the result or error; decided once the result or error begins.
    wrap: Option<Wrap>,
    /// Number of bytes of the message text in earlier pieces.
    before: u64,
    /// The end of the last piece, held back because it ends within an id, and the length of the message text in it.
    held: (Bytes, usize),
    pub(crate) done: Repairs,
}

/// A piece, in which positions of the whole message text can be looked up.
struct Pieces {
    raw: Bytes,
    /// The ranges of `raw` that contain message text, in order.
    text: [Range<usize>; 2],
    /// The position of the first of these bytes in the whole message text.
    start: u64,
}

impl Pieces {
    /// Returns the index in `raw` of the byte at this position of the message text; `None` if it is in another piece.
    fn place(&self, position: u64) -> Option<usize> {
        let mut offset = usize::try_from(position.checked_sub(self.start)?).ok()?;
        for range in &self.text {
            if offset < range.len() {
                return Some(range.start + offset);
            }
            offset -= range.len();
        }
        None
    }

    /// Returns the ranges of `raw` between two positions of the message text.
    fn ranges(&self, from: u64, to: u64) -> impl Iterator<Item = Range<usize>> {
        let mut position = self.start;
        self.text.clone().into_iter().filter_map(move |range| {
            let start = position;
            position += range.len() as u64;
            let (from, to) = (from.max(start), to.min(position));
            let offset = |position: u64| usize::try_from(position - start).unwrap_or(usize::MAX);
            (from < to).then(|| range.start + offset(from)..range.start + offset(to))
        })
    }
}

impl LargeRepairs {
    /// Returns the repairs for an answer that is kept in a file. The server knows the request `id` by another id.
    pub(crate) fn of_spooled(id: MappedId, switches: AnswerRepairs) -> Self {
        let (id, switches) = (Some(id), Some(switches));
        Self { id, is_renamed: true, switches, ..Self::default() }
    }

    /// Returns the repairs that an answer needs, if its request allows them. `scan` must have read the whole answer.
    pub fn needed(scan: &Scan) -> Repairs {
        let nulls = (!scan.nulls().is_empty()).then_some(Repair::ErrorShape);
        let version = scan.missing_version().map(|_| Repair::Envelope);
        let wraps = scan.body().map(|body| match Wrap::of(body) {
            Wrap::Members if body.has_code && body.has_message => Wrap::AsItIs,
            other => other,
        });
        wraps.and_then(Wrap::repair).into_iter().chain(nulls).chain(version).collect()
    }

    /// Whether the request of an answer in a file allows this repair.
    pub fn allows(&self, repair: Repair) -> bool {
        self.switches.is_some_and(|switches| match repair {
            Repair::BareResult => switches.bare_result,
            Repair::Envelope => switches.envelope,
            Repair::Unicode => switches.unicode,
            _ => switches.error_shape,
        })
    }

    /// Returns the end of the last piece, if it was held back until the next piece shows how to repair it.
    pub(crate) fn take_held(&mut self) -> Bytes {
        std::mem::take(&mut self.held).0
    }

    /// Whether the client has received a repaired part after which the server's own text cannot follow: Milepost has
    /// opened a bracket that must be closed, or the server's id would be wrong.
    pub(crate) fn is_midway(&self, scan: &Scan) -> bool {
        let passed = self.before - self.held.1 as u64;
        let wraps = matches!(self.wrap, Some(Wrap::Text | Wrap::Message | Wrap::Data));
        let end = scan.body().and_then(|body| body.end);
        let is_renamed = self.id.as_ref().is_some_and(|id| id.translated);
        wraps && end.is_none_or(|end| end >= passed)
            || is_renamed && scan.id_place().is_none_or(|place| place.end > passed)
    }

    /// Whether the answered request is known.
    pub(crate) fn has_request(&self) -> bool {
        self.id.is_some()
    }

    /// Sets the request that is answered.
    pub(crate) fn answer(&mut self, id: MappedId) {
        self.id = Some(id);
    }

    /// Sets the repairs that the answered request allows, before its result begins.
    pub(crate) fn expect(&mut self, switches: AnswerRepairs) {
        if !self.has_request() {
            self.switches = Some(switches);
        }
    }

    /// Whether all repairs are made, so that the rest of the answer need not be read.
    pub(crate) fn are_over(&self, scan: &Scan) -> bool {
        scan.id().is_some()
            && scan.has_version()
            && self.wrap == Some(Wrap::AsItIs)
            && self.held.0.is_empty()
    }

    /// Returns the bytes of a piece for the client. `text`: the range of the message text in the piece, which `scan`
    /// has read. `last`: this is the last piece.
    pub fn apply(&mut self, scan: &Scan, raw: Bytes, text: Range<usize>, last: bool) -> Payload {
        let (held, held_text) = std::mem::take(&mut self.held);
        let mut pieces = Pieces { start: self.before - held_text as u64, raw, text: [0..0, text] };
        self.before += pieces.text[1].len() as u64;
        if !held.is_empty() {
            let [first, second] = &mut pieces.text;
            *first = 0..held_text;
            *second = held.len() + second.start..held.len() + second.end;
            pieces.raw = Bytes::from([held, pieces.raw].concat());
        }
        // When the answer is read again from a file, the scan has already read all of it. It then knows the id even if
        // the id is divided between two pieces.
        let cut = scan.id_place().filter(|id| id.end > self.before).map(|id| id.start);
        let is_cut = |null: &&Range<u64>| null.start < self.before && null.end > self.before;
        let cut_null = scan.nulls().iter().find(is_cut).map(|null| null.start);
        // The same applies to nulls and to the version.
        let version = scan.missing_version().map(|(place, _)| place);
        let is_cut = |place: &Range<u64>| place.start < self.before && place.end > self.before;
        let cut_version = version.filter(is_cut).map(|place| place.start);
        let starts = [scan.unfinished_value(), cut, cut_version, scan.unfinished_null(), cut_null];
        let rest = starts.into_iter().flatten().min().filter(|_| !last);
        let rest = rest.and_then(|start| pieces.place(start));
        // Any number of blanks may follow an id or a comma. They are not all held back, because memory is limited; the
        // member is then forwarded unchanged.
        let rest = rest.filter(|rest| pieces.raw.len() - rest <= ID_HELD_MAX);
        if let Some(rest) = rest {
            let text =
                pieces.text.iter().map(|range| range.end.saturating_sub(rest.max(range.start)));
            self.held = (pieces.raw.split_off(rest), text.sum());
            // Bytes that are held back are not repaired yet, because they would be repaired again with the next piece.
            for range in &mut pieces.text {
                *range = range.start.min(rest)..range.end.min(rest);
            }
        }
        let mut splices = Vec::new();
        self.repair_id(scan, &pieces, &mut splices);
        self.repair_version(scan, &pieces, &mut splices);
        self.repair_body(scan, &pieces, &mut splices);
        self.leave_out_nulls(scan, &pieces, &mut splices);
        // `spliced` copies from left to right, but the repairs were found in another order.
        splices.sort_by_key(|(range, _): &(Range<usize>, Bytes)| range.start);
        spliced(&pieces.raw, splices)
    }

    fn repair_id(
        &mut self,
        scan: &Scan,
        pieces: &Pieces,
        splices: &mut Vec<(Range<usize>, Bytes)>,
    ) {
        let (Some(own), Some(id), Some(range)) = (&self.id, scan.id_text(), scan.id_place()) else {
            return;
        };
        let wanted = self.switches.is_some_and(|switches| switches.response_id);
        // If a call has joined the work of another call, the server knows it by the id of that other call.
        let is_renamed = self.is_renamed || own.translated;
        if !is_renamed && (!wanted || own.is_read_in(id)) {
            return;
        }
        // If the id was in an earlier piece, it was repaired there.
        let last = pieces.place(range.end.saturating_sub(1));
        if let (Some(start), Some(last)) = (pieces.place(range.start), last) {
            splices.push((start..last + 1, own.client.clone()));
            if !is_renamed {
                self.done.add(Repair::ResponseId);
            }
        }
    }

    fn repair_version(
        &mut self,
        scan: &Scan,
        pieces: &Pieces,
        splices: &mut Vec<(Range<usize>, Bytes)>,
    ) {
        let Some((place, text)) = scan.missing_version() else { return };
        if !self.switches.is_some_and(|switches| switches.envelope) {
            return;
        }
        // If the version was in an earlier piece, it was repaired there.
        let last = place.end.saturating_sub(1).max(place.start);
        if let (Some(start), Some(last)) = (pieces.place(place.start), pieces.place(last)) {
            let end = if place.is_empty() { start } else { last + 1 };
            splices.push((start..end, text));
            self.done.add(Repair::Envelope);
        }
    }

    fn leave_out_nulls(
        &mut self,
        scan: &Scan,
        pieces: &Pieces,
        splices: &mut Vec<(Range<usize>, Bytes)>,
    ) {
        if !self.switches.is_some_and(|switches| switches.error_shape) {
            return;
        }
        for null in scan.nulls() {
            // A member stays if its beginning has already been forwarded. A member in an earlier piece was removed
            // there.
            if pieces.place(null.start).is_none() || pieces.place(null.end - 1).is_none() {
                continue;
            }
            self.done.add(Repair::ErrorShape);
            splices.extend(pieces.ranges(null.start, null.end).map(|range| (range, Bytes::new())));
        }
    }

    fn repair_body(
        &mut self,
        scan: &Scan,
        pieces: &Pieces,
        splices: &mut Vec<(Range<usize>, Bytes)>,
    ) {
        let Some(body) = scan.body() else { return };
        let Some(switches) = self.switches else { return };
        let wrap = *self.wrap.get_or_insert_with(|| match Wrap::of(body) {
            // Nothing can be put before a text whose beginning has already been forwarded.
            _ if body.start < pieces.start => Wrap::AsItIs,
            Wrap::Text if !switches.bare_result => Wrap::AsItIs,
            Wrap::Message | Wrap::Data | Wrap::Members if !switches.error_shape => Wrap::AsItIs,
            wrap => wrap,
        });
        let (before, behind) = match wrap {
            Wrap::AsItIs => return,
            Wrap::Members => {
                let Some(brace) = body.brace.and_then(|brace| pieces.place(brace)) else { return };
                let mut missing = String::new();
                let comma = if body.has_members { "," } else { "" };
                if !body.has_code {
                    missing = format!(r#"{comma}"code":{INTERNAL_ERROR}"#);
                }
                if !body.has_message {
                    let comma = if missing.is_empty() { comma } else { "," };
                    missing.push_str(comma);
                    missing.push_str(r#""message":"the server gave no reason""#);
                }
                if !missing.is_empty() {
                    self.done.add(Repair::ErrorShape);
                    splices.push((brace..brace, missing.into()));
                }
                return;
            }
            Wrap::Text if body.has_error => (TEXT, r#""}],"isError":true}"#),
            Wrap::Text => (TEXT, r#""}],"isError":false}"#),
            Wrap::Message => (r#"{"code":-32603,"message":"#, "}"),
            Wrap::Data => (r#"{"code":-32603,"message":"the server gave no reason","data":"#, "}"),
        };
        let is_text = wrap == Wrap::Text;
        wrap.repair().into_iter().for_each(|repair| self.done.add(repair));
        if let Some(start) = pieces.place(body.start) {
            splices.push((start..start, Bytes::from_static(before.as_bytes())));
        }
        if is_text {
            for range in pieces.ranges(body.start, body.end.unwrap_or(u64::MAX)) {
                splices.push((range.clone(), escaped(&pieces.raw[range])));
            }
        }
        if let Some(end) = body.end.and_then(|end| pieces.place(end)) {
            splices.push((end..end, Bytes::from_static(behind.as_bytes())));
        }
    }
}

const TEXT: &str = r#"{"content":[{"type":"text","text":""#;

/// Returns text as it is written in a JSON string. Bytes that are not valid UTF-8 stay unchanged.
fn escaped(text: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(*b"\\n"),
            b'\r' => out.extend(*b"\\r"),
            b'\t' => out.extend(*b"\\t"),
            0..b' ' => out.extend(format!("\\u{byte:04x}").into_bytes()),
            _ => out.push(*byte),
        }
    }
    out.into()
}

/// Returns a piece in which some ranges are replaced. The ranges are in order.
fn spliced(raw: &Bytes, splices: Vec<(Range<usize>, Bytes)>) -> Payload {
    if splices.is_empty() {
        return raw.clone().into();
    }
    let (mut pieces, mut from) = (Vec::new(), 0);
    for (range, new) in splices {
        pieces.push(raw.slice(from..range.start));
        pieces.push(new);
        from = range.end;
    }
    pieces.push(raw.slice(from..));
    Payload::from_pieces(pieces)
}
