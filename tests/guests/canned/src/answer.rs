//! Cutting an answer into what is handed over, always between rows and never inside one.

use serde_json::value::RawValue;

/// The `limit` among the arguments, if it is there.
pub(crate) fn limit(arguments: &str) -> Result<Option<usize>, String> {
    #[derive(serde::Deserialize)]
    struct Arguments {
        limit: Option<usize>,
    }
    serde_json::from_str::<Arguments>(arguments)
        .map(|arguments| arguments.limit)
        .map_err(|error| format!("arguments: {error}"))
}

/// The first `limit` elements of the array that `document` is, each with the bytes it has there.
pub(crate) fn first(document: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    let rows: Vec<&RawValue> = serde_json::from_slice(document)
        .map_err(|error| format!("the answer is no array: {error}"))?;
    let mut out = vec![b'['];
    for (index, row) in rows.iter().take(limit).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(row.get().as_bytes());
    }
    out.push(b']');
    Ok(out)
}

/// The first `limit` lines.
pub(crate) fn first_lines(lines: &[u8], limit: usize) -> &[u8] {
    let length = lines
        .split_inclusive(|byte| *byte == b'\n')
        .take(limit)
        .map(<[u8]>::len)
        .sum();
    &lines[..length]
}

/// Cuts `lines` behind line ends into pieces of at least `piece_bytes` each, the last one excepted.
pub(crate) fn pieces(mut lines: &[u8], piece_bytes: usize) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if lines.is_empty() {
            return None;
        }
        let start = piece_bytes.clamp(1, lines.len()) - 1;
        let length = lines[start..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(lines.len(), |end| start + end + 1);
        let (piece, rest) = lines.split_at(length);
        lines = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_elements_keep_their_bytes() {
        let document = br#"[ {"a":1e400}, {"a":0.10, "a":2} ,3]"#;
        assert_eq!(
            first(document, 2).unwrap(),
            br#"[{"a":1e400},{"a":0.10, "a":2}]"#
        );
        assert_eq!(first(document, 9).unwrap().last(), Some(&b']'));
        assert!(first(b"{}", 1).is_err());
    }

    #[test]
    fn pieces_end_at_line_ends_and_make_up_the_whole() {
        let lines = b"1\n22\n333\n4444";
        for piece_bytes in 0..20 {
            let all: Vec<_> = pieces(lines, piece_bytes).collect();
            assert_eq!(all.concat(), lines);
            assert!(
                all[..all.len() - 1]
                    .iter()
                    .all(|piece| piece.ends_with(b"\n"))
            );
        }
        assert_eq!(pieces(lines, 1).count(), 4);
        assert_eq!(first_lines(lines, 2), b"1\n22\n");
        assert_eq!(first_lines(lines, 9), lines);
    }
}
