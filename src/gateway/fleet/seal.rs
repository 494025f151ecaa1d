//! Sealed ids: the id of a server, together with the replica that owns the session. All functions are pure.
//!
//! ```text
//! base64url( version 1 | number of the key 1 | nonce 12 | AES-256-GCM( owner 7 or 19 | boot 8 | id ) + 16 )
//! ```
//!
//! The seal also authenticates what the id is bound to: its kind, the path of the route, and the principal of the
//! client. An id of 32 hexadecimal digits is packed into 16 bytes, so that an id made by Milepost has 82 characters
//! when it is sealed; a UUID has 108.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use crate::protocol::trace_context::to_hex;
use crate::transport::sealing::{SEAL_TAG, SealKey, SealNonce};

/// Limit of the bytes of a server's id that is sealed. A longer id is forwarded unchanged.
pub(crate) const SEALED_ID_MAX: usize = 1 << 10;

const VERSION: u8 = 1;
/// Bytes before the nonce: the version, and the number of the key.
const HEAD: usize = 2;
const V4: u8 = 4;
const V6: u8 = 6;
/// Flag for an id that is packed.
const PACKED: u8 = 0x80;

/// The process of a replica that owns a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The address at which the other replicas reach this one.
    pub address: SocketAddr,
    /// The number of the process. A process that is started again at the same address has another number.
    pub boot: u64,
}

/// The content of a sealed id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedId {
    /// The owner of the session.
    pub owner: Owner,
    /// The id that the server made.
    pub id: Vec<u8>,
}

/// The kind of an id. An id of one kind is not valid as another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// The id of a Streamable HTTP session.
    Session,
    /// The query of an HTTP+SSE endpoint.
    Endpoint,
}

/// What a sealed id is bound to: it is not valid with anything else.
#[derive(Debug, Clone, Copy)]
pub struct IdBinding<'a> {
    /// The kind of the id.
    pub kind: IdKind,
    /// The path of the route.
    pub route: &'a str,
    /// The principal of the client, from its certificate or a trusted front; empty if neither names the client.
    pub principal: &'a str,
}

impl IdBinding<'_> {
    fn bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            IdKind::Session => b's',
            IdKind::Endpoint => b'e',
        };
        // A path cannot contain the zero byte, so route and principal cannot be mistaken for each other.
        [&[kind][..], self.route.as_bytes(), &[0], self.principal.as_bytes()].concat()
    }
}

/// The result of opening a text that may be a sealed id.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// The id was sealed with one of the keys, for this binding.
    Sealed(SealedId),
    /// The id is one of a server, or was sealed by another program.
    Plain,
    /// The id has the form of an id sealed with one of the keys, but is not authentic or is bound to something else.
    Forged,
}

struct FleetCipher {
    /// The byte in sealed ids that identifies the key.
    number: u8,
    key: SealKey,
}

/// Seals and opens ids with the keys of a fleet.
pub struct Seal {
    /// The keys: the first one seals, and each of them opens.
    ciphers: Vec<FleetCipher>,
}

impl Seal {
    /// Returns the seal with these keys; the first key seals new ids. `None` if there is no key.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a [u8; 32]>) -> Option<Self> {
        let cipher = |key: &[u8; 32]| {
            // A byte of a digest is enough to find the key, and reveals nothing about it.
            let number = digest(&SHA256, &[b"milepost fleet key", &key[..]].concat()).as_ref()[0];
            Some(FleetCipher { number, key: SealKey::new(key)? })
        };
        let ciphers: Vec<_> = keys.into_iter().filter_map(cipher).collect();
        (!ciphers.is_empty()).then_some(Self { ciphers })
    }

    /// Returns the numbers of the keys, in their order. The numbers are not secret.
    pub fn numbers(&self) -> impl Iterator<Item = u8> + '_ {
        self.ciphers.iter().map(|cipher| cipher.number)
    }

    /// Seals an id. `nonce`: random bytes, new for each id. `None` if the id is too long.
    pub fn seal(
        &self,
        owner: Owner,
        id: &[u8],
        nonce: SealNonce,
        to: &IdBinding<'_>,
    ) -> Option<String> {
        let cipher = self.ciphers.first().filter(|_| id.len() <= SEALED_ID_MAX)?;
        let mut bytes = vec![VERSION, cipher.number];
        bytes.extend_from_slice(&nonce);
        let mut inner = Vec::with_capacity(27 + id.len() + SEAL_TAG);
        let packed = pack(id);
        let mark = if packed.is_some() { PACKED } else { 0 };
        match owner.address.ip() {
            IpAddr::V4(ip) => {
                inner.push(V4 | mark);
                inner.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                inner.push(V6 | mark);
                inner.extend_from_slice(&ip.octets());
            }
        }
        inner.extend_from_slice(&owner.address.port().to_be_bytes());
        inner.extend_from_slice(&owner.boot.to_be_bytes());
        inner.extend_from_slice(packed.as_deref().unwrap_or(id));
        cipher.key.seal(nonce, &to.bytes(), &mut inner)?;
        bytes.append(&mut inner);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Opens a text that a client presents as an id.
    pub fn open(&self, text: &[u8], to: &IdBinding<'_>) -> Opened {
        // Too long for a sealed id, because base64 has 4 characters for 3 bytes.
        if text.len() > 2 * (SEALED_ID_MAX + 64) {
            return Opened::Plain;
        }
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(text) else { return Opened::Plain };
        let Some((&[VERSION, number], rest)) = bytes.split_first_chunk::<HEAD>() else {
            return Opened::Plain;
        };
        let Some((nonce, sealed)) = rest.split_first_chunk() else {
            return Opened::Plain;
        };
        // Sealed by another fleet or with an old key: the id is forwarded unchanged, and the server decides about it.
        let mut ciphers = self.ciphers.iter().filter(|cipher| cipher.number == number).peekable();
        if ciphers.peek().is_none() {
            return Opened::Plain;
        }
        let bound_to = to.bytes();
        // Two keys may have the same number, so each of them is tried.
        let opened = ciphers.find_map(|cipher| read(&cipher.key.open(*nonce, &bound_to, sealed)?));
        opened.map_or(Opened::Forged, Opened::Sealed)
    }
}

/// Reads the decrypted content of a sealed id.
fn read(plain: &[u8]) -> Option<SealedId> {
    let (mark, rest) = plain.split_first()?;
    let (ip, rest) = match mark & !PACKED {
        V4 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (IpAddr::from(Ipv4Addr::from(*ip)), rest)
        }
        V6 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (IpAddr::from(Ipv6Addr::from(*ip)), rest)
        }
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let (boot, id) = rest.split_first_chunk::<8>()?;
    let address = SocketAddr::new(ip, u16::from_be_bytes(*port));
    let id = if mark & PACKED == 0 { id.to_vec() } else { to_hex(id).into_bytes() };
    Some(SealedId { owner: Owner { address, boot: u64::from_be_bytes(*boot) }, id })
}

/// Returns the bytes of an id in hexadecimal digits; `None` if it has another character or an odd number of digits.
fn pack(id: &[u8]) -> Option<Vec<u8>> {
    // Only lower-case digits are packed, because unpacking writes lower case.
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if id.is_empty() || !id.len().is_multiple_of(2) {
        return None;
    }
    id.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWNER: &str = "10.0.0.7:7334";

    fn seal(keys: &[u8]) -> Seal {
        let keys: Vec<[u8; 32]> = keys.iter().map(|byte| [*byte; 32]).collect();
        Seal::new(&keys).unwrap()
    }

    fn owner() -> Owner {
        Owner { address: OWNER.parse().unwrap(), boot: 77 }
    }

    fn to(route: &'static str) -> IdBinding<'static> {
        IdBinding { kind: IdKind::Session, route, principal: "" }
    }

    #[test]
    fn ids_are_as_long_as_documented() {
        let length =
            |id: &str| seal(&[1]).seal(owner(), id.as_bytes(), [0; 12], &to("/r")).unwrap().len();
        assert_eq!(length(&"0f".repeat(16)), 82, "one of Milepost's own");
        assert_eq!(length("550e8400-e29b-41d4-a716-446655440000"), 108, "a UUID");
        assert_eq!(seal(&[1]).seal(owner(), &[b'x'; SEALED_ID_MAX + 1], [0; 12], &to("/r")), None);
    }

    #[test]
    fn an_id_is_bound_to_its_route_its_kind_and_its_principal() {
        let seal = seal(&[1]);
        let text = seal.seal(owner(), b"id", [3; 12], &to("/r")).unwrap();
        let open = |to: &IdBinding<'_>| seal.open(text.as_bytes(), to);
        assert_eq!(
            open(&to("/r")),
            Opened::Sealed(SealedId { owner: owner(), id: b"id".to_vec() })
        );
        assert_eq!(open(&to("/s")), Opened::Forged);
        assert_eq!(open(&IdBinding { kind: IdKind::Endpoint, ..to("/r") }), Opened::Forged);
        assert_eq!(open(&IdBinding { principal: "cn:eve", ..to("/r") }), Opened::Forged);
        assert_eq!(open(&IdBinding { route: "/", principal: "r", ..to("/r") }), Opened::Forged);
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let (old, both, new) = (seal(&[1]), seal(&[2, 1]), seal(&[2]));
        let of_old = old.seal(owner(), b"id", [3; 12], &to("/r")).unwrap();
        let of_both = both.seal(owner(), b"id", [4; 12], &to("/r")).unwrap();
        let opens = |seal: &Seal, text: &str| seal.open(text.as_bytes(), &to("/r"));
        assert!(matches!(opens(&both, &of_old), Opened::Sealed(_)));
        assert!(matches!(opens(&new, &of_both), Opened::Sealed(_)));
        assert_eq!(opens(&new, &of_old), Opened::Plain, "a key that is no more");
        assert_eq!(opens(&old, &of_both), Opened::Plain, "a key that is not there yet");
    }

    #[test]
    fn ids_of_servers_are_plain() {
        for text in
            ["", "AQ", "550e8400-e29b-41d4-a716-446655440000", "AQ==", "\u{e9}", &"A".repeat(4000)]
        {
            assert_eq!(seal(&[1]).open(text.as_bytes(), &to("/r")), Opened::Plain, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_was_sealed_is_opened(
            id in proptest::collection::vec(any::<u8>(), 0..200),
            hex in "[0-9a-f]{0,40}",
            port: u16,
            ip: [u8; 16],
            boot: u64,
            nonce: [u8; 12],
        ) {
            let v4: [u8; 4] = [ip[0], ip[1], ip[2], ip[3]];
            for ip in [IpAddr::from(ip), IpAddr::from(v4)] {
                let owner = Owner { address: SocketAddr::new(ip, port), boot };
                for id in [&id[..], hex.as_bytes()] {
                    let text = seal(&[1]).seal(owner, id, nonce, &to("/r")).unwrap();
                    let opened = seal(&[1]).open(text.as_bytes(), &to("/r"));
                    prop_assert_eq!(opened, Opened::Sealed(SealedId { owner, id: id.to_vec() }));
                }
            }
        }

        #[test]
        fn what_was_changed_is_not_opened(at in 0_usize..200, change in 1_u8..255, cut in 0_usize..200) {
            let text = seal(&[1]).seal(owner(), b"the id of a server", [9; 12], &to("/r")).unwrap();
            let mut bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= change;
            let changed = URL_SAFE_NO_PAD.encode(&bytes);
            let open = |text: &str| seal(&[1]).open(text.as_bytes(), &to("/r"));
            prop_assert!(!matches!(open(&changed), Opened::Sealed(_)));
            prop_assert!(!matches!(open(&text[..cut % text.len()]), Opened::Sealed(_)));
        }

        #[test]
        fn no_text_makes_the_opening_fail(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = seal(&[1]).open(&text, &to("/r"));
        }
    }
}
