//! The ways that RabbitMQ itself moves an event: from a queue to its dead-letter exchange, on by bindings and alternates.

use std::collections::HashMap;

use super::super::compile::{Desired, Target};

/// The next places of each place.
type Steps<'a> = HashMap<Place<'a>, Vec<Place<'a>>>;

/// Where an event is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place<'a> {
    Exchange(&'a str),
    Queue(&'a str),
}

impl<'a> Place<'a> {
    const fn name(self) -> &'a str {
        match self {
            Self::Exchange(name) | Self::Queue(name) => name,
        }
    }
}

/// A circle, from a place back to itself. Keys are not looked at, nor why a queue would dead-letter: a circle that no key
/// takes today is refused as well.
pub(super) fn circle(desired: &Desired) -> Option<Vec<String>> {
    let steps = steps(desired);
    let next = |place| steps.get(&place).map_or(&[][..], Vec::as_slice).iter().copied();
    let mut left_for_good: HashMap<Place<'_>, bool> = HashMap::new();
    for queue in &desired.queues {
        let start = Place::Queue(&queue.name);
        if left_for_good.contains_key(&start) {
            continue;
        }
        left_for_good.insert(start, false);
        // Depth first, with a stack of its own: nobody knows how long a way is.
        let mut way = vec![(start, next(start))];
        while let Some((place, rest)) = way.last_mut() {
            let Some(after) = rest.next() else {
                left_for_good.insert(*place, true);
                way.pop();
                continue;
            };
            match left_for_good.get(&after) {
                Some(true) => {}
                Some(false) => {
                    let since = way.iter().skip_while(|(place, _)| *place != after).map(|(place, _)| *place);
                    return Some(since.chain([after]).map(|place| place.name().to_owned()).collect());
                }
                None => {
                    left_for_good.insert(after, false);
                    way.push((after, next(after)));
                }
            }
        }
    }
    None
}

fn steps(desired: &Desired) -> Steps<'_> {
    let mut steps = Steps::new();
    for queue in &desired.queues {
        if let Some(exchange) = queue.arguments.get("x-dead-letter-exchange").and_then(|to| to.as_text()) {
            steps.entry(Place::Queue(&queue.name)).or_default().push(Place::Exchange(exchange));
        }
    }
    for binding in &desired.bindings {
        let target = match &binding.target {
            Target::Exchange(name) => Place::Exchange(name),
            Target::Queue(name) => Place::Queue(name),
        };
        steps.entry(Place::Exchange(&binding.source)).or_default().push(target);
    }
    for exchange in &desired.exchanges {
        if let Some(alternate) = exchange.arguments.get("alternate-exchange").and_then(|to| to.as_text()) {
            steps.entry(Place::Exchange(&exchange.name)).or_default().push(Place::Exchange(alternate));
        }
    }
    steps
}
