//! What drives a session: its task, its socket, its timer.

use std::future::Future;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{sleep, Sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::{self, Micros, NEVER};
use crate::error::Error;
use crate::session::{Effect, Link, Session};
use crate::Result;

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Tcp(String, u16),
    #[cfg(unix)]
    Unix(std::path::PathBuf),
}

impl Target {
    /// Reads `host:port`, `[v6]:port` or `unix:PATH`.
    pub fn parse(address: &str) -> Result<Target> {
        let refuse = |why: &str| Err(Error::refused(format!("address {address:?} {why}")).about("connect", None));
        if let Some(path) = address.strip_prefix("unix:") {
            #[cfg(unix)]
            return match path {
                "" => refuse("has no path after unix:"),
                _ => Ok(Target::Unix(path.into())),
            };
            #[cfg(not(unix))]
            return refuse(&format!("names the unix socket {path:?}, which this system does not have"));
        }
        let parts = address.rsplit_once(':').and_then(|(host, port)| {
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host = bare.or((!host.contains([':', '[', ']'])).then_some(host))?;
            Some((host, port.parse().ok().filter(|&port| port > 0)?))
        });
        match parts {
            Some((host, port)) if !host.is_empty() => Ok(Target::Tcp(host.to_owned(), port)),
            _ => refuse("is neither host:port nor unix:/path"),
        }
    }

    async fn connect(self) -> io::Result<Stream> {
        match self {
            Target::Tcp(host, port) => {
                let stream = TcpStream::connect((&*host, port)).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            #[cfg(unix)]
            Target::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.readable().await,
            #[cfg(unix)]
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.writable().await,
            #[cfg(unix)]
            Stream::Unix(stream) => stream.writable().await,
        }
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_read(bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.try_read(bytes),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.try_write(bytes),
        }
    }
}

/// A session, its task, and all who use it.
pub(crate) struct Shared {
    session: Mutex<Session>,
    /// Something is to be sent, or an alarm was set.
    poke: Notify,
    /// The task has ended, and its socket with it.
    pub ended: CancellationToken,
}

impl Shared {
    pub fn new(session: Session) -> Shared {
        Shared { session: Mutex::new(session), poke: Notify::new(), ended: CancellationToken::new() }
    }

    /// Does something with the session at the present time, and then what follows from it.
    pub fn with<T>(&self, f: impl FnOnce(&mut Session) -> T) -> T {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.now = clock::now();
        let (sent, next, link, finished) = (session.out.len(), session.alarms.next(), session.link(), session.finished);
        let result = f(&mut session);
        let poked = (sent == 0 && !session.out.is_empty())
            || session.alarms.next() < next
            || session.link() != link
            || session.finished != finished;
        let effects = std::mem::take(&mut session.effects);
        drop(session);
        if poked {
            self.poke.notify_one();
        }
        for effect in effects {
            self.carry_out(effect);
        }
        result
    }

    /// Carries out an effect. What a callback does by panicking must not end a lease.
    fn carry_out(&self, effect: Effect) {
        let _ = catch_unwind(AssertUnwindSafe(|| match effect {
            Effect::Lost(token) => token.cancel(),
            Effect::Wake(waker) => waker.wake(),
            Effect::Queued(f, queued) => f(queued),
            Effect::Acquired(tx, told) => {
                // Its future was dropped meanwhile.
                if let Err(Ok(granted)) = tx.send(told) {
                    self.with(|session| session.abandon_hold(granted.n));
                }
            }
            Effect::Line(tx, told) => drop(tx.send(told)),
            Effect::Done(tx, told) => drop(tx.send(told)),
            Effect::Watching(tx, told) => drop(tx.send(told)),
            Effect::Discard(asks) => drop(asks),
            Effect::Troubled(f, trouble) => f(&trouble),
            Effect::Log(f, level, text) => f(level, &text),
        }));
    }
}

/// Ends everything also when the task is dropped, with the runtime that it is on.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.with(Session::abort);
        self.0.ended.cancel();
    }
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

/// The socket and what is on its way to it.
#[derive(Default)]
struct Wire {
    generation: u64,
    connecting: Option<Connecting>,
    stream: Option<Stream>,
    unwritten: Vec<u8>,
    written: usize,
}

enum Event {
    Connected(io::Result<Stream>),
    Readable(io::Result<()>),
    Writable(io::Result<()>),
    Poked,
}

/// Drives a session to its end.
pub(crate) async fn drive(shared: Arc<Shared>, target: Target) {
    let end = End(shared.clone());
    let mut wire = Wire::default();
    let mut input = vec![0; 32 * 1024];
    while let Some(next) = shared.with(|session| wire.adjust(session, &target)) {
        // Before it reads, so that a broker that sends without end cannot keep it from writing.
        if wire.written < wire.unwritten.len() {
            wire.write(&shared, Ok(()));
        }
        let event = tokio::select! {
            biased;
            event = wire.event() => event,
            () = shared.poke.notified() => Event::Poked,
            () = until(next) => Event::Poked,
        };
        match event {
            Event::Poked => {}
            Event::Connected(result) => wire.connected(&shared, result),
            Event::Readable(result) => wire.read(&shared, &mut input, result),
            Event::Writable(result) => wire.write(&shared, result),
        }
    }
    drop(wire);
    drop(end);
}

/// Sleeps up to a time; a clock that goes on while the machine sleeps is looked at now and then.
fn until(at: Micros) -> Sleep {
    let left = if at == NEVER { NEVER } else { at.saturating_sub(clock::now()) };
    sleep(Duration::from_micros(left.min(60_000_000)))
}

impl Wire {
    /// Does what is due, and follows the session. Says when to do so again, and none at the end.
    fn adjust(&mut self, session: &mut Session, target: &Target) -> Option<Micros> {
        session.tick();
        if session.finished {
            return None;
        }
        let (link, generation) = session.link();
        if generation != self.generation {
            *self = Wire { generation, ..Wire::default() };
            if link == Link::Dialing {
                self.connecting = Some(Box::pin(target.clone().connect()));
            }
        }
        if self.written == self.unwritten.len() {
            self.unwritten.clear();
            self.written = 0;
            std::mem::swap(&mut self.unwritten, &mut session.out);
        }
        session.in_write = self.unwritten.len() - self.written;
        Some(session.alarms.next())
    }

    /// What the socket has to say; safe to drop and to call again.
    async fn event(&mut self) -> Event {
        if let Some(connecting) = &mut self.connecting {
            return Event::Connected(connecting.await);
        }
        let Some(stream) = &self.stream else { return std::future::pending().await };
        let writes = self.written < self.unwritten.len();
        tokio::select! {
            biased;
            result = stream.readable() => Event::Readable(result),
            result = stream.writable(), if writes => Event::Writable(result),
        }
    }

    fn connected(&mut self, shared: &Shared, result: io::Result<Stream>) {
        self.connecting = None;
        match result {
            Ok(stream) => {
                self.stream = Some(stream);
                shared.with(|session| session.link_up(self.generation));
            }
            Err(error) => self.broke(shared, error.to_string()),
        }
    }

    fn read(&mut self, shared: &Shared, input: &mut [u8], ready: io::Result<()>) {
        let Some(stream) = &self.stream else { return };
        match ready.and_then(|()| stream.try_read(input)) {
            Ok(0) => self.broke(shared, "the broker closed the connection".to_owned()),
            Ok(n) => {
                shared.with(|session| session.received(self.generation, &input[..n]));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.broke(shared, error.to_string()),
        }
    }

    fn write(&mut self, shared: &Shared, ready: io::Result<()>) {
        let Some(stream) = &self.stream else { return };
        match ready.and_then(|()| stream.try_write(&self.unwritten[self.written..])) {
            Ok(n) => self.written += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.broke(shared, error.to_string()),
        }
    }

    fn broke(&mut self, shared: &Shared, reason: String) {
        self.stream = None;
        shared.with(|session| session.broke(self.generation, Error::unavailable(reason)));
    }
}
