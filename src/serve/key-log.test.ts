import { expect, setSystemTime, test } from "bun:test";
import { capturingLog } from "../../test/log.ts";
import { until } from "../../test/until.ts";
import { createKey, type KeyStore } from "../credential/key.ts";
import { ServiceError } from "../error.ts";
import { openMemory } from "../storage/memory/store.ts";
import { logKeyChanges } from "./key-log.ts";

const INTERVAL_MS = 5;

test("the log has each API key at the start, and each that is added or deleted later, with its client", async () => {
  const { log, lines } = capturingLog();
  const { keys } = openMemory();
  const create = (name: string, lifetime?: number) => createKey(keys, name, lifetime, Date.now(), "write");
  const before = await create("before");
  logKeyChanges(keys, log, INTERVAL_MS);
  await until(() => lines.length > 0, "the keys are logged at the start");
  const phone = await create("phone", 60_000);
  await until(() => lines.length > 1, "the new key is logged");
  await keys.delete(phone?.key.id ?? "");
  await until(() => lines.length > 2, "the deletion is logged");
  const fields = {
    key: phone?.key.id,
    client: "phone",
    scope: "write",
    expiresAt: expect.stringMatching(/^\d{4}-.+Z$/),
  };
  expect(lines).toEqual([
    {
      level: "info",
      message: "key present",
      fields: { key: before?.key.id, client: "before", scope: "write", expiresAt: undefined },
    },
    { level: "info", message: "key added", fields },
    { level: "info", message: "key deleted", fields },
  ]);
});

test("the log has no line for a key that expires, because the store deletes it by itself", async () => {
  const { log, lines } = capturingLog();
  const { keys } = openMemory();
  const create = (name: string, lifetime?: number) => createKey(keys, name, lifetime, Date.now());
  const short = await create("short", 60_000);
  logKeyChanges(keys, log, INTERVAL_MS);
  await until(() => lines.length > 0, "the key is logged at the start");
  setSystemTime(Date.now() + 61_000);
  await keys.delete(short?.key.id ?? "");
  await create("later");
  await until(() => lines.length > 1, "the next key is logged");
  setSystemTime();
  expect(lines.map(({ message, fields }) => [message, fields.client])).toEqual([
    ["key present", "short"],
    ["key added", "later"],
  ]);
});

test("the log has one warning while the API keys cannot be read", async () => {
  const { log, lines } = capturingLog();
  const { keys } = openMemory();
  let failures = 0;
  const failing: KeyStore["list"] = () => {
    failures++;
    throw new ServiceError("store_unavailable", { cause: new Error("connection refused") });
  };
  logKeyChanges(Object.assign(Object.create(keys), { list: failing }), log, INTERVAL_MS);
  await until(() => failures > 2, "the keys are read again");
  expect(lines.map(({ message }) => message)).toEqual(["API keys not read"]);
});
