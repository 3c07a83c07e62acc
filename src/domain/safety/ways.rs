//! Searches for cycles in which RabbitMQ itself could move an event: from a queue to its dead-letter exchange, and on
//! by bindings and alternate exchanges.

use std::collections::{BTreeSet, HashMap};

use super::super::desired::{Argument, Desired, Target};

/// For each place, the places that RabbitMQ may move an event to from there.
type Steps<'a> = HashMap<Vertex<'a>, Vec<Vertex<'a>>>;

/// An exchange or a queue, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Vertex<'a> {
    Exchange(&'a str),
    Queue(&'a str),
}

impl<'a> Vertex<'a> {
    const fn name(self) -> &'a str {
        match self {
            Self::Exchange(name) | Self::Queue(name) => name,
        }
    }
}

/// Returns a cycle, if there is one: the names from a place back to itself. Routing keys and the reasons for
/// dead-lettering are ignored, so a cycle that no routing key can take is found too.
pub(super) fn circle(desired: &Desired) -> Option<Vec<String>> {
    let steps = steps(desired);
    let starts = desired.queues.iter().map(|queue| Vertex::Queue(&queue.name));
    circle_from(starts, |place| steps.get(&place).map_or(&[][..], Vec::as_slice).iter().copied())
}

/// Returns each stream and exchange where the exchange leads to the stream, and an event may pass the exchange: something else leads
/// there, or it leads to something else too.
pub(super) fn to_streams(desired: &Desired) -> BTreeSet<(&str, &str)> {
    let is_stream = |target: &Target| {
        desired.queues.iter().any(|queue| queue.is_stream() && *target == Target::Queue(queue.name.clone()))
    };
    let names = |argument: Option<&Argument>, exchange: &str| argument.and_then(Argument::as_text) == Some(exchange);
    let is_passed = |exchange: &str| {
        let it = Target::Exchange(exchange.to_owned());
        let mut bindings = desired.bindings.iter();
        bindings.any(|binding| binding.target == it || (binding.source == exchange && !is_stream(&binding.target)))
            || desired.queues.iter().any(|queue| names(queue.arguments.get("x-dead-letter-exchange"), exchange))
            || desired.exchanges.iter().any(|other| names(other.arguments.get("alternate-exchange"), exchange))
    };
    let leading = desired.bindings.iter().filter(|binding| is_stream(&binding.target) && is_passed(&binding.source));
    leading.map(|binding| (binding.target.name(), binding.source.as_str())).collect()
}

/// `next` returns the places that RabbitMQ may move an event to from a place. It is called at most once for each.
fn circle_from<'a, I: Iterator<Item = Vertex<'a>>>(
    starts: impl Iterator<Item = Vertex<'a>>,
    mut next: impl FnMut(Vertex<'a>) -> I,
) -> Option<Vec<String>> {
    let mut left_for_good: HashMap<Vertex<'_>, bool> = HashMap::new();
    for start in starts {
        if left_for_good.contains_key(&start) {
            continue;
        }
        left_for_good.insert(start, false);
        // Depth first, with its own stack instead of recursion, because a path may be arbitrarily long.
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
            steps.entry(Vertex::Queue(&queue.name)).or_default().push(Vertex::Exchange(exchange));
        }
    }
    for binding in &desired.bindings {
        let target = match &binding.target {
            Target::Exchange(name) => Vertex::Exchange(name),
            Target::Queue(name) => Vertex::Queue(name),
        };
        steps.entry(Vertex::Exchange(&binding.source)).or_default().push(target);
    }
    for rename in &desired.renames {
        steps.entry(Vertex::Exchange(&rename.source)).or_default().push(Vertex::Queue(&rename.to));
    }
    for exchange in &desired.exchanges {
        if let Some(alternate) = exchange.arguments.get("alternate-exchange").and_then(|to| to.as_text()) {
            steps.entry(Vertex::Exchange(&exchange.name)).or_default().push(Vertex::Exchange(alternate));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches twenty levels of two queues, each of which leads to both queues of the next level: a million ways.
    #[test]
    fn the_search_enters_each_place_once_however_many_ways_lead_there() {
        let names: Vec<[String; 2]> = (0..20).map(|level| [format!("a{level}"), format!("b{level}")]).collect();
        let mut entered = Vec::new();
        let circle = circle_from(names.iter().flatten().map(|name| Vertex::Queue(name)), |place| {
            entered.push(place.name().to_owned());
            let level = names.iter().position(|names| names.contains(&place.name().to_owned())).expect("a level");
            names.get(level + 1).into_iter().flatten().map(|name| Vertex::Queue(name))
        });
        assert_eq!(circle, None);
        entered.sort();
        let mut expected = names.concat();
        expected.sort();
        assert_eq!(entered, expected);
    }
}
