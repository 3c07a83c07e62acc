//! TLS settings: the trusted CA certificates and the client certificate. The same settings apply to the broker, its
//! management API and Redis.

mod words;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

#[cfg(feature = "internals")]
pub use self::words::cause;
pub use self::words::explain;
use super::bounded_file::{self, SMALL};

/// The CA certificates that are trusted, and the client certificate for a server that asks for one.
///
/// The settings apply to URLs with the scheme `amqps` or `rediss`, so the broker and Redis share them. By default the
/// CA certificates of the system are trusted, and there is no client certificate.
///
/// These functions report an invalid certificate or key at once, before a connection is opened. Files are read again before
/// each connection, because certificates are renewed. Files that cannot be used leave the settings as they were.
///
/// ```no_run
/// # async fn example(topology: hatchery::Topology) -> Result<(), Box<dyn std::error::Error>> {
/// use hatchery::{Hatchery, Tls};
///
/// let tls = Tls::default()
///     .trust_file("/etc/payroll/ca.pem")?
///     .identify_files("/etc/payroll/tls.crt", "/etc/payroll/tls.key")?;
/// let hatchery = Hatchery::builder(topology)
///     .amqp_url("amqps://rabbit.internal/prod")
///     .redis_url("rediss://redis.internal")
///     .tls(tls)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Option<Arc<[u8]>>,
    identity: Option<Arc<Identity>>,
    /// The files that they are from.
    authorities_file: Option<PathBuf>,
    identity_files: Option<(PathBuf, PathBuf)>,
    /// Built when first needed, because a program that uses no TLS does not need the system's certificates.
    config: Arc<OnceLock<Result<Arc<ClientConfig>, TlsError>>>,
    /// The settings since the files have changed. Clones share it.
    renewed: Arc<Mutex<Option<Box<Tls>>>>,
}

/// A client certificate with its chain, and its key, both in PEM.
#[derive(PartialEq)]
struct Identity {
    chain: Vec<u8>,
    key: Vec<u8>,
}

/// Why certificates cannot be used. No error has a key in it.
///
/// ```
/// use hatchery::{Tls, TlsError};
///
/// let missing = Tls::default().trust_file("/nonexistent/ca.pem").expect_err("no such file");
/// assert!(matches!(&missing, TlsError::File { path, .. } if path.ends_with("ca.pem")));
/// assert!(missing.to_string().starts_with("cannot read /nonexistent/ca.pem: "));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A text or a file has no CA certificate that can be used.
    #[error("no CA certificate in {what}: {reason}")]
    Authorities {
        /// The text or the file.
        what: String,
        /// The cause.
        reason: String,
    },
    /// The client certificate or its key is not valid, or they do not belong together.
    #[error("the client certificate cannot be used: {0}")]
    Identity(String),
    /// A client certificate is given without its key, or a key without its certificate.
    #[error("a client certificate and its key go together, and one of them is missing")]
    Half,
    /// The system has no CA certificates, and none are given instead.
    #[error("this system has no CA certificates ({0}); name a file that has them")]
    NoSystemRoots(String),
}

impl Tls {
    /// Trusts these CA certificates instead of the system's. The text has one or more certificates in PEM.
    ///
    /// # Errors
    /// When there is no certificate, or one cannot be parsed ([`TlsError::Authorities`]).
    ///
    /// ```
    /// # let authority = rcgen::generate_simple_self_signed(["rabbit.internal".to_owned()])?;
    /// # let from_a_secret_store = || authority.cert.pem();
    /// use hatchery::{Tls, TlsError};
    ///
    /// let pem: String = from_a_secret_store();
    /// let tls = Tls::default().trust(pem)?;
    /// assert!(matches!(tls.trust("-----BEGIN"), Err(TlsError::Authorities { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trust(self, authorities: impl Into<Vec<u8>>) -> Result<Self, TlsError> {
        self.trust_from(authorities.into(), "the text")
    }

    /// Trusts the CA certificates in a file, as [`trust`](Self::trust) does.
    ///
    /// # Errors
    /// When the file cannot be read ([`TlsError::File`]), or for a reason of [`trust`](Self::trust).
    ///
    /// ```no_run
    /// let tls = hatchery::Tls::default().trust_file("/etc/ssl/certs/company.pem")?;
    /// # Ok::<(), hatchery::TlsError>(())
    /// ```
    pub fn trust_file(self, path: impl AsRef<Path>) -> Result<Self, TlsError> {
        let path = path.as_ref();
        let trusting = self.trust_from(read(path)?, &path.display().to_string())?;
        Ok(Self { authorities_file: Some(path.to_owned()), ..trusting })
    }

    /// Presents this client certificate to a server that asks for one. `chain` has the certificate and its intermediate
    /// certificates, `key` its private key, all in PEM. An encrypted key cannot be used.
    ///
    /// # Errors
    /// When the certificate or the key cannot be parsed, or they do not belong together ([`TlsError::Identity`]).
    ///
    /// ```
    /// # let own = rcgen::generate_simple_self_signed(["payroll".to_owned()])?;
    /// # let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    /// # let of_another = rcgen::KeyPair::generate()?.serialize_pem();
    /// use hatchery::{Tls, TlsError};
    ///
    /// let tls = Tls::default().identify(certificate.as_str(), key)?;
    /// assert!(matches!(tls.identify(certificate, of_another), Err(TlsError::Identity(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identify(self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Result<Self, TlsError> {
        let identity = Identity { chain: chain.into(), key: key.into() };
        // Reports now whether the certificate or the key is invalid.
        identity.add_to(RootCertStore::empty())?;
        let (identity, identity_files) = (Some(Arc::new(identity)), None);
        Ok(Self { identity, identity_files, config: Arc::default(), renewed: Arc::default(), ..self })
    }

    /// Presents the client certificate in two files, as [`identify`](Self::identify) does.
    ///
    /// # Errors
    /// When a file cannot be read ([`TlsError::File`]), or for a reason of [`identify`](Self::identify).
    ///
    /// ```no_run
    /// use hatchery::Tls;
    ///
    /// let tls = Tls::default().identify_files("/etc/payroll/tls.crt", "/etc/payroll/tls.key")?;
    /// # Ok::<(), hatchery::TlsError>(())
    /// ```
    pub fn identify_files(self, chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, TlsError> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        let identified = self.identify(read(chain)?, read(key)?)?;
        Ok(Self { identity_files: Some((chain.to_owned(), key.to_owned())), ..identified })
    }

    fn trust_from(self, authorities: Vec<u8>, what: &str) -> Result<Self, TlsError> {
        roots(&authorities).map_err(|reason| TlsError::Authorities { what: what.to_owned(), reason })?;
        let (authorities, authorities_file) = (Some(authorities.into()), None);
        Ok(Self { authorities, authorities_file, config: Arc::default(), renewed: Arc::default(), ..self })
    }

    /// Returns the settings of the files as they are now.
    fn now(&self) -> Self {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = renewed.as_deref().unwrap_or(self).clone();
        match before.read_again() {
            Ok(None) => before,
            Ok(Some(now)) => {
                *renewed = Some(Box::new(now.clone()));
                now
            }
            // The handshake tells whether they are still good.
            Err(error) => {
                tracing::debug!(%error, "the certificates stay as they were");
                before
            }
        }
    }

    /// Reads the files again. `None` if they are the same.
    fn read_again(&self) -> Result<Option<Self>, TlsError> {
        let mut now = self.clone();
        let may_change = |path: &PathBuf| bounded_file::may_change(path);
        if let Some(path) = self.authorities_file.as_ref().filter(|path| may_change(path)) {
            now = now.trust_file(path)?;
        }
        if let Some((chain, key)) = self.identity_files.as_ref().filter(|(one, two)| may_change(one) && may_change(two))
        {
            now = now.identify_files(chain, key)?;
        }
        let is_same = now.authorities == self.authorities && now.identity == self.identity;
        Ok((!is_same).then_some(now))
    }

    /// Returns the question to ask when a server closes a connection right after the handshake. With TLS 1.3 a server
    /// reports only then that it refuses the client, and often too late to be read.
    #[must_use]
    pub fn doubt(&self) -> &'static str {
        match self.identity {
            Some(_) => "does it accept the client certificate?",
            None => "does it ask for a client certificate?",
        }
    }

    /// Returns the configuration of a TLS client.
    ///
    /// # Errors
    /// When no CA certificates are given and the system has none ([`TlsError::NoSystemRoots`]).
    pub fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let now = self.now();
        now.config.get_or_init(|| now.make()).clone()
    }

    fn make(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = match &self.authorities {
            Some(pem) => roots(pem).map_err(|reason| TlsError::Authorities { what: "the text".to_owned(), reason })?,
            None => system_roots()?,
        };
        match &self.identity {
            Some(identity) => identity.add_to(roots).map(Arc::new),
            None => Ok(Arc::new(builder()?.with_root_certificates(roots).with_no_client_auth())),
        }
    }

    /// Returns the certificates for the redis crate, which parses PEM by itself; `None` where nothing but the defaults
    /// is set.
    pub fn redis(&self) -> Option<redis::TlsCertificates> {
        let now = self.now();
        if now.authorities.is_none() && now.identity.is_none() {
            return None;
        }
        Some(redis::TlsCertificates {
            root_cert: now.authorities.as_deref().map(<[u8]>::to_vec),
            client_tls: now.identity.as_ref().map(|identity| redis::ClientTlsConfig {
                client_cert: identity.chain.clone(),
                client_key: identity.key.clone(),
            }),
        })
    }
}

impl Identity {
    fn add_to(&self, roots: RootCertStore) -> Result<ClientConfig, TlsError> {
        let chain = CertificateDer::pem_slice_iter(&self.chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| TlsError::Identity(format!("its certificate: {error}")))?;
        if chain.is_empty() {
            return Err(TlsError::Identity("there is no certificate in PEM".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| TlsError::Identity(format!("its key, which may not be encrypted: {error}")))?;
        let config = builder()?.with_root_certificates(roots).with_client_auth_cert(chain, key);
        config.map_err(|error| TlsError::Identity(error.to_string()))
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // This does not fail, because ring has all that these versions need.
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Identity(error.to_string()))
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is nothing in PEM".to_owned()) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or_else(|| "none were found".to_owned(), ToString::to_string);
        return Err(TlsError::NoSystemRoots(reason));
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    bounded_file::read(path, SMALL).map_err(|error| TlsError::File { path: path.to_owned(), reason: error.to_string() })
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("own_authorities", &self.authorities.is_some())
            .field("client_certificate", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_text_that_is_not_a_certificate_is_reported() {
        let error = Tls::default().trust("nothing").expect_err("no PEM").to_string();
        assert!(error.contains("nothing in PEM"), "{error}");
        let error = Tls::default().trust_file("/nonexistent/ca.pem").expect_err("no file").to_string();
        assert!(error.contains("/nonexistent/ca.pem"), "{error}");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(Tls::default().trust(broken), Err(TlsError::Authorities { .. })));
    }

    #[test]
    fn a_file_that_is_too_large_for_certificates_is_not_read() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("ca.pem");
        fs::write(&path, vec![b'\n'; (1 << 20) + 1]).expect("written");
        let error = Tls::default().trust_file(&path).expect_err("it is too large").to_string();
        assert!(error.contains("ca.pem: it has more than 1 MiB"), "{error}");
    }

    #[test]
    fn files_that_change_are_read_again_and_those_that_cannot_be_used_are_not() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let write = |name: &str, text: String| fs::write(file(name), text).expect("written");
        let renew = || {
            let own = rcgen::generate_simple_self_signed(["payroll".to_owned()]).expect("a certificate");
            write("ca", own.cert.pem());
            write("chain", own.cert.pem());
            write("key", own.signing_key.serialize_pem());
            own.cert.pem().into_bytes()
        };
        let first = renew();
        let tls = Tls::default().trust_file(file("ca")).and_then(|tls| tls.identify_files(file("chain"), file("key")));
        let tls = tls.expect("valid");
        let of_redis = |tls: &Tls| {
            let now = tls.redis().expect("certificates");
            (now.root_cert.expect("an authority"), now.client_tls.expect("a certificate").client_cert)
        };
        let config = |tls: &Tls| tls.client().expect("a configuration");
        assert_eq!(of_redis(&tls), (first.clone(), first));
        let before = config(&tls);
        assert!(Arc::ptr_eq(&before, &config(&tls)));
        let second = renew();
        assert_eq!(of_redis(&tls.clone()), (second.clone(), second.clone()));
        let after = config(&tls);
        assert!(!Arc::ptr_eq(&before, &after));
        // The key is written after its certificate.
        write("key", rcgen::KeyPair::generate().expect("a key").serialize_pem());
        assert_eq!(of_redis(&tls), (second.clone(), second));
        assert!(Arc::ptr_eq(&after, &config(&tls)));
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        let error = Tls::default().identify(key, key).expect_err("no certificate");
        assert!(!format!("{error} {error:?}").contains("c2VjcmV0"), "{error:?}");
    }
}
