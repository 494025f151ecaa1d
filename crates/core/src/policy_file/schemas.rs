//! The JSON Schemas of values. A test of the proxy writes `proxy.schema.json` from them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::compound::{FinalSection, Marker, OneOrMore, Scalar, Sources};
use super::format::JsonTable;
use super::text::{DescribedSpelling, JsonPointer, OneOf, TextValue};
use crate::progress::dialect::TextSource;

/// Extends `schema` to accept a string with a variable, because an editor cannot know the value of the variable.
fn or_variable(schema: Schema) -> Schema {
    json_schema!({ "anyOf": [schema, { "type": "string", "pattern": r"\$\{" }] })
}

/// Implements `JsonSchema` for types whose schema is written in full at each use, without a definition of its own.
#[doc(hidden)]
#[macro_export]
macro_rules! inline_schemas {
    ($([$($params:tt)*] $type:ty, $name:literal, |$generator:pat_param| $schema:expr;)+) => {$(
        impl<$($params)*> JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

inline_schemas! {
    [S: DescribedSpelling] TextValue<S>, "Text", |_| or_variable(S::schema());
    [] OneOrMore, "OneOrMore", |_| json_schema!({
        "type": ["string", "array"],
        "items": { "type": "string" },
        "minItems": 1,
    });
    [] Sources, "Sources", |generator| {
        let one = generator.subschema_for::<TextValue<OneOf<TextSource>>>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    };
    [] FinalSection, "FinalSection", |generator| {
        let both = [or_variable(JsonPointer::schema()), generator.subschema_for::<Marker>()];
        json_schema!({ "anyOf": both })
    };
    [] Scalar, "Scalar", |_| json_schema!({ "type": ["string", "number", "boolean"] });
    [] JsonTable, "JsonTable", |_| json_schema!({ "type": "object" });
}
