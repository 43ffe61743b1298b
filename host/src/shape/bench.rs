//! What `host/benches` measures apart from the pipeline, which counts the tokens of all that leaves.

use super::ask::Format;
use super::format;
use super::intake::Intake;
use super::policy::Policy;

/// Makes a table of the declared columns of the rows that an intake kept; its bytes without the header.
pub fn csv(intake: &Intake, policy: &Policy) -> usize {
    let columns: Vec<_> = policy.columns.iter().collect();
    let table = format::table(&intake.kept, &columns, Format::Csv);
    table.map_or(0, |table| table.bytes())
}
