//! Writes the answers, so that the guest holds the same bytes as the servers that it is compared with.

#[path = "../../subjects/rows.rs"]
mod rows;

use rows::{Kind, LOAD_ROWS};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=../../subjects/rows.rs");
    let out = std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?;
    let out = std::path::Path::new(&out);
    std::fs::write(out.join("small.json"), rows::small())?;
    std::fs::write(
        out.join("rows.json"),
        rows::document_of(Kind::Narrow, LOAD_ROWS),
    )
}
