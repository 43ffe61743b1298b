//! Token counts, with a real tokenizer.
//!
//! The vocabulary is o200k: the one of the models that most client programs use, and close enough for the others. Its
//! tables take tens of milliseconds to build and tens of MiB to hold, so a host has none before its first call: that builds
//! them, while its plugin runs.
//!
//! A text is split into pieces, mostly words and numbers, and each is counted apart. Rows say the same words again and again, so
//! what short pieces cost is remembered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Once};

use bpe_openai::Tokenizer;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of the longest piece that is remembered; words of prose and names of fields are shorter.
const MAX_SHORT_BYTES: usize = 32;

/// How many pieces are remembered; 64 KiB. A newer one takes the place of an older one.
const SHORT_PIECES: usize = 1 << 13;

/// The bits of an entry that tell its piece from others; the rest are its tokens, of which there is at most one a byte.
const PIECE: u64 = u64::MAX << 6;

/// What short pieces cost. Zero is none.
static SHORT: [AtomicU64; SHORT_PIECES] = [const { AtomicU64::new(0) }; SHORT_PIECES];

/// Makes the bits of a piece, so that nobody can look for two pieces that have the same.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).expect("the system has random numbers");
    u64::from_le_bytes(seed)
});

/// Tokens of a text.
pub fn count(text: &str) -> u64 {
    count_up_to(text, u64::MAX).unwrap_or(u64::MAX)
}

/// Tokens of a text unless there are more than `limit`. Costs no more than the limit, whatever the text's length.
pub(crate) fn count_up_to(text: &str, limit: u64) -> Option<u64> {
    let tokenizer = bpe_openai::o200k_base();
    let text = tokenizer.normalize(text);
    tokenizer.split(text.as_str()).try_fold(0, |before, piece| {
        let tokens = of_piece(tokenizer, piece.as_bytes(), limit - before)?;
        Some(before + tokens).filter(|tokens| *tokens <= limit)
    })
}

/// Tokens of one piece, unless it is a long one that has more than `limit`.
fn of_piece(tokenizer: &Tokenizer, piece: &[u8], limit: u64) -> Option<u64> {
    if piece.len() > MAX_SHORT_BYTES {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let tokens = tokenizer.bpe.count_till_limit(piece, limit)?;
        return Some(tokens as u64);
    }
    let name = xxh3_64_with_seed(piece, *SEED) & PIECE;
    let entry = &SHORT[(name >> (64 - SHORT_PIECES.ilog2())) as usize];
    let known = entry.load(Ordering::Relaxed);
    if known & PIECE == name && known & !PIECE > 0 {
        return Some(known & !PIECE);
    }
    let tokens = tokenizer.bpe.count(piece) as u64;
    entry.store(name | tokens, Ordering::Relaxed);
    Some(tokens)
}

/// Builds the tables beside what else goes on, unless somebody has begun to.
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        // Where there is no thread to be had, the first count builds them.
        let _ = std::thread::Builder::new().spawn(bpe_openai::o200k_base);
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_are_counted_and_not_estimated_from_bytes() {
        assert_eq!(count("hello world"), 2);
        assert_eq!(count(""), 0);
        assert_eq!(count_up_to("hello world", 2), Some(2));
        assert_eq!(count_up_to("hello world", 1), None);
        // Case I3: 100 Chinese characters are far more than their 300 bytes / 4 or 100 / 4 would say for rare ones.
        let rare = "龘鱻麤".repeat(34);
        assert!(count(&rare) >= 100);
    }

    #[test]
    fn a_piece_of_the_most_bytes_that_is_all_tokens_is_remembered_whole() {
        let tokenizer = bpe_openai::o200k_base();
        // Bytes that no text has, each a token of its own.
        let piece = [0xff; MAX_SHORT_BYTES];
        let tokens = tokenizer.bpe.count(&piece) as u64;
        assert!(tokens <= !PIECE);
        for _ in 0..2 {
            assert_eq!(of_piece(tokenizer, &piece, u64::MAX), Some(tokens));
        }
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_the_tokenizer_says(
            text in "(\"[a-zA-Z_é龘]{1,40}\": ?(-?[0-9]{1,9}|\"[ -~]{0,40}\"|\\PC{0,12}),?\\s?){0,12}",
            limit in 0_u64..200,
        ) {
            let expected = bpe_openai::o200k_base().count(text.as_str()) as u64;
            for _ in 0..2 {
                prop_assert_eq!(count(&text), expected);
                prop_assert_eq!(count_up_to(&text, limit), Some(expected).filter(|tokens| *tokens <= limit));
            }
        }
    }
}
