//! The description of the API, OpenAPI 3.1, made of the same table as its routes and of the types that it reads and writes.

use std::sync::Arc;

use axum::{http::StatusCode, routing::MethodRouter};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{api::Api, tokens::Right};

/// An operation of the API, as its description has it.
pub(crate) struct Operation {
    /// `get` or `post`, as OpenAPI writes it.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) right: Right,
    /// The fields of the query, as the properties of a schema.
    pub(crate) query: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub(crate) takes: &'static [Content],
    /// Whether a request may have no body.
    pub(crate) takes_nothing: bool,
    /// Its answers. Those with one status have one description, and a content of each media type.
    pub(crate) answers: &'static [(u16, &'static str, Content)],
    /// The statuses of its problems, beside those of every operation.
    pub(crate) problems: &'static [u16],
    pub(crate) route: fn() -> MethodRouter<Arc<Api>>,
}

/// A content and its schema. That of a batch is the schema of a line.
pub(crate) struct Content {
    pub(crate) media_type: &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

pub(crate) const fn content<T: JsonSchema>(media_type: &'static str) -> Content {
    Content { media_type, schema: SchemaGenerator::subschema_for::<T> }
}

/// Returns the schema of a query.
pub(crate) fn query<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// The problems that any operation may answer: the first one alone, if it takes no token.
const OF_ALL: [u16; 3] = [403, 401, 429];

/// Returns the description of these operations, whose problems have this content.
pub(crate) fn of(operations: &[Operation], problem: &Content) -> Value {
    let (mut taken, mut answered) = (settings().into_generator(), settings().for_serialize().into_generator());
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(operation, problem, (&mut taken, &mut answered));
    }
    let mut schemas = taken.take_definitions(true);
    schemas.extend(answered.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "hatchery",
            "summary": "The events of a RabbitMQ topology",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}

/// Returns the settings of OpenAPI 3.1, whose schemas are JSON Schema 2020-12.
fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    })
}

fn described(
    operation: &Operation,
    problem: &Content,
    (taken, answered): (&mut SchemaGenerator, &mut SchemaGenerator),
) -> Value {
    let mut described = json!({ "operationId": operation.id, "summary": operation.summary });
    let mut parameters: Vec<Value> = Vec::new();
    let names = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    for name in names {
        let schema = json!({ "type": "string" });
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    if let Some(query) = operation.query {
        let query = query(&mut settings().into_generator());
        let fields = query.get("properties").and_then(Value::as_object).into_iter().flatten();
        parameters.extend(fields.map(|(name, schema)| parameter(name, schema.clone())));
    }
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if !operation.takes.is_empty() {
        described["requestBody"] =
            json!({ "required": !operation.takes_nothing, "content": contents(operation.takes.iter(), taken) });
    }
    let mut responses = Map::new();
    for (status, description, content) in operation.answers {
        let new = || json!({ "description": description, "content": {} });
        let schema = (content.schema)(answered);
        responses.entry(status.to_string()).or_insert_with(new)["content"][content.media_type] =
            json!({ "schema": schema });
    }
    let of_all = if operation.right == Right::None { &OF_ALL[..1] } else { &OF_ALL[..] };
    for status in of_all.iter().chain(operation.problems) {
        let content = contents([problem].into_iter(), answered);
        let description = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
        responses.insert(status.to_string(), json!({ "description": description, "content": content }));
    }
    described["responses"] = responses.into();
    if operation.right == Right::None {
        described["security"] = json!([]);
    }
    described
}

/// Returns the description of a field of a query. It is there or not, and never `null`.
fn parameter(name: &str, mut schema: Value) -> Value {
    let description = schema["description"].take();
    if schema["anyOf"][1] == json!({ "type": "null" }) {
        schema = schema["anyOf"][0].take();
    } else if let Some(only) = schema["type"].as_array().and_then(|types| types.first().cloned()) {
        schema["type"] = only;
    }
    if let Some(schema) = schema.as_object_mut() {
        schema.retain(|key, value| key != "description" && !value.is_null());
    }
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

fn contents<'a>(contents: impl Iterator<Item = &'a Content>, generator: &mut SchemaGenerator) -> Map<String, Value> {
    let described = contents.map(|content| {
        let schema = (content.schema)(generator);
        (content.media_type.to_owned(), json!({ "schema": schema }))
    });
    described.collect()
}
