//! Secrets in text, and text that only looks like a secret.

use milepost_core::progress::policy::masks::Masks;

#[track_caller]
fn check(words: &str, shown: &str) {
    assert_eq!(Masks::default().mask(words), shown);
}

#[test]
fn secrets_are_masked() {
    for (words, shown) in [
        ("Authorization: Bearer abc.def.ghi", "Authorization: ***"),
        ("authorization=Basic dXNlcjpwYXNz", "authorization=***"),
        ("\"Authorization\": \"Token 0a1b2c\"", "\"Authorization\": \"***\""),
        ("sent bearer 0123456789abcdef to it", "sent bearer *** to it"),
        ("Cookie: a=b; c=d", "Cookie: ***"),
        ("password=hunter2", "password=***"),
        ("password = \"two words\" ok", "password = \"***\" ok"),
        ("login with password: hunter2, user: bob", "login with password: ***, user: bob"),
        ("db.password=hunter2", "db.password=***"),
        ("token: abcdef", "token: ***"),
        ("access_token=abcdef&next=1", "access_token=***&next=1"),
        ("api_key='abcdef'", "api_key='***'"),
        ("API_KEY=abcdef ./run", "API_KEY=*** ./run"),
        ("{\"apiKey\":\"abcdef\",\"n\":1}", "{\"apiKey\":\"***\",\"n\":1}"),
        ("{\\\"apiKey\\\":\\\"abcdef\\\"}", "{\\\"apiKey\\\":\\\"***\\\"}"),
        ("x-api-key: abcdef", "x-api-key: ***"),
        ("client_secret => abcdef", "client_secret => ***"),
        ("run --password xyz --verbose", "run --password *** --verbose"),
        ("run --api-key=xyz", "run --api-key=***"),
        ("run --token 'x y'", "run --token '***'"),
        ("postgres://me:word@host/db", "postgres://me:***@host/db"),
        ("clone https://0123456789abcdef01@github.com/a/b", "clone https://***@github.com/a/b"),
        ("GET https://x.y/z?key=abc&q=1", "GET https://x.y/z?key=***&q=1"),
        ("GET /cb?code=abc&state=1", "GET /cb?code=***&state=1"),
        ("PUT https://s3/x?X-Amz-Signature=abc1", "PUT https://s3/x?X-Amz-Signature=***"),
        ("using sk-proj-12ab34cd56ef78", "using ***"),
        ("using ghp_0123456789abcdef.", "using ***"),
        ("slack xoxb-123456789-abcdef", "slack ***"),
        ("AKIA0123456789ABCDEF in us-east-1", "*** in us-east-1"),
        ("AIzaSy0123456789abcdef", "***"),
        ("got eyJhbGciOiJI1UzI1NiJ9.eyJzdWIi.abc", "got ***"),
        ("glpat-0123456789abcdef and hf_0123456789abcdef", "*** and ***"),
        ("key=0123456789abcdef0123456789abcdef", "key=***"),
        ("auth: 9f86d081884c7d659a2feaa0c55ad015", "auth: ***"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END",
            "-----BEGIN RSA PRIVATE KEY-----***-----END",
        ),
        ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "***"),
        ("jwt=abc secret=def", "jwt=*** secret=***"),
        ("passphrase: correct-horse", "passphrase: ***"),
        ("pwd=hunter2", "pwd=***"),
        ("passwords: hunter2, hunter3", "passwords: ***, hunter3"),
        ("secrets=abc cookies=def", "secrets=*** cookies=***"),
        ("tokens=0a1b2c3d4e5f6071 ok", "tokens=*** ok"),
        ("session=0a1b2c3d4e5f6071", "session=***"),
        ("Mcp-Session-Id: 0a1b2c3d-4e5f-6071", "Mcp-Session-Id: ***"),
        ("{\"sessionId\":\"0a1b2c3d-4e5f-6071\"}", "{\"sessionId\":\"***\"}"),
        ("otp=123456 accepted", "otp=*** accepted"),
        ("Enter PIN: 4711", "Enter PIN: ***"),
        ("signature: 0a1b2c3d4e5f607182", "signature: ***"),
        ("GET /x?session=abc&otp=12345678", "GET /x?session=***&otp=***"),
        ("curl -u bob:hunter2 https://x.y", "curl -u bob:*** https://x.y"),
        ("curl --user 'bob:hunter2'", "curl --user 'bob:***'"),
    ] {
        check(words, shown);
    }
}

#[test]
fn what_is_no_secret_stays() {
    for words in [
        "token bucket",
        "5 tokens",
        "max_tokens=4096",
        "tokens: 1200/4096",
        "token_count: 5000",
        "token_type=Bearer",
        "basic authentication",
        "Basic 2 steps",
        "the bearer of bad news",
        "key: value",
        "primary key: id",
        "cache_key=users",
        "keyboard: us",
        "author: Bob",
        "Pass: 3, fail: 0",
        "PASS: test_foo",
        "passed: 12",
        "auth: ok",
        "authenticated=true",
        "password: required",
        "secret not found",
        "secret: missing",
        "token: expired",
        "Unexpected token: }",
        "src/token.rs:45: error",
        "use crate::token::Stream",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "sha256:4abcf20661432fb2d719aaf90656f55c287f8ca915dc1c92ec14ff61e67fbaf8",
        "request 123e4567-e89b-12d3-a456-426614174000",
        "/usr/lib/python3/dist-packages/secrets.py",
        "https://example.com/a@b:c",
        "ssh://git@github.com/a/b",
        "https://example.com/?page=3&sort=key",
        "risk-0123456789abcdef",
        "sk-learn-contrib-package",
        "PWD=/home/user",
        "PATH=/usr/bin:/bin",
        "45/120: serde, syn",
        "password_file=/run/x",
        "session 3 of 10",
        "session 0a1b2c3d4e5f6071 begins",
        "session: 3 of 10",
        "tokens: 123456789",
        "signature: valid",
        "keys: a, b, c",
        "pin 1234 is high",
        "pin: 13",
        "shipping: 1234",
        "docker run -u 1000:1000 x",
        "--session 3",
        "typing -u: unbuffered",
        "Receiving objects:  45% (450/1000), 1.20 MiB | 600.00 KiB/s",
        "",
    ] {
        check(words, words);
        assert!(matches!(Masks::default().mask(words), std::borrow::Cow::Borrowed(_)));
    }
}

#[test]
fn patterns_of_a_route_are_masked_besides() {
    let masks = Masks::read([r"ACME-\d+", r"user (?<secret>\w+)"]).unwrap();
    assert_eq!(masks.mask("user bob has ACME-12, token=abc"), "user *** has ***, token=***");
    assert_eq!(masks.mask("nothing"), "nothing");
    assert_eq!(masks.patterns().count(), 2);
    assert_ne!(masks, Masks::default());
    for (pattern, told) in [
        ("(", "\"(\" is not a regular expression: unclosed group"),
        ("x*", "\"x*\" matches nothing at all, too; one that only matches secrets is expected"),
    ] {
        assert_eq!(Masks::read([pattern]).unwrap_err(), told);
    }
    assert_eq!(Masks::read(["a", "a"]).unwrap_err(), "\"a\" is there twice");
}
