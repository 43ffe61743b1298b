//! What people see where a link shows no result.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{escaped, frame};
use crate::results::Unavailable;
use crate::shape::{Code, Refusal};

/// Why there is nothing to see.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Lost {
    False,
    Gone,
    Unavailable,
    BadColumns,
    BadFormat,
    /// It was promised and cannot be made now, or its tenant has spent what may be handed out.
    Refused(Box<Refusal>),
}

impl From<Refusal> for Lost {
    fn from(refusal: Refusal) -> Self {
        match refusal.error {
            // Its tool, or what was promised, is gone.
            Code::StaleCursor => Self::Gone,
            _ => Self::Refused(Box::new(refusal)),
        }
    }
}

impl From<Unavailable> for Lost {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}

impl Lost {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refusal) => {
                StatusCode::from_u16(refusal.error.http_status()).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            Self::False => StatusCode::NOT_FOUND,
            Self::Gone => StatusCode::GONE,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadColumns | Self::BadFormat => StatusCode::BAD_REQUEST,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Refused(_) => "This result cannot be shown just now",
            Self::False => "This link leads nowhere",
            Self::Gone => "This result is no longer kept",
            Self::Unavailable => "This result cannot be read just now",
            Self::BadColumns | Self::BadFormat => "This download does not exist",
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Refused(refusal) => &refusal.message,
            Self::False => {
                "It was changed or cut on the way, or another host made it. Open it as it was given, from its beginning to its \
                 end, or call the tool again for a new one."
            }
            Self::Gone => {
                "Complete results are kept for a time and then removed. Call the tool again with the same arguments: its answer \
                 has a new link."
            }
            Self::Unavailable => {
                "The place where the host keeps results does not answer. Try again in a while."
            }
            Self::BadColumns => {
                "Expected columns as a list of their places, such as columns=0,2. Go back to the page of the result."
            }
            Self::BadFormat => {
                "Expected format=json, format=csv or format=tsv. Go back to the page of the result."
            }
        }
    }
}

impl Lost {
    /// The page that says so. `base` leads to `/results/` from where it is shown.
    pub(super) fn page(self, base: &str) -> Response {
        let body = format!(
            "<main class=\"lost\"><svg class=\"mark\" viewBox=\"0 0 48 48\" aria-hidden=\"true\"><circle cx=\"24\" cy=\"24\" r=\"13\"/>\
             <path d=\"M3 24h42\"/></svg><h1>{}</h1><p>{}</p></main>",
            self.title(),
            escaped(self.text())
        );
        let html = frame(self.title(), base, "", &body);
        let mut response = (
            self.status(),
            [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
            html,
        )
            .into_response();
        if let Self::Refused(refusal) = &self
            && let Some(seconds) = refusal.retry_after_seconds
        {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_shows_nothing_says_why_and_what_to_do() {
        let table = [
            (
                Lost::False,
                404,
                "This link leads nowhere",
                "call the tool again for a new one",
            ),
            (
                Lost::Gone,
                410,
                "This result is no longer kept",
                "Call the tool again with the same arguments",
            ),
            (
                Lost::Unavailable,
                503,
                "This result cannot be read just now",
                "Try again in a while.",
            ),
            (
                Lost::BadColumns,
                400,
                "This download does not exist",
                "columns=0,2",
            ),
            (
                Lost::BadFormat,
                400,
                "This download does not exist",
                "format=json, format=csv or format=tsv",
            ),
        ];
        for (lost, status, title, text) in table {
            assert_eq!(lost.status().as_u16(), status);
            assert_eq!(lost.title(), title);
            assert!(lost.text().contains(text), "{}", lost.text());
        }
    }
}
