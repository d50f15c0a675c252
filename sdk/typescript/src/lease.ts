// What becomes of a lease while the program works.
import { LeaseLostError, StopRequestedError } from "./errors.js";
import type { SessionEventLine } from "./protocol.js";

/** The longest time that a timer of Node can wait. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export class Lease {
  readonly #controller = new AbortController();
  readonly #loss = new AbortController();
  #lost: LeaseLostError | undefined;
  #deadline: NodeJS.Timeout | undefined;

  /** Fires when the lease is lost, and when the program is asked to stop. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Fires when the lease is lost. */
  get lostSignal(): AbortSignal {
    return this.#loss.signal;
  }

  get lost(): LeaseLostError | undefined {
    return this.#lost;
  }

  hear(event: SessionEventLine): void {
    switch (event.event) {
      case "renewed":
        this.confirm(event.remainingMs);
        break;
      case "stop": {
        const { message, until, reason } = event;
        this.#controller.abort(new StopRequestedError(message, { until, isTimeout: reason === "timeout" }));
        break;
      }
      case "lost":
        this.lose(new LeaseLostError(`The lease is lost: ${event.message}.`));
        break;
    }
  }

  /** The lease may be relied on for so long. If no renewal is heard of by then, the session hangs, and it is lost. */
  confirm(remainingMs: number): void {
    clearTimeout(this.#deadline);
    const deadline = setTimeout(
      () => {
        // A program that computed for long finds the renewals unread: they come first.
        setImmediate(() => {
          if (this.#deadline === deadline)
            this.lose(new LeaseLostError("The lease is lost: the session did not renew it."));
        });
      },
      Math.min(remainingMs, TIMER_MS_MAX),
    );
    this.#deadline = deadline.unref();
  }

  /** Notes the loss. A signal that a request to stop has fired keeps its reason. */
  lose(error: LeaseLostError): void {
    this.end();
    this.#lost ??= error;
    this.#loss.abort(error);
    this.#controller.abort(error);
  }

  /** The lease is lost or released: nothing more is expected. */
  end(): void {
    clearTimeout(this.#deadline);
    this.#deadline = undefined;
  }
}
