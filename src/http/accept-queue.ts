import { dlopen, ptr } from "bun:ffi";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/**
 * Lets a port that this process listens on take no more connections, while those that the system has already taken
 * for it are still accepted: closing the port would reset them, whatever they have sent. Whoever connects from now on
 * waits (a SYN is sent again after a second) until the port is closed, or somebody else's. Linux only: elsewhere, and
 * where the system refuses, it does nothing. Gives whether it could.
 */
export function shutAcceptQueue(port: number): boolean {
  if (process.platform !== "linux") return false;
  try {
    const sockets = listeningSockets(port);
    const descriptors = readdirSync(DESCRIPTORS).filter((fd) => sockets.has(linkOf(fd) ?? ""));
    return descriptors.length > 0 && descriptors.every((fd) => dropAll(Number(fd)));
  } catch {
    // No /proc, or another C library than glibc.
    return false;
  }
}

const DESCRIPTORS = "/proc/self/fd";

function linkOf(descriptor: string): string | undefined {
  try {
    return readlinkSync(`${DESCRIPTORS}/${descriptor}`);
  } catch {
    // That of the folder itself is closed by now.
    return undefined;
  }
}

/** Of /proc/net/tcp (man 5 proc): a line a socket; the second word ends with the port, the tenth is the inode. */
function listeningSockets(port: number): ReadonlySet<string> {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const words = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].flatMap((table) =>
    readFileSync(table, "utf8")
      .split("\n")
      .map((line) => line.trim().split(/\s+/)),
  );
  return new Set(
    words
      .filter(([, local = "", , state]) => state === LISTEN && local.endsWith(suffix))
      .map((line) => `socket:[${line[9]}]`),
  );
}

const LISTEN = "0A";
const SOL_SOCKET = 1;
const SO_ATTACH_FILTER = 26;

/** Bytes of a `struct sock_filter`: BPF_RET | BPF_K, no jumps, 0. */
const RETURN_0 = new Uint8Array([0x06, 0, 0, 0, 0, 0, 0, 0]);

/** Attaches a filter of one instruction, "keep 0 bytes", to a socket (man 7 socket): the system drops what comes for it. */
function dropAll(fd: number): boolean {
  const { symbols } = dlopen("libc.so.6", {
    setsockopt: { args: ["i32", "i32", "i32", "ptr", "u32"], returns: "i32" },
  });
  // struct sock_fprog: how many instructions, in two bytes and padding, and where they are.
  const program = new BigUint64Array([1n, BigInt(ptr(RETURN_0))]);
  return symbols.setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, ptr(program), program.byteLength) === 0;
}
