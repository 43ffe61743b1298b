//! API keys: how they look, and what one may do.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::quotas::Quotas;
use crate::shape::{KeyBudget, KeyMode};
use crate::store::KeyRow;

/// What every key begins with, so that scanners for leaked secrets can know one.
const PREFIX: &str = "plm_";

/// Random bytes of a key: as many as those of what hashes it.
const SECRET_BYTES: usize = 32;

/// Bytes of a key's id, which is no secret.
const ID_BYTES: usize = 6;

/// A key, while it is made. It is shown once and stored as a hash.
pub struct NewKey {
    /// Names it in listings, logs and the ledger.
    pub id: String,
    /// The text that callers show.
    pub text: String,
}

impl NewKey {
    /// A new random key.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut id = [0; ID_BYTES];
        getrandom::fill(&mut id)?;
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret));
        Ok(Self { id, text })
    }
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Whether a bearer token has the form of a key.
pub(super) fn is_key(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// The hash under which a key is stored. A key is random, so that a fast hash is as good as a slow one, and a look-up by
/// hash tells nothing by the time it takes.
pub fn hash(text: &str) -> blake3::Hash {
    blake3::hash(text.as_bytes())
}

/// What a key may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Names it in listings, logs and the ledger.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Whether it may use what is for admins.
    pub is_admin: bool,
    /// Its own budget.
    pub budget: KeyBudget,
    /// Its own quotas, beside those of its tenant.
    pub quotas: Quotas,
    /// When it ends.
    pub expires_ms: Option<i64>,
    /// Whether it was revoked.
    pub is_revoked: bool,
}

impl Key {
    /// A key as it was stored. One that does not parse gives no access and breaks no other.
    pub(super) fn read(row: &KeyRow) -> anyhow::Result<Self> {
        Ok(Self {
            id: row.id.clone(),
            tenant: row.tenant.clone(),
            name: row.name.clone(),
            is_admin: row.is_admin,
            budget: KeyBudget {
                tokens: row.result_tokens,
                mode: KeyMode::named(&row.budget_mode).ok_or_else(|| {
                    anyhow::anyhow!("there is no budget mode `{}`", row.budget_mode)
                })?,
            },
            quotas: serde_json::from_str(&row.quotas)?,
            expires_ms: row.expires_ms,
            is_revoked: row.revoked_ms.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_random_and_say_what_they_are() {
        let (first, second) = (NewKey::random().unwrap(), NewKey::random().unwrap());
        assert_ne!(first.text, second.text);
        assert_ne!(first.id, second.id);
        assert!(is_key(&first.text) && first.text.starts_with(&format!("plm_{}_", first.id)));
        // 32 bytes make 43 characters.
        assert_eq!(first.text.len(), 4 + 12 + 1 + 43);
        assert!(!format!("{first:?}").contains(&first.text));
    }
}
