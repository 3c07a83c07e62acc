//! Closes a JSON Schema, so that a field that it does not describe fails a test. The published schemas are open.

use serde_json::{Map, Value};

/// The keywords whose schemas describe the same value, so that only all of them together name its fields.
const PARTS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Refuses undescribed fields in every object of the schema.
pub(crate) fn close(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(close),
        Value::Object(keys) if keys.contains_key("properties") => {
            if PARTS.iter().any(|part| keys.contains_key(*part)) {
                keys.insert("unevaluatedProperties".to_owned(), false.into());
            } else {
                keys.entry("additionalProperties").or_insert(false.into());
            }
            close_below(keys);
        }
        Value::Object(keys) => close_below(keys),
        _ => {}
    }
}

fn close_below(keys: &mut Map<String, Value>) {
    let has_properties = keys.contains_key("properties");
    for (key, value) in keys {
        let parts = has_properties && PARTS.contains(&key.as_str());
        match value {
            // The parts of an object stay open, and what is below them does not.
            Value::Array(parts_of_it) if parts => {
                parts_of_it.iter_mut().filter_map(Value::as_object_mut).for_each(close_below);
            }
            // The names are those of fields and of schemas, and no keywords.
            Value::Object(named) if key == "properties" || key == "$defs" => named.values_mut().for_each(close),
            value => close(value),
        }
    }
}
