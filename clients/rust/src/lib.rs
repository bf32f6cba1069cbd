//! Client of the Latchkey lock broker.
#![deny(missing_docs, unsafe_code)]
#![warn(rust_2018_idioms)]

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
pub use tokio_util::sync::CancellationToken;
pub use watch::Watch;
pub use wire::{Holder, HolderMode, KeyState, Listing, Queued, Server, Waiter, WatchEvent};
