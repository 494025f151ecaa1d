//! The name of a client, from its certificate or from a header of a trusted front.

use std::fmt::Write as _;
use std::sync::Arc;

use http::HeaderValue;
use ring::digest::{SHA256, digest};
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The object identifier of a common name (2.5.4.3), in DER.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The tags of text types that are read: UTF8String, PrintableString and IA5String.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// Limit of the bytes of a name in a header. A request with a longer name is refused.
const HEADER_NAME_BYTES_MAX: usize = 1 << 10;

/// The prefix of a name that comes from a header.
const HEADER: &str = "header:";

/// The verified name of a client. The name begins with its kind, so that names of different kinds never match: `uri:`,
/// `dns:`, `cn:` or `sha256:` for names in certificates, `header:` for names that a trusted front gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientName {
    name: Arc<str>,
}

impl ClientName {
    /// Returns the first URI of the certificate's subject alternative names; else the first DNS name there, else the
    /// common name of the subject, else the fingerprint of the certificate.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Self {
        let name = EndEntityCert::try_from(certificate).ok().and_then(|read| {
            let uri = read.valid_uri_names().next().map(|name| format!("uri:{name}"));
            let dns = || read.valid_dns_names().next().map(|name| format!("dns:{name}"));
            // The common name comes last, because names of services no longer belong there (RFC 9525).
            uri.or_else(dns).or_else(|| Some(format!("cn:{}", common_name(read.subject())?)))
        });
        Self { name: name.unwrap_or_else(|| fingerprint(certificate)).into() }
    }

    /// Returns the name in a header of a trusted front; `None` if the value is longer than 1 KiB or not readable text.
    pub fn of_header(value: &HeaderValue) -> Option<Self> {
        let name = std::str::from_utf8(value.as_bytes()).ok()?;
        let is_name = name.len() <= HEADER_NAME_BYTES_MAX && !name.chars().any(char::is_control);
        is_name.then(|| Self { name: format!("{HEADER}{name}").into() })
    }

    /// Whether the name comes from a front and not from a certificate.
    pub fn is_of_header(&self) -> bool {
        self.name.starts_with(HEADER)
    }

    /// Returns the name of a client that another replica has verified.
    pub(crate) fn passed_on(name: &str) -> Self {
        Self { name: name.into() }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// Marks a request without a name on a loopback listener: all callers without credentials there count as one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopbackCaller;

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let mut text = "sha256:".to_owned();
    for byte in digest(&SHA256, certificate).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the first common name of a subject (given as the content of its outer sequence).
fn common_name(mut subject: &[u8]) -> Option<&str> {
    while !subject.is_empty() {
        let mut set = element(&mut subject, SET)?;
        while !set.is_empty() {
            let mut pair = element(&mut set, SEQUENCE)?;
            if element(&mut pair, OBJECT_IDENTIFIER)? == COMMON_NAME {
                // Text of another type, such as UTF-16, is not read. The fingerprint is then the name.
                let tag = TEXTS.into_iter().find(|tag| pair.first() == Some(tag))?;
                let name = std::str::from_utf8(element(&mut pair, tag)?).ok();
                return name.filter(|name| !name.is_empty());
            }
        }
    }
    None
}

/// Takes an element of DER with this tag from the front of `from`.
fn element<'a>(from: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&[found, short], mut rest) = from.split_first_chunk::<2>()?;
    let mut length = usize::from(short);
    // X.690, 8.1.3.5: in a long form, the first byte tells how many bytes of length follow.
    if short >= 0x80 {
        let (bytes, after) = rest.split_at_checked(usize::from(short & 0x7f))?;
        // Three bytes are 16 MiB, more than any certificate. Zero bytes would be the indefinite form, not allowed in
        // DER.
        if bytes.is_empty() || bytes.len() > 3 {
            return None;
        }
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    *from = rest;
    (found == tag).then_some(content)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn name(alternatives: &[SanType], subject: &[(DnType, &str)]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        subject.iter().for_each(|(kind, text)| {
            params.distinguished_name.push(kind.clone(), *text);
        });
        params.subject_alt_names = alternatives.to_vec();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientName::of_certificate(certificate.der()).as_str().to_owned()
    }

    #[test]
    fn the_name_is_a_uri_a_dns_name_the_common_name_or_the_fingerprint() {
        let dns = |text: &str| SanType::DnsName(text.try_into().unwrap());
        let uri = SanType::URI("spiffe://example.com/build".try_into().unwrap());
        let mail = SanType::Rfc822Name("a@example.com".try_into().unwrap());
        let common = [(DnType::OrganizationName, "Example"), (DnType::CommonName, "Ada ü")];
        let two = [dns("one.example.com"), dns("two.example.com")];
        let all = [dns("one.example.com"), uri];
        assert_eq!(name(&all, &common), "uri:spiffe://example.com/build");
        assert_eq!(name(&two, &common), "dns:one.example.com");
        assert_eq!(name(std::slice::from_ref(&mail), &common), "cn:Ada ü");
        let long = "x".repeat(300);
        let organization = (DnType::OrganizationName, &*long);
        let long = [organization.clone(), (DnType::CommonName, "Ada")];
        assert_eq!(name(&[], &long), "cn:Ada");
        let fingerprint = name(&[mail], &[organization]);
        assert!(fingerprint.starts_with("sha256:") && fingerprint.len() == 7 + 64, "{fingerprint}");
    }

    #[test]
    fn a_name_in_a_header_is_no_name_in_a_certificate() {
        let of = |text: &[u8]| ClientName::of_header(&HeaderValue::from_bytes(text).unwrap());
        let name = of("Ada ü".as_bytes()).unwrap();
        assert!(name.is_of_header() && name.as_str() == "header:Ada ü");
        // A prefix such as `dns:` in a front's name has no meaning and is a part of the name.
        assert_eq!(of(b"dns:ada.example.com").unwrap().as_str(), "header:dns:ada.example.com");
        let made = rcgen::generate_simple_self_signed(vec!["header".to_owned()]).unwrap();
        assert!(!ClientName::of_certificate(made.cert.der()).is_of_header());
        assert!(of(&[b'x'; HEADER_NAME_BYTES_MAX]).is_some());
        for wrong in [&[b'x'; HEADER_NAME_BYTES_MAX + 1][..], b"a\xff", b"a\tb"] {
            assert!(of(wrong).is_none());
        }
    }

    #[test]
    fn what_is_no_subject_has_no_common_name() {
        let right = [&[SET, 10, SEQUENCE, 8, 6, 3, 0x55, 4, 3, 0x0c, 1][..], b"A"].concat();
        assert_eq!(common_name(&right), Some("A"));
        for end in 0..right.len() {
            assert_eq!(common_name(&right[..end]), None);
        }
        for at in 0..right.len() {
            for byte in 0..=255 {
                let mut other = right.clone();
                other[at] = byte;
                let _ = common_name(&other);
            }
        }
    }
}
