//! A small client that sends requests and receives replies, any number of them in flight.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::Error;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple string, such as `OK`.
    Simple(String),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes, or null.
    Bulk(Option<Vec<u8>>),
    /// An array of replies.
    Array(Vec<Reply>),
}

/// Refuses a connection to itself. If no process listens at a port of the range from which the system chooses
/// the ports of clients, it can choose just this one, and TCP connects the socket to itself. Then requests come
/// back as replies, and the server whose port it is cannot start.
pub(crate) fn refuse_itself(stream: &TcpStream) -> io::Result<()> {
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    input: BufReader<TcpStream>,
    output: BufWriter<TcpStream>,
}

impl Client {
    /// Connects to a server.
    pub fn connect(address: impl ToSocketAddrs) -> Result<Self, Error> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            refuse_itself(&stream)?;
            stream.set_nodelay(true)?;
            io::Result::Ok((BufReader::new(stream.try_clone()?), BufWriter::new(stream)))
        };
        let (input, output) = connect().map_err(Error::io("connecting"))?;
        Ok(Self { input, output })
    }

    /// Sets the time after which a call fails that gets no reply. Then the reply can still come, so the
    /// connection is of no more use.
    pub fn patience(&self, time: Duration) -> Result<(), Error> {
        let stream = self.output.get_ref();
        let set = stream.set_read_timeout(Some(time));
        set.and_then(|()| stream.set_write_timeout(Some(time))).map_err(Error::io("a time limit"))
    }

    /// Sends one request and receives its reply.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply, Error> {
        self.send(words)?;
        self.flush()?;
        self.receive()
    }

    /// Appends a request to the buffer.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<(), Error> {
        let mut send = || {
            write!(self.output, "*{}\r\n", words.len())?;
            words.iter().try_for_each(|word| {
                let word = word.as_ref();
                write!(self.output, "${}\r\n", word.len())?;
                self.output.write_all(word)?;
                self.output.write_all(b"\r\n")
            })
        };
        send().map_err(Error::io("sending"))
    }

    /// Sends the buffer.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.output.flush().map_err(Error::io("sending"))
    }

    /// Receives the next reply.
    pub fn receive(&mut self) -> Result<Reply, Error> {
        self.reply(0)
    }

    fn reply(&mut self, depth: usize) -> Result<Reply, Error> {
        let mut line = Vec::new();
        self.input.read_until(b'\n', &mut line).map_err(Error::io("receiving"))?;
        let Some(line) = line.strip_suffix(b"\r\n").filter(|line| !line.is_empty()) else {
            let source = io::ErrorKind::UnexpectedEof.into();
            return Err(Error::Io { what: "receiving".into(), source });
        };
        let text = || String::from_utf8_lossy(&line[1..]).into_owned();
        let bad = || Error::Protocol(String::from_utf8_lossy(line).into_owned());
        Ok(match line[0] {
            b'+' => Reply::Simple(text()),
            b'-' => Reply::Error(text()),
            b':' => Reply::Integer(number(&line[1..]).ok_or_else(bad)?),
            b'$' if &line[1..] == b"-1" => Reply::Bulk(None),
            b'$' => {
                let length = number::<usize>(&line[1..]).filter(|n| *n <= 512 << 20);
                let mut bytes = vec![0; length.ok_or_else(bad)? + 2];
                self.input.read_exact(&mut bytes).map_err(Error::io("receiving"))?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(Some(bytes))
            }
            b'*' if &line[1..] == b"-1" => Reply::Bulk(None),
            b'*' if depth < 8 => {
                let count: usize = number(&line[1..]).ok_or_else(bad)?;
                let replies = (0..count).map(|_| self.reply(depth + 1));
                Reply::Array(replies.collect::<Result<_, _>>()?)
            }
            _ => return Err(bad()),
        })
    }
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_to_itself_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        // The system tries its ports in turn, so that among these attempts there is one with the same port.
        for _ in 0..40_000 {
            if let Ok(client) = Client::connect(address) {
                // Another process has the port by now.
                let stream = client.output.get_ref();
                assert_ne!(stream.local_addr().ok(), stream.peer_addr().ok());
            }
        }
    }
}
