//! Recognises secrets in settings and in text, so that they are not shown. A false match is better than a missed
//! secret.

/// Words in names which show that the value is a secret.
pub const WORDS: [&str; 23] = [
    "apikey",
    "apikeys",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "dsn",
    "jwt",
    "key",
    "pass",
    "passphrase",
    "passphrases",
    "passwd",
    "password",
    "passwords",
    "pat",
    "pwd",
    "secret",
    "secrets",
    "token",
];

/// Words in names whose values are secrets in about half of the cases. The value then decides: see
/// [`is_doubtful_secret`].
pub const DOUBTFUL: [&str; 9] =
    ["keys", "otp", "pin", "session", "sessionid", "sessions", "signature", "signatures", "tokens"];

/// The words of [`DOUBTFUL`] that name numeric codes.
const CODES: [&str; 2] = ["otp", "pin"];

/// The number of digits in a numeric code.
const CODE_DIGITS: std::ops::RangeInclusive<usize> = 4..=12;

/// The prefixes of keys for well-known services.
pub const BEGINNINGS: [&str; 15] = [
    "AIza",
    "AKIA",
    "eyJ",
    "ghp_",
    "gho_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "hf_",
    "pk_",
    "sk-",
    "sk_",
    "xox",
];

/// The minimum length of letters and digits in a row that are not an ordinary word.
const RUN_MIN: usize = 16;

/// Whether a value with the name `name` looks like a secret.
pub fn is_secret(name: &str, value: &str) -> bool {
    is_secret_value(value) || (is_secret_name(name) && !is_plain(value))
}

/// Whether `name` shows that its value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    let mut words = name.split(|c: char| !c.is_alphanumeric());
    // This also finds `apiKey` and `accessToken`, whose words have no separator.
    words.any(|word| WORDS.contains(&word))
        || ["apikey", "token", "secret", "password"].iter().any(|end| name.ends_with(end))
}

/// Whether a value is a secret if its name contains a word of [`DOUBTFUL`]. It is if it is long and not a word, or if
/// it is a numeric code.
pub fn is_doubtful_secret(name: &str, value: &str) -> bool {
    let name = name.to_lowercase();
    let mut words = name.split(|c: char| !c.is_alphanumeric());
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    words.any(|word| {
        let is_code = CODES.contains(&word) && is_number && CODE_DIGITS.contains(&value.len());
        DOUBTFUL.contains(&word) && (is_code || is_long(value))
    })
}

/// Whether a value is long and contains digits, so that it is not a word.
pub fn is_long(value: &str) -> bool {
    value.len() >= RUN_MIN
        // A path or a sentence is not a secret.
        && !value.contains(['/', ' '])
        && value.bytes().filter(u8::is_ascii_digit).count() > 1
        && value.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Whether a value is a switch or a small number, which is never a secret.
pub fn is_plain(value: &str) -> bool {
    let is_word = ["", "true", "false", "yes", "no", "on", "off", "none"].contains(&value);
    is_word || (value.len() <= 6 && value.chars().all(|c| c.is_ascii_digit()))
}

/// Whether `value` looks like a secret, whatever its name.
pub fn is_secret_value(value: &str) -> bool {
    let has_beginning =
        value.len() >= RUN_MIN && BEGINNINGS.iter().any(|begin| value.starts_with(begin));
    let authority = value.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    let has_password = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let is_random = |run: &str| {
        run.len() >= RUN_MIN
            && run.chars().filter(char::is_ascii_digit).count() > 2
            && run.chars().filter(char::is_ascii_alphabetic).count() > 2
    };
    let mut runs = value.split(|c: char| !c.is_ascii_alphanumeric());
    has_beginning || has_password || (!value.contains('/') && runs.any(is_random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_decides_where_a_name_is_doubtful() {
        for (name, value) in
            [("otp", "123456"), ("card.PIN", "1234"), ("session-id", "s3ss10n-0123456789")]
        {
            assert!(is_doubtful_secret(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("pin", "13"),
            ("spin", "1234"),
            ("session", "3"),
            ("tokens", "4096"),
            ("keys", "a, b"),
        ] {
            assert!(!is_doubtful_secret(name, value), "{name}={value}");
        }
    }

    #[test]
    fn names_and_values_give_secrets_away() {
        for (name, value) in [
            ("API_KEY", "x"),
            ("apiKey", "x"),
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "x"),
            ("db.password", "x"),
            ("DATA", "sk-proj-abcdefgh"),
            ("URL", "postgres://me:word@host/db"),
            ("X", "0123456789abcdef0123456789abcdef"),
        ] {
            assert!(is_secret(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("MAX_TOKENS", "4096"),
            ("AUTH", "true"),
            ("KEYBOARD", "us"),
            ("NODE_ENV", "production"),
            ("PATH", "/usr/local/bin:/usr/bin"),
            ("PACKAGE", "@modelcontextprotocol/server-everything"),
            ("URL", "https://example.com/a@b:c"),
        ] {
            assert!(!is_secret(name, value), "{name}={value}");
        }
    }
}
