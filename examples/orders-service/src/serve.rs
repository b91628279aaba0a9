//! The process: its options, its start, its clean end.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use pmindex::{PoolOptions, StoreError, StoreOptions};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::observe;
use crate::routes::{self, App};
use crate::shop::Shop;

/// The bytes of commits that are kept for clients that reconnect to `/events`.
const KEPT_COMMITS: u64 = 4 << 20;

/// A service of orders and customers over HTTP that keeps its state in a store
#[derive(clap::Parser, Debug)]
#[command(version, after_help = "Spans go to stderr: RUST_LOG=debug shows all of them.")]
pub struct Args {
    /// The store's file; created if it is missing
    pub store: PathBuf,

    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// On a disk: wait for a journal beside the file, which requests share, rather than for pages
    #[arg(long)]
    pub journal: bool,

    /// On a disk: survive a kill of the process, not of the machine
    #[arg(long, conflicts_with = "journal")]
    pub no_write_back: bool,

    /// The seconds that requests in progress may take when the process ends
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub patience: u64,
}

/// An error of starting or ending the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The network, a thread or a signal handler failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The exporter failed.
    #[error(transparent)]
    Figures(#[from] BuildError),
    /// Requests did not end in time, so the store was not closed: its next opening recovers.
    #[error("requests did not end in time; the next start recovers")]
    StillBusy,
}

/// Serves until SIGTERM or SIGINT, then ends requests and streams, and closes the store.
///
/// # Errors
/// Those of the store; [`Failure::StillBusy`].
pub fn serve(args: &Args) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A file and the journal of systemd have no colours.
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(io::stderr)
        .init();
    let buckets = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
    let figures = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("http_request_seconds".into()), &buckets)?
        .install_recorder()?;
    observe::describe();

    let pool = PoolOptions::new().size(64 << 20).journal(args.journal);
    let pool = if args.no_write_back { pool.write_back(false) } else { pool };
    let options = StoreOptions::new().pool(pool).keep_commits(KEPT_COMMITS);
    let shop = Arc::new(Shop::open(&args.store, &options)?);

    let ends = Arc::new(AtomicBool::new(false));
    let sweeper = sweep(&shop, &ends)?;
    let runtime = Runtime::new()?;
    let app = App { shop: Arc::clone(&shop), figures, ends: Arc::clone(&ends) };
    let patience = Duration::from_secs(args.patience);
    let served = runtime.block_on(listen(args.listen, app, patience));
    ends.store(true, Relaxed);
    runtime.shutdown_timeout(patience); // drops the remaining connections, so no thread sends any longer
    sweeper.thread().unpark();
    let _ = sweeper.join();
    served?;
    Arc::into_inner(shop).ok_or(Failure::StillBusy)?.close()?;
    tracing::info!("closed");
    Ok(())
}

/// Removes the keys of expired requests, a thousand every second.
fn sweep(shop: &Arc<Shop>, ends: &Arc<AtomicBool>) -> io::Result<thread::JoinHandle<()>> {
    let (mut sweeper, ends) = (shop.answered().sweeper(), Arc::clone(ends));
    thread::Builder::new().name("sweeper".into()).spawn(move || {
        if let Err(error) = sweeper.run(1000, Duration::from_secs(1), &ends) {
            tracing::error!(%error, "the sweeper ended");
        }
    })
}

async fn listen(address: SocketAddr, app: App, patience: Duration) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let [mut terminated, mut interrupted] =
        [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let how = if app.shop.store().pool().was_clean() { "clean" } else { "recovered" };
    let durability = app.shop.store().pool().durability();
    // A line for the terminal or the log; a failure to print it is ignored.
    let _ = writeln!(
        io::stdout(),
        "ready on {}: {how} start, mode {durability}",
        listener.local_addr()?
    );
    let ends = Arc::clone(&app.ends);
    let (tell, told) = oneshot::channel::<()>();
    let end = async move {
        tokio::select! { _ = terminated.recv() => (), _ = interrupted.recv() => () }
        tracing::info!("ending");
        ends.store(true, Relaxed); // streams end, without which requests would not
        let _ = tell.send(());
    };
    // A client that does not read its stream would block the shutdown for ever.
    let enough = async move {
        match told.await {
            Ok(()) => tokio::time::sleep(patience).await,
            Err(_) => std::future::pending().await,
        }
    };
    let serving = axum::serve(listener, routes::router(app)).with_graceful_shutdown(end);
    tokio::select! {
        served = serving.into_future() => served,
        () = enough => Ok(()),
    }
}
