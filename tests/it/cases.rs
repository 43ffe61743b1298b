//! Walks the folders of `tests/cases` and of every plugin's `examples`: a new test is a new folder.
//!
//! A case has a `case.toml`, what its guest reads, and the `expected.txt` of its calls. `PLIMSOLL_BLESS=1` writes what
//! came instead of comparing it.

use std::path::{Path, PathBuf};

use plimsoll::examples::{self, Case, Difference};

use crate::support::{TestHost, component, root};

pub(crate) fn folders(parent: &Path) -> Vec<PathBuf> {
    let folders = examples::folders(parent).unwrap();
    assert!(!folders.is_empty(), "no case in `{}`", parent.display());
    folders
}

/// Runs one case; the error says what differs.
pub(crate) async fn run(host: &TestHost, folder: &Path, case: &Case) -> Result<(), String> {
    let steps = case
        .run(host.host())
        .await
        .unwrap_or_else(|error| panic!("{}: {error:#}", folder.display()));
    let found = case.transcript(&steps);
    let file = folder.join("expected.txt");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&file, found).unwrap();
        return Ok(());
    }
    let expected =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    match Difference::between(&expected, &found) {
        None => Ok(()),
        Some(difference) => Err(format!("{}: {difference}", file.display())),
    }
}

pub(crate) fn read(folder: &Path) -> Case {
    Case::read(folder).unwrap_or_else(|error| panic!("{error:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_comes_out_as_expected() {
    let mut failed = Vec::new();
    for folder in folders(&root().join("tests/cases")) {
        let case = read(&folder);
        assert!(case.title.is_some(), "`{}` has no title", folder.display());
        let config = format!(
            "[plugins.canned]\ncomponent = {:?}\nfiles = [{{ host = {folder:?}, guest = \"/case\" }}]\n{}",
            component("guests/canned.wasm"),
            case.config
        );
        let host = TestHost::start(&config).await;
        failed.extend(run(&host, &folder, &case).await.err());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_a_plugin_comes_out_as_documented() {
    let mut failed = Vec::new();
    for (plugin, data) in [
        ("documents", Some("examples/data")),
        ("fleet", Some("data")),
        ("ledger", None),
        ("orders", None),
    ] {
        let folder = root().join("plugins").join(plugin);
        let files = data.map(|data| {
            format!(
                "files = [{{ host = {:?}, guest = \"/data\" }}]\n",
                folder.join(data)
            )
        });
        let config = format!(
            "[plugins.{plugin}]\ncomponent = {:?}\n{}",
            component(&format!("plugins/{plugin}.wasm")),
            files.unwrap_or_default()
        );
        let host = TestHost::start(&config).await;
        for folder in folders(&folder.join("examples")) {
            failed.extend(run(&host, &folder, &read(&folder)).await.err());
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
