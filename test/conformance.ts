import { expect } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { rules } from "../conformance/rules.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { type Command, run } from "./command.ts";

export const unobserved = rules.flatMap(({ id, notObservable }) =>
  notObservable === undefined ? [] : [{ id, notObservable }],
);

export interface KitRuntime {
  readonly flags: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
}

/** Runs the conformance kit against `todo serve` with these arguments and variables, on a new store. */
export async function expectToConform(
  todo: (args: readonly string[], variables: Readonly<Record<string, string>>) => Command,
  store: string,
  { flags, variables }: KitRuntime = { flags: [], variables: {} },
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "todo-kit-"));
  try {
    const [token, password, clients] = [mintToken(), randomBase62(24), join(folder, "clients")];
    await Bun.write(clients, `alice:${hashToken(token).toString("hex")}\n`);
    await using server = todo(["serve", "--port", "0", "--clients-file", clients, "--store", store], {
      TODO_ADMIN_USER: "admin",
      TODO_ADMIN_PASSWORD: password,
    });
    const url = await server.url;
    const kitArgs = ["conformance/run.ts", url, "--fresh", "--client-name", "alice", "--seconds", "2"];
    await using kit = run([process.execPath, "--no-env-file", ...flags, ...kitArgs], {
      // The kit must send nothing for a server on this machine to a proxy.
      HTTP_PROXY: "http://127.0.0.1:9",
      HTTPS_PROXY: "http://127.0.0.1:9",
      CONFORMANCE_TOKEN: token,
      CONFORMANCE_USER: `admin:${password}`,
      ...variables,
    });
    const code = await kit.exited;
    expect(
      kit
        .stdout()
        .split("\n")
        .filter((line) => /^ +✗/.test(line)),
    ).toEqual([]);
    expect(kit.stdout().trimEnd().split("\n").at(-1)).toBe(
      `${url}: PASSED: ${rules.length - unobserved.length} passed, 0 failed, 0 not judged, 0 skipped, ${unobserved.length} not observable`,
    );
    expect([code, kit.stderr()]).toEqual([0, ""]);
  } finally {
    await rm(folder, { recursive: true });
  }
}
