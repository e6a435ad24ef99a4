import { isIPv4 } from "node:net";

const TYPE_A = 1;
const CLASS_IN = 1;
const TTL_SECONDS = 1;
const HEADER_BYTES = 12;

/** A DNS server (RFC 1035 §4.1) that answers for every name with these IPv4 addresses. Returns its address as `host:port`. */
export async function startNameServer(
  stack: AsyncDisposableStack,
  addresses: readonly string[],
): Promise<string> {
  const records = addresses.map((address) => {
    if (!isIPv4(address)) throw new RangeError(`not an IPv4 address: ${address}`);
    // The name is a pointer to that of the question.
    const record = Buffer.from([0xc0, HEADER_BYTES, 0, TYPE_A, 0, CLASS_IN, 0, 0, 0, TTL_SECONDS, 0, 4]);
    return Buffer.concat([record, Buffer.from(address.split(".").map(Number))]);
  });
  const socket = await Bun.udpSocket({
    hostname: "127.0.0.1",
    socket: {
      data(self, query, port, address) {
        // A question ends with the root label, its type and its class.
        const end = query.indexOf(0, HEADER_BYTES) + 5;
        const answers = query.readUInt16BE(end - 4) === TYPE_A ? records : [];
        const reply = Buffer.concat([query.subarray(0, end), ...answers]);
        reply.writeUInt16BE(0x8180, 2);
        reply.writeUInt16BE(answers.length, 6);
        reply.writeUInt32BE(0, 8);
        self.send(reply, port, address);
      },
    },
  });
  stack.defer(() => socket.close());
  return `127.0.0.1:${socket.port}`;
}
