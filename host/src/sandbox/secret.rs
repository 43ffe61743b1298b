//! A value that is never printed.

use std::fmt;
use std::sync::LazyLock;

/// Keys the marks of this process. A mark without it would let whoever reads a log try out guesses.
static KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the system has random numbers");
    key
});

/// A secret of one plugin, or of the host. `Debug` shows a mark in its place that tells a changed secret from an unchanged one within this
/// process, and nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a value.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value, for what it was given to.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Secret({})",
            blake3::keyed_hash(&KEY, self.0.as_bytes()).to_hex()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_marked_and_not_printed() {
        let text = format!("{:?}", Secret::new("hunter2".into()));
        assert!(!text.contains("hunter2"));
        assert_eq!(text, format!("{:?}", Secret::new("hunter2".into())));
        assert_ne!(text, format!("{:?}", Secret::new("hunter3".into())));
        assert!(!text.contains(blake3::hash(b"hunter2").to_hex().as_str()));
    }
}
