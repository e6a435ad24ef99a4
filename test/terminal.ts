import { run } from "./command.ts";
import { reasonAgainst } from "./tools.ts";

const script = run(["sh", "-c", "script --version"]);
const isThere = (await script.exited) === 0 && script.stdout().includes("util-linux");

/** Why no test can have a terminal; undefined where one can. */
export const whyNoTerminal: string | undefined = isThere
  ? undefined
  : reasonAgainst("script", "is not installed");

/** A command line that runs in a terminal of its own. */
export interface Terminal extends AsyncDisposable {
  readonly exited: Promise<number>;
  /** All that it showed, line ends as `\n`. */
  readonly shown: () => string;
  /** Waits until it has shown something, and some times at least. */
  readonly shows: (text: string, times?: number) => Promise<void>;
  readonly type: (text: string) => void;
}

/** Runs a line of shell in a terminal of 60 columns, with only the given variables besides PATH, HOME and TERM. */
export function openTerminal(line: string, variables: Readonly<Record<string, string>> = {}): Terminal {
  const { PATH = "", HOME = "" } = process.env;
  const child = Bun.spawn(["script", "-qec", `stty cols 60 rows 20; ${line}`, "/dev/null"], {
    cwd: new URL("..", import.meta.url).pathname,
    env: { PATH, HOME, TERM: "xterm", BUN: process.execPath, ...variables },
    stdin: "pipe",
    stdout: "pipe",
  });
  let all = "";
  const reading = (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of child.stdout) all += decoder.decode(chunk, { stream: true });
  })();
  const shown = () => all.replaceAll("\r\n", "\n");
  return {
    exited: Promise.all([child.exited, reading]).then(([code]) => code),
    shown,
    shows: async (text, times = 1) => {
      while (shown().split(text).length <= times) {
        if (child.exitCode !== null) throw new Error(`it has ended without ${text}: ${shown()}`);
        await Bun.sleep(10);
      }
    },
    type: (text) => {
      child.stdin.write(text);
      child.stdin.flush();
    },
    // With its terminal gone, what runs in it gets a SIGHUP.
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}
