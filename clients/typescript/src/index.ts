/**
 * Leases with fencing tokens from a Latchkey broker.
 *
 * {@link connect} gives a {@link Client}; {@link Client.acquire} and {@link Client.do} give a
 * {@link Hold}, whose {@link Hold.signal} aborts when the lease is lost and whose {@link Hold.token}
 * goes along with every write to what the lease protects.
 *
 * @packageDocumentation
 */

export {
  type AcquireOptions,
  type Client,
  type ConnectOptions,
  connect,
  type Forced,
  type ForceOptions,
  type KeyState,
  type Listing,
  type ListOptions,
  type Waiter,
  type WatchOptions,
} from "./client.js";
export {
  BusyError,
  CancelledError,
  ClosedError,
  type CycleEntry,
  codeOf,
  DeadlockError,
  DefectError,
  type ErrorKind,
  ExpiredError,
  FencingUnknown,
  ForcedError,
  type Holder,
  InternalError,
  LatchkeyError,
  LossError,
  MistakeError,
  NotHeldError,
  OutcomeError,
  OverError,
  ProtocolError,
  RefusedError,
  RetryError,
  ServiceGoneError,
  SessionLostError,
  TimeoutError,
  UnavailableError,
  UnknownError,
  UnknownOutcomeError,
} from "./errors.js";
export type { Hold, Ttl } from "./hold.js";
export type { Logger, Queued } from "./session.js";
export type { Watch, WatchEvent } from "./watch.js";
