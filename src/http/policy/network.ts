import { isIPv6 } from "node:net";

/**
 * Returns the network of one customer in canonical notation: an IPv4 address itself, or the /64 of an IPv6 address
 * (RFC 6177), because a single machine can use every address of its /64.
 */
export function networkPrefix(address: string): string {
  const bare = address.replace(/%.*$/, "").toLowerCase();
  const ipv4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(bare)?.[1];
  if (ipv4 !== undefined || !isIPv6(bare)) return ipv4 ?? bare;
  // A trailing IPv4 address stands for the last two groups, which the prefix does not contain.
  const [head = "", tail] = bare.replace(/\d+\.\d+\.\d+\.\d+$/, "0:0").split("::");
  const first = head === "" ? [] : head.split(":");
  const last = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = Array.from({ length: 8 - first.length - last.length }, () => "0");
  const groups = tail === undefined ? first : [...first, ...zeros, ...last];
  const numbers = groups.map((group) => Number.parseInt(group, 16));
  if (numbers.slice(0, 5).every((number) => number === 0) && numbers[5] === 0xffff) {
    const [high = 0, low = 0] = numbers.slice(6);
    return [high >> 8, high & 0xff, low >> 8, low & 0xff].join(".");
  }
  return `${numbers
    .slice(0, 4)
    .map((number) => number.toString(16))
    .join(":")}::/64`;
}
