import { BlockList, isIPv4 } from "node:net";

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/** Returns whether an IP address in any notation is a loopback address (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3). */
export function isLoopback(address: string): boolean {
  const mapped = /^::ffff:(.+)$/i.exec(address)?.[1] ?? address;
  return isIPv4(mapped) ? LOOPBACK.check(mapped, "ipv4") : LOOPBACK.check(address, "ipv6");
}
