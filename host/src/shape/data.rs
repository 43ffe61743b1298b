//! Data in text cells: `data:` URIs and base64, which a model pays for and cannot read.
//!
//! Owns: finding them, and what type and size they are.

use std::ops::Range;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The longest head of a `data:` URI that is looked for: a media type with its parameters.
const MAX_HEAD_BYTES: usize = 200;

/// How files of common types begin in base64.
const BEGINNINGS: [(&str, &str); 6] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", "application/pdf"),
    ("UEsDB", "application/zip"),
];

/// Data inside a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Data {
    /// Where in the text.
    pub(super) place: Range<usize>,
    /// Its media type, where that is known.
    pub(super) media_type: Option<String>,
    /// What it has once decoded.
    pub(super) bytes: usize,
}

/// Everything in `text` that is data of more than `chars` characters, in order.
pub(super) fn find(text: &str, chars: usize) -> Vec<Data> {
    if text.len() <= chars {
        return Vec::new();
    }
    if let Some(bytes) = base64_bytes(text) {
        let known = BEGINNINGS
            .iter()
            .find(|(beginning, _)| text.starts_with(beginning));
        // A long word of one kind of letters, or a number, is a text that happens to have the alphabet of base64.
        if known.is_some() || is_mixed(text) {
            return vec![Data {
                place: 0..text.len(),
                media_type: known.map(|(_, media_type)| (*media_type).to_owned()),
                bytes,
            }];
        }
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = find_scheme(&text[at..]) {
        let start = at + offset;
        match uri(text, start) {
            Some(data) => {
                at = data.place.end;
                // A URI is ASCII.
                if data.place.len() > chars {
                    found.push(data);
                }
            }
            None => at = start + "data:".len(),
        }
    }
    found
}

/// The next `data:` that does not end a longer word.
fn find_scheme(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b':', bytes).find_map(|colon| {
        let start = colon.checked_sub(4)?;
        let is_scheme = bytes[start..colon].eq_ignore_ascii_case(b"data");
        let is_word = start > 0 && bytes[start - 1].is_ascii_alphanumeric();
        (is_scheme && !is_word).then_some(start)
    })
}

/// The `data:` URI that begins at `start`, if one does.
fn uri(text: &str, start: usize) -> Option<Data> {
    let body = start + "data:".len();
    let head_end = (body + MAX_HEAD_BYTES).min(text.len());
    let comma = body + memchr::memchr(b',', &text.as_bytes()[body..head_end])?;
    let head = &text[body..comma];
    let is_head = |byte: u8| byte.is_ascii_alphanumeric() || b"/+-._;=\"*!#$&^%".contains(&byte);
    if !head.bytes().all(is_head) {
        return None;
    }
    let is_base64 = head
        .rsplit(';')
        .next()
        .is_some_and(|last| last.eq_ignore_ascii_case("base64"));
    // Characters that a URI has, without those that end one in prose, Markdown and HTML.
    let is_data = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=%-_.~!*'$&,;:@?#".contains(byte);
    let length = text.as_bytes()[comma + 1..]
        .iter()
        .take_while(|byte| is_data(byte))
        .count();
    let data = &text[comma + 1..comma + 1 + length];
    let media_type = head.split(';').next().filter(|name| !name.is_empty());
    let bytes = if is_base64 {
        data.trim_end_matches('=').len() * 3 / 4
    } else {
        data.len() - 2 * data.matches('%').count().min(data.len() / 3)
    };
    Some(Data {
        place: start..comma + 1 + length,
        media_type: Some(media_type.unwrap_or("text/plain").to_owned()),
        bytes,
    })
}

/// How many bytes a text decodes to, where all of it is base64 of either alphabet, also in lines.
fn base64_bytes(text: &str) -> Option<usize> {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=\r\n".contains(&byte);
    if !text.bytes().all(is_base64) {
        return None;
    }
    let letters: Vec<u8> = text
        .bytes()
        .filter(|byte| !b"\r\n".contains(byte))
        .collect();
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    [&alphabet::STANDARD, &alphabet::URL_SAFE]
        .into_iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, config).decode(&letters).ok())
        .map(|data| data.len())
}

/// Whether a text has capitals, small letters and digits, as any hundred characters of base64 have.
fn is_mixed(text: &str) -> bool {
    let has = |is: fn(&u8) -> bool| text.as_bytes().iter().any(is);
    // A hexadecimal number has six letters only.
    has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && text
            .bytes()
            .any(|byte| byte.is_ascii_alphabetic() && !byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    fn noise(length: usize) -> Vec<u8> {
        (0..length)
            .map(|index| (index * 37 + index / 7) as u8)
            .collect()
    }

    #[test]
    fn base64_is_found_with_its_decoded_size() {
        let data = noise(301);
        let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &data].concat();
        for (text, media_type, bytes) in [
            (STANDARD.encode(&data), None, 301),
            (URL_SAFE_NO_PAD.encode(&data), None, 301),
            (STANDARD.encode(&png), Some("image/png"), 309),
            (
                STANDARD
                    .encode(&data)
                    .as_bytes()
                    .chunks(76)
                    .map(|line| String::from_utf8(line.to_vec()).unwrap() + "\r\n")
                    .collect(),
                None,
                301,
            ),
        ] {
            let found = find(&text, 256);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].place, 0..text.len());
            assert_eq!(found[0].media_type.as_deref(), media_type);
            assert_eq!(found[0].bytes, bytes);
            assert_eq!(find(&text, text.len()), []);
        }
    }

    #[test]
    fn text_with_the_alphabet_of_base64_is_text() {
        for text in [
            "a".repeat(300),
            "ACGT".repeat(100),
            "0123456789abcdef".repeat(30),
            "0123456789abcdefABCDEF00".repeat(30),
            "Words and 1 number, ".repeat(30),
            "1234567890".repeat(40),
        ] {
            assert_eq!(find(&text, 256), [], "{text}");
        }
    }

    #[test]
    fn data_uris_are_found_also_inside_text() {
        let image = STANDARD.encode(noise(300));
        let text = format!("See ![logo](data:image/png;base64,{image}) and data:,short.");
        let found = find(&text, 256);
        assert_eq!(found.len(), 1);
        assert_eq!(
            &text[found[0].place.clone()],
            format!("data:image/png;base64,{image}")
        );
        assert_eq!(found[0].media_type.as_deref(), Some("image/png"));
        assert_eq!(found[0].bytes, 300);
        let plain = format!("DATA:,{}", "a%20b".repeat(100));
        let found = find(&plain, 256);
        assert_eq!(found[0].media_type.as_deref(), Some("text/plain"));
        assert_eq!(found[0].bytes, 300);
        for text in [
            "metadata:,".to_owned() + &image,
            "data: the rest, ".to_owned() + &"prose ".repeat(90),
        ] {
            assert_eq!(find(&text, 256), [], "{text}");
        }
    }
}
