//! Any JSON object as the arguments of a call, over a fixed answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::contract::RowSource;
use plimsoll_fuzz::{Subject, everything};
use serde_json::{Map, Value};

/// A few rows of each kind.
const DOCUMENT: &[u8] = br#"{"rows":[{"id":1,"state":"open","owner":{"name":"jun"}},{"id":2,"state":"closed"},{"id":"3","owner":[{"name":"a"},{}]},
4,null,{"id":1e400,"state":"open"}],"more":true}"#;

fuzz_target!(|data: &[u8]| {
    let Ok(arguments) = serde_json::from_slice::<Map<String, Value>>(data) else { return };
    let Some(subject) = Subject::new(&everything(RowSource::Pointer("/rows".into()))) else { return };
    if let Ok(ask) = subject.read(arguments.clone()) {
        let _ = ask.for_handler(subject.policy());
        let _ = ask.pushed_down(subject.policy());
    }
    subject.call_to_the_end(&arguments, |intake| intake.document(DOCUMENT));
});
