import { describe, expect, test } from "bun:test";
import { renameSync, rmSync } from "node:fs";
import { certificateIn, makeCertificate, shownAt } from "../../test/certificate.ts";
import { greet } from "../../test/credentials.ts";
import { parseExposition } from "../../test/exposition.ts";
import { capturingLog } from "../../test/log.ts";
import { serve } from "../../test/server.ts";
import { startTls } from "../../test/service.ts";
import { filesIn, temporaryFolder } from "../../test/temporary.ts";
import type { TlsListener } from "../http/listener/listen.ts";
import { Metrics } from "../http/observability/metrics.ts";
import { readCertificate, watchCertificate } from "./certificate.ts";

const DAY = 24 * 3_600_000;
const EXPIRED = { notAfter: Date.now() - DAY, notBefore: Date.now() - 2 * DAY };
const NOT_RENEWED = "certificate not renewed: the previous one stays in use";
const folder = temporaryFolder();
const file = filesIn(folder);

const pathsOf = (cert: string, key: string) => ({
  cert: { value: cert, source: "--tls-cert" },
  key: { value: key, source: "--tls-key" },
});

/** Watches the files of a new certificate, which are checked only when the test calls `check`. */
function watch(certificate = makeCertificate(), renew?: TlsListener["renew"]) {
  const [cert, key] = [file(certificate.cert), file(certificate.key)];
  const paths = pathsOf(cert, key);
  const { log, lines } = capturingLog();
  const metrics = new Metrics({ version: "1", runtime: "bun" });
  const first = readCertificate(paths);
  const server = startTls({}, {}, first);
  const checks: (() => void | Promise<void>)[] = [];
  watchCertificate(paths, first, { renew: renew ?? server.renew }, log, metrics, (_paths, check) => {
    checks.push(check);
  });
  return {
    ...server,
    /** Replaces a file, as tools write certificates. */
    replaceCert: (text: string) => renameSync(file(text), cert),
    replaceKey: (text: string) => renameSync(file(text), key),
    removeCert: () => rmSync(cert),
    check: async () => {
      for (const check of checks) await check();
      return lines.splice(0).map(({ fields, ...line }): object => ({ ...line, ...fields }));
    },
    isRejected: async () => parseExposition(await metrics.text()).get("todo_certificate_files_rejected"),
    expiry: async () =>
      parseExposition(await metrics.text()).get("todo_certificate_expiry_timestamp_seconds"),
  };
}

const rawOf = (pem: string): string => pem.replace(/-----.*?-----|\n/g, "");

test("todo serve with a certificate serves HTTPS, and accepts passwords over it", async () => {
  const { cert, options } = certificateIn(folder);
  const variables = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "s3cret words" };
  await using server = serve([...options], variables);
  const url = await server.url;
  expect(url).toStartWith("https://127.0.0.1:");
  expect(await greet(url, "admin", "s3cret words", cert)).toBe("Hello, admin!");
  expect(server.stdout()).not.toContain("certificate");
});

describe("a certificate", () => {
  test("may have a byte order mark and bytes that are not UTF-8 around the blocks of its files", async () => {
    const { cert, key } = makeCertificate();
    const around = (pem: string) => file(Buffer.from(`\xef\xbb\xbf${pem}caf\xe9\r\n`, "latin1"));
    await using server = startTls({}, {}, readCertificate(pathsOf(around(cert), around(key))));
    expect((await fetch(`${server.url}/livez`, { tls: { ca: cert } })).status).toBe(200);
  });

  test.each([
    ["has expired", EXPIRED, "it has expired"],
    ["is not valid yet", { notBefore: Date.now() + DAY }, "it is not valid yet"],
  ])("that %s is served with a warning", async (_what, times, reason) => {
    const certificate = makeCertificate(times);
    await using server = watch(certificate);
    expect(await server.check()).toMatchObject([
      { level: "warn", reason, message: "clients will reject the certificate" },
    ]);
    expect(await shownAt(server.port)).toBe(rawOf(certificate.cert));
  });

  test("is renewed when both files have changed, with its expiry in the log", async () => {
    const until = (year: number) => makeCertificate({ notAfter: Date.UTC(year, 0, 1) });
    const [first, next] = [until(2040), until(2041)];
    await using server = watch(first);
    expect(await server.expiry()).toBe(Date.UTC(2040, 0, 1) / 1000);
    server.replaceCert(next.cert);
    const reason = expect.stringContaining("the key does not match the certificate");
    expect(await server.check()).toMatchObject([{ level: "warn", reason, message: NOT_RENEWED }]);
    expect(await server.check()).toEqual([]);
    expect([await shownAt(server.port), await server.isRejected()]).toEqual([rawOf(first.cert), 1]);
    server.replaceKey(next.key);
    const notAfter = new Date("2041-01-01T00:00:00.000Z");
    expect(await server.check()).toMatchObject([{ level: "info", notAfter, message: "certificate renewed" }]);
    expect(await server.expiry()).toBe(notAfter.getTime() / 1000);
    // For some seconds, some connections still receive the previous certificate.
    const shown = new Set<string>();
    for (let tries = 0; tries < 200 && !shown.has(rawOf(next.cert)); tries++)
      shown.add(await shownAt(server.port));
    expect(shown).toContain(rawOf(next.cert));
    expect([await server.check(), await server.isRejected()]).toEqual([[], 0]);
    server.replaceKey(first.key);
    expect(await server.check()).toMatchObject([{ level: "warn", message: NOT_RENEWED }]);
  });

  test("stays when its file is removed, and an expired one replaces it with a warning", async () => {
    const first = makeCertificate();
    await using server = watch(first);
    server.removeCert();
    expect(await server.check()).toMatchObject([{ message: NOT_RENEWED }]);
    expect(await shownAt(server.port)).toBe(rawOf(first.cert));
    const expired = makeCertificate(EXPIRED);
    server.replaceKey(expired.key);
    server.replaceCert(expired.cert);
    expect(await server.check()).toMatchObject([
      { message: "certificate renewed" },
      { reason: "it has expired", message: "clients will reject the certificate" },
    ]);
  });

  test("stays after a failed renewal, which is logged once and tried again", async () => {
    const offered: string[] = [];
    await using server = watch(makeCertificate(), async ({ cert }) => {
      offered.push(cert);
      if (offered.length < 3) throw new Error("too many open files");
    });
    const next = makeCertificate();
    server.replaceCert(next.cert);
    server.replaceKey(next.key);
    const reason = "too many open files";
    expect(await server.check()).toEqual([{ level: "warn", reason, message: NOT_RENEWED }]);
    expect(await server.check()).toEqual([]);
    expect(await server.check()).toMatchObject([{ level: "info", message: "certificate renewed" }]);
    expect(offered).toEqual([next.cert, next.cert, next.cert]);
  });
});

const { certFile, options } = certificateIn(folder);
const keyFile = options.at(-1) ?? "";
test.each([
  ["a key of another certificate", certFile, file(makeCertificate().key), "the key does not match the cert"],
  ["a certificate file without a certificate", keyFile, keyFile, "the certificate is not PEM"],
  ["a key file without a key", certFile, certFile, "the key is not PEM"],
  ["a key file that is a folder", certFile, folder, "it is a folder, not a file"],
])("readCertificate rejects %s, with one line", (_what, cert, key, complaint) => {
  const read = () => readCertificate(pathsOf(cert, key));
  expect(read).toThrow(complaint);
  expect(read).toThrow(/^--tls-(?:cert|key) ".*$/);
});
