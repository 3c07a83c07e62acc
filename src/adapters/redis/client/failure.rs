//! Why a call to Redis has failed, and what follows from each failure.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{
    adapters::tls,
    domain::{trouble::Trouble, words::plain},
};

/// Why a call to Redis has failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// An error of Redis, or of the connection to it.
    Redis(RedisError),
    /// There was no answer within the limit. `connected` says whether there was a connection.
    Late { connected: bool },
    /// A master is gone, and no other server has taken its place yet.
    FailingOver(String),
    /// The sentinels know no master of this name.
    NoMaster,
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// How a node of a cluster redirects a call.
pub(super) enum Elsewhere {
    /// Another node, at this address, has the slot from now on (`MOVED`).
    Moved(String),
    /// Another node, at this address, takes this one call (`ASK`).
    Ask(String),
    /// The slot is moving between two nodes (`TRYAGAIN`).
    Later,
}

impl Failure {
    /// Returns the redirection, if this failure is one.
    pub(super) fn elsewhere(&self) -> Option<Elsewhere> {
        let Self::Redis(error) = self else { return None };
        let there = || error.redirect_node().map(|(host, _)| host.to_owned());
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => there().map(Elsewhere::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => there().map(Elsewhere::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Elsewhere::Later),
            _ => None,
        }
    }

    /// Returns the failure for a slot that is still moving when the limit is over.
    pub(super) fn on_its_way(&self, slot: u16) -> Self {
        let Self::Redis(error) = self else { return self.clone() };
        Self::FailingOver(format!("the hash slot {slot} is moving between two nodes: {error}"))
    }

    /// Returns the most telling of several servers' failures: the one that was nearest to an answer.
    pub(super) fn most_telling(failures: Vec<Self>) -> Self {
        let nearness = |failure: &Self| match failure {
            Self::FailingOver(_) => 3,
            Self::NoMaster => 2,
            Self::Redis(error) if !is_away(error) => 1,
            Self::Redis(_) | Self::Late { .. } => 0,
        };
        let nobody = || RedisError::from((ErrorKind::Io, "there is no server to ask")).into();
        failures.into_iter().max_by_key(nearness).unwrap_or_else(nobody)
    }

    /// Whether the failure is about this server, so that another one may have taken its place.
    pub(super) fn is_of_this_server(&self) -> bool {
        match self {
            Self::Redis(error) => {
                matches!(trouble(error), Some(Trouble::Away | Trouble::Busy | Trouble::ReadOnly | Trouble::FailingOver))
            }
            Self::Late { .. } => true,
            Self::FailingOver(_) | Self::NoMaster => false,
        }
    }

    /// Whether the connection cannot be used any more.
    pub(super) fn breaks_off(&self) -> bool {
        let Self::Redis(error) = self else { return true };
        match error.kind() {
            // A master that has become a replica answers, but this connection would always lead to that replica.
            ErrorKind::Server(kind) => kind == ServerErrorKind::ReadOnly,
            ErrorKind::Extension | ErrorKind::UnexpectedReturnType => false,
            _ => true,
        }
    }

    /// Whether a script has met a key whose value is not one of the register.
    pub(super) fn is_unreadable(&self) -> bool {
        let Self::Redis(error) = self else { return false };
        match error.code() {
            Some("WRONGTYPE") => true,
            // An error inside the script, which unpacks the value.
            Some("ERR") => error.detail().is_some_and(|detail| detail.starts_with("user_script:")),
            _ => false,
        }
    }

    /// Returns the names of the owner and of this broker, if a script says that another broker uses the register.
    pub(super) fn taken(&self) -> Option<(String, String)> {
        let Self::Redis(error) = self else { return None };
        let (by, here) = error.detail().filter(|_| error.code() == Some("TAKEN"))?.split_once('|')?;
        Some((plain(by).into_owned(), plain(here).into_owned()))
    }

    /// Returns the kind of trouble, if trying again may help, and the reason for people.
    pub(super) fn explain(&self, limit: Duration) -> (Option<Trouble>, String) {
        match self {
            Self::Redis(error) => match tls::explain(error) {
                Some(reason) => (Some(Trouble::Away), reason),
                None => (trouble(error), reason(error)),
            },
            Self::Late { connected: true } => (Some(Trouble::Slow), format!("no answer within {limit:?}")),
            Self::Late { connected: false } => (Some(Trouble::Away), format!("not connected within {limit:?}")),
            Self::FailingOver(reason) => (Some(Trouble::FailingOver), reason.clone()),
            Self::NoMaster => (None, "the sentinels know of no master of that name".to_owned()),
        }
    }
}

/// Whether the server cannot be reached. One whose certificate is wrong can be, and no other server will take its
/// place.
pub(super) fn is_away(error: &RedisError) -> bool {
    error.is_io_error() && tls::explain(error).is_none()
}

/// Returns the kind of trouble that an error means; `None` if Redis refuses this client.
fn trouble(error: &RedisError) -> Option<Trouble> {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse => Some(Trouble::Away),
        ErrorKind::Server(BusyLoading) => Some(Trouble::Busy),
        ErrorKind::Server(ClusterDown | MasterDown | TryAgain) => Some(Trouble::FailingOver),
        ErrorKind::Server(ReadOnly) => Some(Trouble::ReadOnly),
        _ => match error.code() {
            // Another client's script runs for a long time.
            Some("BUSY") => Some(Trouble::Busy),
            Some("OOM") => Some(Trouble::OutOfMemory),
            // An error of our own script: see `cancel.lua`.
            Some("LATE") => Some(Trouble::Slow),
            // The server cannot save to its disk, or has too few replicas to take writes.
            Some("MISCONF" | "NOREPLICAS") => Some(Trouble::ReadOnly),
            _ => None,
        },
    }
}

fn reason(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            format!("{error}; this server is a node of a Redis Cluster, whose URL begins with redis-cluster://")
        }
        // The answer may be pages of another protocol, so it is not quoted.
        ErrorKind::Parse => "it does not answer like Redis".to_owned(),
        // Of a client without a password Redis reads no long command, and calls that a fault of the protocol.
        _ if error.code() == Some("NOAUTH")
            || error.detail().is_some_and(|detail| detail.contains("unauthenticated")) =>
        {
            "it asks for a password, and the URL has none".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_answer_in_another_protocol_is_not_quoted() {
        let error = RedisError::from((ErrorKind::Parse, "invalid response", "HTTP/1.1 400\r\n\r\n<html>".to_owned()));
        let (trouble, said) = Failure::from(error).explain(Duration::from_secs(1));
        assert_eq!((trouble, said.as_str()), (Some(Trouble::Away), "it does not answer like Redis"));
    }

    #[test]
    fn a_wrong_certificate_is_more_telling_than_an_unreachable_server() {
        let wrong = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let away = || Failure::from(RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let told = Failure::most_telling(vec![away(), RedisError::from(io::Error::other(wrong)).into(), away()]);
        let (trouble, said) = told.explain(Duration::from_secs(1));
        assert_eq!(trouble, Some(Trouble::Away));
        assert!(said.contains("no authority that is trusted here"), "{said}");
    }
}
