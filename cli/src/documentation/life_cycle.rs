//! Writes the JSON Schema of the records on the stream of the life of events.

use schemars::generate::SchemaSettings;

use crate::golden::golden;

#[test]
fn the_schema_of_a_record_is_in_the_reference() {
    let settings = SchemaSettings::default().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<hatchery::LifeCycleRecord>().to_value();
    let text = serde_json::to_string_pretty(&schema).expect("JSON");
    golden("docs/reference/life-cycle.schema.json", &format!("{text}\n"));
}
