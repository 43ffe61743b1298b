//! Field cases that need more than a folder of `tests/cases`, by id. Others are named where they are tested:
//! `grep -rn 'Case' tests host/src`.

use std::path::Path;

use plimsoll::shape::Code;
use serde_json::json;

use crate::support::{TestHost, hostile, json as parse, plimsoll};

/// Cases G1 and G5: an image goes out whole, or is refused with its size; it is never cut, and never text.
#[tokio::test(flavor = "multi_thread")]
async fn g1_g5_an_image_goes_out_whole_or_is_refused_with_its_size() {
    let host = TestHost::start(&hostile("")).await;
    let reply = host.call("attach_huge", json!({"count": 100_000})).await;
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    let [plimsoll::contract::Attachment::Image(image)] = reply.attachments() else {
        panic!("expected one image")
    };
    assert_eq!(image.data, vec![7; 100_000]);
    // As base64 it would have 333,334 bytes.
    let reply = host.call("attach_huge", json!({"count": 250_000})).await;
    assert_eq!(
        reply.refusal(),
        Some(Code::ResponseTooLarge),
        "{}",
        reply.body()
    );
    let refusal = parse(reply.body());
    assert!(
        refusal["payload"]["bytes"].as_u64().unwrap() > 333_333,
        "{refusal}"
    );
    assert!(reply.attachments().is_empty());
}

/// Cases H1 and H5: what the listing costs is known, tool by tool, before anyone pays for it.
#[test]
fn h1_h5_inspect_says_what_listing_each_tool_costs() {
    let component = crate::support::component("guests/hostile.wasm");
    let output = plimsoll().arg("inspect").arg(component).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let line = text
        .lines()
        .find(|line| line.contains("flood_rows"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("tokens"), "{line}");
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Case P3: a cache entry that is cut short or is something else is a miss.
#[test]
fn p3_a_broken_cache_entry_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plimsoll.toml"), hostile("")).unwrap();
    for round in 0..3 {
        let output = plimsoll()
            .args(["call", "fine"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{round}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let entries = files(&folder.path().join(".plimsoll/code"));
        assert!(!entries.is_empty());
        for entry in entries {
            let whole = std::fs::read(&entry).unwrap();
            let broken = if round == 0 {
                &whole[..whole.len() / 2]
            } else {
                b"something else"
            };
            std::fs::write(&entry, broken).unwrap();
        }
    }
}
