//! Responses of servers, read by Milepost's HTTP/1.1 decoder as hyper reads them.

use http::Method;
use milepost::transport::http::http1::malformed::MalformedResponse;

use super::fuzz_responses::{Ending, compare, own};

/// Generated responses, unless `RESPONSES` says how many.
const GENERATED: usize = 2000;

/// Each response is compared with hyper's reading, cut at every byte, with a server that closes the connection and one
/// that does not.
const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 0x3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 3,\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 3 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551613\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551617\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length: 0000000000000000000000003\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\n Content-Length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nContent-Length:\t 3 \t\r\n\r\nabc",
    "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
    "HTTP/1.1 200 OK\r\rContent-Length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: \u{e9}\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 200 OK\r\nX\u{e9}: a\r\n\r\n",
    "HTTP/1.1 200 OK\r\n: a\r\n\r\n",
    "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "\n\r\n\nHTTP/1.1 200 OK\nX:\n\r\nuntil the end",
    "HTTP/1.1  200 OK\r\n\r\n",
    "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 2000 OK\r\n\r\n",
    "HTTP/1.1 20 OK\r\n\r\n",
    "HTTP/1.1 099 OK\r\n\r\n",
    "HTTP/1.1 999 Odd\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/2 200\r\n\r\n",
    "HTTP/1.2 200 OK\r\n\r\n",
    "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\n\r\nuntil the end",
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 200 OK\r\nConnection: x, CLOSE\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: x\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n00a \r\n0123456789\r\n0\r\nX: y\r\nX: z\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX y\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\nZ: z\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\nmore\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n X: y\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\ng\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nx",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "<html>not HTTP</html>\r\n\r\n",
    "",
];

#[test]
fn responses_are_read_as_hyper_reads_them_wherever_they_are_cut() {
    for text in RESPONSES {
        let bytes = text.as_bytes();
        for method in [Method::POST, Method::HEAD] {
            for closes in [false, true] {
                for cut in 0..=bytes.len() {
                    compare(&method, &[&bytes[..cut], &bytes[cut..]], closes);
                }
                let single: Vec<&[u8]> = bytes.chunks(1).collect();
                compare(&method, &single, closes);
            }
        }
    }
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// Returns one of the odd words in 16 cases, else the right word.
    fn mostly<'a>(&mut self, right: &'a str, odd: &[&'a str]) -> &'a str {
        if self.below(16) == 0 { self.of(odd) } else { right }
    }
}

/// A response whose parts are mostly right.
fn generated(numbers: &mut Numbers) -> String {
    let eol = numbers.mostly("\r\n", &["\n", "\r", "\n\r"]);
    let interim = ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 x\r\nA: b\r\n\r\n", "\r\n"];
    let mut text = numbers.mostly("", &interim).to_owned();
    text += numbers.mostly("HTTP/1.1", &["HTTP/1.0", "HTTP/1.10", "http/1.1", "HTTP/2"]);
    text += numbers.mostly(" ", &["  ", "\t", ""]);
    text += numbers.mostly("200 OK", &["200", "204 None", "304 Same", "404 ", "101 x", "1 x"]);
    text += eol;
    for _ in 0..numbers.below(4) {
        let right = numbers.of(&["X: y", "X:y", "X: y ", "Connection: close", "X: \u{1f36a}"]);
        text +=
            numbers.mostly(right, &["X: a\r\n b", "X : y", "Connection: Keep-Alive", "x", ": y"]);
        text += eol;
    }
    let framing = numbers.below(8);
    if framing < 3 || framing == 6 {
        text += numbers.mostly("Content-Length", &["content-length", "Content-Length "]);
        text += ": ";
        text += numbers.mostly("5", &["0", "1", "5,5", "5, 6", "+5", "5;", "0005", "5 5", "-1"]);
        text += eol;
    }
    if framing > 2 && framing != 7 {
        text += "Transfer-Encoding: ";
        text += numbers.mostly("chunked", &["Chunked ", "gzip, chunked", "chunked, gzip", "x"]);
        text += eol;
    }
    text += eol;
    if framing < 3 || framing == 7 {
        return text + numbers.mostly("hello", &["", "h", "hello!"]);
    }
    for _ in 0..numbers.below(4) {
        let right = numbers.of(&["5", "05", "5 ", "5;x=y"]);
        text += numbers.mostly(right, &["5;x=\"\r\"", "4", "6", "-5", "", "5;a\nb"]);
        text += numbers.mostly("\r\n", &["\n", "\r"]);
        text += "hello";
        text += numbers.mostly("\r\n", &["\n", "", "\r"]);
    }
    text += numbers.mostly("0\r\n", &["000\r\n", "0;x\r\n", "0\n", ""]);
    let trailers = numbers.of(&["", "", "X: y\r\n", "X: y\r\nZ: z\r\n"]);
    text += numbers.mostly(trailers, &["X: y\n", "X\r\n", " \r\n"]);
    text + numbers.mostly("\r\n", &["\r\nmore", "\n", ""])
}

#[test]
fn generated_responses_are_read_as_hyper_reads_them() {
    let mut numbers = Numbers(1);
    let mut whole = 0;
    let count = std::env::var("RESPONSES").map_or(GENERATED, |count| count.parse().unwrap());
    for _ in 0..count {
        let text = generated(&mut numbers);
        let bytes = text.as_bytes();
        let method =
            [Method::POST, Method::POST, Method::GET, Method::HEAD][numbers.below(4)].clone();
        let cut = numbers.below(bytes.len() + 1);
        for closes in [false, true] {
            compare(&method, &[bytes], closes);
            compare(&method, &[&bytes[..cut], &bytes[cut..]], closes);
        }
        let (reading, _) = own(&method, &[bytes], true);
        whole += usize::from(reading.end != Ending::Refused);
    }
    // The test must try enough responses and enough other texts.
    assert!((count / 4..count / 4 * 3).contains(&whole), "{whole} of {count} are responses");
}

#[track_caller]
fn refused(text: &str, why: MalformedResponse) {
    assert_eq!(own(&Method::POST, &[text.as_bytes()], false).1, Some(why), "{text}");
}

#[test]
fn a_length_in_doubt_is_refused_where_hyper_chooses_one() {
    let (two, coding) = (MalformedResponse::TwoLengths, MalformedResponse::Coding);
    refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", two);
    refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", coding);
    refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\n", coding);
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    refused(&format!("HTTP/1.1 200 OK\r\n{twice}\r\n"), coding);
    refused("\r\nHTTP/1.1 200 OK\r\n\r\n", MalformedResponse::EmptyLine);
    let trailer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n";
    refused(trailer, MalformedResponse::Trailers);
}

#[test]
fn heads_are_bounded_as_hyper_bounds_them() {
    let line = |length: usize| format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(length));
    for length in [65_000, 65_514, 65_515, 65_516, 65_517, 65_518, 65_536, 70_000] {
        for text in [line(length), line(length) + "\r\n\r\n"] {
            compare(&Method::POST, &[text.as_bytes()], false);
        }
    }
    for headers in [99, 100, 101] {
        let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(headers));
        compare(&Method::POST, &[text.as_bytes()], false);
    }
}
