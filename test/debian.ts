/** Debian systems that tests start in namespaces of their own. */
import { test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rename, rm, rmdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Command, ended, run, succeed } from "./command.ts";
import { whyNoFile } from "./skip.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const { TODO_TEST_SYSTEMS: WANTED } = process.env;
const LIMIT_MS = 300_000;

export const whyNoSystem: string | undefined =
  WANTED === undefined
    ? "TODO_TEST_SYSTEMS is not set; the tests download 300 MB of Debian's packages"
    : process.getuid?.() !== 0
      ? "only root can start a system"
      : (whyNoFile("/dev/net/tun") ??
        whyMissing("mmdebstrap") ??
        whyMissing("slirp4netns") ??
        whyMissing("systemd-nspawn") ??
        (await whyNoOverlay()));

async function whyNoOverlay(): Promise<string | undefined> {
  const folder = await mkdtemp(join(tmpdir(), "todo-overlay-"));
  const commands = `mount -t tmpfs none "$0"; cd "$0"; mkdir lower upper work both
    mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none both`;
  const { code, stderr } = await ended(run(["unshare", "--mount", "sh", "-ec", commands, folder]));
  await rmdir(folder);
  return code === 0 ? undefined : `no overlay file system can be mounted: ${stderr.trim()}`;
}

/** @param packages separated by commas. If TODO_TEST_SYSTEMS is a path, the file system is kept there for the next run. */
export async function buildDebian(suite: string, packages: string, folder: string): Promise<string> {
  const parent = WANTED?.startsWith("/") ? WANTED : folder;
  const root = join(parent, `${suite}-${Bun.hash(packages).toString(36)}`);
  if (existsSync(root)) return root;
  await mkdir(parent, { recursive: true });
  await outputOf([
    ...["mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io"],
    ...['--aptopt=Apt::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"'],
    ...["doc", "man", "locale"].map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`),
    ...[`--include=${packages}`, suite, `${root}.part`],
  ]);
  // The system itself installs packages with all their files.
  await rm(join(`${root}.part`, "etc/dpkg/dpkg.cfg.d/99mmdebstrap"));
  await rename(`${root}.part`, root);
  return root;
}

export const outputOf = (
  commandLine: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<string> => succeed(run(commandLine, variables));

export class System {
  /** The process id of the first process of the system, on this machine. */
  readonly init: number;
  readonly #outer: Command;
  readonly #namespaces: readonly string[];
  readonly #group: string;

  private constructor(outer: Command, init: number, namespaces: readonly string[], group: string) {
    this.#outer = outer;
    this.init = init;
    this.#namespaces = namespaces;
    this.#group = group;
  }

  /** Starts a command line. A descendant with this name becomes the system's first process. `namespaces` has more options of nsenter. */
  static async start(
    commandLine: readonly string[],
    name: string,
    namespaces: readonly string[],
    group: string,
  ): Promise<System> {
    const outer = run(["setpriv", "--pdeathsig", "KILL", ...commandLine]);
    let hasEnded = false;
    outer.exited.then(() => {
      hasEnded = true;
    });
    const read = (path: string): Promise<string> => readFile(`/proc/${path}`, "utf8").catch(() => "");
    let init = String(outer.pid);
    await until(async () => {
      if (hasEnded) throw new Error(`the system has ended: ${outer.stderr()}`);
      const child = (await read(`${init}/task/${init}/children`)).trim();
      init = child === "" ? String(outer.pid) : child;
      return child !== "" && (await read(`${child}/comm`)) === `${name}\n`;
    }, `${name} runs`);
    return new System(outer, Number(init), namespaces, group);
  }

  get log(): string {
    return this.#outer.stdout() + this.#outer.stderr();
  }

  run(
    commandLine: readonly string[],
    { folder = "/", input }: { folder?: string; input?: string } = {},
  ): Command {
    return run([...this.commandLineFor(folder), ...commandLine], {}, input);
  }

  commandLineFor(folder = "/"): readonly string[] {
    return [
      ...["nsenter", `--target=${this.init}`, "--mount", "--net", "--pid", "--ipc", "--uts"],
      ...[...this.#namespaces, `--wdns=${folder}`, "env", "-i"],
      ...["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb"],
    ];
  }

  /** Runs a command line in the system. Returns its standard output without the last line feed. Throws an Error if it fails. */
  async output(
    commandLine: readonly string[],
    options?: { folder?: string; input?: string },
  ): Promise<string> {
    return (await succeed(this.run(commandLine, options))).replace(/\n$/, "");
  }

  shell(commands: string, options?: { folder?: string; input?: string }): Promise<string> {
    return this.output(["sh", "-ec", commands], options);
  }

  /** Ends all processes of the system at once, and removes its control groups. */
  async [Symbol.asyncDispose](): Promise<void> {
    await run(["kill", "-KILL", String(this.init)]).exited;
    await this.#outer.exited;
    // A group can be removed when the kernel has collected its last process.
    await until(async () => {
      const removed = run([
        ...["find", "/sys/fs/cgroup", "-depth", "-type", "d", "-path", `*/${this.#group}*`],
        ...["-exec", "rmdir", "{}", "+"],
      ]);
      return (await removed.exited) === 0;
    }, "the control groups are removed");
  }
}

/** Returns a function that adds tests, each of which needs those before it. After a failure, the rest fail at once. */
export function inOrder(): (name: string, run: () => Promise<void>) => void {
  let hasFailed = false;
  return (name, run) =>
    test(
      name,
      async () => {
        if (hasFailed) throw new Error("an earlier test has failed");
        hasFailed = true;
        await run();
        hasFailed = false;
      },
      LIMIT_MS,
    );
}
