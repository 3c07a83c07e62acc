//! Requests without a token: only from this machine, and not from a page of another site that a browser on it shows.
//!
//! Such a page can send requests to a port of this machine. If its name leads to 127.0.0.1 (DNS rebinding), the browser takes
//! them for requests of the page's own site, and shows it the answers. But the header Host has that name then.

use axum::http::{
    HeaderMap, StatusCode,
    header::{HOST, ORIGIN},
};

use crate::problem::Problem;

/// Fails unless a request is meant for this machine by the name that it gives it.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |detail: &str| Problem::new(StatusCode::FORBIDDEN, detail);
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok().filter(|host| is_loopback(host)),
        _ => None,
    };
    let Some(host) = host else {
        return Err(refused(
            "without tokens only this machine is answered, and the header Host has another name for it",
        ));
    };
    let own = format!("http://{host}");
    if headers.get_all(ORIGIN).iter().any(|origin| !origin.as_bytes().eq_ignore_ascii_case(own.as_bytes())) {
        return Err(refused("without tokens a page of another site is not answered"));
    }
    Ok(())
}

/// Returns whether this is a name of the loopback interface, with or without a port.
fn is_loopback(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return is_port(port) && address.parse().is_ok_and(|address: std::net::Ipv6Addr| address.is_loopback());
    }
    let (name, port) = host.find(':').map_or((host, ""), |at| host.split_at(at));
    let is_address = || name.parse().is_ok_and(|address: std::net::Ipv4Addr| address.is_loopback());
    is_port(port) && (name.eq_ignore_ascii_case("localhost") || is_address())
}

/// Returns whether this is nothing, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use rstest::rstest;

    use super::*;

    fn is_answered(headers: &[(HeaderName, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_static(value));
        }
        check(&map).is_ok()
    }

    #[rstest]
    #[case("localhost", true)]
    #[case("LOCALHOST:8080", true)]
    #[case("127.0.0.1:8080", true)]
    #[case("127.8.8.8", true)]
    #[case("[::1]:8080", true)]
    #[case("[::1]", true)]
    #[case("", false)]
    #[case("evil.example", false)]
    #[case("localhost.evil.example:8080", false)]
    #[case("127.0.0.1.evil.example", false)]
    #[case("evil.example:80@localhost", false)]
    #[case("localhost:80@evil.example", false)]
    #[case("10.0.0.1:8080", false)]
    #[case("0.0.0.0:8080", false)]
    #[case("[::]:8080", false)]
    #[case("[::1", false)]
    #[case("[::1]x", false)]
    fn a_host_is_answered_if_it_names_this_machine(#[case] host: &'static str, #[case] expected: bool) {
        assert_eq!(is_answered(&[(HOST, host)]), expected);
    }

    #[rstest]
    #[case("http://localhost:8080", true)]
    #[case("http://localhost:8081", false)]
    #[case("https://localhost:8080", false)]
    #[case("http://evil.example", false)]
    #[case("null", false)]
    fn a_page_of_another_site_is_not_answered(#[case] origin: &'static str, #[case] expected: bool) {
        assert_eq!(is_answered(&[(HOST, "localhost:8080"), (ORIGIN, origin)]), expected);
    }

    #[test]
    fn a_request_names_its_host_once() {
        assert!(!is_answered(&[]));
        assert!(!is_answered(&[(HOST, "localhost"), (HOST, "evil.example")]));
    }
}
