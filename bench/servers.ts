/** The servers under test: how to start each of them. */
import { fileURLToPath } from "node:url";
import { ADMIN, PASSWORD, type RequestSpec, TOKEN } from "./requests.ts";

export interface Server {
  readonly name: string;
  /**
   * `start` replaces $PORT, $CLIENTS (a clients file), $RESPONSE (the product's response, as JSON), $CONFIG (the file
   * that `config` describes), $STORE (a new file) and $GO (the built peer in Go), here and in `env`.
   */
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The path that answers 200 when the server is ready. */
  readonly readyPath: string;
  /** Whether POST adds a to-do. */
  readonly stores: boolean;
  /** The methods whose responses must have the product's headers too. */
  readonly equalHeaders: readonly RequestSpec["method"][];
  /** Where it starts; this project's folder without it. */
  readonly cwd?: string;
  /** Returns the text of its configuration file. */
  readonly config?: (port: number, folder: string) => Promise<string>;
}

/** A response as it is compared between servers. */
export interface ExpectedResponse {
  /** Without the headers that a runtime adds by itself. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
}

/** Builds the peer in Go. The compiler's cache goes to the folder, because the user may have no home. */
export function buildGo(folder: string): void {
  const command = ["go", "build", "-o", `${folder}/go-peer`, "main.go"];
  const env = { ...process.env, GOCACHE: `${folder}/go-cache` };
  const { success } = Bun.spawnSync(command, {
    cwd: `${here}servers/go`,
    env,
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (!success) throw new Error("go build in bench/servers/go failed");
}

export const root = fileURLToPath(new URL("..", import.meta.url));
const here = `${import.meta.dir}/`;
const bun = [`${root}bin/bun`];
export const node = `${here}node_modules/.bin/node`;
const tokenHash = new Bun.CryptoHasher("sha256").update(TOKEN).digest("hex");

/** Lines for the product's clients file. */
export const clientsFile = `bench:${tokenHash}\n`;

/** The product's command line in this project's folder. */
export const todo = `${root}bin/todo`;

const serve = (...flags: readonly string[]) => [
  ...[todo, "serve", "--port", "$PORT", "--clients-file", "$CLIENTS"],
  ...flags,
];

/** Returns the server as another checkout of this project starts it. */
export const fromCheckout = (server: Server, folder: string): Server => ({
  ...server,
  command: server.command.map((part) => (part === todo ? `${folder}/bin/todo` : part)),
  cwd: folder,
  // Another version may send other headers.
  equalHeaders: [],
});

export const product: Server = {
  name: "todo-service",
  command: serve(),
  env: { TODO_ADMIN_USER: ADMIN, TODO_ADMIN_PASSWORD: PASSWORD },
  readyPath: "/readyz",
  stores: true,
  equalHeaders: ["GET", "POST"],
};

export const withAccessLog: Server = {
  ...product,
  name: "todo-service, access log",
  command: serve("--access-log"),
  // It adds X-Request-Id.
  equalHeaders: [],
};

export const inPrivateMode: Server = {
  ...product,
  name: "todo-service, private mode",
  command: serve("--private"),
  // It adds Cache-Control, and Authorization to Vary.
  equalHeaders: [],
};

export const withMetrics: Server = {
  ...product,
  name: "todo-service, metrics",
  command: serve("--metrics-port", "0"),
};

/** Returns the product with a SQLite file as its store. */
export const onSqlite = (path: string): Server => ({
  ...product,
  name: "todo-service, SQLite",
  command: serve("--store", `sqlite:${path}`),
});
export const onNewFile = onSqlite("$STORE");

/** Returns the product on a new SQLite file with each fsync delayed. strace slows down no other system call. */
export const onSlowDisk = (delayMs: number): Server => ({
  ...onNewFile,
  name: `todo-service, SQLite, fsync + ${delayMs} ms`,
  command: [
    ...["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"],
    ...["-e", `inject=fsync,fdatasync:delay_exit=${delayMs * 1000}`],
    ...onNewFile.command,
  ],
});

/** Returns the product on a PostgreSQL database. */
export const onPostgres = (url: string): Server => ({
  ...product,
  name: "todo-service, PostgreSQL",
  command: serve("--max-todos", "10000000"),
  env: { ...product.env, TODO_STORE: url },
});

/** Returns a server that writes to the same database with one transaction per request. */
export const transactionEach = (url: string): Server => ({
  name: "one transaction per request",
  command: [...bun, `${here}servers/postgres-each.ts`],
  env: { PORT: "$PORT", POSTGRES: url },
  readyPath: "/livez",
  stores: true,
  equalHeaders: [],
});

const peer = (name: string, runtime: readonly string[], file: string): Server => ({
  name,
  command: [...runtime, `${here}servers/${file}`],
  env: { NODE_ENV: "production", PORT: "$PORT", CLIENT_SHA256: tokenHash },
  readyPath: "/api/todos",
  stores: true,
  equalHeaders: [],
});

/** The product's response from a handler that does nothing else: what Bun alone costs. */
export const bareHandler: Server = {
  ...peer("bare Bun handler", bun, "bare.ts"),
  env: { PORT: "$PORT", RESPONSE_FILE: "$RESPONSE" },
  readyPath: "/api/todos/1",
  stores: false,
  equalHeaders: ["GET"],
};

/** The same, but with a body that responses share instead of copying it. */
export const bareBlobHandler: Server = {
  ...bareHandler,
  name: "bare Bun handler, Blob",
  env: { ...bareHandler.env, BODY: "blob" },
};

/** The product's response from nginx: the least that a request over loopback costs here. */
export const nginx: Server = {
  name: "nginx, return 200",
  command: ["nginx", "-e", "stderr", "-c", "$CONFIG"],
  env: {},
  readyPath: "/api/todos/1",
  stores: false,
  equalHeaders: ["GET"],
  config: async (port, folder) => {
    const { headers, body }: ExpectedResponse = await Bun.file(`${folder}/response.json`).json();
    const quote = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
    const type = headers.find(([name]) => name === "content-type")?.[1] ?? "text/plain";
    const others = headers.filter(([name]) => name !== "content-type");
    const bodyFolders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    return `
      daemon off;
      master_process off;
      pid ${folder}/${port}.pid;
      events { worker_connections 1024; }
      http {
        access_log off;
        server_tokens off;
        keepalive_requests 1000000000;
        ${bodyFolders.map((name) => `${name}_temp_path ${folder}/${port}.${name};`).join("\n")}
        server {
          listen 127.0.0.1:${port};
          default_type ${quote(type)};
          ${others.map(([name, value]) => `add_header ${name} ${quote(value)};`).join("\n")}
          location / { return 200 ${quote(body)}; }
        }
      }`;
  },
};

export const elysia = peer("Elysia (Bun)", bun, "elysia.ts");
export const equalElysia: Server = {
  ...peer("Elysia (Bun), equal", bun, "elysia-equal.ts"),
  equalHeaders: ["GET", "POST"],
};
export const elysiaResponses: Server = {
  ...equalElysia,
  name: "Elysia (Bun), equal, prepared headers",
  command: [...bun, `${here}servers/elysia-responses.ts`],
  readyPath: "/ready",
};
export const fastify = peer("Fastify", [node], "fastify.ts");
/** On current Node the response schema that Fastify's guide recommends makes a long list slower. */
export const fastifyPlainList: Server = {
  ...fastify,
  name: "Fastify, list without schema",
  env: { ...fastify.env, LIST_SCHEMA: "off" },
};
/** Go's standard library with the product's headers and checks. */
export const equalGo: Server = {
  ...peer("Go, equal", [], "go"),
  command: ["$GO"],
  equalHeaders: ["GET", "POST"],
};
export const express = peer("Express", [node], "express.ts");
