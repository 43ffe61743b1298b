//! What the README says of the host is generated from it, or compared with it.

use plimsoll::config::reference;
use plimsoll::shape::{Code, tokens};
use serde_json::json;

use crate::support::{TestHost, fleet, root};

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
fn the_table_of_client_programs_is_the_generated_one() {
    let file = root().join("README.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (begin, end) = ("<!-- clients -->\n", "<!-- end of clients -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (found, after) = rest.split_once(end).unwrap();
    let expected = plimsoll::client::reference();
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{begin}{expected}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(
        found, expected,
        "run PLIMSOLL_BLESS=1 cargo test -p plimsoll --test it client_programs"
    );
}

#[test]
fn the_preview_of_the_readme_is_what_comes() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, rest) = text
        .split_once("$ plimsoll preview fleet_show --args '")
        .unwrap();
    let (arguments, rest) = rest.split_once("'\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let folder = crate::doors::folder(&fleet());
    let (code, out, error) =
        crate::doors::run(&folder, &["preview", "fleet_show", "--args", arguments]);
    assert_eq!(code, 0, "{error}");
    // Sizes are those of the cursor as well, which is another one in every installation.
    let cells = |line: &str| {
        let cells: Vec<String> = line
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect();
        [&cells[..3], &cells[5..]].concat()
    };
    let found: Vec<Vec<String>> = out.lines().map(cells).collect();
    let shown: Vec<&str> = shown.lines().filter(|line| *line != "…").collect();
    assert!(shown.len() >= 4);
    for line in shown {
        assert!(found.contains(&cells(line)), "{line} is not in\n{out}");
    }
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

/// The bytes and tokens in the row of the first table that begins with these words.
fn figures(row: &str) -> (u64, u64) {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("| {row}")))
        .unwrap_or_else(|| panic!("no row begins with: {row}"));
    let cells: Vec<u64> = line
        .split('|')
        .filter_map(|cell| cell.trim().replace(',', "").parse().ok())
        .collect();
    (cells[0], cells[1])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_figures_of_the_first_screen_are_those_of_the_fleet() {
    let host = TestHost::start(&fleet()).await;
    let record = std::fs::read_to_string(root().join("plugins/fleet/data/fleet.json")).unwrap();
    assert_eq!(
        figures("what the plugin hands over"),
        (record.len() as u64, tokens::count(&record))
    );
    for (row, arguments) in [
        ("what the agent gets for `fleet_show {}`", json!({})),
        ("the same 25 rows as a table", json!({"format": "csv"})),
    ] {
        let reply = host.call("fleet_show", arguments).await;
        let (bytes, said) = figures(row);
        assert_eq!(
            bytes as usize,
            reply.facts().len() + reply.body().len(),
            "{row}"
        );
        // The cursor is another one in every installation, and its tokens with it.
        let found = tokens::count(reply.facts()) + tokens::count(reply.body());
        assert!(
            said.abs_diff(found) * 100 < found,
            "{row}: {said}, found {found}"
        );
    }
}
