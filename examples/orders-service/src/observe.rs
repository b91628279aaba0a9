//! Tracing spans, and metrics for Prometheus: of each request here, and of the store by its report.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

/// Describes the metrics of requests. The store describes its own.
pub(crate) fn describe() {
    metrics::describe_histogram!("http_request_seconds", "Time to the head of the answer");
    metrics::describe_counter!("http_requests_total", "Requests, by method, route and status");
}

/// Wraps a request in a span and counts it. The store's own spans (target `pmindex_store`) are inside.
pub(crate) async fn request(path: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let route = path.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let method = request.method().to_string();
    let span = tracing::info_span!("request", %method, path = request.uri().path());
    let began = Instant::now();
    let response = async move {
        let response = next.run(request).await;
        tracing::debug!(status = response.status().as_u16(), "answered");
        response
    }
    .instrument(span)
    .await;
    let status = response.status().as_str().to_owned();
    let labels = [("method", method), ("route", route)];
    metrics::histogram!("http_request_seconds", &labels).record(began.elapsed());
    let [method, route] = labels;
    metrics::counter!("http_requests_total", &[method, route, ("status", status)]).increment(1);
    response
}
