//! What a broker tells of who holds and who waits.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::{there, Token, Whole};

fn token<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<Option<u64>, D::Error> {
    Token::deserialize(d).map(|token| token.0)
}

fn ms<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<Duration, D::Error> {
    Whole::deserialize(d).map(|whole| Duration::from_millis(whole.0))
}

fn some_ms<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<Option<Duration>, D::Error> {
    ms(d).map(Some)
}

fn whole<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<u64, D::Error> {
    Whole::deserialize(d).map(|whole| whole.0)
}

fn some_whole<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<Option<u64>, D::Error> {
    whole(d).map(Some)
}

fn mode<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<HolderMode, D::Error> {
    Ok(match &*String::deserialize(d)? {
        "shared" => HolderMode::Shared,
        "counted" => HolderMode::Counted,
        _ => HolderMode::Exclusive,
    })
}

/// In which way a key is held, or asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HolderMode {
    /// Alone.
    #[default]
    Exclusive,
    /// With other shared holds.
    Shared,
    /// With up to `max` holds.
    Counted,
}

/// Who holds a key, as the broker tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Holder {
    /// Name of the session.
    #[serde(deserialize_with = "there")]
    pub session: Option<String>,
    /// Its host.
    #[serde(deserialize_with = "there")]
    pub host: Option<String>,
    /// Its process.
    #[serde(deserialize_with = "some_whole")]
    pub pid: Option<u64>,
    /// The label of the hold.
    #[serde(deserialize_with = "there")]
    pub label: Option<String>,
    /// How it is held.
    #[serde(deserialize_with = "mode")]
    pub mode: HolderMode,
    /// Counted only.
    #[serde(deserialize_with = "some_whole")]
    pub max: Option<u64>,
    /// Fencing token; none when the broker sent none that is a safe integer.
    #[serde(deserialize_with = "token")]
    pub token: Option<u64>,
    /// How long it has been held.
    #[serde(deserialize_with = "ms")]
    pub since: Duration,
    /// Time to live; none for a hold without end.
    #[serde(deserialize_with = "some_ms")]
    pub ttl: Option<Duration>,
    /// It lasts until it is released or its session ends.
    pub forever: bool,
    /// What is left of it; none for a hold without end.
    #[serde(deserialize_with = "some_ms")]
    pub remaining: Option<Duration>,
    /// It outlives its session.
    pub detached: bool,
    /// Its session has no connection just now.
    pub broken: bool,
}

/// A request that waits for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Waiter {
    /// Name of the session.
    #[serde(deserialize_with = "there")]
    pub session: Option<String>,
    /// Its host.
    #[serde(deserialize_with = "there")]
    pub host: Option<String>,
    /// Its process.
    #[serde(deserialize_with = "some_whole")]
    pub pid: Option<u64>,
    /// The label of the request.
    #[serde(deserialize_with = "there")]
    pub label: Option<String>,
    /// How it asks to hold.
    #[serde(deserialize_with = "mode")]
    pub mode: HolderMode,
    /// Counted only.
    #[serde(deserialize_with = "some_whole")]
    pub max: Option<u64>,
    /// Keys of the request.
    #[serde(deserialize_with = "whole")]
    pub keys: u64,
    /// How long it has waited.
    #[serde(deserialize_with = "ms")]
    pub age: Duration,
    /// Time until its bound; none: it has no bound.
    #[serde(deserialize_with = "some_ms")]
    pub left: Option<Duration>,
    /// Its session has no connection just now.
    pub broken: bool,
}

/// One key of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct KeyState {
    /// The key.
    pub key: String,
    /// In the order of their grants.
    pub holders: Vec<Holder>,
    /// In the order of their arrival; the first ones when there are many.
    pub waiters: Vec<Waiter>,
    /// How many wait.
    #[serde(deserialize_with = "whole")]
    pub waiting: u64,
    /// What is left of a lock-delay.
    #[serde(deserialize_with = "some_ms")]
    pub delay: Option<Duration>,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Listing {
    /// The keys, sorted.
    pub keys: Vec<KeyState>,
    /// There are more keys: ask again with `after` set to the last key.
    pub more: bool,
}

/// What happened to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WatchEvent {
    /// `granted`, `released`, `expired`, `forced`, `ended` (with its session), `queued`, `dequeued` (left
    /// without a grant), `detached`; `gap`: events were dropped or missed, so list again. A later broker
    /// may send others.
    pub event: String,
    /// The key; empty for a gap.
    pub key: String,
    /// Name of the session.
    #[serde(deserialize_with = "there")]
    pub session: Option<String>,
    /// Its host.
    #[serde(deserialize_with = "there")]
    pub host: Option<String>,
    /// Its process.
    #[serde(deserialize_with = "some_whole")]
    pub pid: Option<u64>,
    /// The label of the request.
    #[serde(deserialize_with = "there")]
    pub label: Option<String>,
    /// How it holds, or asks to.
    #[serde(deserialize_with = "mode")]
    pub mode: HolderMode,
    /// Counted only.
    #[serde(deserialize_with = "some_whole")]
    pub max: Option<u64>,
    /// Fencing token, where there is one that is a safe integer.
    #[serde(deserialize_with = "token")]
    pub token: Option<u64>,
    /// Time that it waited (`granted`, `dequeued`) or was held (the ends).
    #[serde(deserialize_with = "some_ms")]
    pub after: Option<Duration>,
    /// Why a request left without a grant.
    #[serde(deserialize_with = "there")]
    pub code: Option<String>,
}

impl WatchEvent {
    pub(crate) fn gap() -> WatchEvent {
        WatchEvent { event: "gap".to_owned(), ..WatchEvent::default() }
    }

    /// Whether events were dropped or missed, so that whoever follows a state must list again.
    pub fn is_gap(&self) -> bool {
        self.event == "gap"
    }
}

/// Told once when a request has to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Queued {
    /// The first key in the way.
    pub key: String,
    /// Requests that are ahead there.
    #[serde(deserialize_with = "whole")]
    pub position: u64,
    /// Up to eight holders of that key.
    pub ahead: Vec<Holder>,
}
