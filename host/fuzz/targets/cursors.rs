//! Cursors that were made up, and cursors that were changed: neither gets a page.
//!
//! The input: the text of a cursor, and, where it begins with `~`, what to do to a real one: place and new byte, in turn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::contract::RowSource;
use plimsoll::shape::{Code, Intake};
use plimsoll_fuzz::{Subject, everything};
use serde_json::{Map, Value};

/// Ten rows, by a key of each kind.
const DOCUMENT: &[u8] = br#"[{"id":1},{"id":"two"},{"id":3.0},{"id":null},{"id":[5]},{"id":6},{"id":7},{"id":8},{"id":9},{}]"#;

fuzz_target!(|data: &[u8]| {
    let Some(mut subject) = Subject::new(&everything(RowSource::Automatic)) else { return };
    let hand_over = |intake: &mut Intake| intake.document(DOCUMENT);
    let after = match data.strip_prefix(b"~") {
        None => {
            // libFuzzer watches what is compared, and so gets to know the real cursors of the other half.
            subject = subject.elsewhere();
            String::from_utf8_lossy(data).into_owned()
        }
        Some(changes) => {
            let limit = Map::from_iter([("limit".into(), Value::from(1 + changes.len() % 9))]);
            let first = subject.call(limit, hand_over);
            let Some(real) = first.next_after().map(str::to_owned) else { panic!("ten rows are more than a page") };
            let mut bytes = real.clone().into_bytes();
            for change in changes.chunks_exact(2) {
                let at = usize::from(change[0]) % bytes.len();
                bytes[at] = change[1] & 0x7f;
            }
            match String::from_utf8(bytes) {
                Ok(changed) if changed != real => changed,
                _ => {
                    let reply = subject.call(Map::from_iter([("after".into(), real.into())]), hand_over);
                    assert_eq!(reply.refusal(), None, "{}", reply.body());
                    return;
                }
            }
        }
    };
    let reply = subject.call(Map::from_iter([("after".into(), after.into())]), hand_over);
    assert_eq!(reply.refusal(), Some(Code::InvalidCursor), "{}", reply.body());
});
