//! Unpacks the corpus of a target into files, from which libFuzzer reads its inputs, and packs files again.
//!
//! - `fuzz-corpus unpack PACK FOLDER` writes each input into a file of `FOLDER` that has the number of its line as its name.
//! - `fuzz-corpus pack PACK PATH...` replaces `PACK` with the inputs of these files, and of all files of these folders.

use std::error::Error;
use std::fs;
use std::path::Path;

#[path = "../../crates/core/tests/it/codec/packed_corpus.rs"]
mod packed_corpus;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        ["unpack", pack, folder] => unpack(pack, Path::new(folder)),
        ["pack", pack, paths @ ..] => {
            let mut inputs = Vec::new();
            for path in paths {
                read(Path::new(path), &mut inputs)?;
            }
            Ok(fs::write(pack, packed_corpus::pack(&inputs))?)
        }
        _ => Err("usage: fuzz-corpus unpack PACK FOLDER | pack PACK PATH...".into()),
    }
}

fn unpack(pack: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let packed = fs::read_to_string(pack)?;
    let inputs = packed_corpus::unpack(&packed)
        .map_err(|line| format!("{pack}: line {line} is not in the form"))?;
    for (index, input) in inputs.iter().enumerate() {
        fs::write(folder.join(format!("{:04}", index + 1)), input)?;
    }
    Ok(())
}

/// Adds the content of a file, or of each file of a folder, to `inputs`.
fn read(path: &Path, inputs: &mut Vec<Vec<u8>>) -> std::io::Result<()> {
    if !path.is_dir() {
        inputs.push(fs::read(path)?);
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        inputs.push(fs::read(entry?.path())?);
    }
    Ok(())
}
