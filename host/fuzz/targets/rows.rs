//! Any answer, as a document or as pushed rows, with rows anywhere: what comes out is whole, balanced and under the cap.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::contract::RowSource;
use plimsoll::shape::{Intake, undeclared};
use plimsoll_fuzz::{Subject, everything};
use serde_json::{Map, Value};

fuzz_target!(|data: &[u8]| {
    let Some(([how, limit], answer)) = data.split_first_chunk() else { return };
    let rows = match how & 3 {
        0 => RowSource::Automatic,
        1 => RowSource::Lines,
        2 => RowSource::Pointer("/rows".into()),
        _ => RowSource::Whole,
    };
    let shape = if how & 4 == 0 { plimsoll::contract::Shape { rows, ..undeclared() } } else { everything(rows) };
    let Some(subject) = Subject::new(&shape) else { return };
    let mut arguments = Map::from_iter([("limit".into(), Value::from(1 + limit % 100))]);
    for (bit, name, value) in [(8, "horizon", "all"), (16, "detail", "brief"), (32, "format", "csv")] {
        if how & bit != 0 {
            arguments.insert(name.into(), value.into());
        }
    }
    if how & 64 == 0 {
        subject.call_to_the_end(&arguments, |intake: &mut Intake| intake.document(answer));
    } else {
        // In two pushes, as every push ends at the end of a row.
        let middle = answer[..answer.len() / 2].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        subject.call_to_the_end(&arguments, |intake: &mut Intake| {
            intake.rows(&answer[..middle]);
            intake.rows(&answer[middle..]);
        });
    }
});
