#![doc = include_str!("../README.md")]
//!
//! # Concurrency
//!
//! A client has one task, on the runtime that it was connected in, which alone has the socket; it ends with
//! the client. All methods may be called from any task and any thread. Callbacks run on whichever thread
//! does the work and must not block; one that panics costs nobody a lease.
#![deny(missing_docs, unsafe_code)]
#![warn(rust_2018_idioms)]

mod around;
mod client;
mod clock;
mod deadlines;
mod driver;
mod error;
mod hold;
mod host;
mod limits;
mod options;
mod request;
mod session;
mod sight;
#[cfg(test)]
mod vectors;
mod watch;
mod wire;

pub use client::Client;
pub use error::{Code, Error, FencingUnknown, Kind, Result, Waits};
pub use hold::Hold;
pub use options::{
    AcquireOptions, ConnectOptions, ForceOptions, Forced, Keys, Level, ListOptions, Logger, OnQueued, OnTroubled,
    Trouble, WatchOptions,
};
pub use request::{Mode, Ttl, Wait};
pub use sight::{Holder, HolderMode, KeyState, Listing, Queued, Waiter, WatchEvent};
pub use tokio_util::sync::CancellationToken;
pub use watch::Watch;
pub use wire::Server;
