import { expect, test } from "bun:test";
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ALL_SETTINGS, getVariables } from "../src/config/settings.ts";
import { EXPIRED_LISTED_MS, MAX_EXPIRED_KEYS } from "../src/credential/key.ts";
import { DEFAULT_LIMITS, IDLE_SECONDS, MAX_BODY_BYTES, MAX_REQUEST_BYTES } from "../src/http/limits.ts";
import { AUTHENTICATION_OUTCOMES, SURFACES } from "../src/http/observability/instrumentation.ts";
import { MAX_UNFINISHED_BYTES } from "../src/http/unfinished-bodies.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { MAX_POSTGRES_ID } from "../src/storage/postgres/store.ts";
import { RETENTION_MS } from "../src/storage/records/idempotency.ts";
import { MAX_SQLITE_ID } from "../src/storage/sqlite/rows.ts";
import { PRIMARY_DEFAULTS } from "../src/storage/store.ts";
import { MAX_TITLE_LENGTH, MAX_TODO_ID, STORE_OPERATIONS } from "../src/todo.ts";
import { MAX_DURATION_MS } from "../src/validation.ts";
import { certificateIn } from "./certificate.ts";
import { ROOT, run } from "./command.ts";
import { basic } from "./credentials.ts";
import { isCommand, type Page, readPage } from "./docs.ts";
import { labelsOf, parseExposition } from "./exposition.ts";
import { request, sendRaw, statusOf } from "./raw-http.ts";
import { sendJson } from "./served-todos.ts";
import { scrape, serve, stop } from "./server.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

const read = (page: string): string =>
  readFileSync(new URL(`../docs/reference/${page}`, import.meta.url), "utf8");

/** Returns the cells of the table rows of a text, without heads and rules. */
const rowsOf = (text: string): string[][] =>
  [...text.matchAll(/^\| (?!---)(.*) \|$(?!\n\| ---)/gm)].map(([, row = ""]) =>
    row.split(/ ?\| ?/).map((cell) => cell.trim()),
  );

const codesIn = (text = ""): string[] => [...text.matchAll(/`([^`]+)`/g)].map(([, code = ""]) => code);

/** Returns the items of a list such as "- `todo_store_todos` (gauge): to-dos in the store". */
const entriesIn = (text: string): { readonly name: string; readonly kind: string; readonly text: string }[] =>
  [...text.matchAll(/^- `([^`]+)` \((\w+)\)(?:: (.*))?$/gm)].map(([, name = "", kind = "", text = ""]) => ({
    name,
    kind,
    text,
  }));

function section(page: string, heading: string): string {
  const [level = ""] = heading.split(" ");
  const start = page.indexOf(`\n${heading}\n`);
  expect([heading, start]).not.toEqual([heading, -1]);
  const rest = page.slice(start + heading.length + 2);
  const end = rest.search(new RegExp(`^#{1,${level.length}} `, "m"));
  return end < 0 ? rest : rest.slice(0, end);
}

test("the limits in the reference match the limits of the program", () => {
  const [, text = ""] = read("configuration.md").split("\n## Limits without a setting\n");
  const limits = new Map(
    [...text.matchAll(/^- (.+?): (.*)$/gm)].map(([, what = "", limit = ""]) => [what, limit]),
  );
  const count = (value: number | string): string => Number(value).toLocaleString("en-US");
  const days = (ms: number): string => `${count(ms / 86_400_000)} days`;
  const expectLimit = (what: string, start: string): void =>
    expect([what, limits.get(what)?.slice(0, start.length)]).toEqual([what, start]);
  expectLimit("length of a title", `${MAX_TITLE_LENGTH} code points`);
  const [unsigned, signed] = [2n ** 64n - 1n, 2n ** 63n - 1n];
  expect([MAX_TODO_ID, MAX_SQLITE_ID, MAX_POSTGRES_ID]).toEqual([unsigned, signed, signed]);
  expectLimit("greatest id", "2^64−1 in memory, 2^63−1 on SQLite and PostgreSQL");
  expectLimit("body of a request", `${MAX_BODY_BYTES / 1024} KiB`);
  expectLimit(
    "time to receive a request head, and to wait for the next one on a connection",
    `${IDLE_SECONDS} seconds`,
  );
  expectLimit("time to receive a body", `${DEFAULT_LIMITS.bodyTimeoutMs / 1000} seconds`);
  expectLimit("memory of all unfinished bodies", `${MAX_UNFINISHED_BYTES / 2 ** 20} MiB`);
  expectLimit("lifetime of an API key", days(MAX_DURATION_MS));
  expectLimit("expired API keys in the list", days(EXPIRED_LISTED_MS));
  expectLimit("expired API keys in the store", count(MAX_EXPIRED_KEYS));
  expectLimit("a query of PostgreSQL", `${PRIMARY_DEFAULTS.queryTimeoutMs / 1000} seconds`);
  expectLimit("connecting to one host of PostgreSQL", `${PRIMARY_DEFAULTS.queryTimeoutMs / 5000} seconds`);
  const page = read("configuration.md");
  expect(page.replaceAll(/\s+/g, " ")).toContain(
    `503 \`overloaded\`, after ${DEFAULT_LIMITS.overloadDelayMs / 1000} second`,
  );
  expect(page).toContain(`idempotency keys of the last ${RETENTION_MS / 3_600_000} hours`);
});

test("the reference and deploy/ name each variable only with a setting that exists", () => {
  const known = new Set<string>(ALL_SETTINGS.flatMap(getVariables));
  const pages = ["http-api.md", "errors.md", "events.md", "stores.md", "metrics-and-logs.md"];
  const composed = ["Containerfile", "compose.yaml", "compose.home.yaml"];
  const units = ["todo-service.service", "todo-service@.service"];
  for (const name of [...pages, ...[...composed, ...units].map((file) => `../../deploy/${file}`)])
    for (const [variable] of read(name).matchAll(/\bTODO_[A-Z_]+\b/g))
      expect([name, variable, known.has(variable)]).toEqual([name, variable, true]);
});

test("the reference lists the metrics of a running server, and no others", async () => {
  const { cert, options: tls } = certificateIn(folder);
  const store = ["--store", `sqlite:${join(folder, "todos.db")}`, "--backup-dir", folder];
  await using server = serve(["--metrics-port", "0", ...store, ...tls]);
  const url = await server.url;
  const options = { headers: { "Content-Type": "application/json" }, tls: { ca: cert } };
  const created = await fetch(`${url}/api/todos`, { ...options, method: "POST", body: '{"title":"x"}' });
  expect(created.status).toBe(201);

  const text = await scrape(server);
  const types = new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => [name, type]),
  );
  const labels = new Map([...types.keys()].map((name) => [name, new Set<string>()]));
  for (const series of parseExposition(text).keys()) {
    const name = series.replace(/\{.*/, "");
    const family = types.has(name) ? name : name.replace(/_(?:bucket|sum|count)$/, "");
    for (const label of Object.keys(labelsOf(series))) if (label !== "le") labels.get(family)?.add(label);
  }
  const page = section(read("metrics-and-logs.md"), "## Metrics");
  const families = entriesIn(page).map(({ name, kind, text }) => [name, kind, ...codesIn(text).toSorted()]);
  // Without a rescue file, its metric has no series.
  labels.get("todo_store_rescue_info")?.add("file");
  const actual = [...types].map(([name, type]) => [name, type, ...[...(labels.get(name) ?? [])].toSorted()]);
  // The pool exists on PostgreSQL only. Beside Linux, the library has no metrics of memory and file descriptors.
  const isHere = ([name = ""]: readonly string[]): boolean =>
    !/^todo_store_(?:connections|queries)$/.test(name) &&
    (process.platform === "linux" || !name.startsWith("process_"));
  expect(families.filter(isHere).toSorted()).toEqual(actual.filter(isHere).toSorted());

  const outcomes = codesIn(/^`outcome` is ([^.]*)\./m.exec(page)?.[1]);
  expect(outcomes).toEqual([...AUTHENTICATION_OUTCOMES]);
  const operations = Object.entries(STORE_OPERATIONS).filter(([, kind]) => kind !== "unmeasured");
  const missing = [...operations.map(([name]) => name), ...SURFACES].filter(
    (value) => !page.includes(`\`${value}\``),
  );
  expect(["missing in metrics-and-logs.md", ...missing]).toEqual(["missing in metrics-and-logs.md"]);
});

const listedLines = new Map(
  entriesIn(section(read("metrics-and-logs.md"), "## Logs")).map(({ name, kind, text }) => [
    name,
    { level: kind, fields: new Set(codesIn(text)) },
  ]),
);

function expectListed(stdout: string): string[] {
  return stdout
    .trimEnd()
    .split("\n")
    .map((line) => {
      const { level, time, msg, times, ...fields } = JSON.parse(line);
      const known = listedLines.get(msg);
      expect([msg, known?.level]).toEqual([msg, level]);
      for (const field of Object.keys(fields))
        expect([msg, field, known?.fields.has(field)]).toEqual([msg, field, true]);
      return msg;
    });
}

test("the reference lists the log messages of the source, and no others", () => {
  const files = globSync("src/{http,serve,cli}/**/*.ts", { cwd: ROOT }).filter(
    (file) => !/\.test\.ts$/.test(file),
  );
  const source = files.map((file) => readFileSync(`${ROOT}/${file}`, "utf8")).join("\n");
  const logged = [...source.matchAll(/\blog\.(?:info|warn|error)\([^"`;]*?,\s*"([^"]+)"/g)].map(
    ([, message = ""]) => message,
  );
  const listed = [...listedLines.keys()];
  expect(logged.length).toBeGreaterThan(25);
  for (const message of logged) expect(listed).toContain(message);
  for (const message of listed) expect([message, source.includes(`"${message}"`)]).toEqual([message, true]);
});

test("the reference lists the log lines of a running server with their fields", async () => {
  const admin = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "secret words" };
  const clients = join(folder, "clients");
  writeFileSync(clients, `alice:${"0".repeat(64)}\n`);
  const args = ["--private", "--access-log", "--clients-file", clients];
  await using server = serve([...args], admin);
  const url = await server.url;
  const headers = { Authorization: basic("admin", "secret words") };
  const send = async (line: string, body?: object) =>
    JSON.parse((await (await sendJson(url, line, body, headers)).text()) || "{}");
  await send("POST /api/todos", { title: "x" });
  await send("PATCH /api/todos/1", { done: true });
  await send("POST /api/todos", { title: "" });
  const { id } = await send("POST /admin/keys", { name: "ci" });
  await send("POST /admin/keys", { name: "ci" });
  const successor = await send(`POST /admin/keys/${id}/rotate`);
  await send(`DELETE /admin/keys/${successor.id}`);
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  await fetch(`${url}/api/whoami`, { headers: { Authorization: "Bearer wrong", traceparent } });
  writeFileSync(clients, `alice:${"0".repeat(64)}\nbob:${"1".repeat(64)}\n`);
  await until(() => server.stdout().includes("credentials read again"), "the clients file is read again");
  await stop(server);
  const expected = [
    ...["listening", "request", "write", "write refused", "key created", "key write refused", "key rotated"],
    ...["key revoked", "credential refused", "credentials read again", "stopping", "stopped"],
  ];
  expect(new Set(expectListed(server.stdout()))).toEqual(new Set(expected));
});

test("the runtime rejects malformed requests as the reference describes", async () => {
  await using service = startService();
  const end = "Connection: close\r\n\r\n";
  const statuses = new Map(
    rowsOf(section(read("errors.md"), "## Errors without a code")).map(([status, cause]) => [cause, status]),
  );
  const requests: Readonly<Record<string, string>> = {
    "The runtime cannot parse the request, or the request has no `Host`.": `GET /livez HTTP/1.1\r\n${end}`,
    "The body has more than 128 KiB.": request("POST /api/todos", [
      `Content-Length: ${MAX_REQUEST_BYTES + 1}`,
    ]),
    "The head has more than 16 KiB.": request("GET /livez", [`X: ${"x".repeat(17_000)}`]),
    "The head has more than about 200 fields.": request("GET /livez", Array(220).fill("X: y")),
    "The version of HTTP is neither 1.1 nor 1.0, or the request line is malformed.": `GET /livez HTTP/3.0\r\nHost: localhost\r\n${end}`,
    "The method is unknown; the runtime closes the connection.": request("BREW /livez"),
  };
  expect([...statuses.keys()]).toEqual(Object.keys(requests));
  for (const [cause, bytes] of Object.entries(requests)) {
    const { text } = await sendRaw(service.port, bytes, 60_000);
    expect([cause, String(statusOf(text) ?? "none")]).toEqual([cause, statuses.get(cause) ?? ""]);
  }
});

const SITE = { "Sec-Fetch-Site": "cross-site" };
const KEY = { "Idempotency-Key": "two words" };
const USED = { "Idempotency-Key": "used" };
const TYPE = { "Content-Type": "text/plain" };

test("a request with several problems gets the error that the contract lists first", async () => {
  const store = openMemory({ maxTodos: 1 });
  await using service = startService({
    store,
    credentials: {
      keys: store.keys,
      checkUser: (user, password) => user === "admin" && password === "secret",
    },
    network: { onLoopback: true },
  });
  await service.sendJson("POST", "/api/todos", { title: "x" }, { headers: { "Idempotency-Key": "used" } });
  const codeOf = async (line: string, headers: Record<string, string>, body?: string): Promise<string> => {
    const [method = "", path = ""] = line.split(" ");
    const init = { method, headers, ...(body !== undefined && { body }) };
    return JSON.parse(await (await fetch(service.url + path, init)).text()).code;
  };
  const large = "no JSON".repeat(MAX_BODY_BYTES / 5);
  const json = "application/json";
  /** What remains wrong with each request, and the error that it gets. */
  const steps: [code: string, line: string, problems: Record<string, string>, body?: string][] = [
    ["misdirected_host", "POST /api/todos", { Host: "other.example", ...SITE, ...KEY, ...TYPE }],
    ["route_not_found", "POST /api/unknown", { ...SITE, ...KEY, ...TYPE }],
    ["method_not_allowed", "PUT /api/todos", { ...SITE, ...KEY, ...TYPE }],
    ["cross_site_write", "POST /api/todos", { ...SITE, ...KEY, ...TYPE }],
    ["invalid_idempotency_key", "POST /api/todos", { ...KEY, ...TYPE }],
    ["invalid_id", "PATCH /api/todos/one", { ...KEY, ...TYPE }],
    ["todo_not_found", "PATCH /api/todos/2", { ...KEY, ...TYPE }],
    ["unsupported_media_type", "POST /api/todos", { ...USED, ...TYPE }],
    ["body_too_large", "POST /api/todos", { ...USED, "Content-Type": json }],
    ["invalid_json", "POST /api/todos", { ...USED, "Content-Type": json }, "no JSON"],
    ["validation_failed", "POST /api/todos", { ...USED, "Content-Type": json }, '{"title":""}'],
    ["idempotency_key_reused", "POST /api/todos", { ...USED, "Content-Type": json }, '{"title":"other"}'],
    ["store_full", "POST /api/todos", { "Content-Type": json }, '{"title":"other"}'],
  ];
  for (const [code, line, problems, body = large] of steps)
    expect([line, await codeOf(line, problems, body)]).toEqual([line, code]);
  const admin = { Authorization: basic("admin", "secret") };
  expect([
    await codeOf("PUT /admin/unknown", SITE),
    await codeOf("PUT /admin/unknown", { ...SITE, ...admin }),
    await codeOf("PUT /admin/keys", { ...SITE, ...admin }),
    await codeOf("DELETE /admin/keys/unknown", { ...SITE, ...admin }),
    await codeOf("DELETE /admin/keys/unknown", admin),
  ]).toEqual(["unauthorized", "route_not_found", "method_not_allowed", "cross_site_write", "key_not_found"]);
});

const examplesIn = ({ blocks }: Page) =>
  blocks.flatMap((block, index) =>
    isCommand(block) && block.text.includes("curl")
      ? [{ command: block.text, output: blocks[index + 1]?.text ?? "" }]
      : [],
  );

/** Replaces what differs between two servers: random values, times and the port. */
const masked = (text: string): string =>
  text
    .replaceAll("\r", "")
    .replace(/todo_\w{49}/g, "TOKEN")
    .replace(/"id":"\w{8}"/g, '"id":"KEY"')
    .replace(/\d{4}-\d\d-\d\dT[\d:]+Z/g, "TIME")
    .replace(/^Date: .*$/gm, "Date: DATE")
    .replace(/\b[0-9a-f]{16}-(\d+)/g, "EPOCH-$1")
    .trimEnd();

test.skipIf(skipFor(whyMissing("curl")))("examples of the HTTP API print what the page shows", async () => {
  const admin = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "secret" };
  await using server = serve([], admin);
  const url = await server.url;
  const token = { shown: "", actual: "" };
  const examples = examplesIn(readPage("docs/reference/http-api.md"));
  expect(examples.length).toBeGreaterThan(8);
  for (const { command, output } of examples) {
    const script = command
      .replaceAll("http://127.0.0.1:3000", url)
      .replaceAll("curl ", "curl -sS ")
      .replaceAll(token.shown || "no token yet", token.actual)
      // Each command of a block prints its own line.
      .replace(/^(curl .*)\n(?=curl)/gm, "$1\necho\n");
    await using shell = run(["sh", "-c", script]);
    expect([command, await shell.exited, shell.stderr()]).toEqual([command, 0, ""]);
    expect(`${command}${masked(shell.stdout())}`).toBe(`${command}${masked(output)}`);
    const [shown] = /todo_\w{49}/.exec(output) ?? [];
    const [actual] = /todo_\w{49}/.exec(shell.stdout()) ?? [];
    if (shown !== undefined && actual !== undefined) Object.assign(token, { shown, actual });
  }
});
