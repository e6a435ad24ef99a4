import { afterAll, beforeAll, describe, expect } from "bun:test";
import { cp, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ended } from "../test/command.ts";
import { buildDebian, inOrder, outputOf, System, whyNoSystem } from "../test/debian.ts";
import { commandsOf } from "../test/docs.ts";
import { skipFor } from "../test/skip.ts";
import { openTerminal, whyNoTerminal } from "../test/terminal.ts";
import { until } from "../test/until.ts";
import { ROOT } from "./command.ts";
import { buildDebianPackage } from "./debian.ts";

const BUILD_LIMIT_MS = 600_000;
const ARCHITECTURE = process.arch === "arm64" ? "arm64" : "amd64";
const OLD = `todo-service_1.0.0_${ARCHITECTURE}.deb`;
const NEW = `todo-service_1.0.1_${ARCHITECTURE}.deb`;
const BACKUPS = "docs/how-to/backup-and-restore.md";
const MONITORING = "docs/how-to/monitoring.md";
const TROUBLESHOOTING = "docs/how-to/troubleshooting.md";
const SERVER = "docs/tutorials/server-with-https.md";
const STATE = "/var/lib/todo-service";
const LIST = '[{"id":1,"title":"milk","done":false}]';

/** Starts in control groups of its own, of version 1 or 2: root, folder of packages, name of the groups. */
const START = `
  if [ -e /sys/fs/cgroup/cgroup.procs ]; then parents=/sys/fs/cgroup; else parents=$(echo /sys/fs/cgroup/*); fi
  for parent in $parents; do
    [ -w "$parent/cgroup.procs" ] || continue
    mkdir "$parent/$2"
    for name in cpuset.cpus cpuset.mems; do
      [ ! -e "$parent/$2/$name" ] || cat "$parent/$name" >"$parent/$2/$name"
    done
    echo $$ >"$parent/$2/cgroup.procs"
  done
  # The file system is a copy in memory. The only network is loopback. The namespace ends with the test, also if the test crashes.
  exec unshare --pid --fork --kill-child --mount-proc systemd-nspawn --quiet --directory="$0" --boot --register=no --keep-unit --private-network \\
    --volatile=overlay --console=read-only --machine="$2" --bind-ro="$1:/packages"`;

/** Builds Debian 12 with systemd as its first process in a folder, and boots it. The system sees `packages` as /packages. */
async function bootSystemd(below: string, packages: string): Promise<System> {
  const root = await buildDebian("bookworm", "systemd,systemd-sysv,dbus,procps,curl,openssl", below);
  const group = `todo-systemd-${process.pid}`;
  const system = await System.start(
    ["bash", "-ec", START, root, packages, group],
    "systemd",
    ["--cgroup", "--root"],
    group,
  );
  await using stack = new AsyncDisposableStack();
  stack.use(system);
  await until(async () => {
    const state = system.run(["systemctl", "is-system-running"]);
    await state.exited;
    return /^(?:running|degraded)$/m.test(state.stdout());
  }, "systemd has booted");
  stack.move();
  return system;
}

describe.skipIf(skipFor(whyNoSystem ?? whyNoTerminal))("with systemd,", () => {
  const resources = new AsyncDisposableStack();
  let system: System;
  let token: string;

  beforeAll(async () => {
    const folder = await mkdtemp(join(tmpdir(), "todo-debian-"));
    resources.defer(() => rm(folder, { recursive: true }));
    const packages = join(folder, "packages");
    await mkdir(packages);
    const executable = join(packages, "todo");
    await outputOf(["npm", "run", "build:executable", "--", `--outfile=${executable}`]);
    for (const [name, version] of [
      [OLD, "1.0.0"],
      [NEW, "1.0.1"],
    ] as const)
      buildDebianPackage({ executable, architecture: ARCHITECTURE, file: join(packages, name), version });
    for (const name of ["todo-service.service", "todo-service@.service"])
      await cp(join(ROOT, "deploy", name), join(packages, name));
    system = resources.use(await bootSystemd(folder, packages));
  }, BUILD_LIMIT_MS);
  afterAll(() => resources.disposeAsync());

  /** Runs the commands of a page as root in the folder of the packages. Returns what they print. */
  const page = (name: string, part: string): Promise<string> =>
    system.shell(commandsOf(name, part).replaceAll("BACKUP", "mine"), { folder: "/packages" });
  /** Sends a request as the proxy of the tutorial does, with the token of the phone or another one. */
  const request = (path: string, options = "", bearer = token): Promise<string> =>
    system.shell(
      `curl -sS -H 'X-Forwarded-Proto: https' --oauth2-bearer '${bearer}' ${options} http://127.0.0.1:3000${path}`,
    );
  const list = (): Promise<string> => request("/api/todos");
  const property = (name: string, unit = "todo-service"): Promise<string> =>
    system.output(["systemctl", "show", "--property", name, "--value", unit]);
  const isReady = async (port = 3000): Promise<boolean> =>
    (await ended(system.run(["curl", "-s", `http://127.0.0.1:${port}/readyz`]))).stdout === "ready\n";
  const untilReady = (): Promise<void> => until(isReady, "the service is ready");
  const untilReadyAgain = (pid: string): Promise<void> =>
    until(async () => (await property("MainPID")) !== pid && (await isReady()), "another process is ready");

  describe("the Debian package", () => {
    const step = inOrder();

    step("starts nothing until it is enabled", async () => {
      await system.shell(`apt install ./${OLD}`, { folder: "/packages" });
      expect(await property("ActiveState")).toBe("inactive");
      const commands = ["TODO_ALLOWED_HOSTS", "todo users add", "enable --now"].map((part) =>
        commandsOf(SERVER, part),
      );
      const shown = await system.shell(commands.join(""));
      const [, password = "", phone = ""] =
        /^password of admin: (.+)\ntoken of phone: (.+)$/m.exec(shown) ?? [];
      expect(shown).toEndWith("ready");
      token = phone;
      await request("/api/todos", `--json '{"title":"milk"}'`);
      expect(await list()).toBe(LIST);
      const login = Buffer.from(`admin:${password}`).toString("base64");
      expect(await request("/admin/", `-H 'Authorization: Basic ${login}'`)).toBe("Hello, admin!");
      const journal = await system.shell("journalctl --output=cat --unit=todo-service");
      expect(journal).toContain('"msg":"listening"');
    });

    step("has its rights only, its own processes, and its own folder", async () => {
      const pid = await property("MainPID");
      const status = await system.shell(`grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/${pid}/status`);
      expect(status.split(/\s+/)).toEqual([
        ...["CapBnd:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2"],
      ]);
      const inside = (commands: string): Promise<string> =>
        system.output([
          ...["nsenter", `--target=${pid}`, "--mount", "setpriv", "--reuid=todo-service"],
          ...["--regid=todo-service", "--clear-groups", "sh", "-c", commands],
        ]);
      const folders = "/etc /usr /opt /var/lib /tmp /home /var/lib/todo-service";
      const write = `for folder in ${folders}; do (: >$folder/x) 2>/dev/null && echo $folder && rm $folder/x; done`;
      expect(await inside(`${write}; true`)).toBe(`/tmp\n${STATE}`);
      expect(await inside("ls -d /proc/1 2>/dev/null; true")).toBe("");
      expect(await system.shell("stat -c '%a %U' /etc/todo-service/environment")).toBe("640 root");
      expect(await system.shell(`stat -c '%a %U' ${STATE} ${STATE}/todos.db ${STATE}/users`)).toBe(
        "750 todo-service\n600 todo-service\n600 todo-service",
      );
    });

    step("starts again after a kill, and stops in order", async () => {
      const pid = await property("MainPID");
      await system.shell(`kill -KILL ${pid}`);
      await untilReadyAgain(pid);
      expect(await list()).toBe(LIST);
      await system.shell("systemctl stop todo-service");
      expect(await property("Result")).toBe("success");
      await system.shell("systemctl start todo-service");
      await untilReady();
    });

    step("does not start again after a wrong setting", async () => {
      const settings = "/etc/todo-service/environment";
      await system.shell(`echo TODO_MAX_TODOS=many >>${settings}; systemctl restart todo-service`);
      await until(async () => (await property("ActiveState")) === "failed", "the service has failed");
      expect([await property("ExecMainStatus"), await property("NRestarts")]).toEqual(["2", "0"]);
      await system.shell(`sed -i '$d' ${settings}; systemctl start todo-service`);
      await untilReady();
    });

    step("restores a backup", async () => {
      await system.shell(`todo backup ${STATE}/backups/mine.db`);
      await request("/api/todos/1", "-X DELETE");
      expect(await list()).toBe("[]");
      const command = commandsOf(MONITORING, "journalctl -o cat")
        .replace("yesterday --until today", "today")
        .replace("17", "1");
      const isLogged = async () =>
        (await ended(system.run(["sh", "-c", command]))).stdout.includes('"phone"');
      await until(isLogged, "the log says who deleted the to-do");
      expect(await page(SERVER, "ls /var/lib/todo-service/backups")).toContain('"title":"milk"');
      await system.shell(`mv ${STATE}/backups/mine.db ${STATE}/backups/todos-zzz.db`);
      await page(BACKUPS, "systemctl stop");
      await untilReady();
      expect(await list()).toBe(LIST);
    });

    step("keeps the list and settings in upgrades, which follow no links of the service's user", async () => {
      const pid = await property("MainPID");
      await system.shell(`echo TODO_MAX_TODOS=5 >>/etc/todo-service/environment
        mkdir -m 755 /etc/others
        mv ${STATE}/users /tmp/users
        rm -r ${STATE}/backups
        ln -s /etc/others ${STATE}/backups
        ln -s /etc/ld.so.preload ${STATE}/users`);
      const doctor = await ended(
        system.run(
          ["sh", "-ec", commandsOf(SERVER, "_VERSION_").replace("todo-service_VERSION_amd64.deb", NEW)],
          {
            folder: "/packages",
          },
        ),
      );
      expect(doctor.stdout).toContain("store");
      expect(
        await system.shell("stat -c '%a %U' /etc/others; ls /etc/ld.so.preload 2>/dev/null || true"),
      ).toBe("755 root");
      await system.shell(`rm ${STATE}/users ${STATE}/backups
        install -d -o todo-service -g todo-service -m 750 ${STATE}/backups
        cp --preserve=all /tmp/users ${STATE}/users
        grep -x TODO_MAX_TODOS=5 /etc/todo-service/environment
        systemctl restart todo-service`);
      await untilReadyAgain(pid);
      expect(await list()).toBe(LIST);
    });

    step("revokes a key", async () => {
      const ben = await system.shell("todo keys create ben");
      const status = (): Promise<string> => request("/api/todos", "-o /dev/null -w '%{http_code}'", ben);
      expect(await status()).toBe("200");
      await page(SERVER, "todo keys revoke ben");
      await until(async () => (await status()) === "401", "the key is revoked");
    });

    step("has a manual page without Markdown", async () => {
      const manual = await system.shell(
        `dpkg-deb --extract /packages/${OLD} /tmp/content; cat /tmp/content/usr/share/man/man1/todo.1; rm -r /tmp/content`,
      );
      for (const command of ["todo serve", "todo keys create <name>"])
        expect(manual).toContain(`.SS "\\fB${command}\\fP"`);
      expect(manual).not.toMatch(/^\||```|\]\(/m);
    });

    step("keeps the data in a removal, and a purge removes everything", async () => {
      await system.shell("apt-get remove -y todo-service");
      expect(await property("ActiveState")).toBe("inactive");
      expect(await system.shell(`ls ${STATE}/todos.db /usr/bin/todo 2>/dev/null || true`)).toBe(
        `${STATE}/todos.db`,
      );
      await system.shell(`apt-get install -y ./${NEW}; systemctl enable --now todo-service`, {
        folder: "/packages",
      });
      await untilReady();
      expect(await list()).toBe(LIST);
      await system.shell("apt-get purge -y todo-service");
      const left = `find / -xdev \\( -path /proc -o -path /sys -o -path /var/log -o -path /packages \\) -prune \\
        -o -name '*todo-service*' -print; pgrep -a todo || true; grep todo /etc/passwd /etc/group || true`;
      expect(await system.shell(left)).toBe("");
    });
  });

  describe("the command of the package runs a command for the store", () => {
    const step = inOrder();
    const asRoot = (command: string): string =>
      [
        ...system.commandLineFor(),
        "script",
        "-qec",
        `'${command.replaceAll("'", `'\\''`)}'`,
        "/dev/null",
      ].join(" ");

    step("with the settings, and without the environment and the open files of root", async () => {
      await system.shell(`dpkg --install /packages/${OLD}`);
      await system.shell("install --mode=755 /dev/stdin /usr/lib/todo-service/todo", {
        input: `#!/bin/sh
          echo "words:$(printf ' <%s>' "$@")"
          echo "terminal: $(tty)"
          (: </dev/tty) 2>/dev/null && echo "opens /dev/tty"
          for number in 0 1 2; do
            # A descriptor that can be read and written can also receive typed input.
            grep -q '^flags:.*2$' /proc/self/fdinfo/$number && echo "reads and writes $number"
          done
          [ "$2" != files ] || { id -un; env; readlink /proc/$$/fd/*; } | grep -v -e /tty -e /pts -e pipe: -e /dev/null
          [ "$2" != wait ] || exec sleep 98.7
          exit 7\n`,
      });
      const inherited = "SECRET=1 A.B=2 TODO_TOKEN=3 TODO_PORT=4 NO_COLOR=1";
      const { code, stdout } = await ended(
        system.run(["bash", "-c", `exec 5</etc/shadow 15</etc/shadow; env ${inherited} todo keys files`]),
      );
      expect(code).toBe(7);
      for (const line of ["todo-service", "TODO_PORT=4", "NO_COLOR=1", `TODO_STORE=sqlite:${STATE}/todos.db`])
        expect(stdout.split("\n")).toContain(line);
      expect(stdout).not.toMatch(/SECRET|A\.B|TODO_TOKEN|shadow/);
    });

    step("on a terminal of its own", async () => {
      await using terminal = openTerminal(
        asRoot(`echo "of root: $(tty)"; todo keys "it's" 'a  $b"' ''; echo "code $?"`),
      );
      await terminal.shows("code");
      const shown = terminal.shown();
      expect(shown).toContain("code 7");
      expect(shown).toContain(`words: <keys> <it's> <a  $b"> <>`);
      const [ofRoot, own] = [...shown.matchAll(/: (\/dev\/pts\/\d+)/g)].map(([, name]) => name);
      expect([typeof ofRoot, typeof own, own === ofRoot]).toEqual(["string", "string", false]);
    });

    step("on no terminal if its output is a pipe", async () => {
      await using terminal = openTerminal(asRoot("todo keys list | cat; echo the end"));
      await terminal.shows("the end");
      expect(terminal.shown()).toContain("words: <keys> <list>\nterminal: not a tty\nthe end");
    });

    for (const pipe of ["", " | cat"])
      step(`and Ctrl-C ends todo keys wait${pipe}`, async () => {
        await using terminal = openTerminal(
          asRoot(
            `trap : INT; todo keys wait${pipe}; while pgrep -x sleep >/dev/null; do sleep 0.05; done; echo ended`,
          ),
        );
        await terminal.shows("terminal:");
        terminal.type("\x03");
        await terminal.shows("ended");
      });
  });

  describe("the units of deploy/", () => {
    const step = inOrder();

    step("run a server as a dynamic user, and keep its list", async () => {
      await system.shell(`dpkg --purge todo-service
        install -m 755 /packages/todo /usr/local/bin/todo
        cp /packages/*.service /etc/systemd/system/
        systemctl daemon-reload
        systemctl enable --now todo-service`);
      await untilReady();
      expect(await system.shell(`readlink -f ${STATE}`)).toBe("/var/lib/private/todo-service");
      await request("/api/todos", `--json '{"title":"milk"}'`);
      await system.shell("systemctl restart todo-service");
      await untilReady();
      expect(await list()).toBe(LIST);
      expect(await system.shell(commandsOf(TROUBLESHOOTING, "systemd-run"))).toContain(
        "todos.db can be read and written; a running server uses it",
      );
    });

    step("run replicas, whose store only root can read", async () => {
      await system.shell(`umask 077; mkdir -p /etc/todo-service; echo memory: >/etc/todo-service/store
        systemctl enable --now todo-service@3001 todo-service@3002`);
      for (const port of [3001, 3002]) await until(() => isReady(port), `the replica at ${port} is ready`);
    });
  });
});
