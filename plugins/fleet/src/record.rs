//! The record: finding streams in it. A stream that is found goes out as the bytes that it has in the file.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bindings::plimsoll::plugin::types::Fault;

/// As much of the record as finding needs.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    streams: Vec<&'a RawValue>,
}

/// As much of a stream as finding needs.
#[derive(Deserialize)]
struct Stream<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    wave: Option<u64>,
}

/// The streams of the wave that `arguments` name: `{"wave":…,"streams":[…]}`, one stream a line.
///
/// # Errors
///
/// Not found where no stream is in that wave, internal where the record is not one.
pub(crate) fn wave(record: &[u8], arguments: &str) -> Result<Vec<u8>, Fault> {
    #[derive(Deserialize)]
    struct Arguments {
        wave: u64,
    }
    let wanted = serde_json::from_str::<Arguments>(arguments)
        .map_err(|error| Fault::InvalidInput(error.to_string()))?
        .wave;
    let mut waves = Vec::new();
    let mut document = format!("{{\"wave\":{wanted},\"streams\":[").into_bytes();
    let before = document.len();
    for (stream, row) in streams(record)? {
        if stream.wave == Some(wanted) {
            document.extend_from_slice(if document.len() == before {
                b"\n"
            } else {
                b",\n"
            });
            document.extend_from_slice(row.get().as_bytes());
        }
        waves.extend(stream.wave);
    }
    if document.len() == before {
        waves.sort_unstable();
        waves.dedup();
        return Err(Fault::NotFound(format!(
            "no stream is in wave {wanted}; the record has the waves {waves:?}"
        )));
    }
    document.extend_from_slice(b"\n]}\n");
    Ok(document)
}

/// The stream that `arguments` name, whole.
///
/// # Errors
///
/// Not found where there is no such stream, internal where the record is not one.
pub(crate) fn stream<'a>(record: &'a [u8], arguments: &str) -> Result<&'a [u8], Fault> {
    #[derive(Deserialize)]
    struct Arguments {
        stream: String,
    }
    let wanted = serde_json::from_str::<Arguments>(arguments)
        .map_err(|error| Fault::InvalidInput(error.to_string()))?
        .stream;
    streams(record)?
        .into_iter()
        .find(|(stream, _)| stream.id == wanted)
        .map(|(_, row)| row.get().as_bytes())
        .ok_or_else(|| {
            Fault::NotFound(format!(
                "there is no stream `{wanted}`; fleet_show with horizon:\"all\" and fields:[\"id\"] lists every id"
            ))
        })
}

/// Every stream, with its bytes.
fn streams(record: &[u8]) -> Result<Vec<(Stream<'_>, &RawValue)>, Fault> {
    let broken = |error| Fault::Internal(format!("the record is not one: {error}"));
    let record: Record = serde_json::from_slice(record).map_err(broken)?;
    record
        .streams
        .into_iter()
        .map(|row| Ok((serde_json::from_str(row.get()).map_err(broken)?, row)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &[u8] = br#"{"record": "fleet", "streams": [
        {"id": "a", "wave": 1, "cost": 1e400, "last_gate": {"verdict": "passed"}},
        {"id": "b", "wave": 2, "cost": 0.10},
        {"id": "\u0063", "wave": 1, "cost": 9007199254740993}
    ]}"#;

    #[test]
    fn a_wave_is_its_streams_with_the_bytes_of_the_record() {
        let document = wave(RECORD, r#"{"wave": 1}"#).unwrap();
        assert_eq!(
            std::str::from_utf8(&document).unwrap(),
            concat!(
                r#"{"wave":1,"streams":["#,
                "\n",
                r#"{"id": "a", "wave": 1, "cost": 1e400, "last_gate": {"verdict": "passed"}},"#,
                "\n",
                r#"{"id": "\u0063", "wave": 1, "cost": 9007199254740993}"#,
                "\n]}\n"
            )
        );
    }

    #[test]
    fn a_wave_without_streams_is_not_found_and_names_those_that_are_there() {
        assert!(matches!(
            wave(RECORD, r#"{"wave": 7}"#),
            Err(Fault::NotFound(message)) if message.ends_with("the waves [1, 2]")
        ));
    }

    #[test]
    fn a_stream_is_found_by_the_content_of_its_id() {
        let found = stream(RECORD, r#"{"stream": "c"}"#).unwrap();
        assert_eq!(
            found,
            br#"{"id": "\u0063", "wave": 1, "cost": 9007199254740993}"#
        );
        assert!(matches!(
            stream(RECORD, r#"{"stream": "d"}"#),
            Err(Fault::NotFound(message)) if message.contains("no stream `d`")
        ));
    }

    #[test]
    fn a_record_that_is_none_is_an_internal_fault() {
        assert!(matches!(
            wave(b"[]", r#"{"wave": 1}"#),
            Err(Fault::Internal(_))
        ));
        assert!(matches!(
            stream(b"", r#"{"stream": "a"}"#),
            Err(Fault::Internal(_))
        ));
    }

    #[test]
    fn the_shipped_record_has_68_streams_and_those_that_are_over_are_83_percent_of_it() {
        #[derive(Deserialize)]
        struct State {
            state: String,
        }
        let record =
            std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/data/fleet.json")).unwrap();
        let streams = streams(&record).unwrap();
        assert_eq!(streams.len(), 68);
        let over: usize = streams
            .iter()
            .map(|(_, row)| row.get())
            .filter(|row| {
                let state = serde_json::from_str::<State>(row).unwrap().state;
                crate::declaration::OVER.contains(&state.as_str())
            })
            .map(str::len)
            .sum();
        let percent = over * 100 / record.len();
        assert!((82..=84).contains(&percent), "{percent} %");
    }
}
