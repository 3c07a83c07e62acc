//! The handlers of `topology work` and `topology dev`: a program ([`exec`]), or an HTTP service ([`http`]).

mod answer;
pub(crate) mod args;
pub mod exec;
pub(crate) mod fields;
pub mod http;

#[cfg(test)]
mod tests {
    use hatchery::{
        Run,
        internals::wire::{self, Incoming, Properties},
    };

    /// Returns a run of an event of the type `mail` with this payload.
    pub(crate) fn run(payload: &'static str) -> Run {
        let incoming =
            Incoming { routing_key: "mail.now".to_owned(), properties: Properties::default(), body: payload.into() };
        let event_type = "mail".parse().expect("a type");
        let event = wire::decode(&event_type, incoming, jiff::Timestamp::UNIX_EPOCH, || "id-1".to_owned());
        Run::of(event.expect("an event"))
    }
}
