//! Error replies of requests: a status, and a sentence in JSON.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pmindex::{IndexError, PmError, StoreError};

/// The reason why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no customer {0}")]
    NoSuchCustomer(u64),
    #[error("no customer has this email address")]
    NoSuchEmail,
    #[error("there is no order {0}")]
    NoSuchOrder(u64),
    #[error("nothing is at this address: README.md lists the addresses")]
    NoSuchPage,
    #[error("this address does not take this method")]
    NoSuchMethod,
    #[error("a customer has this email address already")]
    EmailTaken,
    #[error("this Idempotency-Key came with another order before")]
    OtherRequest,
    #[error("{0}")]
    Invalid(String),
    #[error("{text}")]
    Malformed { status: StatusCode, text: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the request was given up")]
    GivenUp(#[from] tokio::task::JoinError),
}

impl From<IndexError> for Refusal {
    fn from(error: IndexError) -> Self {
        Self::Store(error.into())
    }
}

macro_rules! malformed {
    ($($rejection:ty),+) => { $(
        impl From<$rejection> for Refusal {
            fn from(rejection: $rejection) -> Self {
                Self::Malformed { status: rejection.status(), text: rejection.body_text() }
            }
        }
    )+ };
}

malformed!(JsonRejection, PathRejection, QueryRejection);

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchCustomer(_)
            | Self::NoSuchEmail
            | Self::NoSuchOrder(_)
            | Self::NoSuchPage => StatusCode::NOT_FOUND,
            Self::NoSuchMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::EmailTaken => StatusCode::CONFLICT,
            Self::OtherRequest | Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Malformed { status, .. } => *status,
            Self::GivenUp(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Store(error) => of_store(error),
        }
    }
}

/// Returns 503 for errors after which a client can try again. [`StoreError::Unfinished`] is one: the change
/// takes place, and the repeated request with its `Idempotency-Key` gets its result.
fn of_store(error: &StoreError) -> StatusCode {
    match error {
        StoreError::Conflict { .. }
        | StoreError::SnapshotEnded { .. }
        | StoreError::Unfinished(_) => StatusCode::SERVICE_UNAVAILABLE,
        StoreError::WatchEnded => StatusCode::GONE,
        StoreError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        StoreError::Index(IndexError::Pool(PmError::Full { .. } | PmError::NoSpace { .. })) => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::error!(error = %self, "a request failed");
        }
        let body = Json(serde_json::json!({ "error": self.to_string() }));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return (status, [(header::RETRY_AFTER, "1")], body).into_response();
        }
        (status, body).into_response()
    }
}
