/** Browsers that Playwright cannot drive, because Debian's versions lack commands that it sends. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./free-port.ts";
import { reasonAgainst, whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const FIREFOX = process.env.TODO_TEST_FIREFOX ?? Bun.which("firefox-esr") ?? undefined;

export const whyNoFirefox: string | undefined =
  FIREFOX === undefined
    ? reasonAgainst("firefox-esr", "is not installed, and TODO_TEST_FIREFOX is not set")
    : undefined;

export const whyNoWebkit: string | undefined =
  whyMissing("Xvfb") ??
  (Bun.which("WebKitWebDriver") === null ? reasonAgainst("WebKitWebDriver", "is not installed") : undefined);

/** The values of the keys that tests press, as WebDriver encodes them. */
export const KEYS = {
  Enter: "\uE007",
  Delete: "\uE017",
  ArrowDown: "\uE015",
  Control: "\uE009",
  Escape: "\uE00C",
} as const;

export interface DriverPage {
  /** Evaluates an expression that returns a string, a number or a boolean, or in Firefox a promise of one. */
  readonly evaluate: (expression: string) => Promise<unknown>;
  /** Presses and releases keys one after the other, while another key is held. */
  readonly type: (text: string, held?: string) => Promise<void>;
}

function typing(text: string, held = "") {
  const down = (value: string) => ({ type: "keyDown", value });
  const up = (value: string) => ({ type: "keyUp", value });
  const pressed = [...text].flatMap((value) => [down(value), up(value)]);
  return [
    { type: "key", id: "keyboard", actions: [...[...held].map(down), ...pressed, ...[...held].map(up)] },
  ];
}

interface Reply {
  readonly id?: number;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly message?: string;
}

export async function launchFirefox() {
  if (FIREFOX === undefined) throw new Error(whyNoFirefox);
  const profile = await mkdtemp(join(tmpdir(), "todo-firefox-"));
  const args = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"];
  const child = Bun.spawn([FIREFOX, ...args, "about:blank"], {
    ...{ stdin: "ignore", stdout: "ignore", stderr: "pipe" },
  });
  const address = await readOutput(child.stderr, /WebDriver BiDi listening on (ws:\/\/\S+)/);
  const socket = new WebSocket(`${address}/session`);
  const pending = new Map<number, (reply: Reply) => void>();
  socket.addEventListener("message", ({ data }) => {
    const reply: Reply = JSON.parse(String(data));
    if (reply.id !== undefined) pending.get(reply.id)?.(reply);
  });
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener("open", () => resolve());
    socket.addEventListener("error", () => reject(new Error("Firefox accepts no connection")));
  });
  let lastId = 0;
  const send = async (method: string, params: object): Promise<Readonly<Record<string, unknown>>> => {
    const id = ++lastId;
    const { promise, resolve } = Promise.withResolvers<Reply>();
    pending.set(id, resolve);
    socket.send(JSON.stringify({ id, method, params }));
    const reply = await promise;
    pending.delete(id);
    if (reply.result === undefined) throw new Error(`${method}: ${reply.message}`);
    return reply.result;
  };
  await send("session.new", { capabilities: {} });

  return {
    open: async (url: string) => {
      const { context } = await send("browsingContext.create", { type: "tab" });
      await send("browsingContext.navigate", { context, url, wait: "complete" });
      return {
        evaluate: async (expression: string): Promise<unknown> => {
          const call = { expression, target: { context }, awaitPromise: true };
          const { result, exceptionDetails } = await send("script.evaluate", call);
          if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
          return property(result, "value");
        },
        type: async (text: string, held?: string): Promise<void> => {
          await send("input.performActions", { context, actions: typing(text, held) });
        },
      };
    },
    [Symbol.asyncDispose]: async () => {
      socket.close();
      child.kill();
      await child.exited;
      await rm(profile, { recursive: true, force: true });
    },
  };
}

export async function launchWebkit() {
  await using processes = new AsyncDisposableStack();
  const spawn = <Out extends "ignore" | "pipe">(command: string[], stdout: Out, env = process.env) => {
    const child = Bun.spawn(command, { stdin: "ignore", stdout, stderr: "ignore", env });
    processes.defer(async () => {
      child.kill();
      await child.exited;
    });
    return child;
  };
  const screen = spawn(
    ["Xvfb", "-displayfd", "1", "-screen", "0", "1280x1024x24", "-nolisten", "tcp"],
    "pipe",
  );
  const display = await readOutput(screen.stdout, /(.*)\n/);
  const port = await freePort();
  spawn(["WebKitWebDriver", `--port=${port}`], "ignore", {
    ...process.env,
    DISPLAY: `:${display}`,
    WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
    NO_AT_BRIDGE: "1",
  });
  const send = async (method: string, path: string, body?: object): Promise<unknown> => {
    const init = { method, ...(body && { body: JSON.stringify(body) }) };
    const response = await fetch(`http://127.0.0.1:${port}${path}`, init);
    const { value } = JSON.parse(await response.text());
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(value)}`);
    return value;
  };
  await until(async () => {
    const status = await fetch(`http://127.0.0.1:${port}/status`).catch(() => undefined);
    return status?.ok === true;
  }, "WebKitWebDriver answers");
  const session = `/session/${property(await send("POST", "/session", { capabilities: {} }), "sessionId")}`;
  processes.defer(async () => void (await send("DELETE", session)));
  const resources = processes.move();
  return {
    open: async (url: string): Promise<DriverPage> => {
      await send("POST", `${session}/url`, { url });
      return {
        evaluate: (expression) =>
          send("POST", `${session}/execute/sync`, { script: `return ${expression}`, args: [] }),
        type: async (text, held) => {
          await send("POST", `${session}/actions`, { actions: typing(text, held) });
        },
      };
    },
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };
}

function property(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

async function readOutput(output: ReadableStream<Uint8Array<ArrayBuffer>>, pattern: RegExp): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of output) {
    text += decoder.decode(chunk, { stream: true });
    const found = pattern.exec(text)?.[1];
    if (found !== undefined) return found;
  }
  throw new Error(`the program did not start: ${text}`);
}
