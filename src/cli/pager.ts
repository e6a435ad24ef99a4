/** `F`: quit if everything fits on one screen. `R`: show colors. `X`: leave the lines on the terminal. */
const LESS_OPTIONS = "FRX";
export const DEFAULT_PAGER = `less -${LESS_OPTIONS}`;

const FALLBACK_ROWS = 24;
/** Exit codes of a shell that cannot run a command. */
const CANNOT_RUN: readonly (number | null)[] = [126, 127];

/**
 * Prints lines on the terminal; lines that need more than one screen go through a pager. Prints them without the pager if
 * that cannot run.
 * @param pager the pager's command line; undefined for none
 */
export async function printPaged(lines: readonly string[], pager: string | undefined): Promise<void> {
  const text = lines.map((line) => `${line}\n`).join("");
  // The prompt of the shell needs a line, too.
  const isLong = lines.length >= (process.stdout.rows || FALLBACK_ROWS);
  if (pager === undefined || !isLong || !(await showInPager(text, pager))) process.stdout.write(text);
}

/** Returns whether the pager showed the text. A pager that ends early is not a failure. */
async function showInPager(text: string, pager: string): Promise<boolean> {
  const { TERM = "dumb" } = process.env;
  const isDefault = pager === DEFAULT_PAGER;
  if (TERM === "dumb" || Bun.which("sh") === null || (isDefault && Bun.which("less") === null)) return false;
  // Ctrl-C is for the pager, which shares the terminal.
  const ignore = (): void => {};
  process.on("SIGINT", ignore);
  try {
    const child = Bun.spawn(["sh", "-c", pager], {
      stdin: Buffer.from(text),
      stdout: "inherit",
      stderr: "inherit",
      env: pagerVariables(),
    });
    const code = await child.exited;
    // The less of BusyBox rejects -X with exit code 1.
    return !CANNOT_RUN.includes(code) && !(isDefault && code === 1);
  } finally {
    process.off("SIGINT", ignore);
  }
}

/** A pager needs no token, and a `less` without options would show colors as escape sequences. */
function pagerVariables(): Record<string, string | undefined> {
  const others = Object.entries(process.env).filter(([name]) => !name.startsWith("TODO_"));
  return { LESS: LESS_OPTIONS, ...Object.fromEntries(others) };
}
