//! Why a call had no answer, and what that means.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{
    adapters::tls,
    domain::{trouble::Trouble, words::plain},
};

/// Why a call had no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// What Redis, or the way to it, has said.
    Redis(RedisError),
    /// Nothing was said within the limit, by a server that we are connected to or not.
    Late { connected: bool },
    /// A master is gone, and nobody has taken its place yet.
    FailingOver(String),
    /// The sentinels know of no such master.
    NoMaster,
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// Where a node of a cluster sends us instead.
pub(super) enum Elsewhere {
    /// That is where the slot is from now on.
    Moved(String),
    /// That is where this call goes, and the next one does not.
    Ask(String),
    /// The slot is on its way between two nodes.
    Later,
}

impl Failure {
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

    /// A slot whose place is not settled before the limit is over.
    pub(super) fn on_its_way(&self, slot: u16) -> Self {
        let Self::Redis(error) = self else { return self.clone() };
        Self::FailingOver(format!("the hash slot {slot} is on its way between two nodes: {error}"))
    }

    /// Of what several said, that which is the nearest to an answer.
    pub(super) fn most_telling(failures: Vec<Self>) -> Self {
        let nearness = |failure: &Self| match failure {
            Self::FailingOver(_) => 3,
            Self::NoMaster => 2,
            Self::Redis(error) if !is_away(error) => 1,
            Self::Redis(_) | Self::Late { .. } => 0,
        };
        let nobody = || RedisError::from((ErrorKind::Io, "there is nobody to ask")).into();
        failures.into_iter().max_by_key(nearness).unwrap_or_else(nobody)
    }

    /// Whether it is about this server, so that another one may have taken its place.
    pub(super) fn is_of_this_server(&self) -> bool {
        match self {
            Self::Redis(error) => {
                matches!(trouble(error), Some(Trouble::Away | Trouble::Busy | Trouble::ReadOnly | Trouble::FailingOver))
            }
            Self::Late { .. } => true,
            Self::FailingOver(_) | Self::NoMaster => false,
        }
    }

    /// Whether the connection is of no use any more.
    pub(super) fn breaks_off(&self) -> bool {
        let Self::Redis(error) = self else { return true };
        match error.kind() {
            // A server that has become a replica has answered, but asking again by the same connection would meet the same one.
            ErrorKind::Server(kind) => kind == ServerErrorKind::ReadOnly,
            ErrorKind::Extension | ErrorKind::UnexpectedReturnType => false,
            _ => true,
        }
    }

    /// Whether a script has met a key that holds something else than it has to.
    pub(super) fn is_unreadable(&self) -> bool {
        let Self::Redis(error) = self else { return false };
        match error.code() {
            Some("WRONGTYPE") => true,
            // An error of the script itself, which unpacks what is there.
            Some("ERR") => error.detail().is_some_and(|detail| detail.starts_with("user_script:")),
            _ => false,
        }
    }

    /// The two brokers' names, where a script says that the register is in use by another one.
    pub(super) fn taken(&self) -> Option<(String, String)> {
        let Self::Redis(error) = self else { return None };
        let (by, here) = error.detail().filter(|_| error.code() == Some("TAKEN"))?.split_once('|')?;
        Some((plain(by).into_owned(), plain(here).into_owned()))
    }

    /// In one word, where trying again may help, and in words.
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

/// Whether nobody is there. One whose certificate does not fit is, and no other will take its place.
pub(super) fn is_away(error: &RedisError) -> bool {
    error.is_io_error() && tls::explain(error).is_none()
}

/// What an error means; none where this client is refused.
fn trouble(error: &RedisError) -> Option<Trouble> {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse => Some(Trouble::Away),
        ErrorKind::Server(BusyLoading) => Some(Trouble::Busy),
        ErrorKind::Server(ClusterDown | MasterDown | TryAgain) => Some(Trouble::FailingOver),
        ErrorKind::Server(ReadOnly) => Some(Trouble::ReadOnly),
        _ => match error.code() {
            // A script of somebody else's runs for long.
            Some("BUSY") => Some(Trouble::Busy),
            Some("OOM") => Some(Trouble::OutOfMemory),
            // Our own script's: see `cancel.lua`.
            Some("LATE") => Some(Trouble::Slow),
            // It cannot save, or has too few replicas to write.
            Some("MISCONF" | "NOREPLICAS") => Some(Trouble::ReadOnly),
            _ => None,
        },
    }
}

fn reason(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            format!("{error}; it is a node of a Redis Cluster, whose address begins with redis-cluster://")
        }
        // What it says instead may be pages of another protocol.
        ErrorKind::Parse => "it does not answer like Redis".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn who_is_not_redis_is_not_quoted() {
        let error = RedisError::from((ErrorKind::Parse, "invalid response", "HTTP/1.1 400\r\n\r\n<html>".to_owned()));
        let (trouble, said) = Failure::from(error).explain(Duration::from_secs(1));
        assert_eq!((trouble, said.as_str()), (Some(Trouble::Away), "it does not answer like Redis"));
    }

    #[test]
    fn a_certificate_that_does_not_fit_tells_more_than_somebody_who_is_away() {
        let wrong = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let away = || Failure::from(RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let told = Failure::most_telling(vec![away(), RedisError::from(io::Error::other(wrong)).into(), away()]);
        let (trouble, said) = told.explain(Duration::from_secs(1));
        assert_eq!(trouble, Some(Trouble::Away));
        assert!(said.contains("no authority that is trusted here"), "{said}");
    }
}
