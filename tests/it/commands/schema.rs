//! Values against the JSON Schemas of `tests/data/schemas`.

use boon::{Compiler, Schemas};
use serde_json::Value;

/// Checks a value against a schema of that name.
#[track_caller]
pub(crate) fn check_schema(name: &str, value: &Value) {
    let path = format!("{}/tests/data/schemas/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut schemas = Schemas::new();
    let schema = Compiler::new().compile(&path, &mut schemas).unwrap();
    if let Err(error) = schemas.validate(value, schema) {
        panic!("{name}: {error:#}");
    }
}
