//! The names that Milepost gives to requests if clients share a server: integers that no client can guess, each given
//! once.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use crate::progress::streams::ClientStreams;
use crate::protocol::jsonrpc::Key;

/// The largest name that is given. Servers in Java and C# may read ids as signed 32-bit integers.
const NAME_MAX: u64 = (1 << 31) - 1;

/// Number of rounds of the Feistel permutation. Four make it indistinguishable from a random permutation; eight leave a
/// margin.
const ROUNDS: u32 = 8;

/// The key from which the names for one server are derived: 128 random bits. The caller supplies them, because the core
/// has no randomness.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NameKey {
    number: u128,
}

impl NameKey {
    /// Returns a key made from random bytes.
    pub fn new(random: [u8; 16]) -> Self {
        Self { number: u128::from_be_bytes(random) }
    }

    /// Returns the name with this number, counted from 1. The first [`NAME_MAX`] numbers have different names.
    pub(crate) fn name(self, number: u64) -> u64 {
        let start = number.saturating_sub(1) % NAME_MAX + 1;
        self.walk(start, Self::encrypt)
    }

    /// Returns the number that a name was made from; `None` if the name is out of range.
    pub(crate) fn number(self, name: u64) -> Option<u64> {
        (1..=NAME_MAX).contains(&name).then(|| self.walk(name, Self::decrypt))
    }

    /// Returns 128 bits for this number that cannot be guessed without the key, as 32 hexadecimal digits.
    pub(crate) fn unguessable(self, number: u64) -> String {
        let half = |part: u8| {
            let mut hasher = self.hasher();
            hasher.write(&number.to_le_bytes());
            // `Self::half` hashes eight bytes. With a ninth byte, no hash here equals a hash there.
            hasher.write(&[part]);
            hasher.finish()
        };
        format!("{:016x}{:016x}", half(1), half(2))
    }

    /// Repeats a permutation of 32 bits until the result is in the range of names. The result is a permutation of this
    /// range.
    fn walk(self, from: u64, step: fn(Self, u64) -> u64) -> u64 {
        let mut at = from;
        // The loop ends: `from` is in the range, and a permutation returns to its start. The range
        // is half of 32 bits, so two steps are usual.
        loop {
            at = step(self, at);
            if (1..=NAME_MAX).contains(&at) {
                return at;
            }
        }
    }

    fn encrypt(self, value: u64) -> u64 {
        let (left, right) = (0..ROUNDS)
            .fold((value >> 16, value & 0xffff), |(left, right), round| {
                (right, left ^ self.half(round, right))
            });
        left << 16 | right
    }

    fn decrypt(self, value: u64) -> u64 {
        let rounds = (0..ROUNDS).rev();
        let (left, right) = rounds.fold((value >> 16, value & 0xffff), |(left, right), round| {
            (right ^ self.half(round, left), left)
        });
        left << 16 | right
    }

    /// Returns sixteen pseudorandom bits that depend on the key, the round, and a half of the value.
    fn half(self, round: u32, half: u64) -> u64 {
        let mut hasher = self.hasher();
        hasher.write(&(u64::from(round) << 16 | half).to_le_bytes());
        hasher.finish() & 0xffff
    }

    #[expect(
        deprecated,
        reason = "SipHash with a key of one's own: the hasher of the library has none"
    )]
    fn hasher(self) -> std::hash::SipHasher {
        std::hash::SipHasher::new_with_keys((self.number >> 64) as u64, self.number as u64)
    }
}

/// Hides the key. Only a recording contains it.
impl fmt::Debug for NameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameKey")
    }
}

impl fmt::Display for NameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.number)
    }
}

impl FromStr for NameKey {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { number: u128::from_str_radix(text, 16)? })
    }
}

/// The names that Milepost gives to requests and tokens of one connection.
#[derive(Debug)]
pub(crate) struct GivenNames {
    /// The key of the names. In recordings of earlier versions there is no key, and the names are consecutive numbers.
    pub(crate) key: Option<NameKey>,
    /// Whether the server may have got tokens that are strings.
    pub(crate) are_strings: bool,
}

impl GivenNames {
    /// Returns the next name that is not taken. Names are made from the numbers that the streams share.
    pub(crate) fn give(&self, streams: &mut ClientStreams, is_taken: impl Fn(&Key) -> bool) -> Key {
        loop {
            let number = streams.next_order();
            let name = match self.key {
                Some(key) => key.name(number),
                None if streams.topology.has_strangers() => number,
                // Counts down from the largest name, because clients count their ids up from small numbers.
                None => NAME_MAX - number % NAME_MAX,
            };
            let name = Key::Integer(i64::try_from(name).unwrap_or(i64::MAX));
            if !is_taken(&name) {
                return name;
            }
        }
    }

    /// Whether Milepost has given the name `key` to a request. The caller knows that no open request has this name.
    pub(crate) fn was_given(&self, key: &Key, streams: &ClientStreams) -> bool {
        let number = match key {
            Key::Integer(number) => u64::try_from(*number).ok(),
            Key::Text(text) if self.are_strings => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
            }
            _ => None,
        };
        // A number above `order` has not been given to any request yet.
        streams.topology.has_strangers()
            && number
                .and_then(|name| self.key.map_or(Some(name), |key| key.number(name)))
                .is_some_and(|number| (1..=streams.order).contains(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::topology::Topology;
    use std::collections::BTreeSet;

    #[test]
    fn each_name_is_given_once_and_its_number_found_again() {
        let key = NameKey::new(*b"0123456789abcdef");
        let count = if cfg!(miri) { 100 } else { 10_000 };
        let names: BTreeSet<u64> = (1..=count).map(|number| key.name(number)).collect();
        assert_eq!(names.len() as u64, count);
        for number in (1..=count).chain([NAME_MAX - 1, NAME_MAX]) {
            assert!((1..=NAME_MAX).contains(&key.name(number)));
            assert_eq!(key.number(key.name(number)), Some(number));
        }
        assert_eq!((key.number(0), key.number(NAME_MAX + 1)), (None, None));
        assert_eq!(key.name(NAME_MAX + 1), key.name(1));
    }

    #[test]
    fn names_of_two_servers_and_neighbours_have_nothing_in_common() {
        let (one, other) = (NameKey::new([1; 16]), NameKey::new([2; 16]));
        let near = |a: u64, b: u64| a.abs_diff(b) < 1 << 16;
        let count = if cfg!(miri) { 100 } else { 1000 };
        let close = (1..count).filter(|&n| near(one.name(n), one.name(n + 1))).count();
        let same = (1..count).filter(|&n| near(one.name(n), other.name(n))).count();
        assert!(close < 5 && same < 5, "{close} {same}");
    }

    #[test]
    fn a_given_name_is_known_and_no_other() {
        let given = GivenNames { key: Some(NameKey::new([7; 16])), are_strings: true };
        let shared = || ClientStreams::new(Topology::SharedByStrangers { paired: false });
        let mut streams = shared();
        let name = given.give(&mut streams, |_| false);
        let other = given.give(&mut streams, |key| *key == name);
        for known in [&name, &other, &Key::Text(name.to_string().into())] {
            assert!(given.was_given(known, &streams), "{known}");
        }
        assert!(name != other && !given.was_given(&name, &shared()));
        let own = ClientStreams::new(Topology::SingleStream { paired: false });
        assert!(!given.was_given(&name, &own));
    }

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let key = NameKey::new([7; 16]);
        assert_eq!(key.to_string().parse(), Ok(key));
    }
}
