//! Addresses and nets of addresses (CIDR).

use std::fmt;
use std::net::IpAddr;

/// An address, or all addresses that begin with the same bits. IPv4 in IPv6 form (`::ffff:10.0.0.7`) is stored as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNet {
    first: IpAddr,
    /// The number of leading bits that are equal.
    prefix: u8,
}

/// Bits of an IPv6 address before the IPv4 address that is mapped into it.
const MAPPED: u8 = 96;

impl IpNet {
    /// Reads an address such as `10.0.0.7`, or a net such as `10.0.0.0/8`.
    ///
    /// # Errors
    /// If the text is neither, the prefix is too long, or bits after the prefix are set. The error shows the right
    /// form.
    pub fn read(text: &str) -> Result<Self, String> {
        let unclear = || {
            format!(
                "{text:?} is not an address or a net; one such as \"10.0.0.7\" or \"10.0.0.0/8\" is \
                 expected"
            )
        };
        // Parsed here, because the standard library has no type for networks.
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| unclear())?;
        let bits_max = bits(written);
        let prefix = match prefix {
            None => bits_max,
            Some(digits)
                if (1..=3).contains(&digits.len())
                    && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                let prefix: Option<u8> = digits.parse().ok().filter(|prefix| *prefix <= bits_max);
                let long =
                    || format!("a prefix of at most {bits_max} bits is expected in {text:?}");
                prefix.ok_or_else(long)?
            }
            Some(_) => return Err(unclear()),
        };
        // `10.0.0.7/8` may mean one address or the whole network. Not guessed, because trust depends on the answer.
        let first = masked(written, prefix);
        if first != written {
            return Err(format!(
                "{text:?} names one address of a net; did you mean \"{first}/{prefix}\"?"
            ));
        }
        let canonical = first.to_canonical();
        // `::ffff:10.0.0.0/104` is `10.0.0.0/8`. A network that is larger than all of IPv4 stays an IPv6 network.
        Ok(match prefix.checked_sub(MAPPED) {
            Some(rest) if canonical != first => Self { first: canonical, prefix: rest },
            _ => Self { first, prefix },
        })
    }

    /// Returns the network around an address such as `10.0.0.7/8`, as other programs read networks: bits after the
    /// prefix are ignored. `None` if the text is not an address or network.
    pub(crate) fn around(text: &str) -> Option<Self> {
        let Some((address, prefix)) = text.split_once('/') else { return Self::read(text).ok() };
        let first = masked(address.parse().ok()?, prefix.parse().ok()?);
        Self::read(&format!("{first}/{prefix}")).ok()
    }

    /// Whether `address` is in the net.
    pub fn contains(&self, address: IpAddr) -> bool {
        // A listener on `[::]` sees IPv4 clients as `::ffff:…`.
        let address = address.to_canonical();
        let is_same_family = address.is_ipv4() == self.first.is_ipv4();
        is_same_family && masked(address, self.prefix) == self.first
    }
}

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits(self.first) {
            self.first.fmt(f)
        } else {
            write!(f, "{}/{}", self.first, self.prefix)
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with every bit after the first `prefix` bits cleared.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let shift = u32::from(bits(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(address) => {
            // A shift by all bits (prefix 0) would overflow, so the mask is then 0.
            let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_net_has_the_addresses_that_begin_with_its_bits() {
        let cases = [
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::a00:1"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.1.2.3"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
        ];
        for (net, inside, outside) in cases {
            let read = IpNet::read(net).unwrap();
            assert!(read.contains(inside.parse().unwrap()), "{net} {inside}");
            assert!(!read.contains(outside.parse().unwrap()), "{net} {outside}");
            assert_eq!(IpNet::read(&read.to_string()), Ok(read));
        }
    }

    #[test]
    fn what_is_no_net_is_an_error_with_the_right_form() {
        for text in
            ["", "/", "10", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/0008", "proxy"]
        {
            let error = IpNet::read(text).unwrap_err();
            assert!(
                error.contains("one such as \"10.0.0.7\" or \"10.0.0.0/8\""),
                "{text}: {error}"
            );
        }
        let long = IpNet::read("10.0.0.0/33").unwrap_err();
        assert_eq!(long, "a prefix of at most 32 bits is expected in \"10.0.0.0/33\"");
        assert!(IpNet::read("fd00::/129").unwrap_err().contains("at most 128 bits"));
        assert!(IpNet::read("fd00::/999").unwrap_err().contains("at most 128 bits"));
        let one = IpNet::read("10.1.2.3/8").unwrap_err();
        assert_eq!(one, "\"10.1.2.3/8\" names one address of a net; did you mean \"10.0.0.0/8\"?");
    }
}
