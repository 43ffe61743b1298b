//! The values of a statement's parameters, which come as JSON texts.

use serde::de::IgnoredAny;

/// A value as a database takes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Parameter {
    Null,
    Boolean(bool),
    Integer(i64),
    /// A number that is no 64-bit integer, in its own digits.
    Number(String),
    /// Text, or the JSON text of an array or object.
    Text(String),
}

impl Parameter {
    /// Reads the parameter at a place, which counts from 1.
    pub(super) fn read(place: usize, text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        if serde_json::from_str::<IgnoredAny>(text).is_err() {
            return Err(format!("parameter {place}: expected JSON, found `{text}`"));
        }
        Ok(match text.as_bytes()[0] {
            b'n' => Self::Null,
            b't' => Self::Boolean(true),
            b'f' => Self::Boolean(false),
            b'"' => Self::Text(
                serde_json::from_str(text)
                    .map_err(|error| format!("parameter {place}: {error}"))?,
            ),
            b'[' | b'{' => Self::Text(text.to_owned()),
            _ => text
                .parse()
                .map_or_else(|_| Self::Number(text.to_owned()), Self::Integer),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_type_and_its_digits() {
        let table = [
            ("null", Parameter::Null),
            ("true", Parameter::Boolean(true)),
            ("false", Parameter::Boolean(false)),
            (
                "9223372036854775807",
                Parameter::Integer(9_223_372_036_854_775_807),
            ),
            (
                "9223372036854775808",
                Parameter::Number("9223372036854775808".into()),
            ),
            ("1.10", Parameter::Number("1.10".into())),
            (r#""a\u00e9\n""#, Parameter::Text("aé\n".into())),
            ("[1, 2]", Parameter::Text("[1, 2]".into())),
        ];
        for (text, expected) in table {
            assert_eq!(Parameter::read(1, text), Ok(expected));
        }
        assert_eq!(
            Parameter::read(2, "'; DROP"),
            Err(String::from("parameter 2: expected JSON, found `'; DROP`"))
        );
    }
}
