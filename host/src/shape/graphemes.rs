//! Characters of a JSON string as it is written, escapes and all.
//!
//! Owns: counting them, and where a text may end so that what a reader sees as one character stays whole: an escaped
//! surrogate pair, a letter with its accents, a flag, a family of emoji.

/// How many characters a boundary may move back. Longer sequences are no characters of any script.
const MAX_BACK: usize = 16;

/// A character: how many bytes it takes as it is written, and what it is. None for half of a surrogate pair.
type Written = (usize, Option<char>);

fn characters(inner: &[u8]) -> impl Iterator<Item = Written> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let written = character(inner.get(at..)?)?;
        at += written.0;
        Some(written)
    })
}

fn character(text: &[u8]) -> Option<Written> {
    let unit = |at: usize| {
        let hex = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    };
    let first = *text.first()?;
    if first == b'\\' {
        let Some(high) = unit(0) else {
            return Some((text.len().min(2), Some(' ')));
        };
        if let Some(low) = unit(6)
            && (0xD800..0xDC00).contains(&high)
            && (0xDC00..0xE000).contains(&low)
        {
            let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            return Some((12, char::from_u32(code)));
        }
        return Some((6, char::from_u32(high)));
    }
    let length = match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    }
    .min(text.len());
    let character = std::str::from_utf8(&text[..length]).ok();
    Some((length, character.and_then(|text| text.chars().next())))
}

/// How many characters there are.
pub(super) fn count(inner: &[u8]) -> usize {
    characters(inner).count()
}

/// Where the first `max` characters end, or a little before that where the next one belongs to them.
pub(super) fn boundary(inner: &[u8], max: usize) -> usize {
    let written: Vec<Written> = characters(inner).take(max + 1).collect();
    let mut end = max.min(written.len());
    let mut back = 0;
    while end > 0 && end < written.len() && is_joined(&written, end) && back < MAX_BACK {
        end -= 1;
        back += 1;
    }
    if end == 0 || back == MAX_BACK {
        end = max.min(written.len());
    }
    written[..end].iter().map(|(length, _)| length).sum()
}

/// Whether the character at `at` is part of what a reader sees as the one before.
fn is_joined(written: &[Written], at: usize) -> bool {
    const JOINER: char = '\u{200D}';
    let (Some(before), Some(next)) = (written[at - 1].1, written[at].1) else {
        return false;
    };
    let is_flag = |character: char| ('\u{1F1E6}'..='\u{1F1FF}').contains(&character);
    if is_flag(next) {
        let run = written[..at]
            .iter()
            .rev()
            .take_while(|(_, character)| character.is_some_and(is_flag));
        return run.count() % 2 == 1;
    }
    let is_mark = matches!(next,
        '\u{300}'..='\u{36F}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5BD}' | '\u{64B}'..='\u{65F}'
        | '\u{93A}'..='\u{93C}' | '\u{93E}'..='\u{94F}' | '\u{E31}' | '\u{E34}'..='\u{E3A}' | '\u{E47}'..='\u{E4E}'
        | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}' | '\u{20D0}'..='\u{20FF}' | '\u{FE00}'..='\u{FE0F}'
        | '\u{FE20}'..='\u{FE2F}' | '\u{1F3FB}'..='\u{1F3FF}' | '\u{E0020}'..='\u{E007F}');
    is_mark || next == JOINER || before == JOINER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(inner: &str, max: usize) -> &str {
        &inner[..boundary(inner.as_bytes(), max)]
    }

    #[test]
    fn what_a_reader_sees_as_one_character_stays_whole() {
        for (inner, max, expected) in [
            ("abcdef", 3, "abc"),
            ("abc", 9, "abc"),
            (r"a\ud83d\ude00b", 2, r"a\ud83d\ude00"),
            (r"a\ud83d\ude00b", 1, "a"),
            (r"a\ud83db", 2, r"a\ud83d"),
            (r"a\n\u00e9b", 3, r"a\n\u00e9"),
            (r#"a\"b"#, 2, r#"a\""#),
            ("語語語", 2, "語語"),
            ("ae\u{301}b", 2, "a"),
            (r"ae\u0301b", 2, "a"),
            ("a🇩🇪🇫🇷", 2, "a"),
            ("a🇩🇪🇫🇷", 3, "a🇩🇪"),
            ("a👩‍👩‍👧b", 4, "a"),
            ("a👩‍👩‍👧b", 6, "a👩‍👩‍👧"),
            ("a👍🏽b", 2, "a"),
            // Nothing is left of the first one, so it is cut after all.
            ("👩‍👩‍👧", 2, "👩‍"),
        ] {
            assert_eq!(first(inner, max), expected, "{inner} {max}");
        }
    }

    #[test]
    fn escapes_are_characters() {
        assert_eq!(count(br#"a\n\u00e9\ud83d\ude00\""#), 5);
        assert_eq!(count("é😀".as_bytes()), 2);
        assert_eq!(count(br"\ud83d\ud83d"), 2);
        assert_eq!(count(b""), 0);
    }

    #[test]
    fn a_run_of_marks_without_end_is_cut() {
        let marks = "\u{301}".repeat(100);
        assert_eq!(first(&marks, 50).chars().count(), 50);
    }
}
