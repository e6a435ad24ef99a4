import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { type Command, run } from "./command.ts";
import { buildDebian, outputOf, System } from "./debian.ts";
import { until } from "./until.ts";

const ENGINE = "docker.io,docker-cli,docker-compose,docker-buildx,ca-certificates,iptables,iproute2";
const IMAGES = "caddy,nginx-light,curl,libatomic1";

/** Runs as the first process of the engine's system: root, shared folder, data of the engine, control group. */
const START = `
  hostname engine
  mount --bind "$0" "$0"
  cd "$0"
  mkdir -p var/lib/docker .old
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount --rbind /sys/fs/cgroup sys/fs/cgroup
  mount --rbind /dev dev
  mount -t tmpfs tmpfs run
  mount -t tmpfs tmpfs tmp
  mkdir -p ".$1"
  mount --bind "$1" ".$1"
  mount --bind "$2" var/lib/docker
  ip link set lo up
  pivot_root . .old
  umount -l /.old
  echo ready
  # The shell collects the orphans of its namespace.
  PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root dockerd --cgroup-parent="/$3" --exec-opt native.cgroupdriver=cgroupfs &
  wait $!`;

export class ContainerEngine {
  /** A folder of this machine that has the same path in the engine's system. */
  readonly folder: string;
  readonly root: string;
  readonly #data: string;
  #running: AsyncDisposableStack | undefined;
  #system: System | undefined;

  private constructor(root: string, folder: string, data: string) {
    this.root = root;
    this.folder = folder;
    this.#data = data;
  }

  static async start(below: string): Promise<ContainerEngine> {
    const root = await buildDebian("trixie", `${ENGINE},${IMAGES}`, below);
    // The machine may trust a proxy that signs for the registry of npm.
    await outputOf(["cp", "/etc/ssl/certs/ca-certificates.crt", join(root, "etc/ssl/certs/")]);
    await Bun.write(join(root, "etc/resolv.conf"), "nameserver 10.0.2.3\n");
    const [folder, data] = [join(below, "shared"), join(below, "data")];
    await Promise.all([mkdir(folder), mkdir(data)]);
    const engine = new ContainerEngine(root, folder, data);
    await engine.start();
    return engine;
  }

  get system(): System {
    if (this.#system === undefined) throw new Error("the engine is stopped");
    return this.#system;
  }

  /** Starts the engine with its data, as after a power cut. Tries twice, because Docker may hang when it starts after a power cut. */
  async start(): Promise<void> {
    await this.#startOnce().catch((error: Error) => {
      process.stderr.write(`the engine starts once more, because ${error.message}\n`);
      return this.#startOnce();
    });
  }

  async #startOnce(): Promise<void> {
    await using stack = new AsyncDisposableStack();
    const group = `todo-engine-${process.pid}`;
    const system = stack.use(
      await System.start(
        [
          ...["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"],
          ...["--propagation=private", "bash", "-ec", START, this.root, this.folder, this.#data, group],
        ],
        "bash",
        [],
        group,
      ),
    );
    // The engine's system reaches the registry of npm, and this machine's network stays as it is.
    stack.use(
      run([
        ...["setpriv", "--pdeathsig", "KILL", "slirp4netns", "--configure", "--mtu=65520"],
        ...["--disable-host-loopback", String(system.init), "tap0"],
      ]),
    );
    await until(() => system.log.includes("ready\n"), "the engine's system starts");
    const answers = async () =>
      (await system.run(["timeout", "--signal=KILL", "10", "docker", "version"]).exited) === 0;
    await until(answers, "the engine answers").catch((error: Error) => {
      throw new Error(`${error.message}: ${system.log.slice(-4000)}`);
    });
    this.#system = system;
    this.#running = stack.move();
  }

  /** Ends the engine and all containers at once, as a power cut does. */
  async stop(): Promise<void> {
    await this.#running?.disposeAsync();
    this.#running = undefined;
    this.#system = undefined;
  }

  networkCommand(): readonly string[] {
    return ["nsenter", `--target=${this.system.init}`, "--net"];
  }

  runInNetwork(commandLine: readonly string[], variables: Readonly<Record<string, string>> = {}): Command {
    return run([...this.networkCommand(), ...commandLine], variables);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
