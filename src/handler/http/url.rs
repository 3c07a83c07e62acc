//! Where a service is, and who asks.

use std::fmt;

use url::Url;

/// Where a service is. It is shown without its password, and without its query, which may hold a secret as well.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceUrl {
    pub(super) url: Url,
    /// The user and the password of basic authentication.
    pub(super) user: Option<(String, Option<String>)>,
}

/// A text that is no URL of a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the URL of a service: {0}; it looks like http://host:8080/path")]
pub struct ServiceUrlError(String);

impl ServiceUrl {
    /// Reads a URL with the scheme `http` or `https`. A user in it, with a password or without, is for basic
    /// authentication.
    ///
    /// # Errors
    /// When it is none. The message does not repeat the text, for it may hold a password.
    pub fn new(text: &str) -> Result<Self, ServiceUrlError> {
        let mut url = Url::parse(text).map_err(|error| ServiceUrlError(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ServiceUrlError("the scheme is neither `http` nor `https`".to_owned()));
        }
        let plain = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let named = !url.username().is_empty() || url.password().is_some();
        let user = named.then(|| (plain(url.username()), url.password().map(plain)));
        // Refused for URLs without a host alone, and http has one.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        Ok(Self { url, user })
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.url))
    }
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceUrl({self})")
    }
}

/// A URL without what may be secret.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://host:8080/hooks?x=s3cret#y", "http://host:8080/hooks", None)]
    #[case("https://host", "https://host/", None)]
    #[case("https://ann:p%40s3cret@host/", "https://host/", Some(("ann", Some("p@s3cret"))))]
    #[case("https://ann@host/", "https://host/", Some(("ann", None)))]
    #[case("https://:s3cret@host/", "https://host/", Some(("", Some("s3cret"))))]
    fn a_password_is_kept_and_never_shown(
        #[case] text: &str,
        #[case] shown: &str,
        #[case] user: Option<(&str, Option<&str>)>,
    ) {
        let url = ServiceUrl::new(text).expect("valid");
        assert_eq!(url.to_string(), shown);
        let user = user.map(|(user, password)| (user.to_owned(), password.map(str::to_owned)));
        assert_eq!(url.user, user);
        assert!(!format!("{url:?}").contains("s3cret") && url.url.username().is_empty());
    }

    #[test]
    fn the_query_is_asked_for_all_the_same() {
        assert_eq!(ServiceUrl::new("http://host/?a=b#c").expect("valid").url.as_str(), "http://host/?a=b");
    }

    #[rstest]
    #[case("")]
    #[case("host/path")]
    #[case("http://")]
    #[case("ftp://u:s3cret@host/")]
    #[case("s3cret:8080/x")]
    #[case("http://u:s3cret@:80/")]
    #[case("http://u:s3cret@host:99999/")]
    fn what_is_no_such_url_is_refused_without_repeating_it(#[case] text: &str) {
        let error = ServiceUrl::new(text).expect_err("invalid").to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
