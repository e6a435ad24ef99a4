// What Node gets instead of the modules that run on Bun only. Without the names, Node would only say that they are missing.
export let createService,
  createClientLookup,
  identityFields,
  isScope,
  parseClients,
  parseEntries,
  parseScope,
  listen,
  listenTls,
  createMcpEndpoint,
  openMemory,
  parseCertificate,
  validityError;

throw new Error(
  "todo-service runs on Bun, not on Node. Run your program with Bun: npx bun program.ts. In Node, you can use todo-service/client and todo-service/testing.",
);
