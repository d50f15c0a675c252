// Acquires and releases leases for `./bench 1 leases`: leases.mjs LIBRARY URL. Each line of standard input is a number of leases to
// take one after the other. "done" is printed after them. LEASE_PEERS is the directory of the libraries.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const TTL_MS = 60_000;
const [library, url] = process.argv.slice(2);
const fetched = createRequire(`${process.env.LEASE_PEERS}/package.json`);

const libraries = {
  fencepost: async () => {
    const { Session } = await import(new URL("../../../sdk/typescript/dist/index.js", import.meta.url));
    const session = new Session({ store: url });
    return () => session.job("typescript", { ttl: "1m", onSkip: "throw" }, () => {});
  },
  redlock: async () => {
    const Redis = fetched("ioredis");
    const { default: Redlock } = fetched("redlock");
    const redlock = new Redlock([new Redis(url)], { retryCount: 0 });
    return async () => {
      const lock = await redlock.acquire(["redlock"], TTL_MS);
      await lock.release();
    };
  },
  etcd3: async () => {
    const { Etcd3 } = fetched("etcd3");
    const client = new Etcd3({ hosts: url });
    return async () => {
      const lock = client.lock("etcd3").ttl(TTL_MS / 1000);
      await lock.acquire();
      await lock.release();
    };
  },
};

const lease = await libraries[library]();
for await (const line of createInterface({ input: process.stdin })) {
  for (let left = Number(line); left > 0; left--) await lease();
  console.log("done");
}
process.exit(0);
