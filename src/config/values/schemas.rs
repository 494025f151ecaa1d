//! The JSON Schemas of values, of which a test makes `proxy.schema.json`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::compound::{HeaderText, TokenFile, WordOrList};
use super::principal_header::PrincipalHeader;
use super::proxy_url::{DIRECT, ProxyText};
use super::text::AtLeast;
use crate::policy_file::text::DescribedSpelling;

milepost_core::inline_schemas! {
    [const MIN: usize] AtLeast<MIN>, "AtLeast", |_| {
        json_schema!({ "type": "integer", "minimum": MIN })
    };
    [] WordOrList, "WordOrList", |_| {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    };
    [] HeaderText, "HeaderText", |generator| {
        let text = json_schema!({ "type": "string" });
        json_schema!({ "anyOf": [text, generator.subschema_for::<TokenFile>()] })
    };
}

impl DescribedSpelling for PrincipalHeader {
    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^header:[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
            "examples": ["header:x-user"],
        })
    }
}

impl DescribedSpelling for ProxyText {
    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(none|https?://.+)$",
            "examples": ["http://proxy.example:3128", DIRECT],
        })
    }
}
