# The worker in workerd alone, for the tests: its storage on this disk, its settings from the environment.
# workerd calls this kind of storage experimental. What deploys the worker is wrangler.toml.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "worker", worker = .worker),
    (name = "disk", disk = (writable = true)),
  ],
  sockets = [(name = "http", http = (), service = "worker")],
);

const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "dist/worker.js")],
  compatibilityDate = "2026-10-01",
  bindings = [
    (name = "STORE", durableObjectNamespace = "FencepostStore"),
    (name = "FENCEPOST_TOKEN", fromEnvironment = "FENCEPOST_TOKEN"),
    (name = "FENCEPOST_TOKEN_OLD", fromEnvironment = "FENCEPOST_TOKEN_OLD"),
    (name = "FENCEPOST_RATE", fromEnvironment = "FENCEPOST_RATE"),
  ],
  durableObjectNamespaces = [(className = "FencepostStore", uniqueKey = "fencepost", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
);
