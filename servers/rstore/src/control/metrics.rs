//! Metrics over HTTP, for Prometheus: one scrape at a time, on a thread of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::worker::Common;

/// The maximum time for reading a request or sending a response.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum length of a request in bytes.
const MOST: u64 = 16 << 10;

/// Takes the port.
pub(super) fn listen(address: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(Error::io(address))
}

/// Serves `/metrics`; returns the address.
pub(super) fn serve(listener: TcpListener, common: &Arc<Common>) -> Result<SocketAddr, Error> {
    let address = listener.local_addr().map_err(Error::io("the metrics socket"))?;
    let common = Arc::clone(common);
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // A scraper that disconnects is no error.
            let _ = answer(&stream, &common);
        }
    };
    let thread = std::thread::Builder::new().name("rstore-metrics".into());
    thread.spawn(serve).map_err(Error::io("a thread"))?;
    Ok(address)
}

fn answer(mut stream: &TcpStream, common: &Common) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut input = BufReader::new(stream).take(MOST);
    let mut first = String::new();
    input.read_line(&mut first)?;
    let mut line = String::new();
    while input.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match path {
        "/metrics" => ("200 OK", common.prometheus()),
        "/health" => ("200 OK", "ok\n".into()),
        _ => ("404 Not Found", "there are /metrics and /health\n".into()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}
