//! What the README says of the host is generated from it, or compared with it.

use plimsoll::config::reference;
use plimsoll::shape::Code;

use crate::support::root;

const BEGIN: &str = "<!-- config reference -->\n";
const END: &str = "<!-- end of config reference -->";

#[test]
fn the_config_reference_is_the_generated_one() {
    let file = root().join("README.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let expected = reference();
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        found, expected,
        "run PLIMSOLL_BLESS=1 cargo test -p plimsoll --test it readme"
    );
}

#[test]
fn every_refusal_is_in_the_table_with_its_status() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let table = text
        .split_once("### Refusals")
        .unwrap()
        .1
        .split_once("\n## ")
        .unwrap()
        .0;
    for code in Code::ALL {
        let row = table
            .lines()
            .find(|line| line.starts_with('|') && line.contains(&format!("`{}`", code.as_str())));
        let row =
            row.unwrap_or_else(|| panic!("`{}` is not in the table of refusals", code.as_str()));
        assert!(
            row.contains(&code.http_status().to_string()),
            "{}: {row}",
            code.as_str()
        );
    }
}
