//! Any pointer and any path, as a plugin declares them and a caller passes them, over any document.
//!
//! The input: a line with the pointer, a line with the path, then the document.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::contract::{RowSource, Shape};
use plimsoll_fuzz::{Subject, everything};
use serde_json::{Map, json};

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let (Some(pointer), Some(path), Some(document)) = (parts.next(), parts.next(), parts.next()) else { return };
    let (Ok(pointer), Ok(path)) = (std::str::from_utf8(pointer), std::str::from_utf8(path)) else { return };
    let mut shape = Shape { key: Some(path.into()), ..everything(RowSource::Pointer(pointer.into())) };
    shape.views[0].fields.push(path.into());
    shape.columns[0].field = path.into();
    if let Some(horizon) = &mut shape.horizon {
        horizon.field = path.into();
    }
    let Some(subject) = Subject::new(&shape) else { return };
    for arguments in [json!({"limit": 2}), json!({"fields": [path, "id"]}), json!({"format": "tsv", "horizon": "all"}), json!({"detail": "brief"})] {
        let arguments = arguments.as_object().cloned().unwrap_or_else(Map::new);
        subject.call_to_the_end(&arguments, |intake| intake.document(document));
    }
});
