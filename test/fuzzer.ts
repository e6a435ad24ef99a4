/** Generates mutated HTTP/1.1 requests from seeds, and sends them. */
import { connect } from "node:net";
import { Random } from "../conformance/random.ts";
import { chunked, request, statusOf } from "./raw-http.ts";

const QUIET_MS = 30;
const HUNG_MS = 5_000;
const AT_ONCE = 32;

/** The seed of the first request; each of the others has its own. Set FUZZ_SEED to repeat a run. */
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));

const BEARER = "Authorization: Bearer token";
const BASIC = `Authorization: Basic ${btoa("admin:password")}`;
const JSON_TYPE = "Content-Type: application/json";
const NEW_TODO = '{"title":"buy \\u00fcber-milk \xf0\x9f\x98\x80"}';
const PATCH = '{"done":true}';
const NEW_KEY = '{"name":"ci","expires":"90d"}';
const ROTATION = '{"overlap":"0"}';
/** The id of an API key that requests rotate; the server under test may have it. */
export const KEY_ID = "f0221e47";

const READS: readonly string[] = [
  request("GET /"),
  request("GET /livez"),
  request("HEAD /readyz"),
  request("GET /api/openapi.json"),
  request("GET /api/todos"),
  request("HEAD /api/todos?limit=2&after=1&done=false", ['If-None-Match: "x-1", W/"y-2"']),
  request("OPTIONS /api/todos", ["Origin: http://localhost:5173", "Access-Control-Request-Method: POST"]),
  request("GET /api/todos/1"),
  request("GET /api/events"),
  request("GET /api/events?since=0123456789abcdef-1", ["Last-Event-ID: 0123456789abcdef-2"]),
  request("HEAD /api/events"),
  request("GET /api/whoami", [BEARER]),
  request("GET /api/whoami/x", [BEARER, "Origin: http://localhost"]),
  request("GET /admin/", [BASIC]),
  request("GET /admin", [BASIC]),
  request("GET /admin/%2e%2e/x", [BASIC]),
  request("GET /admin/keys", [BASIC]),
  request("GET /nowhere"),
];
const WRITES: readonly string[] = [
  request("POST /api/todos", [JSON_TYPE, `Content-Length: ${NEW_TODO.length}`], NEW_TODO),
  request("POST /api/todos", [JSON_TYPE, "Transfer-Encoding: chunked"], chunked(NEW_TODO, 7)),
  request("PATCH /api/todos/1", [JSON_TYPE, `Content-Length: ${PATCH.length}`], PATCH),
  request("PATCH /api/todos/0002", [JSON_TYPE, "Transfer-Encoding: chunked"], chunked(PATCH, 7)),
  request("DELETE /api/todos/18446744073709551615", ["Sec-Fetch-Site: same-origin"]),
  request("POST /admin/keys", [BASIC, JSON_TYPE, `Content-Length: ${NEW_KEY.length}`], NEW_KEY),
  request(
    `POST /admin/keys/${KEY_ID}/rotate`,
    [BASIC, JSON_TYPE, `Content-Length: ${ROTATION.length}`],
    ROTATION,
  ),
  request(`POST /admin/keys/${KEY_ID}/rotate`, [BASIC, "Content-Length: 0"]),
  request("DELETE /admin/keys/00000000", [BASIC, "Sec-Fetch-Site: same-origin"]),
];

const words = (text: string): string[] => text.split(" ");

const METHODS = words("GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT PRI get ");
const LENGTHS = words("0 1 -1 00013 65536 65537 1048577 18446744073709551616 1e3 0x10 a ");
const BITS = [...words("\r \n \0 \r\n \r\n\r\n \n\n \t \xff \xc0\xaf %00 %zz ../ \\"), " "];
const HEADERS = [
  ...[BEARER, BASIC, JSON_TYPE, "Host: elsewhere.example", "Content-Encoding: gzip", "Expect: 100-continue"],
  ...["Upgrade: websocket", "Connection: keep-alive, Upgrade", "Range: bytes=0-1", "If-None-Match: *"],
  ...["X-Forwarded-For: 10.0.0.5", "Origin: null", "Last-Event-ID: \xe9-1", "Sec-Fetch-Site: cross-site"],
  ...[": no name", "No colon"],
];
const FRAMES = ["Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Content-Length: 5"];
const TARGETS = words("/ // ? & limit=0& ?limit=5 ?since=x-1 /rotate %31 %2F %zz 0 9 - .. ; # *");
const BODIES = [
  "x".repeat(65_537),
  ...words('{"title":"x"} {"title":""} {"title":1} {"done":0} {"done":false} {"name":"x","expires":"1s"}'),
  ...words('{"name":"","expires":"0"} {"overlap":"1w"} [] null { '),
];
const JSONS = [...words('{ } [ ] " , : 0 1e999 null \\ \\u0000 \\ud800 \n \xff'), " "];

const insert = (text: string, at: number, more: string): string => text.slice(0, at) + more + text.slice(at);

type Mutation = (text: string, random: Random) => string;

const placeIn = (random: Random, text: string): number => random.below(text.length);
const afterLine = (text: string, header: string): string =>
  insert(text, text.indexOf("\r\n") + 2, `${header}\r\n`);

/** Mutations that break the message framing, so that the listener's parser rejects many of the requests. */
const WILD: Readonly<Record<string, Mutation>> = {
  flipBit: (text, random) => {
    const at = placeIn(random, text);
    const flipped = String.fromCharCode(text.charCodeAt(at) ^ (1 << random.below(8)));
    return text.slice(0, at) + flipped + text.slice(at + 1);
  },
  cutOut: (text, random) => {
    const at = placeIn(random, text);
    return text.slice(0, at) + text.slice(at + 1 + random.below(20));
  },
  cutOff: (text, random) => text.slice(0, placeIn(random, text)),
  sayTwice: (text, random) => {
    const at = placeIn(random, text);
    return insert(text, at, text.slice(at, at + 1 + random.below(200)));
  },
  insertBit: (text, random) => insert(text, random.below(text.length + 1), random.pick(BITS)),
  insertBytes: (text, random) => {
    const bytes = Array.from({ length: 1 + random.below(8) }, () => String.fromCharCode(random.below(256)));
    return insert(text, random.below(text.length + 1), bytes.join(""));
  },
  insertLongToken: (text, random) => {
    const at = random.below(text.length + 1);
    return insert(text, at, random.pick(["x", "/", "%41", "["]).repeat(random.below(9000)));
  },
  addFrame: (text, random) => afterLine(text, random.pick(FRAMES)),
  swapLength: (text, random) =>
    text.replace(/(content-length: ?)\d+/i, (_, name) => name + random.pick(LENGTHS)),
  swapChunkLength: (text, random) =>
    text.replace(/(?<=\r\n)[0-9a-f]+(?=\r\n)/i, () => random.pick(["0", "-1", "fffffffff", "g", ""])),
  swapVersion: (text, random) =>
    text.replace("HTTP/1.1", () => random.pick(["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.9", ""])),
  crossOver: (text, random) => {
    const other = random.pick(random.below(2) === 0 ? READS : WRITES);
    return text.slice(0, placeIn(random, text)) + other.slice(placeIn(random, other));
  },
  follow: (text, random) => text.replace("Connection: close", "Connection: keep-alive") + random.pick(WRITES),
};

/** Mutations that keep the message framing valid, so that requests reach the handlers. */
const TAME: Readonly<Record<string, Mutation>> = {
  shuffleHeaders: (text, random) => {
    const [head = "", ...rest] = text.split("\r\n\r\n");
    const [line = "", ...headers] = head.split("\r\n");
    return [[line, ...random.shuffle(headers)].join("\r\n"), ...rest].join("\r\n\r\n");
  },
  addHeader: (text, random) => afterLine(text, random.pick(HEADERS)),
  swapMethod: (text, random) => text.replace(/^\S*/, () => random.pick(METHODS)),
  changeTarget: (text, random) => {
    const start = text.indexOf("/");
    const length = Math.max(1, text.indexOf(" HTTP/") - start + 1);
    return insert(text, start + random.below(length), random.pick(TARGETS));
  },
  changeBody: (text, random) => {
    const [head = "", ...bodies] = text.split("\r\n\r\n");
    let body = random.below(2) === 0 ? random.pick(BODIES) : bodies.join("");
    for (let left = random.below(3); left > 0; left--)
      body = insert(body, random.below(body.length + 1), random.pick(JSONS));
    const headers = head.replace(/\r\n(?:content-length|transfer-encoding):[^\r]*/gi, "");
    return `${headers}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  },
};

export const VALID_REQUESTS: readonly string[] = [...READS, ...WRITES];

interface Mutant {
  readonly bytes: string;
  /** Whether the message is complete, so that the server has nothing to wait for. */
  readonly isWhole: boolean;
}

function mutant(seed: number): Mutant {
  const random = new Random(seed);
  const isWhole = random.below(2) === 0;
  const mutations = Object.values(isWhole ? TAME : WILD);
  let bytes = random.pick(random.below(2) === 0 ? READS : WRITES);
  for (let left = random.below(5); left >= 0; left--) {
    bytes = random.pick(mutations)(bytes, random) || "\r\n";
  }
  return { bytes, isWhole };
}

/** Any 5xx except 505, which the listener sends for HTTP/2.0 and similar versions. */
const SERVER_ERROR = /HTTP\/1\.[01] 5(?!05)\d\d /;

export interface Exchanged {
  readonly sent: Mutant;
  readonly text: string;
  readonly isHung: boolean;
}

export const hasFailed = ({ text, isHung }: Exchanged): boolean => isHung || SERVER_ERROR.test(text);

interface FuzzOptions {
  readonly seed?: number;
  /** Changes a request; `undefined` leaves it out. */
  readonly change?: (sent: Mutant) => Mutant | undefined;
  readonly isWrong?: (exchanged: Exchanged) => boolean | Promise<boolean>;
}

/** Sends mutated requests to a port of loopback, 32 at a time. Returns how often each status was received. */
export async function fuzz(
  port: number,
  requests: number,
  { seed = SEED, change = (sent) => sent, isWrong = () => false }: FuzzOptions,
): Promise<ReadonlyMap<string, number>> {
  const statuses = new Map<string, number>();
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < requests) {
      const own = seed + next;
      const sent = change(mutant(seed + next++));
      if (sent === undefined) continue;
      const exchanged = { sent, ...(await exchange(port, sent)) };
      const status = String(statusOf(exchanged.text) ?? "none");
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (!(await isWrong(exchanged))) continue;
      const [text, bytes] = [exchanged.text.slice(0, 500), JSON.stringify(sent.bytes.slice(0, 2000))];
      throw new Error(`FUZZ_SEED=${own}: hung: ${exchanged.isHung}: ${text} after ${bytes}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return statuses;
}

/** A response that never ends: an event stream after its first bytes. */
const ENDLESS = /^content-type: text\/event-stream\r\n(?:[^\r\n]+\r\n)*\r\n./im;

/** Reads to the end, or until events arrive. If the request may be incomplete, ends the sending side after a silence. */
export function exchange(
  port: number,
  { bytes, isWhole }: Mutant,
): Promise<{ text: string; isHung: boolean }> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    let text = "";
    let isLast = isWhole;
    const finish = (isHung: boolean): void => {
      socket.destroy();
      resolve({ text, isHung });
    };
    socket.setEncoding("latin1");
    const endSending = async (): Promise<void> => {
      isLast = true;
      // On a busy machine, the server may not have read the request yet. It has once it answers a later one.
      await (await fetch(`http://127.0.0.1:${port}/livez`, { keepalive: false })).text();
      socket.setTimeout(HUNG_MS);
      socket.end();
    };
    socket.setTimeout(isWhole ? HUNG_MS : QUIET_MS, () => {
      if (isLast) finish(true);
      else endSending().catch(reject);
    });
    socket.on("data", (chunk) => {
      text += chunk;
      if (ENDLESS.test(text)) finish(false);
    });
    socket.on("error", () => finish(false));
    socket.on("end", () => finish(false));
    socket.on("connect", () => socket.write(Buffer.from(bytes, "latin1")));
  });
}
