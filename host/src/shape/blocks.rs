//! Finds where nested JSON values end, 64 bytes at a time.
//!
//! Owns: the brackets outside of strings, as bits of one block. A block with a backslash, where a quote may not be the end
//! of a string, and the last bytes of a text are read byte by byte; what is found is the same.

use memchr::memchr2;
use wide::u8x16;

/// Bytes of a block: one bit each in a `u64`.
const BLOCK: usize = 64;

/// What a byte means outside of strings: nothing, a string, one level in, one level out.
const STRING: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;

const MEANING: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = STRING;
    table[b'{' as usize] = OPEN;
    table[b'[' as usize] = OPEN;
    table[b'}' as usize] = CLOSE;
    table[b']' as usize] = CLOSE;
    table
};

/// The block of a text that was read last. The next value mostly begins in the block in which the one before ended, which
/// is then not read again.
pub(super) struct Blocks<'a> {
    text: &'a [u8],
    base: usize,
    is_loaded: bool,
    /// Brackets of the block that are outside of strings and not behind the walk.
    brackets: u64,
    /// Those that open, or are in strings.
    opens: u64,
    /// All bits where a string goes on into the next block, else none.
    inside: u64,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            base: 0,
            is_loaded: false,
            brackets: 0,
            opens: 0,
            inside: 0,
        }
    }

    /// Where the array or object that opens at `at`, outside of any string, ends: the index behind its closing bracket.
    /// Brackets of both kinds count alike. None where it does not end.
    pub(super) fn skip(&mut self, at: usize) -> Option<usize> {
        if self.is_loaded && (self.base..self.base + BLOCK).contains(&at) {
            self.brackets &= u64::MAX << (at - self.base);
        } else {
            self.base = at;
            self.inside = 0;
            self.load();
        }
        let mut depth = 0_usize;
        while self.is_loaded {
            while self.brackets != 0 {
                let bit = self.brackets & self.brackets.wrapping_neg();
                self.brackets ^= bit;
                if self.opens & bit != 0 {
                    depth += 1;
                    continue;
                }
                depth -= 1;
                if depth == 0 {
                    return Some(self.base + bit.trailing_zeros() as usize + 1);
                }
            }
            self.base += BLOCK;
            self.load();
        }
        skip_bytes(self.text, self.base, depth, self.inside != 0)
    }

    /// Reads the block at `base`, unless it has a backslash or is not whole.
    fn load(&mut self) {
        self.is_loaded = false;
        let Some(block) = self.text.get(self.base..self.base + BLOCK) else {
            return;
        };
        let (mut quotes, mut opens, mut closes) = (0, 0, 0);
        let mut backslashes = u8x16::splat(0);
        for (index, piece) in block.as_chunks::<16>().0.iter().enumerate() {
            let piece = u8x16::new(*piece);
            let bits = |found: u8x16| u64::from(found.to_bitmask()) << (16 * index);
            backslashes |= piece.simd_eq(u8x16::splat(b'\\'));
            quotes |= bits(piece.simd_eq(u8x16::splat(b'"')));
            // One bit is all that `[` and `{`, and `]` and `}`, differ in.
            let folded = piece | u8x16::splat(0x20);
            opens |= bits(folded.simd_eq(u8x16::splat(b'{')));
            closes |= bits(folded.simd_eq(u8x16::splat(b'}')));
        }
        if backslashes.any() {
            return;
        }
        // Each bit becomes the parity of the quotes up to it: set from an opening quote to before the closing one.
        let mut inside = quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << shift;
        }
        inside ^= self.inside;
        self.inside = 0_u64.wrapping_sub(inside >> 63);
        self.brackets = (opens | closes) & !inside;
        self.opens = opens;
        self.is_loaded = true;
    }
}

/// Where a string ends that goes on at `at`: the index behind its closing quote.
pub(super) fn skip_string(text: &[u8], mut at: usize) -> Option<usize> {
    // Most strings are short, and end before a call of memchr would have begun.
    if let Some(head) = text.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        let head = u8x16::new(*head);
        let ends = head.simd_eq(u8x16::splat(b'"')) | head.simd_eq(u8x16::splat(b'\\'));
        let skipped = ends.to_bitmask().trailing_zeros().min(16) as usize;
        at += skipped;
        if skipped < 16 && text[at] == b'"' {
            return Some(at + 1);
        }
    }
    loop {
        let found = at + memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// The same as [`Blocks::skip`] byte by byte, from inside a value: `depth` levels deep, and perhaps in a string.
fn skip_bytes(text: &[u8], mut at: usize, mut depth: usize, is_in_string: bool) -> Option<usize> {
    if is_in_string {
        at = skip_string(text, at)?;
    }
    loop {
        match MEANING[usize::from(*text.get(at)?)] {
            STRING => {
                at = skip_string(text, at + 1)?;
                continue;
            }
            OPEN => depth += 1,
            CLOSE => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text that is mostly what decides, so that blocks begin and end in all kinds of places.
    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            6 => proptest::sample::select(&b"{}[]\",: a1\xe7\n;}\x02"[..]),
            1 => Just(b'\\'),
        ];
        let rare = proptest::sample::select(&b"{}[]\",: a1\xe7\n;}\x02"[..]);
        prop_oneof![
            prop::collection::vec(byte, 0..400),
            prop::collection::vec(rare, 0..400),
        ]
    }

    proptest! {
        #[test]
        fn values_end_where_they_end_byte_by_byte(text in any_text()) {
            let mut blocks = Blocks::new(&text);
            // As arrays are walked: each value is looked for behind the one before.
            let mut at = 0;
            while let Some(open) = text[at..].iter().position(|byte| matches!(byte, b'{' | b'[')) {
                let open = at + open;
                let end = skip_bytes(&text, open, 0, false);
                prop_assert_eq!(Blocks::new(&text).skip(open), end);
                // A quote between two values is no walk over an array: there the block is not used again.
                if text[at..open].contains(&b'"') || text[at..open].contains(&b'\\') {
                    blocks = Blocks::new(&text);
                }
                prop_assert_eq!(blocks.skip(open), end);
                let Some(end) = end else { break };
                at = end;
            }
        }
    }
}
