//! Checks the arguments of a call against the published schema.

use serde_json::{Map, Value};

use super::Tool;
use crate::shape::{Ask, Field, Refusal, Signer, excerpt};

/// How many mistakes one refusal names.
const MAX_MISTAKES: usize = 8;

impl Tool {
    /// Reads a call: the host's arguments, the query that a cursor carries, and the handler's arguments, all checked.
    pub fn read(
        &self,
        signer: &Signer,
        tenant: &str,
        arguments: Map<String, Value>,
    ) -> Result<Ask, Refusal> {
        let ask = Ask::read(
            &self.policy,
            signer,
            tenant,
            self.name(),
            &self.required,
            arguments,
        )?;
        let arguments = Value::Object(ask.arguments().clone());
        let mistakes: Vec<Field> = self
            .validator
            .iter_errors(&arguments)
            .take(MAX_MISTAKES)
            .map(|error| self.mistake(&error))
            .collect();
        if mistakes.is_empty() {
            Ok(ask)
        } else {
            Err(Refusal::invalid_arguments(mistakes))
        }
    }

    /// Which argument is wrong, what was expected, what came.
    fn mistake(&self, error: &jsonschema::ValidationError<'_>) -> Field {
        use jsonschema::error::ValidationErrorKind as Kind;
        let path = error.instance_path().to_string();
        let name = path
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        match error.kind() {
            Kind::Required { property } => {
                let missing = property
                    .as_str()
                    .map_or_else(|| property.to_string(), str::to_owned);
                let name = if name.is_empty() {
                    missing.clone()
                } else {
                    name
                };
                let expected = self.expected(&missing);
                Field {
                    message: format!("{missing} is required{expected}, and was not passed"),
                    name,
                }
            }
            Kind::AdditionalProperties { unexpected }
            | Kind::UnevaluatedProperties { unexpected } => {
                let valid = super::schema::properties(self.input_schema()).join(", ");
                let found = unexpected.join(", ");
                Field {
                    name: unexpected.first().cloned().unwrap_or_default(),
                    message: format!(
                        "unknown argument {}; valid arguments: {valid}",
                        excerpt(&found)
                    ),
                }
            }
            _ => {
                let place = path.trim_start_matches('/').replace('/', ".");
                let message = if place.is_empty() {
                    excerpt(&error.to_string())
                } else {
                    format!("{place}: {}", excerpt(&error.to_string()))
                };
                Field { name, message }
            }
        }
    }

    fn input_schema(&self) -> &Map<String, Value> {
        self.listed["inputSchema"]
            .as_object()
            .expect("build puts an object there")
    }

    /// What the published schema says about an argument's type.
    fn expected(&self, name: &str) -> String {
        self.listed["inputSchema"]["properties"][name]["type"]
            .as_str()
            .map_or(String::new(), |kind| format!(" ({kind})"))
    }
}
