// Notices a session that hangs.

/** After this many seconds without a line, a session that owes an answer is asked whether it is there. */
const PING_AFTER_SECONDS = 10;

/** A session that is silent for so long is killed. */
const SILENT_SECONDS_MAX = 20;

/** Watches over a session that owes an answer. It counts seconds in which this process ran: one that was stopped starts where it was. */
export class Watch {
  readonly #actions: { ping(): void; kill(): void };
  #timer: NodeJS.Timeout | undefined;
  #silentSeconds = 0;

  constructor(actions: { ping(): void; kill(): void }) {
    this.#actions = actions;
  }

  start(): void {
    this.#timer ??= setInterval(() => this.#tick(), 1000).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#silentSeconds = 0;
  }

  heard(): void {
    this.#silentSeconds = 0;
  }

  #tick(): void {
    this.#silentSeconds += 1;
    if (this.#silentSeconds === PING_AFTER_SECONDS) this.#actions.ping();
    if (this.#silentSeconds === SILENT_SECONDS_MAX) this.#actions.kill();
  }
}
