//! Tests which clients are counted as one client, and their limits.

use super::*;

fn limits(connections: usize, streams: usize) -> Arc<ClientLimits> {
    let limits = ClientLimits::new(&Metrics::new());
    limits.set_maxima(&ClientMaxima { connections, streams, ..ClientMaxima::default() });
    limits
}

fn fronts() -> Vec<IpNet> {
    ["10.0.0.0/8", "fd00::/8"].map(|net| IpNet::read(net).unwrap()).into()
}

fn connect(limits: &Arc<ClientLimits>, from: &str) -> Result<Option<ClientPermit>, OverLimit> {
    limits.connect(from.parse().unwrap(), &fronts())
}

/// Returns the client of a request from an address, with the headers of a front.
fn limited(
    remote: &str,
    name: Option<&ClientName>,
    told: &[(&str, &str)],
) -> Option<LimitedClient> {
    let mut headers = HeaderMap::new();
    for (name, value) in told {
        let name: http::HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    limits(0, 1).client_of(remote.parse().unwrap(), name, &headers, &fronts())
}

/// Returns the name or address of the client of a request.
fn client(remote: &str, name: Option<&ClientName>, told: &[(&str, &str)]) -> String {
    let client = limited(remote, name, told);
    client.map_or_else(|| "none".to_owned(), |client| client.client.to_string())
}

/// Returns the client with an address.
fn asking(limits: &Arc<ClientLimits>, address: &str) -> LimitedClient {
    let client = CountedClient::Address(address.parse().unwrap());
    LimitedClient { client, besides: None, limits: Arc::clone(limits) }
}

#[test]
fn a_client_has_so_many_connections_and_others_have_theirs() {
    let limits = limits(2, 0);
    let first = connect(&limits, "203.0.113.7").unwrap();
    let _second = connect(&limits, "::ffff:203.0.113.7").unwrap();
    let refused = connect(&limits, "203.0.113.7").err().unwrap();
    assert_eq!(
        refused.to_string(),
        "this client has as many connections as it may: see max_client_connections of [server]"
    );
    assert!(connect(&limits, "203.0.113.8").is_ok());
    assert_eq!(limits.refused.each_ref().map(Counter::get), [1, 0, 0, 0, 0, 0]);
    drop(first);
    assert!(connect(&limits, "203.0.113.7").is_ok());
}

#[test]
fn an_entry_leaves_with_its_last_permit_also_where_the_limit_was_reached() {
    let limits = limits(1, 1);
    let asking = asking(&limits, "203.0.113.7");
    let permits = (connect(&limits, "203.0.113.7").unwrap(), asking.stream().unwrap());
    assert!(asking.stream().is_err() && connect(&limits, "203.0.113.7").is_err());
    // Requests being read may exceed the limit of streams by `spare`, because most of them end quickly.
    let reading = asking.reading(1).unwrap();
    assert!(asking.reading(1).is_err());
    assert_eq!(limits.lock().len(), 1);
    drop((permits, reading));
    assert!(limits.lock().is_empty());
}

#[test]
fn starts_of_children_are_remembered_for_a_minute_and_no_longer() {
    let limits = limits(1, 1);
    let asking = asking(&limits, "203.0.113.7");
    let one = asking.client.clone();
    for _ in 0..60 {
        drop(asking.child().unwrap());
    }
    // Each second makes room for one more start, and a slow machine may take some seconds for the first sixty.
    let refused = (0..60).find_map(|_| asking.child().err()).unwrap();
    assert_eq!(
        refused.to_string(),
        "this client has as many child starts as it may: see max_client_child_starts of [server]"
    );
    assert_eq!(limits.lock()[&one].counts, [0; 6]);
    let other = CountedClient::Address("203.0.113.8".parse().unwrap());
    limits.start(&other, Instant::now() + Duration::from_secs(120)).unwrap();
    assert!(!limits.lock().contains_key(&one));
}

#[test]
fn a_limit_of_zero_is_none() {
    let limits = limits(0, 0);
    for _ in 0..1000 {
        assert!(connect(&limits, "203.0.113.7").unwrap().is_none());
    }
    assert!(limits.lock().is_empty());
}

#[test]
fn loopback_and_fronts_are_not_limited_by_address() {
    let limits = limits(1, 1);
    for from in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3", "fd00::7"] {
        assert!(connect(&limits, from).unwrap().is_none(), "{from}");
        assert_eq!(client(from, None, &[]), "none");
    }
}

#[test]
fn the_addresses_of_one_house_are_one_client() {
    assert_eq!(client("2001:db8::1", None, &[]), "2001:db8::/64");
    assert_eq!(client("2001:db8::ffff:0:0:1", None, &[]), "2001:db8::/64");
    assert_eq!(client("2001:db8:0:1::1", None, &[]), "2001:db8:0:1::/64");
}

#[test]
fn a_front_names_the_client_and_nobody_else_does() {
    let told = [("x-forwarded-for", "6.6.6.6, 203.0.113.7, 10.0.0.2")];
    assert_eq!(client("10.0.0.1", None, &told), "203.0.113.7");
    assert_eq!(client("8.8.8.8", None, &told), "8.8.8.8");
    assert_eq!(client("127.0.0.1", None, &told), "none");
    let newer = [("forwarded", "for=6.6.6.6, for=\"[2001:db8::1]:80\";proto=http")];
    assert_eq!(client("10.0.0.1", None, &newer), "2001:db8::/64");
    // A client may have sent the header that the front does not write, which is nearly always the newer `Forwarded`.
    let both = [("forwarded", "for=6.6.6.6"), ("x-forwarded-for", "203.0.113.7:5060")];
    assert_eq!(client("10.0.0.1", None, &both), "203.0.113.7");
    for hidden in ["unknown", "10.0.0.9", "127.0.0.1", ""] {
        assert_eq!(client("10.0.0.1", None, &[("x-forwarded-for", hidden)]), "none", "{hidden}");
    }
}

#[test]
fn a_certificate_names_a_client_wherever_it_comes_from() {
    let made = rcgen::generate_simple_self_signed(vec!["ada.example.com".to_owned()]).unwrap();
    let ada = ClientName::of_certificate(made.cert.der());
    let token = [("authorization", "Bearer invented")];
    for from in ["8.8.8.8", "127.0.0.1", "2001:db8::1"] {
        assert_eq!(client(from, Some(&ada), &token), "dns:ada.example.com");
    }
    assert_eq!(client("8.8.8.8", None, &token), "8.8.8.8");
    // The certificate of a front does not name the front's client.
    assert_eq!(client("10.0.0.1", Some(&ada), &[]), "none");
}

#[test]
fn a_front_names_a_user_and_the_user_counts_wherever_the_front_saw_it() {
    let ada = ClientName::of_header(&"ada".parse().unwrap()).unwrap();
    let told = [("x-forwarded-for", "203.0.113.7"), ("authorization", "Bearer one")];
    assert_eq!(client("10.0.0.1", Some(&ada), &told), "header:ada");
    assert!(limited("10.0.0.1", Some(&ada), &told).unwrap().besides.is_none());
}

#[test]
fn credentials_have_limits_of_their_own_besides_the_address() {
    let one = [("authorization", "Bearer one")];
    let (limits, fronts) = (limits(0, 2), fronts());
    let of = |remote: &str, token: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, token.parse().unwrap());
        limits.client_of(remote.parse().unwrap(), None, &headers, &fronts)
    };
    // Over loopback, and from a front that names no client, all requests count as one client.
    for remote in ["127.0.0.1", "10.0.0.1"] {
        let client = limited(remote, None, &one).unwrap();
        assert!(
            client.client.to_string().starts_with("authorization:") && client.besides.is_none()
        );
        assert!(limited(remote, None, &[]).is_none());
    }
    let held: Vec<_> = ["127.0.0.1", "203.0.113.7"]
        .map(|remote| of(remote, "Bearer one").unwrap().stream().unwrap())
        .into();
    let refused = of("203.0.113.8", "Bearer one").unwrap().stream().err().unwrap();
    assert!(refused.client.to_string().starts_with("authorization:"));
    // Another value is another client over loopback, and nothing else at an address.
    let other = of("127.0.0.1", "Bearer two").unwrap().stream().unwrap();
    let second = of("203.0.113.7", "Bearer three").unwrap().stream().unwrap();
    let refused = of("203.0.113.7", "Bearer four").unwrap().stream().err().unwrap();
    assert_eq!(refused.client.to_string(), "203.0.113.7");
    drop((held, other, second));
    assert!(limits.lock().is_empty());
}
