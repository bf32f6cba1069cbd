/** Keeps a connection: makes it, greets, and makes another when it breaks. */

import { Alarm, type Clock } from "./clock.js";
import type { Grant } from "./deadlines.js";
import type { LatchkeyError } from "./errors.js";
import { Link, type LinkOwner, type Target, unavailable } from "./link.js";
import { encodeRequest, type Fields } from "./request.js";
import {
  decodeFailure,
  decodeHello,
  decodeLeases,
  decodeReply,
  HELLO,
  type Hello,
  type JsonObject,
  type Reply,
} from "./wire.js";

const FIRST_PAUSE = 20;
const LONGEST_PAUSE = 1000;
/** What a connection must live for the pauses to start small again. */
const SETTLED_LIFE = 100;
/** Breaches of the protocol in a row after which callers are told rather than kept waiting. */
export const FOULS = 3;

/** The open of a session that is not answered yet. */
export interface Opening {
  readonly n: number;
  readonly sent: number;
  /** It asks for a session that is there, rather than for a new one. */
  readonly resume: boolean;
  /** What it holds, as far as it came before the answer; `elapsed` is not known yet. */
  readonly parts: Grant[];
}

/** What happened to a connection that broke. */
export interface Break {
  readonly error: LatchkeyError;
  /** The session was open on it. */
  readonly ready: boolean;
  /** Greetings ended in a breach of the protocol again and again. */
  readonly hopeless: boolean;
}

/** Who has the session. */
export interface ConnectorOwner {
  /** The open to send. */
  opening(): { n: number; fields: Fields; resume: boolean };
  /** How long an attempt may take. */
  patience(): number;
  /** The session is open; `proceed` has to be called once requests may be sent. */
  opened(link: Link, opening: Opening, body: JsonObject, proceed: () => void): void;
  /** There is no session to resume. Returns whether to ask on the same connection what `opening` says next. */
  notResumed(): boolean;
  /** A frame of the open session. */
  take(link: Link, reply: Reply): void;
  /** A connection broke, or none could be made. Returns whether to make another. */
  broke(what: Break): boolean;
}

export class Connector implements LinkOwner {
  readonly #target: Target;
  readonly #address: string;
  readonly #clock: Clock;
  readonly #owner: ConnectorOwner;
  readonly #alarm: Alarm; // bounds an attempt, and the pause before it
  #link: Link | undefined;
  #ready = false;
  #since = 0;
  #hello: Hello | undefined; // of this connection
  #opening: Opening | undefined;
  #fouls = 0;
  #adrift = 0; // resumes that were sent and not answered
  #pause = 0;
  /** Something came since this was set to false. */
  heard = false;
  /** What the broker said of itself last. */
  server: Hello | undefined;

  constructor(target: Target, address: string, clock: Clock, owner: ConnectorOwner) {
    this.#target = target;
    this.#address = address;
    this.#clock = clock;
    this.#owner = owner;
    this.#alarm = new Alarm(clock, () => this.#due());
  }

  /** The connection that the session is open on, if there is one. */
  get line(): Link | undefined {
    return this.#ready ? this.#link : undefined;
  }

  /** Begins an attempt. */
  start(): void {
    this.#hello = undefined;
    this.#opening = undefined;
    this.#link = new Link(this.#target, this);
    this.#alarm.set(this.#clock.now() + this.#owner.patience());
  }

  /** Begins an attempt now if there is none. */
  hasten(): void {
    if (this.#link === undefined) this.start();
  }

  /** Makes no connection any more. The one that is there, if any, is the caller's to end. */
  stop(): Link | undefined {
    this.#alarm.clear();
    return this.#link;
  }

  /** Forgets the connection, so that it is not missed. */
  forget(): void {
    this.#link = undefined;
    this.#ready = false;
  }

  /**
   * Whether a takeover of the session may be of this side's own making: an open that was sent on a connection which was
   * given up, and to which the broker came after a newer one. Each such open excuses one takeover, so that somebody else
   * who has the id prevails in the end.
   */
  excuse(): boolean {
    if (this.#adrift === 0) return false;
    this.#adrift--;
    return true;
  }

  #due(): void {
    if (this.#link === undefined) this.start();
    else if (!this.#ready) this.#link.fail(unavailable(`no answer from ${this.#address} in time`));
  }

  linkUp(link: Link): void {
    link.send(HELLO);
    this.#open(link);
  }

  #open(link: Link): void {
    const { n, fields, resume } = this.#owner.opening();
    this.#opening = { n, sent: this.#clock.now(), resume, parts: [] };
    link.send(encodeRequest(n, "open", fields));
  }

  linkLine(link: Link, line: Buffer): void {
    if (link !== this.#link) return;
    this.heard = true;
    if (this.#hello === undefined) {
      this.#hello = decodeHello(line);
      this.server = this.#hello;
      return;
    }
    const reply = decodeReply(line);
    if (reply.kind === "failed" && reply.n === 0) {
      link.fail(decodeFailure(reply.body)); // the last frame of a connection
      return;
    }
    if (this.#ready) this.#owner.take(link, reply);
    else if (reply.n === this.#opening?.n) this.#answered(link, this.#opening, reply);
  }

  #answered(link: Link, opening: Opening, reply: Reply): void {
    if (reply.kind === "part") {
      opening.parts.push(...decodeLeases(reply.body, 0));
    } else if (reply.kind === "ok") {
      this.#owner.opened(link, opening, reply.body, () => {
        this.#ready = true;
        if (!opening.resume) this.#adrift = 0;
        this.#since = this.#clock.now();
        this.#opening = undefined;
        this.#fouls = 0;
        this.#alarm.clear();
      });
    } else if (reply.kind === "failed") {
      const error = decodeFailure(reply.body);
      this.#opening = undefined;
      if (!opening.resume || error.code !== "session_lost") {
        link.fail(error);
        return;
      }
      if (this.#owner.notResumed() && link === this.#link) this.#open(link);
    }
  }

  linkDown(link: Link, error: LatchkeyError): void {
    if (link !== this.#link) return;
    const ready = this.#ready;
    const opening = this.#opening;
    this.#opening = undefined;
    // A takeover, and a part of the answer, tell that the broker came to it.
    if (opening?.resume && opening.parts.length === 0 && error.code !== "session_lost") this.#adrift++;
    this.forget();
    this.#alarm.clear();
    if (ready && this.#clock.now() - this.#since >= SETTLED_LIFE) this.#pause = 0;
    const hopeless = !ready && error.code === "protocol" && ++this.#fouls >= FOULS;
    if (hopeless) this.#fouls = 0;
    if (!this.#owner.broke({ error, ready, hopeless })) return;
    const pause = this.#pause;
    this.#pause = Math.min(Math.max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE);
    // Between half of a pause and all of it, so that many clients do not come back in step.
    this.#alarm.set(this.#clock.now() + (pause / 2) * (1 + Math.random()));
  }
}
