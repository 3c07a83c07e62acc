//! Reads the query of a request into the fields of a type, as the body of another one.

use std::fmt;

use axum::http::Uri;
use hatchery::internals::words::unless_url;
use serde::{
    de::{
        DeserializeOwned, Deserializer, Error, IntoDeserializer, Visitor,
        value::{Error as ValueError, MapDeserializer},
    },
    forward_to_deserialize_any,
};

use crate::problem::Problem;

/// Reads a query. A field that the type does not have, or that is there twice, is refused.
pub(crate) fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let fields = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let fields = fields.map(|(name, value)| (name.into_owned(), Text(value.into_owned())));
    T::deserialize(MapDeserializer::new(fields))
        .map_err(|error: ValueError| Problem::bad(format!("the query: {}", unless_url(&error.to_string()))))
}

/// The value of a field.
struct Text(String);

impl IntoDeserializer<'_, ValueError> for Text {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Reads the value as what the field has.
fn parse<T: std::str::FromStr>(text: &str) -> Result<T, ValueError>
where
    T::Err: fmt::Display,
{
    text.parse().map_err(|error| ValueError::custom(format!("{error}: `{text}`")))
}

impl<'de> Deserializer<'de> for Text {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_bool(parse(&self.0)?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_u32(parse(&self.0)?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_f64(parse(&self.0)?)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        id: Option<String>,
        limit: Option<u32>,
        #[serde(default)]
        all: bool,
    }

    #[rstest]
    #[case("", None, None, false)]
    #[case("id=12&limit=7&all=true", Some("12"), Some(7), true)]
    #[case("id=a%2Fb+c", Some("a/b c"), None, false)]
    fn a_query_is_read(#[case] query: &str, #[case] id: Option<&str>, #[case] limit: Option<u32>, #[case] all: bool) {
        let uri = format!("/v1/x?{query}").parse().expect("a URI");
        assert_eq!(read::<Fields>(&uri).ok(), Some(Fields { id: id.map(str::to_owned), limit, all }));
    }

    #[rstest]
    #[case("name=a", "the query: unknown field `name`")]
    #[case("id=a&id=b", "the query: duplicate field `id`")]
    #[case("limit=many", "the query: invalid digit found in string: `many`")]
    #[case("amqp://u:s3cret@h=1", "the query: the text is not repeated")]
    fn a_bad_query_is_refused(#[case] query: &str, #[case] why: &str) {
        let error = read::<Fields>(&format!("/v1/x?{query}").parse().expect("a URI")).expect_err("refused");
        assert!(error.detail().starts_with(why), "{}", error.detail());
    }
}
