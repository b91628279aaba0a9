//! Reports the state of the server to systemd (`Type=notify`); does nothing elsewhere.

use std::os::unix::net::UnixDatagram;

/// Tells systemd that the server is ready.
pub(super) fn ready() {
    say("READY=1");
}

/// Tells systemd that the server is stopping.
pub(super) fn stopping() {
    say("STOPPING=1");
}

fn say(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        let abstract_name = path.as_encoded_bytes().strip_prefix(b"@");
        if let Some(name) = abstract_name {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(state.as_bytes(), &address)
        } else {
            socket.send_to(state.as_bytes(), &path)
        }
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "systemd does not hear");
    }
}
