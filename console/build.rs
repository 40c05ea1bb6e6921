//! Puts the browser app into the binary: a table of the files below `web/dist/app`, which `./dev build` makes with npm.
//!
//! Without that folder the table is empty, and the console's page says how to build the app.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let dist = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("web/dist");
    // the folder above is always there, so that cargo need not look again each time
    println!("cargo:rerun-if-changed={}", dist.display());
    let app = dist.join("app");
    let mut table = String::from("&[\n");
    for file in files(&app)? {
        let path = file.strip_prefix(&app)?.display().to_string();
        let twin = |end: &str| {
            let twin = PathBuf::from(format!("{}.{end}", file.display()));
            if twin.exists() {
                format!("Some(include_bytes!({:?}))", twin.display().to_string())
            } else {
                "None".to_owned()
            }
        };
        let plain = file.display().to_string();
        writeln!(
            table,
            "File {{ path: {:?}, plain: include_bytes!({plain:?}), gzip: {}, brotli: {} }},",
            format!("/{path}"),
            twin("gz"),
            twin("br")
        )?;
    }
    table.push(']');
    fs::write(Path::new(&std::env::var("OUT_DIR")?).join("web.rs"), table)?;
    Ok(())
}

/// Every file below a folder that is no packed twin of another, in order; none if there is no such folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        if !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let packed = path
                .extension()
                .is_some_and(|end| end == "gz" || end == "br");
            if path.is_dir() {
                folders.push(path);
            } else if !packed {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
