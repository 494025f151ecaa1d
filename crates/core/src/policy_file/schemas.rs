//! The JSON Schemas of values. A test of the proxy writes `proxy.schema.json` from them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::compound::{FinalSection, Marker, OneOrMore, Scalar, Sources};
use super::format::JsonTable;
use super::text::{DescribedSpelling, JsonPointer, OneOf, TextValue};
use crate::progress::dialect::TextSource;

/// Also accepts a string with a variable, because an editor cannot know its value.
fn or_variable(schema: Schema) -> Schema {
    json_schema!({ "anyOf": [schema, { "type": "string", "pattern": r"\$\{" }] })
}

impl<S: DescribedSpelling> JsonSchema for TextValue<S> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        or_variable(S::schema())
    }
}

impl JsonSchema for OneOrMore {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OneOrMore".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "array"],
            "items": { "type": "string" },
            "minItems": 1,
        })
    }
}

impl JsonSchema for Sources {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Sources".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<TextValue<OneOf<TextSource>>>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

impl JsonSchema for FinalSection {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FinalSection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let both = [or_variable(JsonPointer::schema()), generator.subschema_for::<Marker>()];
        json_schema!({ "anyOf": both })
    }
}

impl JsonSchema for Scalar {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

impl JsonSchema for JsonTable {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "JsonTable".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}
