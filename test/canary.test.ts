import { expect, test } from "bun:test";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { hashToken, randomBase62 } from "../src/credential/token.ts";
import { runTodo } from "./command.ts";
import { scrape, stop } from "./server.ts";
import { filesIn, temporaryFolder } from "./temporary.ts";

const folder = temporaryFolder();
const file = filesIn(folder);

/** The secrets, by the place where they were sent or configured. */
type Secrets = Map<string, string>;

interface MintedKey {
  readonly id: string;
  readonly token: string;
}

const bearer = (token: string) => ({ Authorization: `Bearer ${token}` });
const basic = (user: string, password: string) => ({ Authorization: `Basic ${btoa(`${user}:${password}`)}` });
const JSON_BODY = { "Content-Type": "application/json" };

test("no secret appears in the log, the metrics or the files of the store", async () => {
  const secrets: Secrets = new Map();
  const titles: Secrets = new Map();
  const secret = (place: string): string => plant(secrets, place);
  const title = (place: string): string => plant(titles, place);
  const home = join(folder, `c4nary-${randomBase62(12)}`);
  const path = join(home, "todos.db");
  await mkdir(home);
  const [token, password, bobs] = [secret("clients file"), secret("password file"), secret("users file")];
  const tokenHash = hashToken(token).toString("hex");
  const bobsHash = await Bun.password.hash(bobs, { algorithm: "bcrypt", cost: 4 });
  secrets.set("a client's hash", tokenHash).set("a user's hash", bobsHash);
  const args = [
    ...["--port", "0", "--access-log", "--admin-user", "admin"],
    ...["--metrics-port", "0"],
    ...["--store-file", file(`sqlite:${path}`)],
    ...["--clients-file", file(`alice:${tokenHash}\n`)],
    ...["--users-file", file(`bob:${bobsHash}\n`)],
    ...["--admin-password-file", file(password)],
  ];
  await using server = runTodo(["serve", ...args]);
  const url = await server.url;
  let sent = 0;
  const send = async (
    status: number,
    method: string,
    path: string,
    headers: Readonly<Record<string, string>> = {},
    body?: string,
  ): Promise<string> => {
    const response = await fetch(url + path, { method, headers, ...(body !== undefined && { body }) });
    sent++;
    expect([method, path, response.status]).toEqual([method, path, status]);
    return response.text();
  };
  const inPath = (place: string): string => encodeURIComponent(secret(place));

  await send(200, "GET", "/api/whoami", bearer(token));
  await send(401, "GET", "/api/whoami", bearer(secret("wrong token")));
  await send(401, "GET", "/api/whoami", bearer(`${secret("first token")} ${secret("second token")}`));
  await send(401, "GET", "/api/whoami", { Authorization: secret("Authorization") });
  await send(401, "GET", "/api/whoami", { Authorization: `${secret("scheme")} x` });
  await send(401, "GET", `/api/whoami?access_token=${inPath("query")}`);
  const admin = basic("admin", password);
  await send(200, "GET", "/admin/", admin);
  await send(200, "GET", "/admin/", basic("bob", bobs));
  await send(401, "GET", "/admin/", basic("admin", secret("wrong password")));
  await send(401, "GET", "/admin/", basic(secret("user"), secret("password of nobody")));
  await send(401, "GET", "/admin/", { Authorization: `Basic ${secret("Basic")}!` });
  await send(404, "GET", `/metrics/${inPath("path of metrics")}`, { traceparent: secret("traceparent") });
  await send(404, "GET", `/${inPath("path")}`, { Cookie: secret("Cookie"), Referer: secret("Referer") });
  await send(400, "GET", `/api/todos/${inPath("id")}`);
  await send(400, "GET", `/api/todos?after=${inPath("after")}`);

  const key = secret("Idempotency-Key");
  const todo = JSON.stringify({ title: title("title"), note: secret("unknown member") });
  await send(201, "POST", "/api/todos", { ...JSON_BODY, "Idempotency-Key": key }, todo);
  await send(201, "POST", "/api/todos", { ...JSON_BODY, "Idempotency-Key": `"${key}"` }, todo);
  const another = JSON.stringify({ title: title("another title") });
  await send(422, "POST", "/api/todos", { ...JSON_BODY, "Idempotency-Key": key }, another);
  const noKey = { "Idempotency-Key": `"${secret("bad Idempotency-Key")}` };
  await send(400, "POST", "/api/todos", { ...JSON_BODY, ...noKey }, another);
  await send(400, "POST", "/api/todos", JSON_BODY, secret("no JSON"));
  await send(422, "POST", "/api/todos", JSON_BODY, JSON.stringify({ title: title("long").repeat(9) }));
  await send(415, "POST", "/api/todos", { "Content-Type": secret("Content-Type") }, another);

  const named = [{ ...admin, ...JSON_BODY }, '{"name":"ci"}'] as const;
  const minted: MintedKey = JSON.parse(await send(201, "POST", "/admin/keys", ...named));
  const rotated: MintedKey = JSON.parse(await send(201, "POST", `/admin/keys/${minted.id}/rotate`, admin));
  await using cli = runTodo(["keys", "create", "cd", "--store", `sqlite:${path}`]);
  expect(await cli.exited).toBe(0);
  secrets.set("minted hash", hashToken(minted.token).toString("hex"));
  secrets.set("minted", minted.token).set("rotated", rotated.token).set("minted beside", cli.stdout().trim());
  for (const place of ["minted", "rotated", "minted beside"])
    await send(200, "GET", "/api/whoami", bearer(secrets.get(place) ?? ""));
  await send(404, "DELETE", `/admin/keys/${encodeURIComponent(minted.token)}`, admin);
  await send(404, "POST", `/admin/keys/${inPath("key id")}/rotate`, admin);
  const badName = JSON.stringify({ name: `\u0000${secret("bad name")}` });
  await send(422, "POST", "/admin/keys", { ...admin, ...JSON_BODY }, badName);

  const metrics = await scrape(server);
  expect(metrics).toContain('todo_authentications_total{surface="bearer",outcome="wrong"} 1');
  const served = await contentOf(home);
  await stop(server);
  const said = new Map([
    ["stdout", server.stdout()],
    ["stderr", server.stderr()],
    ["metrics", metrics],
  ]);
  for (const texts of [said, served, await contentOf(home)]) expect(found(secrets, texts)).toEqual([]);
  expect(found(titles, said)).toEqual([]);
  expect(found(new Map([["path", home.slice(folder.length + 1)]]), said)).toEqual([]);
  expect(server.stdout().match(/"msg":"request"/g)).toHaveLength(sent);
  expect(found(titles, served).join()).toMatch(/title in todos\.db(-wal)?/);
});

test("the search finds a secret in every encoding and next to any bytes", () => {
  const secrets = new Map([["it", "c4nary/?>+é"]]);
  for (const text of ["c4nary/?>+é", "user:c4nary/?>+é", "xc4nary/?>+éyz"]) {
    const bytes = Buffer.from(text);
    for (const coding of ["utf8", "hex", "base64", "base64url"] as const)
      expect(found(secrets, new Map([[coding, bytes.toString(coding)]]))).toEqual([`it in ${coding}`]);
    for (const coded of [
      encodeURIComponent(text),
      bytes.toString("hex").toUpperCase(),
      bytes.toString("latin1"),
    ])
      expect(found(secrets, new Map([["text", coded]]))).toEqual(["it in text"]);
  }
  expect(found(secrets, new Map([["text", "c4nary"]]))).toEqual([]);
});

function plant(secrets: Secrets, place: string): string {
  const secret = `c4nary/${randomBase62(12)}+`;
  secrets.set(place, secret);
  return secret;
}

async function contentOf(folder: string): Promise<Map<string, string>> {
  const names = await readdir(folder);
  const contents = names.map(async (name) => {
    return [name, Buffer.from(await Bun.file(join(folder, name)).bytes()).toString("latin1")] as const;
  });
  return new Map(await Promise.all(contents));
}

function found(secrets: Secrets, texts: ReadonlyMap<string, string>): string[] {
  return [...secrets].flatMap(([place, secret]) => {
    const forms = formsOf(secret);
    return [...texts].flatMap(([name, text]) =>
      forms.some((form) => text.includes(form)) ? [`${place} in ${name}`] : [],
    );
  });
}

function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  // The first and last characters of base64 depend on the neighboring bytes, and all of them on the offset.
  const base64 = [0, 1, 2].map((before) => {
    const coded = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
    return coded.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
  });
  const base64url = base64.map((coded) => coded.replaceAll("+", "-").replaceAll("/", "_"));
  const plain = [secret, bytes.toString("latin1"), encodeURIComponent(secret)];
  return [...plain, hex, hex.toUpperCase(), ...base64, ...base64url];
}
