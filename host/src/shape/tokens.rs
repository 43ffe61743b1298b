//! Token counts, with a real tokenizer.
//!
//! The vocabulary is o200k: the one of the models that most client programs use, and close enough for the others. Its
//! tables take tens of milliseconds to build, so the first count builds them, or [`warm`] does beside serving.

/// Tokens of a text.
pub fn count(text: &str) -> u64 {
    bpe_openai::o200k_base().count(text) as u64
}

/// Tokens of a text unless there are more than `limit`. Costs no more than the limit, whatever the text's length.
pub(crate) fn count_up_to(text: &str, limit: u64) -> Option<u64> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let tokenizer = bpe_openai::o200k_base();
    tokenizer
        .count_till_limit(&tokenizer.normalize(text), limit)
        .map(|count| count as u64)
}

/// Builds the tables.
pub fn warm() {
    let _ = bpe_openai::o200k_base();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_and_not_estimated_from_bytes() {
        assert_eq!(count("hello world"), 2);
        assert_eq!(count_up_to("hello world", 2), Some(2));
        assert_eq!(count_up_to("hello world", 1), None);
        // Case I3: 100 Chinese characters are far more than their 300 bytes / 4 or 100 / 4 would say for rare ones.
        let rare = "龘鱻麤".repeat(34);
        assert!(count(&rare) >= 100);
    }
}
