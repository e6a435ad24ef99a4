import { describe, expect, test } from "bun:test";
import { version } from "../../package.json" with { type: "json" };
import { callTodo, complaintOf } from "../../test/call-todo.ts";
import { skipFor } from "../../test/skip.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";
import { getVariables, SERVE_SETTING_GROUPS, SERVE_SETTINGS } from "../config/settings.ts";

async function helpOf(...args: readonly string[]) {
  const { code, stdout, stderr } = await callTodo([...args, "--help"]);
  expect([code, stderr]).toEqual([0, ""]);
  return { help: stdout, headings: [...stdout.matchAll(/^\S.*:$/gm)].map(([heading]) => heading) };
}

describe("todo", () => {
  test("--help has the commands in groups, examples and exit codes", async () => {
    const { help, headings } = await helpOf();
    expect(help).toContain("serve [options]");
    const groups = ["Server:", "To-dos of a running service:", "API keys and users:", "Stores:", "Help:"];
    expect(headings).toEqual(["Options:", ...groups, "Examples:", "Exit codes:"]);
  });

  test.skipIf(skipFor(whyNoTerminal)).each(["", "keys create"])(
    "%s --help fits a terminal of 60 columns",
    async (command) => {
      await using terminal = openTerminal(`"$BUN" --no-env-file src/cli/main.ts ${command} --help`);
      expect(await terminal.exited).toBe(0);
      const lines = terminal.shown().split("\n");
      expect(lines.filter((line) => Bun.stringWidth(line) > 60)).toEqual([]);
    },
  );

  test("serve --help lists the settings in groups, each with its variables", async () => {
    const { help, headings } = await helpOf("serve");
    expect(headings).toEqual([...SERVE_SETTING_GROUPS.map(({ heading }) => `${heading}:`), "Options:"]);
    const text = help.replace(/\s+/g, " ");
    for (const setting of SERVE_SETTINGS) {
      const variables = getVariables(setting).join(", ");
      const { flag, description } = setting;
      expect(text).toContain(
        flag === undefined ? variables : `${flag} ${description} (${variables || "no variable"})`,
      );
    }
  });

  test("--version prints the version of the package", async () => {
    expect(await callTodo(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  test("without a command prints its usage", async () => {
    const { code, stdout, stderr } = await callTodo([]);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toStartWith("Usage: todo ");
  });

  test.each<[what: string, args: readonly string[], complaint: string]>([
    ["an unknown command", ["serv"], "unknown command 'serv' (Did you mean serve?)"],
    ["a word that means a command", ["uncheck", "1"], "unknown command 'uncheck' (Did you mean reopen?)"],
    ["such a word below another command", ["keys", "new"], "unknown command 'new'"],
    ["an unknown flag", ["serve", "--prot", "1"], "unknown option '--prot' (Did you mean --port?)"],
    ["a flag before the command", ["--port", "1", "serve"], "unknown option '--port'"],
    ["a flag without its value", ["serve", "--port"], "option '--port <port>' argument missing"],
    ["a title in another encoding", ["add", "caf\uFFFD"], "an argument is not UTF-8: check the encoding of"],
    ["too many arguments", ["serve", "3000"], "Add --help to see its arguments."],
    ["an invalid value", ["serve", "--port", "99999"], '--port "99999": must be a whole number'],
    ["a password as a flag", ["serve", "--admin-password", "hunter2"], "unknown option '--admin-password'"],
    ["a password after =", ["serve", "--admin-password=hunter2"], "unknown option '--admin-password'"],
  ])("rejects %s, with one line", async (_what, args, complaint) => {
    const said = await complaintOf(callTodo(args));
    expect(said).toContain(complaint);
    expect(said).not.toContain("hunter2");
  });

  test("with npm start says that -- precedes the flags", async () => {
    const said = await complaintOf(callTodo(["serve", "8080"], { npm_lifecycle_event: "start" }));
    expect(said).toEndWith("Put -- before flags, as in: npm start -- --port 8080");
  });
});
