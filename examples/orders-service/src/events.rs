//! The changes of commits as a stream of server-sent events.
//!
//! Each commit has an event `order` for each order that it changed; the last one of a commit has the commit's
//! position as its id. A client that reconnects with it (`Last-Event-ID`, as browsers do) misses nothing: the
//! store keeps its commits, also over restarts and crashes.

use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::Stream;
use pmindex::{Committed, StoreError, Watch, WatchPosition};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::refusal::Refusal;
use crate::routes::App;
use crate::shop::Shop;

/// The interval at which a task that waits for commits checks whether the client has disconnected or the
/// process ends.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) async fn stream(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let after = match headers.get("last-event-id").map(|id| id.to_str().unwrap_or("").parse()) {
        None => None,
        Some(Ok(position)) => Some(WatchPosition::from_u64(position)),
        Some(Err(_)) => return Err(Refusal::Invalid("Last-Event-ID is the id of an event".into())),
    };
    let watch = app
        .blocking(move |shop| {
            let store = shop.store();
            Ok(after.map_or_else(|| store.watch(), |position| store.watch_from(position))?)
        })
        .await?;
    // A client that does not read blocks only its own watch; the log moves on, and finally ends the watch.
    let (sender, receiver) = mpsc::channel(64);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = send(&app, watch, &sender) {
            let data = json!({ "error": error.to_string() }).to_string();
            let _ = sender.blocking_send(Ok(Event::default().event("end").data(data)));
        }
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()))
}

/// Sends commits until the client disconnects or the process ends.
fn send(
    app: &App,
    mut watch: Watch,
    sender: &mpsc::Sender<Result<Event, Infallible>>,
) -> Result<(), StoreError> {
    while !app.ends.load(Relaxed) && !sender.is_closed() {
        let Some(commit) = watch.next_within(LOOK)? else { continue };
        for event in events(&app.shop, &commit)? {
            if sender.blocking_send(Ok(event)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn events(shop: &Shop, commit: &Committed) -> Result<Vec<Event>, StoreError> {
    let changes = commit.changes(&shop.orders)?;
    let last = changes.len();
    let events = changes.into_iter().zip(1..).map(|((number, order), at)| {
        let order = order.map(|order| order.0);
        let data = json!({ "id": number, "order": order }).to_string();
        let event = Event::default().event("order").data(data);
        if at < last { event } else { event.id(commit.position().into_u64().to_string()) }
    });
    Ok(events.collect())
}
