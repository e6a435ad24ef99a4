import { expect, test } from "bun:test";
import { TodoApiError } from "../../src/sdk/client.ts";
import type { Connection } from "../sync/connection-state.ts";
import { describeConnection } from "./notice.ts";

const connected: Connection = { stream: "connected", isPolling: false, isWaiting: false, isOnline: true };
const busy = new TodoApiError("overloaded", "the service is overloaded", { retryAfter: 2 });
const lost = new TodoApiError("network_error", "no response");
const lastList = {
  todos: [{ id: "2", title: "two", done: false }],
  total: 2,
  position: "a-2",
  readAt: new Date(),
};

test.each<[string, Partial<Connection>, number, string]>([
  ["nothing while connected", {}, 3, ""],
  ["nothing of a short interruption", { stream: "interrupted", error: lost }, 1, ""],
  [
    "a lost connection",
    { stream: "lost", error: lost },
    0,
    "Offline. Changes made elsewhere will appear later.",
  ],
  ["that the browser has no network", { isOnline: false }, 1, "Offline. 1 change will be sent later."],
  ["a request without an answer", { isWaiting: true }, 2, "Offline. 2 changes will be sent later."],
  [
    "that live updates are blocked while requests succeed",
    { stream: "lost", isPolling: true, error: lost },
    0,
    "Something between this page and the service blocks live updates, so changes made elsewhere appear late.",
  ],
  [
    "why changes are not sent",
    { sendError: busy },
    1000,
    "The service is busy and asks to wait. 1,000 changes will be sent later.",
  ],
  [
    "why the list is not current",
    { stream: "lost", error: busy },
    0,
    "The service is busy and asks to wait. Changes made elsewhere will appear later.",
  ],
])("the notice says %s", (_name, change, unsent, text) => {
  expect(describeConnection({ ...connected, ...change }, unsent, true)).toBe(text);
});

test("the notice names the list that the browser kept, unless the service may still answer", () => {
  expect(describeConnection({ ...connected, stream: "lost" }, 0, true, lastList)).toMatch(
    /^Offline, the newest 1 of 2 to-dos from \d.*\. Changes made elsewhere will appear later\.$/,
  );
  expect(describeConnection({ ...connected, stream: "connecting" }, 0, true, lastList)).toBe("");
});

test("the notice says that too many windows show the list", () => {
  expect(describeConnection({ ...connected, stream: "full" }, 0, true)).toStartWith("Too many windows");
});
