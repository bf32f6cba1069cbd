use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::around;
use crate::clock::{self, micros};
use crate::driver::{drive, Shared, Target};
use crate::error::{Code, Error};
use crate::hold::Hold;
use crate::limits::{MAX_HOUR, RELEASE_WAIT, TWO_TO_53};
use crate::options::{AcquireOptions, ConnectOptions, ForceOptions, Forced, Keys, ListOptions, WatchOptions};
use crate::request::{check, span, Fields, Op};
use crate::session::{Granted, Session, Setup};
use crate::sight::Listing;
use crate::watch::{Buffer, Watch};
use crate::wire::{self, Server};
use crate::Result;

/// What keeps a session open: it is closed in the background when the last one is dropped.
pub(crate) struct Handle {
    pub shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(Session::close);
    }
}

/// A session with a broker, on one connection, and the leases that are held through it. It is cheap to
/// clone, and all methods may be called at the same time.
///
/// The connection is made again when it breaks, until [`Client::close`], or until the client, its clones
/// and all that was made with it are dropped.
#[derive(Clone)]
pub struct Client(Arc<Handle>);

impl Client {
    /// Connects to a broker and opens a session there: one attempt. An address will do as options, and
    /// so will `ConnectOptions::default()`. It needs a tokio runtime with input, output and time.
    ///
    /// # Errors
    /// `unavailable` when nobody answers, `protocol` when what answers is no broker, `refused` when an
    /// option breaks a rule.
    pub async fn connect(options: impl Into<ConnectOptions>) -> Result<Client> {
        let o = options.into();
        let default = || std::env::var("LATCHKEY_SERVER").ok().filter(|address| !address.is_empty());
        let address = o.address.or_else(default).unwrap_or_else(|| "127.0.0.1:6970".to_owned());
        let target = Target::parse(&address)?;
        let refuse = |error: Error| error.about("connect", None);
        let grace = span("grace", o.grace, MAX_HOUR, "MaxGrace").map_err(refuse)?;
        if o.connect_timeout.is_zero() {
            return Err(refuse(Error::refused("connect_timeout must be above 0")));
        }
        let setup = Setup {
            address,
            name: Some(o.name).filter(|name| !name.is_empty()),
            host: crate::host::name(),
            pid: Some(u64::from(std::process::id())),
            grace: clock::from_ms(grace),
            connect_timeout: micros(o.connect_timeout),
            logger: o.logger,
            on_troubled: o.on_troubled,
        };
        check(Op::Open, &Fields { name: setup.name.clone(), ..Fields::default() }).map_err(refuse)?;
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| refuse(Error::refused("there is no tokio runtime here to run on")))?;
        let (session, opened) = Session::new(setup, clock::now());
        let shared = Arc::new(Shared::new(session));
        // From here on dropping the handle, and so this future, ends all.
        let handle = Arc::new(Handle { shared: shared.clone() });
        runtime.spawn(drive(shared.clone(), target));
        match opened.await.unwrap_or_else(|_| Err(Error::closed())) {
            Ok(()) => Ok(Client(handle)),
            Err(error) => {
                shared.ended.cancelled().await;
                Err(error)
            }
        }
    }

    /// What the broker said of itself: product, durability, and where tokens come from.
    pub fn server(&self) -> Server {
        self.0.shared.with(|session| session.server.clone())
    }

    /// Whether there is a connection just now.
    pub fn is_connected(&self) -> bool {
        self.0.shared.with(|session| session.connected())
    }

    /// Waits for a lease on a key, or on 1 to 64 keys, all or none, and keeps it until it is released or
    /// lost. A connection that breaks meanwhile costs neither the place in the queue nor the lease, as
    /// long as the session lives.
    ///
    /// Dropping the future takes the request back, and nothing stays behind.
    ///
    /// # Errors
    /// `busy`, `timeout`, `cancelled`, `deadlock`, `refused`, `over`, `unavailable`, `closed`, or
    /// `unknown` when the outcome cannot be known.
    pub async fn acquire(&self, keys: impl Into<Keys>, mut options: AcquireOptions) -> Result<Hold> {
        around::declare(&mut options);
        let (fields, asks, cancel) = options.split(keys.into()).map_err(|e| e.about("acquire", None))?;
        if cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            let error = Error::new(Code::Cancelled, "the caller gave up; nothing is held or queued");
            return Err(error.about("acquire", fields.first_key()));
        }
        let (tx, rx) = oneshot::channel();
        let n = self.0.shared.with(|session| session.acquire(fields, asks, tx))?;
        let mut pending = Pending { handle: self.0.clone(), n, rx, answered: false };
        if let Some(cancel) = cancel {
            tokio::select! {
                biased;
                answer = &mut pending.rx => return pending.take(answer),
                () = cancel.cancelled() => {
                    self.0.shared.with(|session| session.abandon(n));
                }
            }
        }
        let answer = (&mut pending.rx).await;
        pending.take(answer)
    }

    /// Waits for a lease, runs `body` while it is held, and releases it when that is done, whatever
    /// happens. When the lease is lost meanwhile, `body` is dropped where it waits.
    ///
    /// What is asked for inside of `body`, by any client, declares the hold, so that asking for its key
    /// again is a `deadlock` rather than a wait for oneself.
    ///
    /// What `body` spawns is not dropped with it: such work should watch [`Hold::lost`]. Work that blocks
    /// should call [`Hold::check`] before each step.
    ///
    /// # Errors
    /// Those of [`Client::acquire`]; the loss if the lease was not held throughout.
    pub async fn run<T, F, Fut>(&self, keys: impl Into<Keys>, options: AcquireOptions, body: F) -> Result<T>
    where
        F: FnOnce(Arc<Hold>) -> Fut,
        Fut: Future<Output = T>,
    {
        let hold = Arc::new(self.acquire(keys, options).await?);
        let lost = hold.lost();
        let result = {
            let body = pin!(around::inside(&hold, body(hold.clone())));
            tokio::select! {
                biased;
                () = lost.cancelled() => None,
                result = body => Some(result),
            }
        };
        // What is not confirmed ends with its ttl or session.
        let released = tokio::time::timeout(RELEASE_WAIT, hold.release()).await;
        match (hold.loss(), released, result) {
            (Some(loss), ..) => Err(loss),
            (None, Ok(Err(error)), _) if matches!(error.code(), Code::NotHeld | Code::Over) => {
                let reason = "the broker did not know the hold any more when it was released";
                let loss = Error::new(Code::Expired, reason).with_cause(Some(error)).into_loss();
                Err(loss.about("release", Some(hold.key())))
            }
            (None, _, Some(result)) => Ok(result),
            (None, _, None) => Err(Error::closed().into_loss().about("hold", Some(hold.key()))),
        }
    }

    async fn command(&self, op: Op, fields: Fields) -> Result<String> {
        let (tx, rx) = oneshot::channel();
        self.0.shared.with(|session| session.command(op, fields, tx))?;
        rx.await.unwrap_or_else(|_| Err(Error::closed()))
    }

    /// Lists who holds and who waits, a page at a time.
    ///
    /// # Errors
    /// `refused`, `unavailable`, `closed`.
    pub async fn list(&self, options: ListOptions) -> Result<Listing> {
        let o = options;
        let fields = Fields {
            key: o.key,
            prefix: o.prefix,
            after: o.after,
            limit: o.limit,
            contended: o.contended,
            brief: o.brief,
            ..Fields::default()
        };
        wire::decode(&self.command(Op::List, fields).await?).map_err(|e| e.about("list", None))
    }

    /// Watches what happens to a key, to keys with a prefix, or to all, from now on.
    ///
    /// # Errors
    /// `refused`, `unavailable`, `closed`.
    pub async fn watch(&self, options: WatchOptions) -> Result<Watch> {
        if options.buffer == 0 {
            return Err(Error::refused("buffer must be at least 1").about("watch", None));
        }
        let fields = Fields { key: options.key, prefix: options.prefix, ..Fields::default() };
        let buffer = Arc::new(Buffer::new(options.buffer));
        let (tx, rx) = oneshot::channel();
        let n = self.0.shared.with(|session| session.watch(fields, buffer.clone(), tx))?;
        // From here on dropping the watch, and so this future, ends it.
        let watch = Watch { handle: self.0.clone(), n, buffer };
        rx.await.unwrap_or_else(|_| Err(Error::closed()))?;
        Ok(watch)
    }

    /// Ends every hold of a key, as an administrator, and tells the holders.
    ///
    /// # Errors
    /// `not_held` if there was none; `refused`, `unavailable`, `closed`.
    pub async fn force(&self, key: impl Into<String>, options: ForceOptions) -> Result<Forced> {
        let key = key.into();
        let fields = Fields {
            key: Some(key.clone()),
            token: options.token,
            by: options.by,
            reason: options.reason,
            ..Fields::default()
        };
        let line = self.command(Op::Force, fields).await?;
        let body: wire::ForcedBody = wire::decode(&line).map_err(|e| e.about("force", Some(&key)))?;
        let fence = body.fence.0.filter(|&fence| fence < TWO_TO_53);
        Ok(Forced { tokens: body.known(), fence, key })
    }

    /// Counters, gauges and histograms of the broker; see section 10 of the protocol.
    ///
    /// # Errors
    /// `unavailable`, `closed`.
    pub async fn stats(&self) -> Result<serde_json::Value> {
        #[derive(serde::Deserialize)]
        struct Body {
            stats: serde_json::Map<String, serde_json::Value>,
        }
        let line = self.command(Op::Stats, Fields::default()).await?;
        let body: Body = wire::decode(&line).map_err(|e| e.about("stats", None))?;
        Ok(serde_json::Value::Object(body.stats))
    }

    /// Says goodbye, which releases every hold that is not detached, and leaves no task and no socket
    /// behind. Whatever waits fails with `closed`. It takes a second at most when the broker does not
    /// answer, or when there is no connection: one that is made meanwhile is used to say it. A second call
    /// is harmless.
    pub async fn close(&self) {
        self.0.shared.with(Session::close);
        self.0.shared.ended.cancelled().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connected", &self.is_connected()).finish_non_exhaustive()
    }
}

/// A request for a lease whose future may be dropped.
struct Pending {
    handle: Arc<Handle>,
    n: u64,
    rx: oneshot::Receiver<Result<Granted>>,
    answered: bool,
}

impl Pending {
    fn take(mut self, answer: std::result::Result<Result<Granted>, oneshot::error::RecvError>) -> Result<Hold> {
        self.answered = true;
        let granted = answer.unwrap_or_else(|_| Err(Error::closed()))?;
        Ok(Hold { handle: self.handle.clone(), granted })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.answered || self.handle.shared.with(|session| session.abandon(self.n)) {
            return;
        }
        // The answer came just before, and is here, or will find nobody.
        self.rx.close();
        if let Ok(Ok(granted)) = self.rx.try_recv() {
            self.handle.shared.with(|session| session.abandon_hold(granted.n));
        }
    }
}
