//! A certificate authority for the tests, and the certificates that it issues.

use std::{fs, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// A certificate authority, whose files are in a temporary folder.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// The files of a certificate and its key.
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::called("authority")
    }

    pub(crate) fn called(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, folder: TempDir::new().unwrap() };
        fs::write(authority.file(), authority.issuer.pem()).unwrap();
        authority
    }

    /// Returns the file of the authority's own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate for these host names.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) -> Certificate {
        self.write(name, &params(name, hosts))
    }

    /// Returns the options for a Redis at 127.0.0.1 that speaks TLS and asks no client for a certificate.
    pub(crate) fn redis_options(&self) -> Vec<String> {
        self.redis_options_for("127.0.0.1")
    }

    /// Returns the same options for a Redis whose certificate is for this host name.
    pub(crate) fn redis_options_for(&self, host: &str) -> Vec<String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let own = self.issue("redis", &[host]);
        let path = |path: PathBuf| path.display().to_string();
        let options = [
            ["--tls-ca-cert-file", &path(self.file())],
            ["--tls-cert-file", &path(own.chain)],
            ["--tls-key-file", &path(own.key)],
            ["--tls-auth-clients", "optional"],
        ];
        options.concat().into_iter().map(str::to_owned).collect()
    }

    /// Issues a certificate that has expired.
    pub(crate) fn issue_expired(&self, name: &str, hosts: &[&str]) -> Certificate {
        let mut params = params(name, hosts);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        self.write(name, &params)
    }

    fn write(&self, name: &str, params: &CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let file = |kind: &str, content: String| {
            let path = self.folder.path().join(format!("{name}.{kind}"));
            fs::write(&path, content).unwrap();
            path
        };
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certificate { chain: file("crt", chain), key: file("key", key.serialize_pem()) }
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    if !hosts.is_empty() || name == "client" {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    }
    params
}
