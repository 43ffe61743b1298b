//! Any bytes as what an MCP client writes to standard input: each line is a message, answered with an error, or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::mcp::read_lines;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let (messages, answers) = read_lines(data);
    let answers = String::from_utf8(answers).unwrap_or_else(|error| panic!("{error}"));
    for answer in answers.lines() {
        let answer: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        assert!(answer["error"]["code"].is_i64(), "{answer}");
    }
    assert!(messages + answers.lines().count() <= data.split(|byte| *byte == b'\n').count());
});
