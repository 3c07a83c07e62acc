//! The URL of a service, with its credentials.

use std::fmt;

use hatchery::internals::secret_url::SecretUrl;

/// The URL of a service. Only its scheme, host and port are shown: a webhook has its secret in the path or the query.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceUrl(pub(super) SecretUrl);

/// The error for a text that is not a URL of a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the URL of a service: {0}; it looks like http://host:8080/path")]
pub struct ServiceUrlError(String);

impl ServiceUrl {
    /// Reads a URL with the scheme `http` or `https`. A user in it, with or without a password, is for basic
    /// authentication.
    ///
    /// # Errors
    /// When the text is not such a URL. The message does not repeat the text, which may hold a password.
    pub fn new(text: &str) -> Result<Self, ServiceUrlError> {
        SecretUrl::parse(text, &["http", "https"]).map(Self).map_err(|fault| ServiceUrlError(fault.to_string()))
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.origin())
    }
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://host:8080/hooks?x=s3cret#y", "http://host:8080", None)]
    #[case("https://hooks.example.com/services/T0/s3cret", "https://hooks.example.com", None)]
    #[case("http://[::1]:8080/s3cret", "http://[::1]:8080", None)]
    #[case("https://host", "https://host", None)]
    #[case("https://ann:p%40s3cret@host/", "https://host", Some(("ann", Some("p@s3cret"))))]
    #[case("https://ann@host/", "https://host", Some(("ann", None)))]
    #[case("https://:s3cret@host/", "https://host", Some(("", Some("s3cret"))))]
    fn a_password_is_kept_and_never_shown(
        #[case] text: &str,
        #[case] shown: &str,
        #[case] user: Option<(&str, Option<&str>)>,
    ) {
        let url = ServiceUrl::new(text).expect("valid");
        assert_eq!(url.to_string(), shown);
        assert_eq!(url.0.has_credentials().then(|| (url.0.user(), url.0.password())), user);
        assert!(!format!("{url:?}").contains("s3cret") && !url.0.bare().as_str().contains('@'));
    }

    #[test]
    fn the_query_is_sent_although_it_is_not_shown() {
        assert_eq!(ServiceUrl::new("http://host/?a=b#c").expect("valid").0.bare().as_str(), "http://host/?a=b");
    }

    #[rstest]
    #[case("")]
    #[case("host/path")]
    #[case("http://")]
    #[case("ftp://u:s3cret@host/")]
    #[case("s3cret:8080/x")]
    #[case("http://u:s3cret@a/x;http://u:s3cret@b/x")]
    #[case("http://u:s3cret/s3cret@host/x")]
    #[case("http://u:80/s3cret@host/x")]
    #[case("http://u:s3cret@:80/")]
    #[case("http://u:s3cret@host:99999/")]
    fn an_invalid_url_is_refused_without_repeating_it(#[case] text: &str) {
        let error = ServiceUrl::new(text).expect_err("invalid").to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
