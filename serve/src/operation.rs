//! What the API says of an operation.

use std::sync::Arc;

use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::{api::Api, tokens::Right};

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
