//! The JSON Schema of route files, for editors.

use schemars::generate::SchemaSettings;

use super::file::File;

/// The JSON Schema of route files, made from the types that read them.
pub fn schema() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<File>();
    // A schema is JSON and always has a text.
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text + "\n"
}
