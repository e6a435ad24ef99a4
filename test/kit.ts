import { expect } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Rule, rules } from "../conformance/rules.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { type Command, run } from "./command.ts";

/** The rules that no server can be judged by from outside, and why. */
export const unobserved = rules.flatMap(({ id, notObservable }: Rule) =>
  notObservable === undefined ? [] : [{ id, notObservable }],
);

/** Has the conformance kit judge a server, started by `todo` with arguments and variables, on a fresh store. */
export async function expectToConform(
  todo: (args: readonly string[], variables: Readonly<Record<string, string>>) => Command,
  store: string,
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
    await using kit = run(
      [process.execPath, "--no-env-file", "conformance/run.ts", url, "--fresh", "--client-name", "alice"],
      { CONFORMANCE_TOKEN: token, CONFORMANCE_USER: `admin:${password}` },
    );
    const code = await kit.exited;
    expect(
      kit
        .stdout()
        .split("\n")
        .filter((line) => /^ +✗/.test(line)),
    ).toEqual([]);
    expect(kit.stdout().trimEnd().split("\n").at(-1)).toBe(
      `${url}: PASSED: ${rules.length - unobserved.length} passed, 0 failed, 0 not judged, ${unobserved.length} not observable`,
    );
    expect([code, kit.stderr()]).toEqual([0, ""]);
  } finally {
    await rm(folder, { recursive: true });
  }
}
