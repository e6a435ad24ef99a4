import { describe, expect, test } from "bun:test";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import { makeCertificate } from "../../test/certificate.ts";
import { type Command, runTodo } from "../../test/command.ts";
import { parseExposition } from "../../test/exposition.ts";
import { capturingLog } from "../../test/log.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { until } from "../../test/until.ts";
import type { TlsListener } from "../http/listener/listen.ts";
import { Metrics } from "../http/observability/metrics.ts";
import { readCertificate, watchCertificate } from "./certificate.ts";

const DAY = 24 * 3_600_000;
const EXPIRED = { notAfter: Date.now() - DAY, notBefore: Date.now() - 2 * DAY };
const NOT_RENEWED = "certificate not renewed: the previous one stays in use";
const folder = temporaryFolder();
let files = 0;

/** Writes a new file. Returns its path. */
function newFile(text: string | Uint8Array): string {
  const path = join(folder, `${++files}.pem`);
  writeFileSync(path, text);
  return path;
}

const { cert: CERT, key: KEY } = makeCertificate();
const [certFile, keyFile] = [newFile(CERT), newFile(KEY)];

const serve = (cert: string, key: string): Command =>
  runTodo(["serve", "--port", "0", "--tls-cert", cert, "--tls-key", key], {
    TODO_ADMIN_USER: "admin",
    TODO_ADMIN_PASSWORD: "s3cret",
  });

/** Returns the log lines about certificates. */
const linesOf = ({ stdout }: Command): Readonly<Record<string, unknown>>[] =>
  stdout()
    .split("\n")
    .filter((line) => line.includes("certificate"))
    .map((line) => JSON.parse(line));

async function untilSaid(server: Command, count: number) {
  while (linesOf(server).length < count) await Bun.sleep(20);
  return linesOf(server);
}

/** Waits until a server has read its files at least once more. */
const anotherLook = (): Promise<void> => Bun.sleep(1500);

/** Returns the certificate that a new connection receives, as base64 of its DER encoding. */
function shownAt(url: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1", rejectUnauthorized: false });
  socket.on("error", reject);
  socket.on("secureConnect", () => {
    resolve(socket.getPeerCertificate().raw.toString("base64"));
    socket.destroy();
  });
  return promise;
}

const rawOf = (pem: string): string => pem.replace(/-----.*?-----|\n/g, "");

describe("todo serve with a certificate", () => {
  test("serves HTTPS, and accepts passwords over it", async () => {
    await using server = serve(certFile, keyFile);
    const url = await server.url;
    expect(url).toStartWith("https://127.0.0.1:");
    const headers = { Authorization: `Basic ${Buffer.from("admin:s3cret").toString("base64")}` };
    const response = await fetch(`${url}/admin/`, { headers, tls: { ca: CERT } });
    expect([response.status, await response.text()]).toEqual([200, "Hello, admin!"]);
    expect(linesOf(server)).toEqual([]);
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
  });

  test("accepts files with a byte order mark and with bytes that are not UTF-8 around the blocks", async () => {
    const [cert, key] = [CERT, KEY].map((pem) =>
      newFile(Buffer.from(`\xef\xbb\xbf${pem}caf\xe9\r\n`, "latin1")),
    );
    await using server = serve(cert ?? "", key ?? "");
    expect((await fetch(`${await server.url}/livez`, { tls: { ca: CERT } })).status).toBe(200);
  });

  test.each([
    ["expired", EXPIRED, "it has expired"],
    ["not valid yet", { notBefore: Date.now() + DAY }, "it is not valid yet"],
  ])("that is %s logs a warning, and serves", async (_what, times, reason) => {
    const { cert, key } = makeCertificate(times);
    await using server = serve(newFile(cert), newFile(key));
    const url = await server.url;
    const [line] = await untilSaid(server, 1);
    expect(line).toMatchObject({ level: "warn", reason, msg: "clients will reject the certificate" });
    expect(await shownAt(url)).toBe(rawOf(cert));
  });

  test("renews it when both files have changed, and logs its expiry", async () => {
    const [cert, key] = [newFile(CERT), newFile(KEY)];
    await using server = serve(cert, key);
    const url = await server.url;
    const notAfter = Date.UTC(2041, 0, 1);
    const next = makeCertificate({ notAfter });
    // As tools write certificates: a new file replaces the old one.
    renameSync(newFile(next.cert), cert);
    expect(await untilSaid(server, 1)).toMatchObject([
      {
        level: "warn",
        reason: expect.stringContaining("the key does not match the certificate"),
        msg: NOT_RENEWED,
      },
    ]);
    expect(await shownAt(url)).toBe(rawOf(CERT));
    await anotherLook();
    writeFileSync(key, next.key);
    const [, renewed] = await untilSaid(server, 2);
    expect(renewed).toMatchObject({
      level: "info",
      notAfter: "2041-01-01T00:00:00.000Z",
      msg: "certificate renewed",
    });
    // For some seconds, some connections still receive the previous certificate.
    const shown = new Set<string>();
    for (let tries = 0; tries < 200 && !shown.has(rawOf(next.cert)); tries++) shown.add(await shownAt(url));
    expect(shown).toContain(rawOf(next.cert));
    await anotherLook();
    renameSync(newFile(KEY), key);
    expect((await untilSaid(server, 3)).slice(2)).toMatchObject([{ level: "warn", msg: NOT_RENEWED }]);
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
  });

  test("keeps the certificate when its file is removed, and warns about an expired one", async () => {
    const [cert, key] = [newFile(CERT), newFile(KEY)];
    await using server = serve(cert, key);
    const url = await server.url;
    rmSync(cert);
    expect(await untilSaid(server, 1)).toMatchObject([{ msg: NOT_RENEWED }]);
    expect(await shownAt(url)).toBe(rawOf(CERT));
    const expired = makeCertificate(EXPIRED);
    renameSync(newFile(expired.key), key);
    renameSync(newFile(expired.cert), cert);
    expect((await untilSaid(server, 3)).slice(1)).toMatchObject([
      { msg: "certificate renewed" },
      { reason: "it has expired", msg: "clients will reject the certificate" },
    ]);
  });
});

test("a failed renewal keeps the previous certificate, is logged once, and is tried again", async () => {
  const [cert, key] = [newFile(CERT), newFile(KEY)];
  const paths = { cert: { value: cert, source: "--tls-cert" }, key: { value: key, source: "--tls-key" } };
  const { log, lines } = capturingLog();
  const metrics = new Metrics({ version: "1", runtime: "bun" });
  const offered: string[] = [];
  const renew: TlsListener["renew"] = async ({ cert }) => {
    offered.push(cert);
    if (offered.length < 3) throw new Error("too many open files");
  };
  watchCertificate(paths, readCertificate(paths), { renew }, log, metrics);
  const next = makeCertificate();
  writeFileSync(cert, next.cert);
  writeFileSync(key, next.key);
  await until(() => lines.length > 1, "the renewal succeeds");
  expect(offered).toEqual([next.cert, next.cert, next.cert]);
  expect(parseExposition(await metrics.text()).get("todo_certificate_files_rejected")).toBe(0);
  expect(lines).toEqual([
    { level: "warn", fields: { reason: "too many open files" }, message: NOT_RENEWED },
    { level: "info", fields: expect.anything(), message: "certificate renewed" },
  ]);
});

describe("todo serve rejects, with one line,", () => {
  test.each<[what: string, cert: string, key: string, complaint: string]>([
    [
      "a key of another certificate",
      certFile,
      newFile(makeCertificate().key),
      "the key does not match the certificate",
    ],
    ["a certificate file without a certificate", keyFile, keyFile, "the certificate is not PEM"],
    ["a key file without a key", certFile, certFile, "the key is not PEM"],
    ["a missing certificate file", join(folder, "none"), keyFile, "no such file or folder"],
    ["a key file that is a folder", certFile, folder, "it is a folder, not a file"],
  ])("%s", async (_what, cert, key, complaint) => {
    await using server = serve(cert, key);
    expect([await server.exited, server.stdout()]).toEqual([2, ""]);
    expect(server.stderr()).toMatch(/^todo: --tls-(?:cert|key) ".*\n$/);
    expect(server.stderr()).toContain(complaint);
  });

  test("a port on which another server listens with TLS", async () => {
    await using first = serve(certFile, keyFile);
    const { port } = new URL(await first.url);
    await using second = runTodo(["serve", "--port", port, "--tls-cert", certFile, "--tls-key", keyFile], {
      TODO_ADMIN_USER: "admin",
      TODO_ADMIN_PASSWORD: "s3cret",
    });
    expect(await second.exited).toBe(2);
    expect(second.stderr()).toContain(`port ${port} on 127.0.0.1 is in use`);
  });
});
