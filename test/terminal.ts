import { collect, ROOT, run } from "./command.ts";
import { reasonAgainst } from "./tools.ts";
import { until } from "./until.ts";

const script = run(["sh", "-c", "script --version"]);
const isThere = (await script.exited) === 0 && script.stdout().includes("util-linux");

export const whyNoTerminal: string | undefined = isThere
  ? undefined
  : reasonAgainst("script", "is not installed");

export interface Terminal extends AsyncDisposable {
  readonly exited: Promise<number>;
  /** All output so far; lines end with a line feed. */
  readonly shown: () => string;
  /** Waits until the output contains a text, at least this many times. */
  readonly shows: (text: string, times?: number) => Promise<void>;
  readonly type: (text: string) => void;
}

/** Runs a shell command in a terminal of 20 rows. Of the other variables, it gets only PATH, HOME and TERM. */
export function openTerminal(
  line: string,
  variables: Readonly<Record<string, string>> = {},
  columns = 60,
): Terminal {
  const { PATH = "", HOME = "" } = process.env;
  const child = Bun.spawn(["script", "-qec", `stty cols ${columns} rows 20; ${line}`, "/dev/null"], {
    cwd: ROOT,
    env: { PATH, HOME, XDG_CONFIG_HOME: "/dev/null", TERM: "xterm", BUN: process.execPath, ...variables },
    stdin: "pipe",
    stdout: "pipe",
  });
  const output = collect(child.stdout);
  const shown = () => output.text().replaceAll("\r\n", "\n");
  return {
    exited: Promise.all([child.exited, output.done]).then(([code]) => code),
    shown,
    shows: (text, times = 1) =>
      until(() => {
        const isShown = shown().split(text).length > times;
        if (!isShown && child.exitCode !== null) throw new Error(`it ended without ${text}: ${shown()}`);
        return isShown;
      }, `the terminal shows ${text}`),
    type: (text) => {
      child.stdin.write(text);
      child.stdin.flush();
    },
    // When its terminal is closed, the program gets a SIGHUP.
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}
