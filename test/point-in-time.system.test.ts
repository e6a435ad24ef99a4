import { expect, test } from "bun:test";
import { appendFile, chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SQL } from "bun";
import { type Command, run, runTodo, succeed } from "./command.ts";
import { freePort } from "./free-port.ts";
import { createTodo } from "./served-todos.ts";
import { skipFor, whyNoFile } from "./skip.ts";
import { follow } from "./sse.ts";
import { temporaryFolder } from "./temporary.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

/** Debian's PostgreSQL, because the one from npm lacks pg_basebackup. */
const BIN = "/usr/lib/postgresql/15/bin";
const LIMIT_MS = 180_000;
const whyNot =
  process.getuid?.() === 0
    ? (whyNoFile(`${BIN}/pg_basebackup`) ?? whyMissing("setpriv"))
    : "only root can run commands as the user postgres";

/** Runs a shell command as the user postgres. */
const asPostgres = (command: string): Command =>
  run(
    ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "sh", "-c", `cd / && ${command}`],
    {
      PATH: `${BIN}:${process.env.PATH}`,
    },
  );

test.skipIf(skipFor(whyNot))(
  "PostgreSQL recovers to a second from a base backup and archived WAL, and clients resync",
  async () => {
    await using stack = new AsyncDisposableStack();
    await chmod(folder, 0o777);
    const port = await freePort();
    const [primary, base, archive] = ["primary", "base", "archive"].map((name) => join(folder, name));
    const start = async (data: string | undefined, settings: string): Promise<Command> => {
      const server = stack.use(
        asPostgres(`exec postgres -D ${data} -p ${port} -h 127.0.0.1 -k ${folder} ${settings}`),
      );
      await until(
        async () => (await asPostgres(`pg_isready -h 127.0.0.1 -p ${port}`).exited) === 0,
        "PostgreSQL answers",
      );
      return server;
    };
    await succeed(
      asPostgres(`mkdir ${archive} && initdb --auth=trust --encoding=UTF8 --no-locale -D ${primary}`),
    );
    const archiving = `-c archive_mode=on -c archive_command='test ! -f ${archive}/%f && cp %p ${archive}/%f'`;
    const first = await start(primary, archiving);
    await succeed(asPostgres(`createdb -h 127.0.0.1 -p ${port} todo`));
    const database = `postgres://postgres@127.0.0.1:${port}/todo`;

    await using todo = runTodo(["serve", "--port", "0", "--store", database]);
    const url = await todo.url;
    await createTodo(url, "before the base backup");
    await succeed(asPostgres(`pg_basebackup -h 127.0.0.1 -p ${port} --checkpoint=fast -D ${base}`));
    await createTodo(url, "before the mistake");
    // The target is a second, so the writes before and after it are in other seconds.
    await Bun.sleep(2000);
    await using sql = new SQL(database, { max: 1 });
    const [{ target }] = await sql`SELECT to_char(now(), 'YYYY-MM-DD HH24:MI:SSOF') AS target`;
    await Bun.sleep(1000);
    await createTodo(url, "the mistake");
    const lost = (await fetch(`${url}/api/todos`)).headers.get("etag") ?? "";
    const [{ wal }] = await sql`SELECT pg_walfile_name(pg_current_wal_lsn()) AS wal, pg_switch_wal()`;
    await until(
      async () =>
        (await sql`SELECT last_archived_wal >= ${wal} AS done FROM pg_stat_archiver`)[0]?.done === true,
      "the WAL is archived",
    );
    await sql.close();
    first.kill("SIGINT");
    await first.exited;

    const settings = `restore_command = 'cp ${archive}/%f %p'\nrecovery_target_time = '${target}'\nrecovery_target_action = 'promote'\n`;
    await appendFile(join(base ?? "", "postgresql.auto.conf"), settings);
    await writeFile(join(base ?? "", "recovery.signal"), "");
    const second = await start(base, "");
    await until(async () => (await fetch(`${url}/readyz`)).ok, "the service is ready again");
    const list = await fetch(`${url}/api/todos`, { headers: { "If-None-Match": lost } });
    expect(list.status).toBe(200);
    const titles = JSON.parse(await list.text()).map(({ title }: { readonly title: string }) => title);
    expect(titles).toEqual(["before the base backup", "before the mistake"]);
    const events = await follow(url, { since: lost.replaceAll('"', "") });
    expect((await events.take(1))[0]?.type).toBe("resync");
    await events.close();
    await createTodo(url, "after the recovery");
    todo.kill("SIGTERM");
    expect(await todo.exited).toBe(0);
    second.kill("SIGINT");
    await second.exited;
  },
  LIMIT_MS,
);
