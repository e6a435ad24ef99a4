/** Writes steps as commands for bash that anyone can run with curl. */
import { type Request, resolveId, type Step } from "./step.ts";
import { pathOf } from "./walk.ts";

const AUTHORIZATION = {
  token: '-H "Authorization: Bearer $CONFORMANCE_TOKEN"',
  user: '-u "$CONFORMANCE_USER"',
  "unknown token": "-H 'Authorization: Bearer conformance-unknown-token'",
  "unknown user": "-u conformance-nobody:conformance-wrong-password",
  malformed: "-H 'Authorization: Nonsense'",
} as const;

/** Returns one command per line. Later commands use the ids of earlier ones as `$id1`, `$id2` and so on. */
export function toCurl(baseUrl: string, steps: readonly Step[]): string[] {
  const used = new Set(
    steps.flatMap((step) =>
      "many" in step ? [] : step.requests.flatMap(({ id, named }) => [id?.of, named]),
    ),
  );
  const names = new Map<number, string>();
  const url = (path: string) => `"$url${path}"`;
  const command = (request: Request): string => {
    const { method, id, body, credentials, creates } = request;
    const options = [
      ...(method === "GET" || (method === "POST" && body !== undefined) ? [] : [`-X ${method}`]),
      ...(credentials === undefined ? [] : [AUTHORIZATION[credentials]]),
      ...(body === undefined
        ? []
        : ["-H 'Content-Type: application/json'", `--data-binary ${bodyText(request, names)}`]),
    ];
    const path = pathOf(id && idText(id, names));
    if (creates === undefined || !used.has(creates))
      return ["curl -sS -i -g", ...options, url(path)].join(" ");
    names.set(creates, `id${names.size + 1}`);
    const curl = ["curl -sS -g", ...options, url(path)].join(" ");
    return `${names.get(creates)}=$(${curl} | sed -E 's/.*"id": *"?([0-9]+).*/\\1/'); echo "${names.get(creates)}=$${names.get(creates)}"`;
  };
  const lines = steps.flatMap((step): string[] => {
    if ("many" in step)
      return [
        `for n in $(seq ${step.many}); do curl -sS -o /dev/null -H 'Content-Type: application/json' -d '{"title":"${"to-do of many".padEnd(100, ".")}"}' ${url("/api/todos")}; done`,
      ];
    const commands = step.requests.map(command);
    if (commands.length < 2) return commands;
    return [`${commands.map((each) => `${each} &`).join(" ")} wait`, `curl -sS -i ${url("/api/todos")}`];
  });
  return [`url=${quote(baseUrl)}`, ...lines];
}

function bodyText({ body = "", named = 0 }: Request, names: ReadonlyMap<number, string>): string {
  const [before = "", after] = body.split('"<id>"');
  const name = names.get(named);
  if (after === undefined) return quote(before);
  return name === undefined ? quote(`${before}1${after}`) : `${quote(before)}"$${name}"${quote(after)}`;
}

function idText(id: NonNullable<Request["id"]>, names: ReadonlyMap<number, string>): string {
  const name = names.get(id.of);
  if (name === undefined) return resolveId(id, new Map()) ?? id.text.replace(/\{.*?\}/g, "1");
  return id.text.replace(/\{(x)?(?:\+(\d+))?\}/g, (_, hexadecimal, plus) => {
    if (hexadecimal !== undefined) return `$(printf %x $${name})`;
    return plus === undefined ? `\${${name}}` : `$(echo "$${name} + ${plus}" | bc)`;
  });
}

/** Quotes a text for bash. Bytes that are not printable ASCII become escapes. */
function quote(text: string): string {
  if (/^[\x20-\x7e]*$/.test(text) && !text.includes("'")) return `'${text}'`;
  const escaped = Array.from(Buffer.from(text), (byte) => {
    const character = String.fromCharCode(byte);
    if (byte < 0x20 || byte > 0x7e) return `\\x${byte.toString(16).padStart(2, "0")}`;
    return character === "'" || character === "\\" ? `\\${character}` : character;
  });
  return `$'${escaped.join("")}'`;
}
