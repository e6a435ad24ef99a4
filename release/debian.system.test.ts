import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "../test/command.ts";
import { skipFor } from "../test/skip.ts";
import { openTerminal, whyNoTerminal } from "../test/terminal.ts";
import { whyMissing } from "../test/tools.ts";
import { buildDebianPackage } from "./debian.ts";

const LIMIT_MS = 600_000;
const whyNot =
  process.getuid?.() !== 0
    ? "only root can install a Debian package"
    : (whyMissing("dpkg") ?? whyMissing("setpriv"));
const architecture = process.arch === "arm64" ? "arm64" : "amd64";

/** The root of a file system of its own. The scripts run outside of it, with DPKG_ROOT, and change nothing else. */
let root: string;
let folder: string;
const at = (path: string): string => join(root, path);
const packageOf = (version: string): string => join(folder, `${version}.deb`);

async function dpkg(...args: readonly string[]): Promise<void> {
  const forces = "--force-script-chrootless,depends,not-root";
  await using command = run(["dpkg", `--root=${root}`, forces, "--no-triggers", ...args]);
  expect([await command.exited, command.stderr()]).toEqual([0, expect.any(String)]);
}

/** Runs the installed command as root. Returns its standard output. */
async function todo(...args: readonly string[]): Promise<string> {
  await using command = run([at("usr/bin/todo"), ...args], {
    TODO_STORE: `sqlite:${at("var/lib/todo-service/todos.db")}`,
    TODO_USERS_FILE: at("var/lib/todo-service/users"),
  });
  expect([await command.exited, command.stderr()]).toEqual([0, expect.any(String)]);
  return command.stdout();
}

const accounts = (): readonly string[] =>
  ["passwd", "group", "shadow"].map((name) => readFileSync(`/etc/${name}`, "utf8"));

describe.skipIf(skipFor(whyNot))("the Debian package", () => {
  let before: readonly string[];
  beforeAll(async () => {
    before = accounts();
    folder = mkdtempSync(join(tmpdir(), "todo-debian-"));
    chmodSync(folder, 0o755);
    root = join(folder, "root");
    for (const path of ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"])
      mkdirSync(at(path), { recursive: true });
    for (const path of ["var/lib/dpkg/status", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"])
      writeFileSync(at(path), "");
    // As in Debian: userdel also deletes the user's group.
    writeFileSync(at("etc/login.defs"), "USERGROUPS_ENAB yes\n");
    const executable = join(folder, "todo");
    await using build = run(["npm", "run", "build:executable", "--", `--outfile=${executable}`]);
    expect([await build.exited, build.stderr()]).toEqual([0, expect.any(String)]);
    for (const version of ["1.0.0", "1.0.1"])
      buildDebianPackage({ executable, architecture, file: packageOf(version), version });
  }, LIMIT_MS);
  afterAll(() => rmSync(folder, { recursive: true }));

  test(
    "keeps the data in an upgrade and a removal, and a purge removes everything",
    async () => {
      await dpkg("--install", packageOf("1.0.0"));
      const store = "var/lib/todo-service/todos.db";
      const owner = statSync(at("var/lib/todo-service")).uid;
      expect(owner).not.toBe(0);
      expect(readFileSync(at("etc/passwd"), "utf8")).toContain(`todo-service:x:${owner}:`);

      const token = (await todo("keys", "create", "phone")).trim();
      expect(token).toStartWith("todo_");
      for (const path of [store, "var/lib/todo-service/users", "var/lib/todo-service/backups"])
        expect([path, statSync(at(path)).uid]).toEqual([path, owner]);
      writeFileSync(at("etc/todo-service/environment"), "# mine\nTODO_MAX_TODOS=5\n");

      await dpkg("--install", packageOf("1.0.1"));
      expect(readFileSync(at("etc/todo-service/environment"), "utf8")).toStartWith("# mine");
      expect(await todo("keys", "list")).toContain("phone");

      await dpkg("--remove", "todo-service");
      expect(existsSync(at("usr/bin/todo"))).toBe(false);
      expect([existsSync(at(store)), existsSync(at("etc/todo-service/environment"))]).toEqual([true, true]);

      await dpkg("--install", packageOf("1.0.1"));
      expect(await todo("keys", "list")).toContain("phone");

      await dpkg("--purge", "todo-service");
      for (const path of ["usr/bin/todo", "var/lib/todo-service", "etc/todo-service"])
        expect([path, existsSync(at(path))]).toEqual([path, false]);
      expect(readFileSync(at("etc/passwd"), "utf8")).toBe("");
      expect(accounts()).toEqual([...before]);
    },
    LIMIT_MS,
  );

  test(
    "does not follow links of the service's user in an upgrade",
    async () => {
      await dpkg("--install", packageOf("1.0.0"));
      mkdirSync(at("etc/others"), { mode: 0o755 });
      const before = statSync(at("etc/others"));
      for (const [name, target] of [
        ["backups", "etc/others"],
        ["users", "etc/ld.so.preload"],
      ] as const) {
        rmSync(at(`var/lib/todo-service/${name}`), { recursive: true });
        symlinkSync(at(target), at(`var/lib/todo-service/${name}`));
      }
      await dpkg("--install", packageOf("1.0.1"));
      const after = statSync(at("etc/others"));
      expect([after.uid, after.gid, after.mode]).toEqual([before.uid, before.gid, before.mode]);
      expect(existsSync(at("etc/ld.so.preload"))).toBe(false);
      await dpkg("--purge", "todo-service");
    },
    LIMIT_MS,
  );

  describe.skipIf(skipFor(whyNoTerminal))("runs a command for the store without root's terminal", () => {
    beforeAll(async () => {
      await dpkg("--install", packageOf("1.0.0"));
      writeFileSync(
        at("usr/lib/todo-service/todo"),
        `#!/bin/sh
        echo "words:$(printf ' <%s>' "$@")"
        echo "terminal: $(tty)"
        (: </dev/tty) 2>/dev/null && echo "opens /dev/tty"
        for number in 0 1 2; do
          # A descriptor that can be read and written can also receive typed input.
          grep -q '^flags:.*2$' /proc/self/fdinfo/$number && echo "reads and writes $number"
        done
        [ "$2" != wait ] || exec sleep 98.7
        exit 7\n`,
      );
    });
    afterAll(() => dpkg("--purge", "todo-service"));

    test("on a terminal of its own", async () => {
      await using terminal = openTerminal(
        `echo "of root: $(tty)"; ${at("usr/bin/todo")} keys "it's" 'a  $b"' ''; echo "code $?"`,
      );
      await terminal.shows("code");
      const shown = terminal.shown();
      expect(shown).toContain("code 7");
      expect(shown).toContain(`words: <keys> <it's> <a  $b"> <>`);
      const [ofRoot, own] = [...shown.matchAll(/: (\/dev\/pts\/\d+)/g)].map(([, name]) => name);
      expect([typeof ofRoot, typeof own, own === ofRoot]).toEqual(["string", "string", false]);
    });

    test("on none if the output is a pipe", async () => {
      await using terminal = openTerminal(`${at("usr/bin/todo")} keys list | cat; echo the end`);
      await terminal.shows("the end");
      expect(terminal.shown()).toContain("words: <keys> <list>\nterminal: not a tty\nthe end");
    });

    test.each([
      ["on a terminal", ""],
      ["with its output in a pipe", " | cat"],
    ])("and Ctrl-C ends it %s", async (_how, pipe) => {
      await using terminal = openTerminal(
        `trap : INT; ${at("usr/bin/todo")} keys wait${pipe}; while ps -e -o args= | grep -q '^sleep 98.7$'; do sleep 0.05; done; echo ended`,
      );
      await terminal.shows("terminal:");
      terminal.type("\x03");
      await terminal.shows("ended");
    });
  });

  test("has the unit and a manual page that man formats without a warning", async () => {
    await using extract = run(["dpkg-deb", "--extract", packageOf("1.0.0"), join(folder, "content")]);
    expect(await extract.exited).toBe(0);
    const content = (path: string): string => readFileSync(join(folder, "content", path), "utf8");
    const unit = content("lib/systemd/system/todo-service.service");
    for (const line of [
      "ExecStart=/usr/lib/todo-service/todo serve",
      "User=todo-service",
      "EnvironmentFile=/etc/todo-service/environment",
    ])
      expect(unit.split("\n")).toContain(line);
    expect(unit).not.toMatch(/usr\/local|DynamicUser/);
    const page = content("usr/share/man/man1/todo.1");
    for (const command of ["todo serve", "todo keys create"])
      expect(page).toContain(`.SS "\\fB${command}\\fP"`);
    expect(page).not.toMatch(/^\||```|\]\(/m);
  });
});
