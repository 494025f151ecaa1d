//! Hashes the contents of files, so that a reload can find out whether a certificate has changed.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read as _;
use std::path::Path;
use std::sync::OnceLock;

use crate::config::routes::Upstream;

/// Limit of the bytes of a watched file that are compared.
const COMPARED_MAX: u64 = 16 << 20;

/// Returns a number for the contents of the files that an upstream names.
pub(crate) fn files_of(upstream: &Upstream) -> u64 {
    let Upstream::Http(http) = upstream else { return 0 };
    let own = http.client_certificate.iter().flat_map(|own| [&own.certificate, &own.key]);
    let authorities = http.ca_file.iter().flat_map(|authorities| &authorities.files);
    contents(authorities.chain(own).map(AsRef::as_ref))
}

/// Returns a number for the contents of files. Within one process, equal contents have equal numbers.
pub(crate) fn contents<'a>(files: impl IntoIterator<Item = &'a Path>) -> u64 {
    static HASHER: OnceLock<RandomState> = OnceLock::new();
    let read = |file: &Path| {
        let mut bytes = Vec::new();
        let read =
            File::open(file).and_then(|file| file.take(COMPARED_MAX).read_to_end(&mut bytes));
        read.is_ok().then_some(bytes)
    };
    let all: Vec<(&Path, Option<Vec<u8>>)> =
        files.into_iter().map(|file| (file, read(file))).collect();
    HASHER.get_or_init(Default::default).hash_one(all)
}
