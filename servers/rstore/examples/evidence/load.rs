//! The client: one thread, an event loop over all connections, closed or open loop.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use pmindex_pibench::{Chooser, Distribution, KeySpace};

use crate::Fault;
use crate::table::micros;
use crate::wire::{Found, Wire, key};

/// What is requested.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Sets of all records, in the order of their numbers, once.
    Load,
    /// Gets of existing records, this many in a hundred; the others are sets of existing records.
    Mix(u64),
    /// Scans of this many records.
    Range(u64),
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// As soon as fewer than this number are in flight on a connection.
    Closed(usize),
    /// This many in a second, at equal distances.
    Open(u64),
}

/// The server and its records.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) wire: Wire,
    pub(crate) records: u64,
    pub(crate) value: usize,
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) work: Work,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    /// The time that is measured, after a quarter as much that is not.
    pub(crate) time: Duration,
    pub(crate) skew: Distribution,
}

/// YCSB's.
pub(crate) const ZIPFIAN: Distribution = Distribution::Zipfian { theta: 0.99 };

/// The results.
pub(crate) struct Figures {
    /// Replies a second.
    pub(crate) rate: f64,
    /// Nanoseconds.
    pub(crate) latencies: Histogram<u64>,
}

impl Figures {
    /// Returns microseconds at a quantile.
    pub(crate) fn at(&self, quantile: f64) -> String {
        micros(self.latencies.value_at_quantile(quantile))
    }
}

/// The longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most requests that wait for replies in an open loop: those behind them are sent late, and measured from the
/// moment at which they should have been sent.
const MOST: usize = 50_000;
/// The requests in flight of a connection that loads.
const LOADING: usize = 64;

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    read: usize,
    /// When each request in flight was sent, or should have been: since the start.
    sent: VecDeque<Duration>,
}

/// Sets all records.
pub(crate) fn load(target: &Target) -> Result<Figures, Fault> {
    measure(
        target,
        &Plan {
            work: Work::Load,
            pace: Pace::Closed(LOADING),
            connections: 4,
            time: Duration::MAX,
            skew: Distribution::Monotonic,
        },
    )
}

/// Returns the moment at which a request of an open loop should be sent.
fn due(rate: u64, number: u64) -> Duration {
    Duration::from_secs_f64(number as f64 / rate as f64)
}

/// Sends requests for a time, and waits for their replies.
pub(crate) fn measure(target: &Target, plan: &Plan) -> Result<Figures, Fault> {
    let mut run = Run::new(target, plan)?;
    let mut last = Instant::now();
    loop {
        let now = run.started.elapsed();
        run.issue(now);
        for at in 0..run.connections.len() {
            run.connections[at].write()?;
        }
        if run.is_over(now) && run.in_flight == 0 {
            break;
        }
        if run.receive()? > 0 {
            last = Instant::now();
        } else if last.elapsed() > PATIENCE {
            return Err("the server does not reply".into());
        }
    }
    let took = match plan.work {
        Work::Load => run.started.elapsed(),
        _ => plan.time,
    };
    Ok(Figures { rate: run.replies as f64 / took.as_secs_f64(), latencies: run.latencies })
}

struct Run<'t> {
    target: &'t Target,
    plan: &'t Plan,
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    value: Vec<u8>,
    keys: KeySpace,
    random: KeySpace,
    chooser: Chooser,
    started: Instant,
    /// From the start: the begin of what is measured, and its end.
    span: (Duration, Duration),
    issued: u64,
    in_flight: usize,
    /// In the span.
    replies: u64,
    latencies: Histogram<u64>,
    buffer: Vec<u8>,
}

impl<'t> Run<'t> {
    fn new(target: &'t Target, plan: &'t Plan) -> Result<Self, Fault> {
        let poll = Poll::new()?;
        let mut connections = Vec::new();
        for token in 0..plan.connections {
            let stream = std::net::TcpStream::connect(&target.address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(token), Interest::READABLE)?;
            let (out, input) = (Vec::new(), Vec::new());
            let sent = VecDeque::new();
            connections.push(Connection { stream, out, written: 0, input, read: 0, sent });
        }
        let mut random = KeySpace::new(0x5eed);
        let value = (0..target.value).map(|_| b'a' + random.below(26) as u8).collect();
        let mut chooser = Chooser::new(plan.skew);
        chooser.rank(target.records, &mut random); // it computes a sum at first
        let span = match plan.work {
            Work::Load => (Duration::ZERO, Duration::MAX),
            _ => (plan.time / 4, plan.time / 4 + plan.time),
        };
        Ok(Self {
            target,
            plan,
            poll,
            events: Events::with_capacity(1024),
            connections,
            value,
            keys: KeySpace::new(1),
            random,
            chooser,
            started: Instant::now(),
            span,
            issued: 0,
            in_flight: 0,
            replies: 0,
            latencies: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
            buffer: vec![0; 1 << 18],
        })
    }

    fn is_over(&self, now: Duration) -> bool {
        match self.plan.work {
            Work::Load => self.issued == self.target.records,
            // A server that is too slow has as much time again.
            _ => match self.plan.pace {
                Pace::Open(rate) => {
                    due(rate, self.issued) >= self.span.1 || now >= self.span.1 + self.plan.time
                }
                Pace::Closed(_) => now >= self.span.1,
            },
        }
    }

    /// Appends the requests that are due.
    fn issue(&mut self, now: Duration) {
        match self.plan.pace {
            Pace::Closed(depth) => {
                for at in 0..self.connections.len() {
                    while self.connections[at].sent.len() < depth && !self.is_over(now) {
                        self.request(at, now);
                    }
                }
            }
            Pace::Open(rate) => {
                while due(rate, self.issued) <= now && self.in_flight < MOST && !self.is_over(now) {
                    let at = self.issued as usize % self.connections.len();
                    self.request(at, due(rate, self.issued));
                }
            }
        }
    }

    /// Appends a request, which should be sent at this moment.
    fn request(&mut self, at: usize, moment: Duration) {
        let Self { target, random, .. } = self;
        let number = match self.plan.work {
            Work::Load => self.issued,
            // Hot records are anywhere among the others.
            _ => self.chooser.rank(target.records, random),
        };
        let key = key(self.keys.key(number));
        let Connection { out, sent, .. } = &mut self.connections[at];
        match self.plan.work {
            Work::Mix(gets) if random.below(100) < gets => target.wire.get(&key, out),
            Work::Range(count) => Wire::range(&key, count, out),
            Work::Mix(_) | Work::Load => {
                let place = (self.issued % 8) as usize % self.value.len().max(1);
                if let Some(byte) = self.value.get_mut(place) {
                    *byte = b'a' + (self.issued % 26) as u8;
                }
                target.wire.set(&key, &self.value, out);
            }
        }
        sent.push_back(moment);
        self.issued += 1;
        self.in_flight += 1;
    }

    /// Takes the replies that have come; returns their number.
    fn receive(&mut self) -> Result<usize, Fault> {
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        let mut count = 0;
        for event in &self.events {
            let connection = &mut self.connections[event.token().0];
            connection.read(&mut self.buffer)?;
            let now = self.started.elapsed();
            while let Some(sent) = connection.reply(self.target.wire)? {
                count += 1;
                // The moment of an open loop is the one of the request: a late reply still counts.
                let moment = if matches!(self.plan.pace, Pace::Open(_)) { sent } else { now };
                if moment >= self.span.0 && moment < self.span.1 {
                    self.latencies.saturating_record(now.saturating_sub(sent).as_nanos() as u64);
                }
                if now >= self.span.0 && now < self.span.1 {
                    self.replies += 1;
                }
            }
        }
        self.in_flight -= count;
        Ok(count)
    }
}

impl Connection {
    /// Sends as much as the socket takes.
    fn write(&mut self) -> Result<(), Fault> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads until the socket is empty.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Fault> {
        self.input.drain(..self.read);
        self.read = 0;
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err("the server has closed the connection".into()),
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    if count < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes a reply, and returns the moment of its request.
    fn reply(&mut self, wire: Wire) -> Result<Option<Duration>, Fault> {
        let rest = &self.input[self.read..];
        match wire.reply(rest) {
            Found::Part => Ok(None),
            Found::Reply(length) => {
                self.read += length;
                Ok(Some(self.sent.pop_front().ok_or("a reply without a request")?))
            }
            Found::Bad => {
                let text = String::from_utf8_lossy(&rest[..rest.len().min(80)]).into_owned();
                Err(format!("the server replies {text:?}").into())
            }
        }
    }
}
