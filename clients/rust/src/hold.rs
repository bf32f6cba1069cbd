use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::client::Handle;
use crate::clock::{self, NEVER};
use crate::error::{Error, FencingUnknown};
use crate::request::{Op, Ttl};
use crate::session::{Granted, View};
use crate::Result;

/// A lease that is held. It is renewed each third of its ttl unless asked otherwise, and watched:
/// [`Hold::lost`] is cancelled before another holder can be granted the key.
///
/// Dropping a hold releases it in the background, unless it is detached: that one is renewed no more and
/// lasts until its ttl. Use [`Hold::release`] to know that it is released, and that it was held until then.
///
/// The loss of one key of several is the loss of the whole hold; a release gives back the others.
#[must_use = "a hold that is dropped is released"]
pub struct Hold {
    pub(crate) handle: Arc<Handle>,
    pub(crate) granted: Granted,
}

impl Hold {
    /// Names the hold. Keep it to yourself: whoever knows it can release the hold.
    pub fn id(&self) -> &str {
        &self.granted.id
    }

    /// The key; of several, the first.
    pub fn key(&self) -> &str {
        &self.granted.keys[0]
    }

    /// The keys, sorted by the broker when there are several.
    pub fn keys(&self) -> &[String] {
        &self.granted.keys
    }

    /// How long the request waited in the queue.
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.granted.waited)
    }

    /// The fencing token of the only key. Send it along with every write to what the lease protects, and
    /// let that refuse a token lower than the highest it has seen.
    ///
    /// # Errors
    /// [`FencingUnknown`] when the broker sent none that is a safe integer, and for a hold of several
    /// keys, which has [`Hold::tokens`].
    pub fn token(&self) -> Result<u64, FencingUnknown> {
        let several = self.granted.keys.len() > 1;
        self.granted.tokens[0]
            .filter(|_| !several)
            .ok_or_else(|| FencingUnknown { key: self.key().to_owned(), several })
    }

    /// The fencing token of each key.
    ///
    /// # Errors
    /// [`FencingUnknown`] when the broker sent one that is no safe integer.
    pub fn tokens(&self) -> Result<BTreeMap<&str, u64>, FencingUnknown> {
        let pairs = self.granted.keys.iter().zip(self.granted.tokens.iter());
        pairs
            .map(|(key, token)| {
                let token = token.ok_or_else(|| FencingUnknown { key: key.clone(), several: false })?;
                Ok((key.as_str(), token))
            })
            .collect()
    }

    fn look(&self) -> View {
        self.handle.shared.with(|session| session.look(self.granted.n))
    }

    /// The ttl as of the last renewal; none: without end.
    pub fn ttl(&self) -> Option<Duration> {
        duration(self.look().ttl)
    }

    /// Whether the hold outlives its session.
    pub fn is_detached(&self) -> bool {
        self.look().detached
    }

    /// Cancelled when the hold is lost, with the cause in [`Hold::loss`]; also when the client is
    /// closed, or another session releases the hold by its id. It is not cancelled by a release.
    /// Cancelling it yourself does not end the hold.
    pub fn lost(&self) -> CancellationToken {
        self.granted.lost.child_token()
    }

    /// Why the hold was lost, and none while it was not. It does not look at the clock.
    pub fn loss(&self) -> Option<Error> {
        self.handle.shared.with(|session| session.loss(self.granted.n))
    }

    /// How long it is safe to act from now on, unless a renewal or a ping prolongs it: zero when that
    /// has passed, none when nothing ends by itself. Section 6 of the protocol.
    pub fn safe_for(&self) -> Option<Duration> {
        let until = self.look().safe_until;
        duration(if until == NEVER { NEVER } else { until.saturating_sub(clock::now()) })
    }

    /// The instant up to which it is safe to act, unless a renewal or a ping moves it ahead; none when
    /// nothing ends by itself.
    ///
    /// On Linux an `Instant` stands still while the machine sleeps, and a lease does not. Ask again, or
    /// call [`Hold::check`], rather than keep it.
    pub fn safe_until(&self) -> Option<Instant> {
        let until = self.look().safe_until;
        let (now, instant) = (clock::now(), Instant::now());
        if until == NEVER {
            None
        } else if until >= now {
            instant.checked_add(Duration::from_micros(until - now))
        } else {
            Some(instant.checked_sub(Duration::from_micros(now - until)).unwrap_or(instant))
        }
    }

    /// Whether it is safe to act now. It looks at the clock, so that it is right also in a process that
    /// was stopped and whose timers have not run yet; a deadline that has passed ends the hold.
    pub fn is_safe(&self) -> bool {
        self.look().ended.is_none()
    }

    /// Like [`Hold::is_safe`], with the reason.
    ///
    /// # Errors
    /// Why the hold has ended: a loss, or `not_held` after a release.
    pub fn check(&self) -> Result<()> {
        self.look().ended.map_or(Ok(()), Err)
    }

    /// Starts the ttl anew, from now, and changes it when one is given. Holds are renewed by themselves
    /// unless [`AcquireOptions::renew`](crate::AcquireOptions::renew) was false.
    ///
    /// # Errors
    /// The loss when the hold is lost; `unavailable` or `unknown` when the broker does not answer.
    pub async fn renew(&self, ttl: Option<Ttl>) -> Result<()> {
        self.extend(Op::Renew, ttl).await
    }

    /// Lets the hold outlive its session: it lasts until its ttl when this process goes, or when it is
    /// dropped. It is renewed until then as before.
    ///
    /// # Errors
    /// As [`Hold::renew`].
    pub async fn detach(&self) -> Result<()> {
        self.extend(Op::Detach, None).await
    }

    async fn extend(&self, op: Op, ttl: Option<Ttl>) -> Result<()> {
        let (tx, rx) = oneshot::channel();
        self.handle.shared.with(|session| session.extend(self.granted.n, op, ttl, tx))?;
        rx.await.unwrap_or_else(|_| Err(Error::closed()))
    }

    /// Ends the hold and waits for the broker's answer. Once it succeeded, further calls succeed too.
    ///
    /// # Errors
    /// After a loss it gives back what is left and fails with the loss, so that success means: held
    /// without a gap until now. `unknown` when it is not answered: the hold then ends with its ttl or
    /// session, and release may be called again.
    pub async fn release(&self) -> Result<()> {
        let (tx, rx) = oneshot::channel();
        self.handle.shared.with(|session| session.release(self.granted.n, tx));
        rx.await.unwrap_or_else(|_| Err(Error::closed()))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.handle.shared.with(|session| session.abandon_hold(self.granted.n));
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the id, which must not get into logs.
        f.debug_struct("Hold")
            .field("keys", &self.granted.keys)
            .field("tokens", &self.granted.tokens)
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}

fn duration(us: clock::Micros) -> Option<Duration> {
    (us != NEVER).then(|| Duration::from_micros(us))
}
