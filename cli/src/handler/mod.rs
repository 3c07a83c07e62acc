//! The handlers of `topology work`: a program ([`exec`]), or an HTTP service ([`http`]).

mod answer;
pub mod exec;
mod fields;
pub mod http;

use std::{
    error::Error,
    net::{Ipv6Addr, UdpSocket},
};

use rustix::io::Errno;

/// Whether the error, or a cause of it, is a momentary lack of processes, open files, memory or local ports on this
/// machine.
fn is_want_of_room(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.any(|cause| match cause.downcast_ref().and_then(Errno::from_io_error) {
        Some(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => true,
        Some(Errno::ADDRNOTAVAIL) => is_ipv6_there(),
        _ => false,
    })
}

/// Whether this machine has IPv6. Without it, connecting to `::1` fails with the error that otherwise means that no
/// local port is left. A service on `localhost` that is down would then never count as failed: `::1` is tried after
/// `127.0.0.1`, and only its error is seen.
fn is_ipv6_there() -> bool {
    UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io;

    use hatchery::{
        Run,
        internals::wire::{self, Incoming, Properties},
    };
    use rstest::rstest;

    use super::*;

    /// Returns a run of an event of the type `mail` with this payload.
    pub(crate) fn run(payload: &'static str) -> Run {
        let incoming =
            Incoming { routing_key: "mail.now".to_owned(), properties: Properties::default(), body: payload.into() };
        let event_type = "mail".parse().expect("a type");
        let event = wire::decode(&event_type, incoming, jiff::Timestamp::UNIX_EPOCH, || "id-1".to_owned());
        Run::of(event.expect("an event"))
    }

    #[rstest]
    #[case::processes(rustix::io::Errno::AGAIN, true)]
    #[case::open_files(rustix::io::Errno::MFILE, true)]
    #[case::open_files_of_all(rustix::io::Errno::NFILE, true)]
    #[case::memory(rustix::io::Errno::NOMEM, true)]
    #[case::local_ports(rustix::io::Errno::ADDRNOTAVAIL, is_ipv6_there())]
    #[case::buffers(rustix::io::Errno::NOBUFS, true)]
    #[case::no_service(rustix::io::Errno::CONNREFUSED, false)]
    #[case::no_program(rustix::io::Errno::NOENT, false)]
    #[case::not_executable(rustix::io::Errno::ACCESS, false)]
    fn only_a_lack_of_resources_is_temporary(#[case] error: rustix::io::Errno, #[case] passes: bool) {
        assert_eq!(is_want_of_room(&io::Error::from(error)), passes);
    }
}
