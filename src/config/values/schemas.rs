//! The JSON Schemas of values, of which a test makes `proxy.schema.json`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::compound::{
    FinalSection, HeaderText, Marker, OneOrMore, Scalar, Sources, TokenFile, WordOrList,
};
use super::text::{AtLeast, JsonPointer, OneOf, Spelling, TextValue};
use crate::config::settings::format::JsonTable;
use crate::progress::dialect::TextSource;

/// Also accepts a string with a variable, because an editor cannot know its value.
fn or_variable(schema: Schema) -> Schema {
    json_schema!({ "anyOf": [schema, { "type": "string", "pattern": r"\$\{" }] })
}

impl<S: Spelling> JsonSchema for TextValue<S> {
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

impl<const MIN: usize> JsonSchema for AtLeast<MIN> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AtLeast".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN })
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

impl JsonSchema for WordOrList {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "WordOrList".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
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

impl JsonSchema for HeaderText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "HeaderText".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let text = json_schema!({ "type": "string" });
        json_schema!({ "anyOf": [text, generator.subschema_for::<TokenFile>()] })
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
