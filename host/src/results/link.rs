//! The addresses under which people see a kept result.
//!
//! An address holds a token: whose result it is, which, and until when, signed. Whoever has it sees that one result and
//! nothing else, without a key; so it expires with the result.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::TenantFolder;
use crate::shape::{ResultId, Signer};

const VERSION: u8 = 1;
const SIGNATURE_BYTES: usize = 16;
/// Version, tenant, id, and five bytes of time, which last for 34,000 years.
const BODY_BYTES: usize = 1 + 16 + 16 + 5;

/// Makes addresses and reads their tokens.
#[derive(Debug)]
pub struct Links {
    key: LinkKey,
    /// What addresses begin with. Set once, when the HTTP doors are open or by the configuration; none without.
    base: OnceLock<String>,
}

struct LinkKey([u8; 32]);

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkKey(…)")
    }
}

/// What a token gives access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The folder of the tenant whose result it is.
    pub tenant: TenantFolder,
    /// The result.
    pub id: ResultId,
    /// Until when, in seconds since 1970.
    pub expires: u64,
}

/// Why a token gives access to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadLink {
    /// Not made by this host, or changed on the way.
    False,
    /// It was good until its time was over.
    Expired,
}

impl Links {
    pub(super) fn new(signer: &Signer) -> Self {
        Self {
            key: LinkKey(signer.derive("plimsoll 2026-11 links to kept results")),
            base: OnceLock::new(),
        }
    }

    /// Says what addresses begin with, such as `https://plimsoll.example.com`. The first word counts.
    pub fn begin_with(&self, base: &str) {
        // Set before: the configuration's word goes before the address that was bound.
        let _ = self.base.set(base.trim_end_matches('/').to_owned());
    }

    /// The address of a result, where the host has any.
    pub fn address(&self, grant: &Grant) -> Option<String> {
        let base = self.base.get()?;
        Some(format!("{base}/results/{}", self.token(grant)))
    }

    /// The token of an address.
    pub fn token(&self, grant: &Grant) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&grant.tenant.0);
        bytes.extend_from_slice(grant.id.bytes());
        bytes.extend_from_slice(&grant.expires.to_be_bytes()[3..]);
        let signature = blake3::keyed_hash(&self.key.0, &bytes);
        bytes.extend_from_slice(&signature.as_bytes()[..SIGNATURE_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a token at a time.
    pub fn open(&self, token: &str, now: u64) -> Result<Grant, BadLink> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| BadLink::False)?;
        if bytes.len() != BODY_BYTES + SIGNATURE_BYTES || bytes[0] != VERSION {
            return Err(BadLink::False);
        }
        let (body, signature) = bytes.split_at(BODY_BYTES);
        let expected = blake3::keyed_hash(&self.key.0, body);
        // All bytes are compared, however early they differ.
        let difference = expected
            .as_bytes()
            .iter()
            .zip(signature)
            .fold(0, |difference, (a, b)| difference | (a ^ b));
        if difference != 0 {
            return Err(BadLink::False);
        }
        let sixteen = |at: usize| -> [u8; 16] { body[at..at + 16].try_into().unwrap_or_default() };
        let expires = body[33..]
            .iter()
            .fold(0, |time, byte| time << 8 | u64::from(*byte));
        if expires <= now {
            return Err(BadLink::Expired);
        }
        Ok(Grant {
            tenant: TenantFolder(sixteen(1)),
            id: ResultId::new(sixteen(17)),
            expires,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        Grant {
            tenant: TenantFolder::of("acme"),
            id: ResultId::new([3; 16]),
            expires: 1_800_000_000,
        }
    }

    #[test]
    fn a_token_gives_what_it_was_made_for_until_its_time_is_over() {
        let links = Links::new(&Signer::new([7; 32]));
        let token = links.token(&grant());
        assert_eq!(token.len(), 72);
        assert_eq!(links.open(&token, 1_799_999_999), Ok(grant()));
        assert_eq!(links.open(&token, 1_800_000_000), Err(BadLink::Expired));
    }

    #[test]
    fn a_token_that_was_changed_or_made_elsewhere_is_false_also_when_it_has_expired() {
        let links = Links::new(&Signer::new([7; 32]));
        let token = links.token(&grant());
        for position in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[position] = if changed[position] == b'A' {
                b'B'
            } else {
                b'A'
            };
            let changed = std::str::from_utf8(&changed).unwrap();
            assert_eq!(
                links.open(changed, u64::MAX),
                Err(BadLink::False),
                "{position}"
            );
        }
        let other = Links::new(&Signer::new([8; 32])).token(&grant());
        for token in [other.as_str(), "", "x", &token[..70], &format!("{token}AA")] {
            assert_eq!(links.open(token, 0), Err(BadLink::False), "{token}");
        }
    }

    #[test]
    fn addresses_begin_with_the_first_word() {
        let links = Links::new(&Signer::new([7; 32]));
        assert_eq!(links.address(&grant()), None);
        links.begin_with("https://plimsoll.example.com/agents/");
        links.begin_with("http://127.0.0.1:8787");
        let address = links.address(&grant()).unwrap();
        let token = links.token(&grant());
        assert_eq!(
            address,
            format!("https://plimsoll.example.com/agents/results/{token}")
        );
    }

    #[test]
    fn nothing_prints_the_key() {
        let links = Links::new(&Signer::new([7; 32]));
        assert!(format!("{links:?}").contains("LinkKey(…)"));
    }
}
