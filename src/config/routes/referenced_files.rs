//! Finds the files that a route file names, even if other parts of it are wrong.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::authorities::Authorities;
use super::env::Environment;
use crate::protocol::order;

/// Limit of the files named in a route file that are watched for changes.
const NAMED_MAX: usize = 4096;

/// The places that name certificates and keys: each table, and its keys.
const CERTIFICATES: [(&str, &[&str]); 4] = [
    ("server", &["client_ca_file"]),
    ("tls", &["certificate", "key"]),
    ("client_certificate", &["certificate", "key"]),
    ("upstream", &["ca_file"]),
];

/// Returns the certificate and key files that the text of the route file at `path` names. The text has to be TOML;
/// nothing else in it has to be right.
pub fn named_files(path: &Path, text: &str, environment: &Environment) -> Vec<PathBuf> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let mut files = Vec::new();
    search(table.get_ref(), "", &mut |file| {
        // An unknown variable is not reported here: it is an error of the route file, reported when the file is read.
        if let Ok(file) = environment.fill(file)
            && files.len() < NAMED_MAX
        {
            files.push(folder.join(file));
        }
    });
    order::sort(&mut files);
    files.dedup();
    files
}

fn search(table: &DeTable<'_>, name: &str, found: &mut impl FnMut(&str)) {
    let keys =
        CERTIFICATES.iter().find(|(table, _)| *table == name).map_or(&[][..], |(_, keys)| keys);
    for (key, value) in table {
        match value.get_ref() {
            DeValue::String(file) if keys.contains(&key.get_ref().as_ref()) => found(file),
            DeValue::Array(files) if keys.contains(&key.get_ref().as_ref()) => {
                let files = files.iter().filter_map(|file| file.get_ref().as_str());
                files.filter(|file| !Authorities::is_system(file)).for_each(&mut *found);
            }
            value => search_value(value, key.get_ref(), found),
        }
    }
}

fn search_value(value: &DeValue<'_>, name: &str, found: &mut impl FnMut(&str)) {
    match value {
        DeValue::Table(table) => search(table, name, found),
        DeValue::Array(elements) => {
            elements.iter().for_each(|element| search_value(element.get_ref(), name, found));
        }
        _ => {}
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_certificates_and_keys() {
        let text = r#"
            server.client_ca_file = "clients.pem"
            server.tls = { certificate = "tls/${NAME}.pem", key = "/k.pem" }
            [[route]]
            path = "/a"
            no_such_key = 1
            [route.upstream]
            url = "https://up.example"
            ca_file = ["system", "ca.pem"]
            client_certificate.certificate = "own.pem"
            client_certificate.key = "own.pem"
            [route.headers.request.set]
            key = "no file"
        "#;
        let environment = [("NAME", "site")].into_iter().collect();
        let files = named_files(Path::new("/etc/m/proxy.toml"), text, &environment);
        let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
        let below = ["ca.pem", "clients.pem", "own.pem", "tls/site.pem"];
        let below = below.map(|file| format!("/etc/m/{file}"));
        assert_eq!(files[..4], below);
        assert_eq!(files[4..], ["/k.pem"]);
        assert!(named_files(Path::new("p"), "no [toml", &environment).is_empty());
    }
}
