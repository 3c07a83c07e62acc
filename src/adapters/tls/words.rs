//! Explains the errors of a TLS handshake to the person who has to fix them.

use std::{error::Error, io, sync::Arc};

use rustls::{AlertDescription, CertificateError};

/// Explains an error that was caused by a TLS error. Returns `None` for any other error.
pub fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    let mut error = Some(error);
    while let Some(this) = error {
        if let Some(tls) = this.downcast_ref::<rustls::Error>() {
            return Some(explain_tls(tls));
        }
        // The redis crate shares errors behind an `Arc`, whose source is the source of the error inside.
        if let Some(shared) = this.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            return explain(&**shared);
        }
        // The source of an I/O error is the source of the error inside, and not the error inside.
        if let Some(inner) = this.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            return explain(inner);
        }
        error = this.source();
    }
    None
}

/// Returns the innermost cause of an error: `connection refused` says more than `error sending request`. A TLS error is
/// explained.
#[cfg(feature = "internals")]
pub fn cause(error: &(dyn Error + 'static)) -> String {
    explain(error).unwrap_or_else(|| {
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        cause.to_string()
    })
}

/// Explains a TLS error.
fn explain_tls(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    match error {
        InvalidCertificate(wrong) => certificate(wrong),
        AlertReceived(alert) => refused(*alert),
        InvalidMessage(_) => "the server does not speak TLS; is it the right port?".to_owned(),
        other => format!("TLS: {other}"),
    }
}

fn certificate(wrong: &CertificateError) -> String {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    match wrong {
        // A CA of the same name with another key is another CA.
        UnknownIssuer | BadSignature => {
            "its certificate is not trusted: no authority that is trusted here has issued it".to_owned()
        }
        Expired | ExpiredContext { .. } => "its certificate has expired".to_owned(),
        NotValidYet | NotValidYetContext { .. } => "its certificate is not valid yet; is the clock right?".to_owned(),
        NotValidForName => "its certificate is for another host name".to_owned(),
        NotValidForNameContext { expected, presented } => {
            let names = if presented.is_empty() { "no name at all".to_owned() } else { presented.join(", ") };
            format!("its certificate is not for the host name {} but for {names}", expected.to_str())
        }
        other => {
            let said = other.to_string();
            if said.contains("CaUsedAsEndEntity") {
                return "its certificate is not trusted: it is a CA certificate, which no server may present"
                    .to_owned();
            }
            format!("its certificate is not trusted: {said}")
        }
    }
}

fn refused(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "it asks for a client certificate".to_owned(),
        // TLS 1.2 has no alert of its own for a missing client certificate.
        AlertDescription::HandshakeFailure => {
            "it refuses the handshake; does it ask for a client certificate?".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => format!("it does not accept the client certificate: {alert:?}"),
        other => format!("it refuses the handshake: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_error_is_found_among_the_causes() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls.clone()));
        let shared: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::other(tls));
        assert_eq!(explain(&shared), explain(&wrapped));
        assert!(explain(&wrapped).expect("found").contains("no authority that is trusted here"));
        assert_eq!(explain(&io::Error::other("something else")), None);
    }
}
