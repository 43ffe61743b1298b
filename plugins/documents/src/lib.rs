//! Every JSON, NDJSON and CSV file in a granted folder as collections of rows.
//!
//! `folder` says which files there are and what their collections are called, `table` finds the rows in a file,
//! `profile` looks at rows to see how they are best shown, and `declaration` puts that in the contract's words.
//!
//! A file is read whole for each call and no tree is built of it: a row is a slice of the file. Nothing is selected
//! here; the host does that, and says when it has enough.

mod bindings;
mod declaration;
mod folder;
mod profile;
mod table;

use std::ops::ControlFlow;

use bindings::exports::plimsoll::plugin::backend::{Collection, Guest, Selection};
use bindings::plimsoll::plugin::types::Fault;
use bindings::plimsoll::plugin::{log, reply};
use folder::File;
use table::Table;

/// The folder that the operator grants.
const FOLDER: &str = "/data";
/// Rows are pushed in pieces of about this size: large enough that the calls cost nothing, small enough that a page
/// of a large collection is reached after a few.
const PIECE_BYTES: usize = 65_536;

struct Documents;

impl Guest for Documents {
    fn list_collections() -> Result<Vec<Collection>, Fault> {
        let mut collections: Vec<Collection> = Vec::new();
        for file in files()? {
            // One file that cannot be read must not take the others away. The operator reads of it in the log; a call
            // cannot name it, since it has no collections.
            if let Err(reason) = describe(&file, &mut collections) {
                log::write(
                    log::Level::Warn,
                    &format!("`{}` is left out: {reason}", file.path),
                );
            }
        }
        Ok(collections)
    }

    fn query(collection: String, _selection: Selection) -> Result<(), Fault> {
        with_table(&collection, |table| {
            // Before the rows: a host that knows how many there are can have enough before the last one.
            reply::total(table.count() as u64);
            let mut piece = Vec::with_capacity(PIECE_BYTES * 2);
            table.each(|row| {
                table::push_as_one_line(row, &mut piece);
                if piece.len() < PIECE_BYTES {
                    return ControlFlow::Continue(());
                }
                let demand = reply::rows(&piece);
                piece.clear();
                match demand {
                    reply::Demand::More => ControlFlow::Continue(()),
                    reply::Demand::Enough => ControlFlow::Break(()),
                }
            })?;
            if !piece.is_empty() {
                reply::rows(&piece);
            }
            Ok(())
        })
    }

    fn get(collection: String, key: String) -> Result<(), Fault> {
        with_table(&collection, |table| {
            let Some(field) = profile::key(table)? else {
                return Ok(Err(Fault::InvalidInput(format!(
                    "no field identifies the rows of `{collection}`"
                ))));
            };
            let mut found = false;
            table.each(|row| {
                if profile::has_value(row, &field, &key) {
                    reply::document(row.as_bytes());
                    found = true;
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            Ok(match found {
                true => Ok(()),
                false => Err(Fault::NotFound(format!(
                    "no row of `{collection}` has the {field} {key}"
                ))),
            })
        })?
    }
}

/// Adds the collections of one file.
fn describe(file: &File, collections: &mut Vec<Collection>) -> Result<(), String> {
    let bytes = read(file)?;
    let tables = table::find(file.format, &bytes, |_| true)?;
    if tables.is_empty() {
        return Err(
            "it is neither an array of objects nor an object with one in its top two levels"
                .to_owned(),
        );
    }
    for found in tables {
        let name = file.collection(&found.members);
        if collections.iter().any(|collection| collection.name == name) {
            log::write(
                log::Level::Warn,
                &format!(
                    "a part of `{}` is left out: another collection is called `{name}` too",
                    file.path
                ),
            );
            continue;
        }
        let profile = profile::Profile::of(&found.table)?;
        collections.push(declaration::collection(
            name,
            &file.path,
            &found.members,
            &profile,
        ));
    }
    Ok(())
}

/// Lets `act` work on the rows of a collection.
///
/// # Errors
///
/// Not found where no file has that collection, unavailable where a file cannot be read as what it is.
fn with_table<T>(
    collection: &str,
    act: impl FnOnce(&Table) -> Result<T, String>,
) -> Result<T, Fault> {
    let mut fault = Fault::NotFound(format!("there is no collection `{collection}` any more"));
    for file in files()?
        .iter()
        .filter(|file| collection.starts_with(&file.name))
    {
        let broken = |reason: String| Fault::Unavailable(format!("`{}`: {reason}", file.path));
        let bytes = match read(file) {
            Ok(bytes) => bytes,
            Err(reason) => {
                fault = broken(reason);
                continue;
            }
        };
        match table::find(file.format, &bytes, |members| {
            file.collection(members) == collection
        }) {
            Ok(found) => {
                if let Some(found) = found.first() {
                    return act(&found.table).map_err(broken);
                }
            }
            Err(reason) => fault = broken(reason),
        }
    }
    Err(fault)
}

fn files() -> Result<Vec<File>, Fault> {
    let unavailable = |error| Fault::Unavailable(format!("reading the folder: {error}"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(FOLDER).map_err(unavailable)? {
        names.push(
            entry
                .map_err(unavailable)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    Ok(folder::files(names))
}

fn read(file: &File) -> Result<Vec<u8>, String> {
    std::fs::read(format!("{FOLDER}/{}", file.path)).map_err(|error| error.to_string())
}
