// Follows /api/events with a library. Prints each message as a line of JSON. Runs in Node, in a folder with the libraries.
const [library, url] = process.argv.slice(2);
const TYPES = ["message", "position", "created", "updated", "deleted", "resync"];

const print = (type, data) => process.stdout.write(`${JSON.stringify({ type: type ?? "message", data })}\n`);
const printEvents = (source) => {
  for (const name of TYPES) source.addEventListener(name, ({ type, data }) => print(type, data));
};

/** Each function opens a stream with one library. */
const libraries = {
  eventsource: async () => {
    const { EventSource } = await import("eventsource");
    printEvents(new EventSource(url));
  },
  "eventsource-client": async () => {
    const { createEventSource } = await import("eventsource-client");
    createEventSource({ url, onMessage: ({ event, data }) => print(event, data) });
  },
  "event-source-polyfill": async () => {
    const { default: polyfill } = await import("event-source-polyfill");
    printEvents(new polyfill.EventSourcePolyfill(url));
  },
  "@microsoft/fetch-event-source": async () => {
    // The library expects the globals of a browser.
    globalThis.window = globalThis;
    globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
    const { fetchEventSource } = await import("@microsoft/fetch-event-source");
    await fetchEventSource(url, { onmessage: ({ event, data }) => print(event || undefined, data) });
  },
};
await libraries[library]();
