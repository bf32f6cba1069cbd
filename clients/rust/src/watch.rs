use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::client::Handle;
use crate::error::Error;
use crate::sight::WatchEvent;
use crate::Result;

/// Events between the session and the reader of a watch.
pub(crate) struct Buffer(Mutex<State>);

struct State {
    limit: usize,
    events: VecDeque<WatchEvent>,
    ended: bool,
    /// Told once; then it is over.
    error: Option<Error>,
    waker: Option<Waker>,
}

impl Buffer {
    pub fn new(limit: usize) -> Buffer {
        Buffer(Mutex::new(State { limit, events: VecDeque::new(), ended: false, error: None, waker: None }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or a gap instead of everything that there is no room for.
    pub fn push(&self, event: WatchEvent) -> Option<Waker> {
        let mut state = self.lock();
        if state.ended || (event.is_gap() && state.events.back().is_some_and(WatchEvent::is_gap)) {
            return None;
        }
        if state.events.len() >= state.limit {
            // What is kept would tell half a story: the reader has to list anyway.
            state.events.clear();
            state.events.push_back(WatchEvent::gap());
        } else {
            state.events.push_back(event);
        }
        state.waker.take()
    }

    pub fn end(&self, error: Error) -> Option<Waker> {
        let mut state = self.lock();
        if !state.ended {
            state.ended = true;
            state.error = Some(error);
        }
        state.waker.take()
    }

    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent>>> {
        let mut state = self.lock();
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Some(Ok(event)));
        }
        if let Some(error) = state.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The events of one watch, in order; made by [`Client::watch`](crate::Client::watch). It is a stream as
/// well.
///
/// It survives reconnects, with a `gap` event after each; so does a reader that is too slow for the
/// buffer get a `gap`. Dropping it ends the watch.
pub struct Watch {
    pub(crate) handle: Arc<Handle>,
    pub(crate) n: u64,
    pub(crate) buffer: Arc<Buffer>,
}

impl Watch {
    /// The next event. None after the watch has ended, which an error says first: the client was closed,
    /// or the broker refuses to go on with it.
    pub async fn next(&mut self) -> Option<Result<WatchEvent>> {
        poll_fn(|cx| self.buffer.poll(cx)).await
    }
}

impl futures_core::Stream for Watch {
    type Item = Result<WatchEvent>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.buffer.poll(cx)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.shared.with(|session| session.unwatch(self.n));
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("n", &self.n).finish_non_exhaustive()
    }
}
