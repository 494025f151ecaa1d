//! `[fleet]`: the replicas behind one balancer.

use std::fmt;
use std::net::SocketAddr;

use url::Url;

use super::route::Secret;

/// Limit of the keys of a fleet. A rotation needs two.
pub(crate) const KEYS_MAX: usize = 8;

/// A key that all replicas share: 32 bytes, which are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetKey {
    bytes: [u8; 32],
}

impl FleetKey {
    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the text is something else. The error says what is expected, and does not contain the text.
    pub fn read(text: &str) -> Result<Self, String> {
        let digits = text.as_bytes();
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut key = [0; 32];
        // The length is checked first: `zip` and `chunks` below would otherwise leave zeros in a part of the key.
        if digits.len() != 2 * key.len() {
            return Err(format!(
                "a key has {} characters here; 64 hexadecimal digits are expected, as from `openssl rand -hex 32`",
                text.chars().count()
            ));
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(
                    "64 hexadecimal digits are expected, as from `openssl rand -hex 32`".to_owned()
                );
            };
            *byte = high << 4 | low;
        }
        Ok(Self { bytes: key })
    }

    /// Returns the bytes of the key.
    pub fn reveal(&self) -> &[u8; 32] {
        &self.bytes
    }
}

impl fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// `[fleet]` as a file may have it, with keys missing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FleetSettings {
    /// The keys that all replicas share. The first one seals.
    pub key: Vec<FleetKey>,
    /// The address on which this replica accepts requests that other replicas pass on.
    pub listen: SocketAddr,
    /// The address at which other replicas reach `listen`.
    pub advertise: Option<SocketAddr>,
    /// The address of the Valkey or Redis that the replicas share.
    pub valkey: Option<Secret>,
    /// Whether ids of new sessions are sealed.
    pub seal: bool,
}

impl Default for FleetSettings {
    fn default() -> Self {
        let listen = SocketAddr::from(([0, 0, 0, 0], 7334));
        Self { key: Vec::new(), listen, advertise: None, valkey: None, seal: true }
    }
}

/// `[fleet]` of this replica, checked and complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The keys that all replicas share, at least one. New ids are sealed with the first key; ids sealed with any of
    /// them can be opened.
    pub keys: Vec<FleetKey>,
    /// The address on which this replica accepts requests that other replicas pass on.
    pub listen: SocketAddr,
    /// The address at which other replicas reach `listen`. Sealed ids contain it, so that other replicas find this one.
    pub advertise: SocketAddr,
    /// The address of a Valkey or Redis, through which the replicas agree who takes over sessions of a stopped replica.
    pub valkey: Option<Secret>,
    /// Whether ids of new sessions are sealed.
    pub seal: bool,
}

impl Fleet {
    /// Returns the settings if they are complete, else the key that is wrong and the expected value.
    pub(super) fn of(settings: FleetSettings) -> Result<Self, (&'static str, String)> {
        let FleetSettings { key: keys, listen, advertise, valkey, seal } = settings;
        if keys.is_empty() || keys.len() > KEYS_MAX {
            let what = format!(
                "`key` of [fleet] needs 1 to {KEYS_MAX} keys that all replicas share, such as key = [\"${{FLEET_KEY}}\"]"
            );
            return Err(("key", what));
        }
        let Some(advertise) = advertise else {
            let what = "`advertise` is missing in [fleet]: the address under which other replicas reach this \
                        one, such as advertise = \"${POD_IP}:7334\"";
            return Err(("advertise", what.to_owned()));
        };
        // The address is written into sealed ids, so the other replicas must be able to connect to it.
        if advertise.ip().is_unspecified() || advertise.port() == 0 {
            let what = format!(
                "{advertise} leads nowhere; the address and port under which other replicas reach this one \
                 is expected, such as \"10.0.0.1:7334\""
            );
            return Err(("advertise", what));
        }
        if let Some(address) = &valkey {
            store(address.reveal()).map_err(|what| ("valkey", what))?;
        }
        Ok(Self { keys, listen, advertise, valkey, seal })
    }

    /// Returns these settings in the form of a file.
    pub(super) fn settings(&self) -> FleetSettings {
        let Self { keys, listen, advertise, valkey, seal } = self.clone();
        FleetSettings { key: keys, listen, advertise: Some(advertise), valkey, seal }
    }
}

/// Checks the address of the Valkey or Redis. The error names the expected form but not the address, which may contain
/// a password.
fn store(address: &str) -> Result<(), String> {
    let is_good = Url::parse(address)
        .is_ok_and(|url| ["redis", "rediss"].contains(&url.scheme()) && url.has_host());
    if !is_good {
        return Err("an address such as \"rediss://valkey:6379\" is expected".to_owned());
    }
    if cfg!(feature = "fleet-valkey") {
        Ok(())
    } else {
        Err("this program was built without the feature `fleet-valkey`; leave the key out, or use a package".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_sixty_four_digits_and_is_never_shown() {
        let key = FleetKey::read(&"0aF9".repeat(16)).unwrap();
        assert_eq!(key.reveal()[..4], [0x0a, 0xf9, 0x0a, 0xf9]);
        assert_eq!(format!("{key:?}"), "***");
        for text in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)]
        {
            assert!(FleetKey::read(text).is_err(), "{text}");
        }
    }
}
