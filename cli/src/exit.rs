//! The exit codes, and the exit code of each error.

use std::{io::ErrorKind, process::ExitCode};

use hatchery::{
    BrokerError, ConnectError, EventsError, PublishError, ReadError, RegisterError, WorkError,
    internals::schedules::RepairError,
};
use hatchery_admin::{
    breakers::BreakersError,
    broker::declare::{DeclareCause, DeclareError},
    dead_letters::DeadLettersError,
    management::ManagementError,
    schedules::SchedulesError,
};

use crate::{args::UsageError, server::Declined};

/// How the process ends. The help of `topology` lists the codes, and the reference has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, or in sync.
    Done = 0,
    /// An error, an invalid file, or missing objects.
    Error = 1,
    /// Wrong usage, or approval is needed and there is no terminal to ask on.
    Usage = 2,
    /// Changes are pending (`--detailed-exitcode`).
    Pending = 3,
    /// The changes are blocked; nothing was written.
    Blocked = 4,
    /// A part is done, and the output lists the rest.
    Partly = 5,
    /// The broker or Redis is unreachable, or refuses access.
    Unreachable = 6,
    /// Somebody else holds the lock, or the plan is stale.
    Locked = 7,
}

#[cfg(test)]
impl Exit {
    /// Every code.
    pub(crate) const ALL: [Self; 8] = [
        Self::Done,
        Self::Error,
        Self::Usage,
        Self::Pending,
        Self::Blocked,
        Self::Partly,
        Self::Unreachable,
        Self::Locked,
    ];
}

/// An error that ends a verb with this exit code and this message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Ended {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// Returns the end of a verb that has done its work and could not write its answer.
    pub(crate) fn untold(error: impl Into<anyhow::Error>) -> anyhow::Error {
        Self::new(Exit::Partly, format!("{:#}", error.into())).into()
    }
}

const START: &str = "give the file's path with -f (TOPOLOGY_FILE), or create a file with `topology init`";
const AMQP: &str = "check --amqp-url (AMQP_URL): host, port, user, password and virtual host; with amqps also --ca-file, \
                    --cert-file and --key-file; if nothing answers: is the broker running?";
const REDIS: &str = "check --redis-url (REDIS_URL): host, port, user and password; whether it leads to one Redis, a Cluster or \
                     sentinels; with rediss also --ca-file, --cert-file and --key-file; if nothing answers: is Redis running?";
const MANAGEMENT: &str = "is the broker running? Check --management-url (RABBITMQ_MANAGEMENT_URL), with https also --ca-file, \
                          --cert-file and --key-file, and whether the broker's plugin rabbitmq_management is on";

impl Exit {
    /// Returns the exit code of an error, and advice for the user. The outermost error of the chain that has an exit
    /// code decides.
    pub(crate) fn of(error: &anyhow::Error) -> (Self, Option<&'static str>) {
        error.chain().find_map(Self::of_layer).unwrap_or((Self::Error, None))
    }

    fn of_layer(error: &(dyn std::error::Error + 'static)) -> Option<(Self, Option<&'static str>)> {
        if let Some(ended) = error.downcast_ref::<Ended>() {
            return Some((ended.exit, None));
        }
        if let Some(declined) = error.downcast_ref::<Declined>() {
            return Some(match declined {
                _ if declined.is_partly_done() => (Self::Partly, None),
                _ if declined.is_locked() => (Self::Locked, None),
                _ if declined.is_unreachable() => (Self::Unreachable, None),
                _ => (Self::Error, None),
            });
        }
        if let Some(declared) = error.downcast_ref::<DeclareError>() {
            return match &declared.cause {
                _ if declared.done > 0 => Some((Self::Partly, None)),
                DeclareCause::Blocked => Some((Self::Blocked, None)),
                DeclareCause::Broker(cause) => Self::of_layer(cause),
                DeclareCause::Management(cause) => Self::of_layer(cause),
            };
        }
        if let Some(ReadError::Io { source, .. }) = error.downcast_ref::<ReadError>() {
            let missing = source.kind() == ErrorKind::NotFound;
            return Some((Self::Error, missing.then_some(START)));
        }
        if let Some(broker) = error.downcast_ref::<BrokerError>() {
            return Some(match broker {
                BrokerError::Locked { .. } => (Self::Locked, None),
                BrokerError::Missing { .. }
                | BrokerError::Nacked { .. }
                | BrokerError::Unroutable { .. }
                | BrokerError::TooLarge { .. }
                | BrokerError::Stream { .. }
                | BrokerError::Unreadable { .. }
                | BrokerError::Closed => (Self::Error, None),
                BrokerError::Unreachable { .. } | BrokerError::Refused { .. } => (Self::Unreachable, Some(AMQP)),
                _ => (Self::Unreachable, None),
            });
        }
        // These errors are transparent: they show the inner error's text and skip it in the chain of sources.
        match error.downcast_ref::<ConnectError>() {
            Some(ConnectError::Broker(cause)) => return Self::of_layer(cause),
            Some(ConnectError::Register(cause)) => return Self::of_layer(cause),
            _ => {}
        }
        match error.downcast_ref::<WorkError>() {
            Some(WorkError::Broker(cause)) => return Self::of_layer(cause),
            Some(WorkError::Register(cause)) => return Self::of_layer(cause),
            _ => {}
        }
        match error.downcast_ref::<EventsError>() {
            Some(EventsError::Register(cause)) => return Self::of_layer(cause),
            Some(EventsError::Publish(cause)) => return Self::of_layer(cause).or(Some((Self::Unreachable, None))),
            Some(EventsError::Alone { .. }) => return Some((Self::Usage, None)),
            Some(_) | None => {}
        }
        match error.downcast_ref::<DeadLettersError>() {
            Some(DeadLettersError::Broker(cause)) => return Self::of_layer(cause),
            Some(DeadLettersError::Register(cause)) => return Self::of_layer(cause),
            Some(DeadLettersError::Publish(cause)) => return Self::of_layer(cause),
            Some(_) | None => {}
        }
        match error.downcast_ref::<BreakersError>() {
            Some(BreakersError::Register(cause)) => return Self::of_layer(cause),
            Some(BreakersError::UnknownType(_) | BreakersError::NoBreaker(_) | BreakersError::NotShared(_)) => {
                return Some((Self::Usage, None));
            }
            Some(_) | None => {}
        }
        match error.downcast_ref::<SchedulesError>() {
            Some(SchedulesError::Unknown { .. }) => return Some((Self::Usage, None)),
            Some(SchedulesError::Repair(RepairError::Register(cause))) => return Self::of_layer(cause),
            Some(SchedulesError::Repair(RepairError::Publish(cause))) => {
                return Self::of_layer(cause).or(Some((Self::Unreachable, None)));
            }
            Some(_) | None => {}
        }
        if let Some(PublishError::Broker(cause)) = error.downcast_ref::<PublishError>() {
            return Self::of_layer(cause);
        }
        if let Some(PublishError::Timeout) = error.downcast_ref::<PublishError>() {
            return Some((Self::Unreachable, None));
        }
        match error.downcast_ref::<ManagementError>() {
            Some(ManagementError::Unreachable { .. }) => return Some((Self::Unreachable, Some(MANAGEMENT))),
            // The message itself holds the advice.
            Some(_) => return Some((Self::Unreachable, None)),
            None => {}
        }
        match error.downcast_ref::<RegisterError>() {
            Some(RegisterError::InUse { .. }) => return Some((Self::Blocked, None)),
            Some(RegisterError::Unreadable { .. }) => return Some((Self::Unreachable, None)),
            Some(_) => return Some((Self::Unreachable, Some(REDIS))),
            None => {}
        }
        error.is::<UsageError>().then_some((Self::Usage, None))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use rstest::rstest;

    use super::*;

    fn broker() -> BrokerError {
        BrokerError::Unreachable { url: "amqp://h".into(), reason: "gone".into() }
    }

    fn declared(done: usize) -> anyhow::Error {
        DeclareError { done, left: Vec::new(), cause: DeclareCause::Broker(broker()) }.into()
    }

    #[rstest]
    #[case(anyhow::anyhow!("x"), Exit::Error)]
    #[case(broker().into(), Exit::Unreachable)]
    #[case(Err::<(), _>(broker()).context("while").expect_err("error"), Exit::Unreachable)]
    #[case(ConnectError::from(broker()).into(), Exit::Unreachable)]
    #[case(WorkError::from(broker()).into(), Exit::Unreachable)]
    #[case(PublishError::from(broker()).into(), Exit::Unreachable)]
    #[case(PublishError::Timeout.into(), Exit::Unreachable)]
    #[case(BrokerError::Locked { object: "x".into() }.into(), Exit::Locked)]
    #[case(BrokerError::Missing { object: "x".into() }.into(), Exit::Error)]
    #[case(BrokerError::Stream { object: "x".into() }.into(), Exit::Error)]
    #[case(declared(0), Exit::Unreachable)]
    #[case(declared(1), Exit::Partly)]
    #[case(Ended::new(Exit::Blocked, "x").into(), Exit::Blocked)]
    #[case(UsageError("x".into()).into(), Exit::Usage)]
    fn an_error_has_one_exit_code(#[case] error: anyhow::Error, #[case] expected: Exit) {
        assert_eq!(Exit::of(&error).0, expected);
    }
}
