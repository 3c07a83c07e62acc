//! Webhooks, repeated with other numbers; one in a hundred becomes no event.

/// Of this many messages, one becomes no event.
const UNMAPPABLE_EVERY: u32 = 100;
/// How many objects the messages are about.
const OBJECTS: u32 = 1_000;

/// The documented examples of three services, one a line: an issue, a subscription and an order.
const WEBHOOKS: &str = include_str!("webhooks.ndjson");

/// The rules for these messages, which make events of this type.
pub(super) fn rules(event_type: &str) -> String {
    format!(
        "      - {{ when: {{ /action: [opened, edited, closed] }}, type: {event_type}, reference: /issue/number }}
      - when: {{ /type: customer.subscription.updated }}
        type: {event_type}
        reference: /data/object/customer
        nbf: /data/object/current_period_start
        payload: /data/object
      - {{ when: {{ /confirmed: true }}, type: {event_type}, reference: /order/number, nbf: /processed_at }}
"
    )
}

/// Tells whether this message becomes an event.
pub(super) const fn is_mappable(number: u32) -> bool {
    number % UNMAPPABLE_EVERY != UNMAPPABLE_EVERY - 1
}

/// Returns the body of this message.
pub(super) fn body(number: u32) -> String {
    let webhooks: Vec<&str> = WEBHOOKS.lines().collect();
    let webhook = webhooks[number as usize % webhooks.len()];
    let (id, reference) = (number.to_string(), (number % OBJECTS).to_string());
    let body = webhook.replace("ID", &id).replace("REFERENCE", &reference);
    if is_mappable(number) {
        return body;
    }
    match number / UNMAPPABLE_EVERY % 5 {
        // Cut off on the way.
        0 => body[..body.len() / 2].to_owned(),
        1 => r#"{"action":"pinned","issue":{"number":1}}"#.to_owned(),
        2 => r#"{"action":"edited","issue":{}}"#.to_owned(),
        3 => r#"{"action":"edited","issue":{"number":false}}"#.to_owned(),
        _ => r#"{"confirmed":true,"order":{"number":"1"},"processed_at":"soon"}"#.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_message_are_in_its_body() {
        assert!(body(0).contains(r#""number":0,"#) && body(0).contains(r#""delivery":0}"#), "{}", body(0));
        assert!(
            body(1_001).contains("cus_1\"")
                || body(1_001).contains("\"number\":\"1\"")
                || body(1_001).contains("\"number\":1,")
        );
        assert!(!is_mappable(99) && is_mappable(100));
        assert!((0..10_000).filter(|number| !is_mappable(*number)).count() == 100);
    }
}
