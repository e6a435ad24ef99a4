import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { reasonAgainst } from "./tools.ts";

const PROGRAM = process.env.TODO_TEST_FIREFOX ?? Bun.which("firefox-esr") ?? undefined;

/** Why no test can use Firefox; undefined where one can. */
export const whyNoFirefox: string | undefined =
  PROGRAM === undefined
    ? reasonAgainst("firefox-esr", "is not installed, and TODO_TEST_FIREFOX is not set")
    : undefined;

/** The values of the keys that tests press, as WebDriver encodes them. */
export const KEYS = {
  Enter: "\uE007",
  Delete: "\uE017",
  ArrowDown: "\uE015",
  Control: "\uE009",
  Escape: "\uE00C",
} as const;

interface Reply {
  readonly id?: number;
  readonly type?: string;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly message?: string;
}

export interface FirefoxPage {
  /** Evaluates an expression that returns a string, a number or a boolean. */
  readonly evaluate: (expression: string) => Promise<unknown>;
  /** Presses and releases keys one after the other. */
  readonly type: (text: string) => Promise<void>;
  /** Presses a key while Control is held. */
  readonly pressWithControl: (key: string) => Promise<void>;
  /** Sets the size of the window's content in CSS pixels. */
  readonly resize: (width: number, height: number) => Promise<void>;
  readonly close: () => Promise<void>;
}

/**
 * Starts Firefox with a new profile and drives it with WebDriver BiDi. Playwright cannot: it sends commands that Debian's
 * Firefox does not have.
 */
export async function launchFirefox() {
  if (PROGRAM === undefined) throw new Error(whyNoFirefox);
  const profile = await mkdtemp(join(tmpdir(), "todo-firefox-"));
  const args = [
    "--headless",
    "--no-remote",
    "--profile",
    profile,
    "--remote-debugging-port",
    "0",
    "about:blank",
  ];
  const child = Bun.spawn([PROGRAM, ...args], { stdin: "ignore", stdout: "ignore", stderr: "pipe" });
  const socket = new WebSocket(`${await readAddress(child.stderr)}/session`);
  const pending = new Map<number, { resolve: (reply: Reply) => void }>();
  socket.addEventListener("message", ({ data }) => {
    const reply: Reply = JSON.parse(String(data));
    if (reply.id !== undefined) pending.get(reply.id)?.resolve(reply);
  });
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener("open", () => resolve());
    socket.addEventListener("error", () => reject(new Error("Firefox accepts no connection")));
  });
  let lastId = 0;
  const send = async (method: string, params: object): Promise<Readonly<Record<string, unknown>>> => {
    const id = ++lastId;
    const { promise, resolve } = Promise.withResolvers<Reply>();
    pending.set(id, { resolve });
    socket.send(JSON.stringify({ id, method, params }));
    const reply = await promise;
    pending.delete(id);
    if (reply.result === undefined) throw new Error(`${method}: ${reply.message}`);
    return reply.result;
  };
  await send("session.new", { capabilities: {} });

  return {
    open: async (url: string): Promise<FirefoxPage> => {
      const { context } = await send("browsingContext.create", { type: "tab" });
      await send("browsingContext.navigate", { context, url, wait: "complete" });
      const perform = (actions: readonly object[]) =>
        send("input.performActions", { context, actions: [{ type: "key", id: "keyboard", actions }] });
      const press = (value: string) => [
        { type: "keyDown", value },
        { type: "keyUp", value },
      ];
      return {
        evaluate: async (expression) => {
          const target = { context };
          const { result, exceptionDetails } = await send("script.evaluate", {
            expression,
            target,
            awaitPromise: true,
          });
          if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
          return typeof result === "object" && result !== null && "value" in result
            ? result.value
            : undefined;
        },
        type: async (text) => {
          await perform([...text].flatMap(press));
        },
        pressWithControl: async (key) => {
          const value = KEYS.Control;
          await perform([{ type: "keyDown", value }, ...press(key), { type: "keyUp", value }]);
        },
        resize: async (width, height) => {
          await send("browsingContext.setViewport", { context, viewport: { width, height } });
        },
        close: async () => {
          await send("browsingContext.close", { context });
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

/** Reads the output of Firefox up to the address of its WebDriver BiDi server. */
async function readAddress(output: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of output) {
    text += decoder.decode(chunk, { stream: true });
    const address = /WebDriver BiDi listening on (ws:\/\/\S+)/.exec(text)?.[1];
    if (address !== undefined) return address;
  }
  throw new Error(`Firefox did not start: ${text}`);
}
