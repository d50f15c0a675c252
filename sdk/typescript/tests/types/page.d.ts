// What the program of a reader has, for the examples of docs/sdk/typescript.md.
declare function makeReport(options: { signal: AbortSignal }): Promise<string>;
declare function charge(amount: string, options: { idempotencyKey: string }): Promise<void>;
