import { buildDebian, System } from "./debian.ts";
import { until } from "./until.ts";

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

/**
 * Builds Debian 12 with systemd as its first process, and boots it.
 * @param below the folder of the file system
 * @param packages the folder that the system sees as /packages
 */
export async function bootSystemd(below: string, packages: string): Promise<System> {
  const root = await buildDebian("bookworm", "systemd,systemd-sysv,dbus,procps,curl", below);
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
