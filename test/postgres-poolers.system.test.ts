import { beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Command, run } from "./command.ts";
import { freePort } from "./free-port.ts";
import { whyNoDatabase } from "./postgres.ts";
import { createTodo } from "./served-todos.ts";
import { serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { follow } from "./sse.ts";
import { usePostgres } from "./stores.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

const EVENTS = 200;

interface Front extends AsyncDisposable {
  readonly url: string;
}

/** Makes pgbouncer drop the session parameters instead of rejecting them. */
const IGNORE_PARAMETERS = `ignore_startup_parameters = ${[
  ...["search_path", "todo_service.direct", "default_transaction_isolation", "synchronous_commit"],
  ...["statement_timeout", "idle_in_transaction_session_timeout"],
].join()}`;

describe.skipIf(skipFor(whyNoDatabase))("PostgreSQL behind", () => {
  const postgres = usePostgres();
  let database: URL;
  beforeAll(() => chmod(folder, 0o755));
  beforeEach(async () => {
    database = new URL(await postgres.newDatabase());
    const role = `of_${database.pathname.slice(1)}`;
    await postgres.query(`CREATE ROLE ${role} LOGIN PASSWORD '${database.password}'`);
    await postgres.query(`GRANT CREATE ON DATABASE ${database.pathname.slice(1)} TO ${role}`);
    database.username = role;
  });

  async function start(program: Command, port: number): Promise<Front> {
    const url = new URL(database);
    url.host = `127.0.0.1:${port}`;
    await until(async () => {
      const socket = await Bun.connect({ hostname: "127.0.0.1", port, socket: { data: () => {} } }).catch(
        () => undefined,
      );
      socket?.end();
      return socket !== undefined;
    }, "the proxy listens");
    return { url: url.href, [Symbol.asyncDispose]: () => program[Symbol.asyncDispose]() };
  }

  async function startPgbouncer(mode: string, settings = ""): Promise<Front> {
    const port = await freePort();
    const users = join(folder, `users-${port}`);
    const config = join(folder, `pgbouncer-${port}.ini`);
    await writeFile(users, `"${database.username}" "${database.password}"\n`);
    await writeFile(
      config,
      `[databases]
* = host=127.0.0.1 port=${postgres.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
pool_mode = ${mode}
${settings}
`,
    );
    // It does not run as root.
    const user = process.getuid?.() === 0 ? ["-u", "nobody"] : [];
    return start(run(["pgbouncer", "-q", ...user, config]), port);
  }

  async function expectToWork(url: string): Promise<void> {
    await using one = serve([], { TODO_STORE: url });
    const writer = await one.url;
    await using other = serve([], { TODO_STORE: url });
    await using events = await follow(await other.url);
    await events.take(1);
    const received = events.take(EVENTS);
    for (let i = 0; i < EVENTS; i += 10) {
      await Promise.all(Array.from({ length: 10 }, () => createTodo(writer, "x")));
    }
    expect((await received).map(({ data }) => JSON.parse(data).id)).toEqual(
      Array.from({ length: EVENTS }, (_, index) => index + 1),
    );
  }

  describe.skipIf(skipFor(whyMissing("pgbouncer")))("pgbouncer", () => {
    test.each([
      ["session", ""],
      ["session", IGNORE_PARAMETERS],
      ["transaction", IGNORE_PARAMETERS],
    ])("in %s mode is rejected with the reason (%s)", async (mode, settings) => {
      await using pgbouncer = await startPgbouncer(mode, settings);
      await using server = serve([], { TODO_STORE: pgbouncer.url });
      expect(await server.exited).toBe(2);
      expect(server.stderr()).toContain("connect to PostgreSQL directly");
    });
  });

  describe.skipIf(skipFor(whyMissing("haproxy")))("haproxy", () => {
    test("works, also if the first host is down", async () => {
      const port = await freePort();
      const config = join(folder, "haproxy.cfg");
      await writeFile(
        config,
        `defaults
  mode tcp
  timeout connect 2s
  timeout client 1m
  timeout server 1m
listen postgres
  bind 127.0.0.1:${port}
  option redispatch
  server down 127.0.0.1:1 check inter 100ms
  server up 127.0.0.1:${postgres.port} check inter 100ms
`,
      );
      await using haproxy = await start(run(["haproxy", "-db", "-f", config]), port);
      await expectToWork(haproxy.url);
    });
  });
});
