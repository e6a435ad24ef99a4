/** An HTTP/1.1 request as it goes over the wire; a header may be given a second time. Latin-1, as sendRaw sends. */
export function request(line: string, headers: readonly string[] = [], body = ""): string {
  return [`${line} HTTP/1.1`, "Host: localhost", "Connection: close", ...headers, "", body].join("\r\n");
}

/** The status of the response that a raw answer starts with; undefined when there is none. */
export function statusOf(answer: string): number | undefined {
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(answer)?.[1];
  return status === undefined ? undefined : Number(status);
}

/** A body in chunked coding (RFC 9112 §7.1), in chunks of at most `size` bytes. */
export function chunked(body: string, size: number): string {
  let coded = "";
  for (let at = 0; at < body.length; at += size) {
    const chunk = body.slice(at, at + size);
    coded += `${chunk.length.toString(16)}\r\n${chunk}\r\n`;
  }
  return `${coded}0\r\n\r\n`;
}

/** What a raw answer's chunked body holds, in Latin-1; throws when its last chunk is missing. */
export function unchunked(answer: string): string {
  let at = answer.indexOf("\r\n\r\n") + 4;
  const chunks: string[] = [];
  while (true) {
    const end = answer.indexOf("\r\n", at);
    const length = Number.parseInt(answer.slice(at, end), 16);
    if (end < 0 || Number.isNaN(length)) throw new Error("the chunked body is cut off");
    if (length === 0) return chunks.join("");
    chunks.push(answer.slice(end + 2, end + 2 + length));
    at = end + 2 + length + 2;
  }
}
