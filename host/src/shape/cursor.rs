//! Cursors: short, opaque, signed, bound to tenant, tool, arguments and data.
//!
//! A cursor carries the query, so that a continuation needs nothing else, as long as the arguments are short. It holds
//! no state of the host: whoever has the signing key can read it, also after a restart and on another replica.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::keep::ResultId;

/// The longest cursor, in characters: some client programs lose longer arguments.
pub const MAX_CURSOR_CHARS: usize = 200;

/// What base64 makes 200 characters of.
const MAX_BYTES: usize = MAX_CURSOR_CHARS / 4 * 3;
const VERSION: u8 = 1;
/// 96 bits: a guess succeeds once in 2^96.
const SIGNATURE_BYTES: usize = 12;
/// 48 bits tell tools and argument sets apart by accident; the signature guards against intent.
const DIGEST_BYTES: usize = 6;
/// A longer key is carried as its hash: it still finds its row, but cannot be handed to a backend.
pub(crate) const MAX_INLINE_KEY: usize = 48;

/// What the JSON of carried arguments mostly consists of. Each piece is written as one control character, which JSON text
/// cannot have: so most queries fit into a cursor. The order is part of the format.
const PIECES: [&str; 24] = [
    "\"limit\":",
    "\"detail\":\"",
    "\"fields\":[\"",
    "\"horizon\":\"all\"",
    "\"horizon\":\"live\"",
    "\"format\":\"csv\"",
    "\"format\":\"tsv\"",
    "\"format\":\"json\"",
    "\"max_tokens\":",
    "\":[\"",
    "\",\"",
    "\"],\"",
    "\":\"",
    "\"]",
    "],\"",
    "summary",
    "state",
    "status",
    "full",
    "true",
    "false",
    "name",
    "_id",
    "type",
];

/// Signs and reads cursors.
#[derive(Clone)]
pub struct Signer {
    key: [u8; 32],
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(…)")
    }
}

/// Which tool of which tenant a cursor belongs to, and for which arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    scope: [u8; DIGEST_BYTES],
    arguments: [u8; DIGEST_BYTES],
}

impl Binding {
    /// `bound` are the arguments that decide which rows there are and in which form: all but `limit`, `max_tokens` and
    /// `after`. Their order does not matter, nor that of the members of objects in them: clients write them anew.
    pub(crate) fn new(tenant: &str, tool: &str, bound: &Map<String, Value>) -> Self {
        let mut scope = blake3::Hasher::new();
        scope
            .update(&(tenant.len() as u64).to_le_bytes())
            .update(tenant.as_bytes())
            .update(tool.as_bytes());
        let mut names: Vec<&String> = bound.keys().collect();
        names.sort();
        let mut arguments = blake3::Hasher::new();
        for name in names {
            let mut text = String::new();
            canonical(&bound[name], &mut text);
            arguments
                .update(&(name.len() as u64).to_le_bytes())
                .update(name.as_bytes());
            arguments
                .update(&(text.len() as u64).to_le_bytes())
                .update(text.as_bytes());
        }
        Self {
            scope: head(&scope.finalize()),
            arguments: head(&arguments.finalize()),
        }
    }

    /// The same tool of the same tenant with the arguments of another binding.
    pub(crate) fn with_arguments_of(&self, other: &Self) -> Self {
        Self {
            scope: self.scope,
            arguments: other.arguments,
        }
    }
}

/// The JSON text of a value with the members of its objects in order.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            out.push('{');
            for name in names {
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                canonical(&members[name], out);
                out.push(',');
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn head<const N: usize>(hash: &blake3::Hash) -> [u8; N] {
    let mut head = [0; N];
    head.copy_from_slice(&hash.as_bytes()[..N]);
    head
}

/// The key of the last row delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyMark {
    /// Its JSON text.
    Text(Vec<u8>),
    /// The hash of a text that is too long to carry.
    Hash(u64),
}

impl KeyMark {
    /// The hash by which rows are compared.
    pub(crate) fn hash(&self) -> u64 {
        match self {
            Self::Text(text) => xxh3_64(text),
            Self::Hash(hash) => *hash,
        }
    }
}

/// Where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Behind so many matching rows of an answer with this fingerprint.
    Position { fingerprint: u64 },
    /// Behind the row with this key, where the keys up to it form this sequence.
    Key {
        key: KeyMark,
        keys: u8,
        sequence: u64,
    },
    /// In a result that is kept, so many bytes behind its beginning.
    Kept { id: ResultId, offset: u64 },
}

/// What a cursor says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) place: Place,
    /// Matching rows before the next page.
    pub(crate) before: u64,
    /// The optional arguments of the query; `None` where they were too long to carry.
    pub(crate) carried: Option<Map<String, Value>>,
}

/// Why a text is not a cursor that can be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Not made by this host, or changed on the way.
    False,
    /// Made for another tool or tenant.
    Foreign,
}

/// A cursor that was read, with its binding still to be compared with the arguments of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) cursor: Cursor,
    arguments: [u8; DIGEST_BYTES],
}

impl Opened {
    /// Whether the cursor was made for these arguments.
    pub(crate) fn is_for(&self, binding: &Binding) -> bool {
        self.arguments == binding.arguments
    }
}

impl Signer {
    /// A signer with the key of this installation.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// A key for another purpose, which `context` names.
    pub fn derive(&self, context: &'static str) -> [u8; 32] {
        blake3::derive_key(context, &self.key)
    }

    /// The text of a cursor, 200 characters at most, and whether it carries the arguments: those that do not fit are
    /// left out of it.
    pub(crate) fn seal(&self, binding: &Binding, cursor: &Cursor) -> (String, bool) {
        let carried = cursor.carried.as_ref().map(|carried| {
            if carried.is_empty() {
                Vec::new()
            } else {
                pack(&Value::Object(carried.clone()).to_string()).into_bytes()
            }
        });
        let short_key = |place: &Place| match place {
            Place::Key {
                key,
                keys,
                sequence,
            } => Place::Key {
                key: KeyMark::Hash(key.hash()),
                keys: *keys,
                sequence: *sequence,
            },
            place => place.clone(),
        };
        let attempts = [
            (cursor.place.clone(), carried.clone()),
            (short_key(&cursor.place), carried),
            (cursor.place.clone(), None),
            (short_key(&cursor.place), None),
        ];
        let room = MAX_BYTES - SIGNATURE_BYTES;
        let (mut bytes, is_carried) = attempts
            .into_iter()
            .map(|(place, carried)| {
                (
                    encode(binding, &place, cursor.before, carried.as_deref()),
                    carried.is_some(),
                )
            })
            .find(|(bytes, _)| bytes.len() <= room)
            .expect("a cursor without arguments and with a hashed key takes 40 bytes");
        let signature: [u8; SIGNATURE_BYTES] = head(&blake3::keyed_hash(&self.key, &bytes));
        bytes.extend_from_slice(&signature);
        (URL_SAFE_NO_PAD.encode(bytes), is_carried)
    }

    /// Whether a cursor of this host carries its query. What is not such a cursor says no.
    pub fn carries_query(&self, text: &str) -> bool {
        let body = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let body = &body[..body.len().saturating_sub(SIGNATURE_BYTES)];
        decode(body).is_some_and(|(_, opened)| opened.cursor.carried.is_some())
    }

    /// Reads a cursor of this host for a tool of a tenant.
    pub(crate) fn open(&self, text: &str, binding: &Binding) -> Result<Opened, Refused> {
        if text.len() > MAX_CURSOR_CHARS {
            return Err(Refused::False);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Refused::False)?;
        let (body, signature) = bytes
            .split_at_checked(bytes.len().wrapping_sub(SIGNATURE_BYTES))
            .ok_or(Refused::False)?;
        let expected = blake3::keyed_hash(&self.key, body);
        let difference = expected
            .as_bytes()
            .iter()
            .zip(signature)
            .fold(0, |difference, (a, b)| difference | (a ^ b));
        if signature.len() != SIGNATURE_BYTES || difference != 0 {
            return Err(Refused::False);
        }
        let (scope, opened) = decode(body).ok_or(Refused::False)?;
        if scope != binding.scope {
            return Err(Refused::Foreign);
        }
        Ok(opened)
    }
}

fn pack(json: &str) -> String {
    PIECES
        .iter()
        .zip('\u{1}'..)
        .fold(json.to_owned(), |text, (piece, mark)| {
            text.replace(piece, mark.encode_utf8(&mut [0; 4]))
        })
}

fn unpack(text: &str) -> String {
    let piece = |mark: char| {
        (mark as usize)
            .checked_sub(1)
            .and_then(|index| PIECES.get(index))
    };
    let mut json = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        match piece(character) {
            Some(piece) => json.push_str(piece),
            None => json.push(character),
        }
    }
    json
}

/// Version, scope, arguments, flags, place, `before`, and the carried arguments as JSON up to the end.
fn encode(binding: &Binding, place: &Place, before: u64, carried: Option<&[u8]>) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&binding.scope);
    out.extend_from_slice(&binding.arguments);
    out.push(u8::from(carried.is_some()));
    match place {
        Place::Position { fingerprint } => {
            out.push(0);
            out.extend_from_slice(&fingerprint.to_le_bytes());
        }
        Place::Key {
            key: KeyMark::Text(text),
            keys,
            sequence,
        } if text.len() <= MAX_INLINE_KEY => {
            out.extend_from_slice(&[1, *keys]);
            out.extend_from_slice(&sequence.to_le_bytes());
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
        Place::Key {
            key,
            keys,
            sequence,
        } => {
            out.extend_from_slice(&[2, *keys]);
            out.extend_from_slice(&sequence.to_le_bytes());
            out.extend_from_slice(&key.hash().to_le_bytes());
        }
        Place::Kept { id, offset } => {
            out.push(3);
            out.extend_from_slice(id.bytes());
            push_number(*offset, &mut out);
        }
    }
    push_number(before, &mut out);
    out.extend_from_slice(carried.unwrap_or_default());
    out
}

/// Seven bits a byte, the lowest first; the eighth says that there is more.
fn push_number(number: u64, out: &mut Vec<u8>) {
    let mut rest = number;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn decode(bytes: &[u8]) -> Option<([u8; DIGEST_BYTES], Opened)> {
    let mut reader = Reader(bytes);
    if reader.take::<1>()? != [VERSION] {
        return None;
    }
    let scope = reader.take()?;
    let arguments = reader.take()?;
    let [is_carried] = reader.take()?;
    let [kind] = reader.take()?;
    let place = match kind {
        0 => Place::Position {
            fingerprint: u64::from_le_bytes(reader.take()?),
        },
        1 | 2 => {
            let [keys] = reader.take()?;
            let sequence = u64::from_le_bytes(reader.take()?);
            let key = if kind == 1 {
                let [length] = reader.take()?;
                KeyMark::Text(reader.slice(length.into())?.to_vec())
            } else {
                KeyMark::Hash(u64::from_le_bytes(reader.take()?))
            };
            Place::Key {
                key,
                keys,
                sequence,
            }
        }
        3 => Place::Kept {
            id: ResultId::new(reader.take()?),
            offset: reader.number()?,
        },
        _ => return None,
    };
    let before = reader.number()?;
    let carried = match (is_carried, reader.0) {
        (0, []) => None,
        (1, []) => Some(Map::new()),
        (1, text) => Some(serde_json::from_str(&unpack(std::str::from_utf8(text).ok()?)).ok()?),
        _ => return None,
    };
    Some((
        scope,
        Opened {
            cursor: Cursor {
                place,
                before,
                carried,
            },
            arguments,
        },
    ))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn signer() -> Signer {
        Signer::new([7; 32])
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that `json!` can stand at the call"
    )]
    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn cursor(key: &str, carried: Value) -> Cursor {
        let key = KeyMark::Text(key.as_bytes().to_vec());
        Cursor {
            place: Place::Key {
                key,
                keys: 8,
                sequence: u64::MAX,
            },
            before: 1 << 40,
            carried: Some(object(carried)),
        }
    }

    #[test]
    fn a_cursor_says_what_it_was_made_with() {
        let arguments = object(json!({"state": ["open"], "detail": "full"}));
        let binding = Binding::new("acme", "fleet_show", &arguments);
        let made = cursor("\"s-17\"", json!({"state": ["open"], "limit": 5}));
        let (text, _) = signer().seal(&binding, &made);
        assert!(text.len() <= MAX_CURSOR_CHARS);
        let opened = signer().open(&text, &binding).unwrap();
        assert_eq!(opened.cursor, made);
        assert!(opened.is_for(&binding));
        let reordered = object(json!({"detail": "full", "state": ["open"]}));
        assert!(opened.is_for(&Binding::new("acme", "fleet_show", &reordered)));
        let nested =
            |text: &str| Binding::new("acme", "fleet_show", &serde_json::from_str(text).unwrap());
        assert_eq!(
            nested(r#"{"where":{"a":1,"b":[{"c":2,"d":3}]}}"#),
            nested(r#"{"where":{"b":[{"d":3,"c":2}],"a":1}}"#)
        );
        assert_ne!(
            nested(r#"{"where":["a","b"]}"#),
            nested(r#"{"where":["b","a"]}"#)
        );
        assert!(!opened.is_for(&Binding::new(
            "acme",
            "fleet_show",
            &object(json!({"state": ["gated"]}))
        )));
    }

    #[test]
    fn a_cursor_of_another_tenant_tool_or_host_is_refused_as_what_it_is() {
        let binding = Binding::new("acme", "fleet_show", &Map::new());
        let (text, _) = signer().seal(&binding, &cursor("1", json!({})));
        for other in [
            Binding::new("other", "fleet_show", &Map::new()),
            Binding::new("acme", "wave_show", &Map::new()),
        ] {
            assert_eq!(signer().open(&text, &other), Err(Refused::Foreign));
        }
        assert_eq!(
            Signer::new([8; 32]).open(&text, &binding),
            Err(Refused::False)
        );
        for position in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[position] = if changed[position] == b'A' {
                b'B'
            } else {
                b'A'
            };
            assert_eq!(
                signer().open(std::str::from_utf8(&changed).unwrap(), &binding),
                Err(Refused::False)
            );
        }
        for text in ["", "x", "not a cursor", &"A".repeat(201)] {
            assert_eq!(signer().open(text, &binding), Err(Refused::False), "{text}");
        }
    }

    #[test]
    fn a_query_of_every_host_argument_and_two_filters_is_carried() {
        // Case C7: a continuation needs only the cursor.
        let arguments = object(json!({
            "state": ["open", "gated", "parked"], "owner": "somebody@example.com", "limit": 100, "detail": "summary",
            "fields": ["id", "state", "last_gate.verdict"], "horizon": "all", "format": "csv", "max_tokens": 12_000,
        }));
        let binding = Binding::new("acme", "fleet_show", &arguments);
        let (text, is_carried) = signer().seal(
            &binding,
            &cursor("\"stream-0017\"", Value::Object(arguments.clone())),
        );
        assert!(is_carried && text.len() <= MAX_CURSOR_CHARS);
        assert_eq!(
            signer().open(&text, &binding).unwrap().cursor.carried,
            Some(arguments)
        );
    }

    #[test]
    fn a_place_in_a_kept_result_is_carried_with_a_query() {
        let arguments = object(json!({
            "status": ["open", "packed"], "customer": "C-0042", "limit": 100, "detail": "full", "max_tokens": 12_000,
        }));
        let binding = Binding::new("acme", "list_orders", &arguments);
        let made = Cursor {
            place: Place::Kept {
                id: ResultId::new([0xab; 16]),
                offset: 1 << 36,
            },
            before: 1 << 30,
            carried: Some(arguments),
        };
        let (text, is_carried) = signer().seal(&binding, &made);
        assert!(is_carried && text.len() <= MAX_CURSOR_CHARS);
        assert_eq!(signer().open(&text, &binding).unwrap().cursor, made);
    }

    proptest! {
        #[test]
        fn packed_arguments_come_out_as_they_went_in(text in "[\\x00-\\x20a-z\",:\\[\\]{}]{0,60}") {
            let json = Value::String(text).to_string();
            prop_assert_eq!(unpack(&pack(&json)), json);
        }

        #[test]
        fn no_cursor_is_longer_than_200_characters(key in ".{0,400}", value in ".{0,400}", before: u64) {
            let arguments = object(json!({"filter": value}));
            let binding = Binding::new("tenant", "tool", &arguments);
            let mut made = cursor(&key, Value::Object(arguments.clone()));
            made.before = before;
            let (text, _) = signer().seal(&binding, &made);
            prop_assert!(text.len() <= MAX_CURSOR_CHARS);
            let opened = signer().open(&text, &binding).unwrap();
            prop_assert_eq!(opened.cursor.before, before);
            prop_assert!(opened.cursor.carried.is_none_or(|carried| carried == arguments));
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = decode(&bytes);
            let _ = signer().open(&URL_SAFE_NO_PAD.encode(&bytes), &Binding::new("", "", &Map::new()));
        }
    }
}
