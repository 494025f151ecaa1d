//! Ids that clients present and that may be sealed: a function of any bytes that panics if it opens an id that was not
//! sealed, or does not open one that was.

use std::net::SocketAddr;

use milepost::gateway::fleet::seal::{IdBinding, IdKind, Opened, Owner, Seal, SealedId};

const KEYS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

/// The bytes are an id that a client presents, and then an id of a server. The server's id is sealed: it must open, and
/// must not open after its first byte was changed.
pub(crate) fn seal(data: &[u8]) {
    let seal = Seal::new(&KEYS).expect("there are keys");
    let to = IdBinding { kind: IdKind::Session, route: "/r", principal: "" };
    assert!(!matches!(seal.open(data, &to), Opened::Sealed(_)), "nobody has sealed it");
    let Some((&at, id)) = data.split_first() else { return };
    let owner = Owner { address: SocketAddr::from(([10, 0, 0, at], 7334)), boot: u64::from(at) };
    let nonce = std::array::from_fn(|place| id.get(place).copied().unwrap_or_default());
    let Some(text) = seal.seal(owner, id, nonce, &to) else { return };
    let opened = seal.open(text.as_bytes(), &to);
    assert_eq!(opened, Opened::Sealed(SealedId { owner, id: id.to_vec() }));
    let elsewhere = IdBinding { route: "/s", ..to };
    assert_eq!(seal.open(text.as_bytes(), &elsewhere), Opened::Forged);
    let mut changed = text.into_bytes();
    let place = usize::from(at) % changed.len();
    changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
    assert!(!matches!(seal.open(&changed, &to), Opened::Sealed(_)), "it was changed");
}
