/** Generates mutated HTTP/1.1 requests from seeds, and sends them. */
import { connect } from "node:net";
import { chunked, request } from "./raw-http.ts";

const QUIET_MS = 30;
const HUNG_MS = 5_000;

type Random = (below: number) => number;

/** Returns a generator of integers from a seed (mulberry32). */
function randomFrom(seed: number): Random {
  let state = seed | 0;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const BEARER = "Authorization: Bearer token";
const BASIC = `Authorization: Basic ${btoa("admin:password")}`;
const JSON_TYPE = "Content-Type: application/json";
const NEW_TODO = '{"title":"buy \\u00fcber-milk \xf0\x9f\x98\x80"}';
const PATCH = '{"done":true}';
const NEW_KEY = '{"name":"ci","expires":"90d"}';
const ROTATION = '{"overlap":"0"}';
/** The id of an API key that requests rotate; the server under test may have it. */
export const KEY_ID = "f0221e47";

/** Valid requests for every route. */
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

const METHODS = [
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
  "OPTIONS",
  "TRACE",
  "CONNECT",
  "PRI",
  "get",
  "",
];
const LENGTHS = [
  "0",
  "1",
  "-1",
  "00013",
  "65536",
  "65537",
  "1048577",
  "18446744073709551616",
  "1e3",
  "0x10",
  "",
  "a",
];
const BITS = [
  "\r",
  "\n",
  "\0",
  "\r\n",
  "\r\n\r\n",
  "\n\n",
  " ",
  "\t",
  "\xff",
  "\xc0\xaf",
  "%00",
  "%zz",
  "../",
  "\\",
];
const HEADERS = [
  BEARER,
  BASIC,
  JSON_TYPE,
  "Host: elsewhere.example",
  "Content-Encoding: gzip",
  "Expect: 100-continue",
  "Upgrade: websocket",
  "Connection: keep-alive, Upgrade",
  "Range: bytes=0-1",
  "If-None-Match: *",
  "X-Forwarded-For: 10.0.0.5",
  "Origin: null",
  "Last-Event-ID: \xe9-1",
  "Sec-Fetch-Site: cross-site",
  ": no name",
  "No colon",
];

const FRAMES = ["Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Content-Length: 5"];
const TARGETS = [
  "/",
  "//",
  "?",
  "&",
  "limit=0&",
  "?limit=5",
  "?since=x-1",
  "/rotate",
  "%31",
  "%2F",
  "%zz",
  "0",
  "9",
  "-",
  "..",
  ";",
  "#",
  "*",
];
const BODIES = [
  "x".repeat(65_537),

  '{"title":"x"}',
  '{"title":""}',
  '{"title":1}',
  '{"done":0}',
  '{"done":false}',
  '{"name":"x","expires":"1s"}',
  '{"name":"","expires":"0"}',
  '{"overlap":"1w"}',
  "[]",
  "null",
  "",
  "{",
];
const JSONS = [
  "{",
  "}",
  "[",
  "]",
  '"',
  ",",
  ":",
  "0",
  "1e999",
  "null",
  "\\",
  "\\u0000",
  "\\ud800",
  " ",
  "\n",
  "\xff",
];

const oneOf = (values: readonly string[], random: Random): string => values[random(values.length)] ?? "";
const insert = (text: string, at: number, more: string): string => text.slice(0, at) + more + text.slice(at);

type Mutation = (text: string, random: Random) => string;

/** Mutations that break the message framing, so that the listener's parser rejects many of the requests. */
const WILD: readonly Mutation[] = [
  function flipBit(text, random) {
    const at = random(text.length);
    const flipped = String.fromCharCode(text.charCodeAt(at) ^ (1 << random(8)));
    return text.slice(0, at) + flipped + text.slice(at + 1);
  },
  function cutOut(text, random) {
    const at = random(text.length);
    return text.slice(0, at) + text.slice(at + 1 + random(20));
  },
  function cutOff(text, random) {
    return text.slice(0, random(text.length));
  },
  function sayTwice(text, random) {
    const at = random(text.length);
    return insert(text, at, text.slice(at, at + 1 + random(200)));
  },
  function insertBit(text, random) {
    return insert(text, random(text.length + 1), oneOf(BITS, random));
  },
  function insertBytes(text, random) {
    const bytes = Array.from({ length: 1 + random(8) }, () => String.fromCharCode(random(256)));
    return insert(text, random(text.length + 1), bytes.join(""));
  },
  function insertLongToken(text, random) {
    return insert(text, random(text.length + 1), oneOf(["x", "/", "%41", "["], random).repeat(random(9000)));
  },
  function addFrame(text, random) {
    return insert(text, text.indexOf("\r\n") + 2, `${oneOf(FRAMES, random)}\r\n`);
  },
  function swapLength(text, random) {
    return text.replace(/(content-length: ?)\d+/i, (_, name) => name + oneOf(LENGTHS, random));
  },
  function swapChunkLength(text, random) {
    return text.replace(
      /\r\n[0-9a-f]+\r\n/i,
      () => `\r\n${oneOf(["0", "-1", "fffffffff", "g", ""], random)}\r\n`,
    );
  },
  function swapVersion(text, random) {
    return text.replace("HTTP/1.1", () =>
      oneOf(["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.9", ""], random),
    );
  },
  function crossOver(text, random) {
    const other = oneOf(random(2) === 0 ? READS : WRITES, random);
    return text.slice(0, random(text.length)) + other.slice(random(other.length));
  },
  function follow(text, random) {
    return text.replace("Connection: close", "Connection: keep-alive") + oneOf(WRITES, random);
  },
];

/** Mutations that keep the message framing valid, so that requests reach the handlers. */
const TAME: readonly Mutation[] = [
  function shuffleHeaders(text, random) {
    const [head = "", ...rest] = text.split("\r\n\r\n");
    const [line = "", ...headers] = head.split("\r\n");
    const shuffled = headers.map((header) => [random(1000), header] as const).sort(([a], [b]) => a - b);
    return [[line, ...shuffled.map(([, header]) => header)].join("\r\n"), ...rest].join("\r\n\r\n");
  },
  function addHeader(text, random) {
    return insert(text, text.indexOf("\r\n") + 2, `${oneOf(HEADERS, random)}\r\n`);
  },
  function swapMethod(text, random) {
    return text.replace(/^\S*/, () => oneOf(METHODS, random));
  },
  function changeTarget(text, random) {
    const end = text.indexOf(" HTTP/");
    const at = text.indexOf("/") + random(Math.max(1, end - text.indexOf("/") + 1));
    return insert(text, at, oneOf(TARGETS, random));
  },
  function changeBody(text, random) {
    const [head = "", ...bodies] = text.split("\r\n\r\n");
    let body = random(2) === 0 ? oneOf(BODIES, random) : bodies.join("");
    for (let left = random(3); left > 0; left--)
      body = insert(body, random(body.length + 1), oneOf(JSONS, random));
    const headers = head.replace(/\r\n(?:content-length|transfer-encoding):[^\r]*/gi, "");
    return `${headers}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  },
];

/** Every request that mutations start from. */
export const VALID_REQUESTS: readonly string[] = [...READS, ...WRITES];

export interface Mutant {
  readonly bytes: string;
  /** Whether the message is complete, so that the server has nothing to wait for. */
  readonly isWhole: boolean;
}

/** Returns a mutated request, the same for the same seed. */
export function mutant(seed: number): Mutant {
  const random = randomFrom(seed);
  const isWhole = random(2) === 0;
  const mutations = isWhole ? TAME : WILD;
  let bytes = oneOf(random(2) === 0 ? READS : WRITES, random);
  for (let left = random(5); left >= 0; left--) {
    bytes = mutations[random(mutations.length)]?.(bytes, random) || "\r\n";
  }
  return { bytes, isWhole };
}

/** A response that never ends: an event stream after its first bytes. */
const ENDLESS = /^content-type: text\/event-stream\r\n(?:[^\r\n]+\r\n)*\r\n./im;

/**
 * Sends a request to a port of loopback. Reads until the server closes the connection, or until events arrive. If the request may
 * be incomplete and the server is silent for 30 ms, ends the sending side. `isHung` means that the server neither answers nor
 * closes within 5 seconds.
 */
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
