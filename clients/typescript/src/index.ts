/**
 * Leases with fencing tokens from a Latchkey broker.
 *
 * {@link connect} gives a {@link Client}; {@link Client.acquire} and {@link Client.do} give a
 * {@link Hold}, whose {@link Hold.signal} aborts when the lease is lost and whose {@link Hold.token}
 * goes along with every write to what the lease protects.
 *
 * @packageDocumentation
 */

export { type Client, connect, type Forced } from "./client.js";
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
  HoldClosedError,
  type Holder,
  HoldReleasedError,
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
export type {
  AcquireOptions,
  ConnectOptions,
  ForceOptions,
  KeyState,
  Listing,
  ListOptions,
  Logger,
  Queued,
  Waiter,
  WatchOptions,
} from "./options.js";
export type { Watch, WatchEvent } from "./watch.js";
