//! Requests and replies.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::shop::{Item, Order, Sales, Shop};
use crate::{events, observe};

/// The shared state of all requests.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) shop: Arc<Shop>,
    pub(crate) figures: PrometheusHandle,
    /// The process is ending, so streams end.
    pub(crate) ends: Arc<AtomicBool>,
}

impl App {
    /// Runs work that may wait for a disk, or takes long, on a thread where it blocks no other request.
    pub(crate) async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Shop) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let (shop, span) = (Arc::clone(&self.shop), tracing::Span::current());
        tokio::task::spawn_blocking(move || span.in_scope(|| work(&shop))).await?
    }
}

pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/customers", post(add_customer).get(find_customer))
        .route("/customers/{id}", get(customer))
        .route("/customers/{id}/orders", get(orders_of))
        .route("/orders", post(add_order))
        .route("/orders/{number}", get(order))
        .route("/orders/{number}/cancel", post(cancel))
        .route("/sales", get(sales))
        .route("/events", get(events::stream))
        .route("/report", get(report))
        .route("/metrics", get(figures))
        .method_not_allowed_fallback(async || Refusal::NoSuchMethod)
        .layer(middleware::from_fn(observe::request))
        .fallback(async || Refusal::NoSuchPage)
        .with_state(app)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewCustomer {
    name: String,
    email: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewOrder {
    customer: u64,
    items: Vec<Item>,
}

/// A record, with its number.
#[derive(Serialize)]
struct Numbered<T> {
    id: u64,
    #[serde(flatten)]
    record: T,
}

fn valid(condition: bool, otherwise: &str) -> Result<(), Refusal> {
    if condition { Ok(()) } else { Err(Refusal::Invalid(otherwise.into())) }
}

async fn add_customer(
    State(app): State<App>,
    body: Result<Json<NewCustomer>, JsonRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let Json(NewCustomer { name, email }) = body?;
    valid(!name.trim().is_empty() && name.len() <= 200, "a name has 1 to 200 bytes")?;
    valid(
        email.contains('@') && email.len() <= 254,
        "an email address has an @, and at most 254 bytes",
    )?;
    let id = app.blocking(move |shop| shop.add_customer(&name, &email)).await?;
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, format!("/customers/{id}"))],
        Json(json!({ "id": id })),
    ))
}

#[derive(Deserialize)]
struct ByEmail {
    email: String,
}

// A read waits for nothing, so it needs no thread of its own.
async fn find_customer(
    State(app): State<App>,
    query: Result<Query<ByEmail>, QueryRejection>,
) -> Result<Json<impl Serialize>, Refusal> {
    let (id, record) = app.shop.customer_by_email(&query?.email)?;
    Ok(Json(Numbered { id, record }))
}

async fn customer(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Json<impl Serialize>, Refusal> {
    let Path(id) = id?;
    Ok(Json(Numbered { id, record: app.shop.customer(id)? }))
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

async fn orders_of(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Vec<Numbered<Order>>>, Refusal> {
    let (Path(id), Query(Page { after, limit })) = (id?, page?);
    let most = limit.unwrap_or(100);
    valid((1..=1000).contains(&most), "limit is 1 to 1000")?;
    let orders = app.blocking(move |shop| shop.orders_of(id, after, most)).await?;
    Ok(Json(orders.into_iter().map(|(id, record)| Numbered { id, record }).collect()))
}

/// Returns the key of a request that may be repeated.
fn request_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().unwrap_or_default();
    valid(
        (1..=100).contains(&key.len()),
        "an Idempotency-Key has 1 to 100 visible ASCII characters",
    )?;
    Ok(Some(key.into()))
}

async fn add_order(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Json<NewOrder>, JsonRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let request = request_key(&headers)?;
    let Json(NewOrder { customer, items }) = body?;
    valid((1..=100).contains(&items.len()), "an order has 1 to 100 items")?;
    for item in &items {
        let article = &item.article;
        valid(!article.is_empty() && article.len() <= 100, "an article has 1 to 100 bytes")?;
        valid((1..=1000).contains(&item.quantity), "a quantity is 1 to 1000")?;
        valid(item.price <= 100_000_000, "a price is at most 100000000 cents")?;
    }
    let (number, is_new) =
        app.blocking(move |shop| shop.add_order(customer, &items, request.as_deref())).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let place = [(header::LOCATION, format!("/orders/{number}"))];
    Ok((status, place, Json(json!({ "id": number }))))
}

async fn order(
    State(app): State<App>,
    number: Result<Path<u64>, PathRejection>,
) -> Result<Json<impl Serialize>, Refusal> {
    let Path(id) = number?;
    Ok(Json(Numbered { id, record: app.shop.order(id)? }))
}

async fn cancel(
    State(app): State<App>,
    number: Result<Path<u64>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(number) = number?;
    let was_open = app.blocking(move |shop| shop.cancel(number)).await?;
    Ok(Json(json!({ "id": number, "cancelled_now": was_open })))
}

async fn sales(State(app): State<App>) -> Result<Json<Sales>, Refusal> {
    Ok(Json(app.blocking(Shop::sales).await?))
}

/// Returns the store's report as text.
async fn report(State(app): State<App>) -> Result<String, Refusal> {
    app.blocking(|shop| Ok(format!("{}\n", shop.store().report()?))).await
}

/// Returns it for Prometheus, with the metrics of the service.
async fn figures(State(app): State<App>) -> Result<impl IntoResponse, Refusal> {
    let report = app.blocking(|shop| Ok(shop.store().report()?)).await?;
    report.record();
    app.figures.run_upkeep();
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, app.figures.render()))
}
