import { freePort } from "./free-port.ts";
import { reasonAgainst, whyMissing } from "./tools.ts";
import { until } from "./until.ts";

/** The name of an element's reference in WebDriver (W3C WebDriver §12.1). */
const ELEMENT = "element-6066-11e4-a52e-4f735466cecf";

/** Why no test can use WebKitGTK; undefined where one can. */
export const whyNoWebkit: string | undefined =
  whyMissing("Xvfb") ??
  (Bun.which("WebKitWebDriver") === null ? reasonAgainst("WebKitWebDriver", "is not installed") : undefined);

export interface WebkitPage {
  /** Runs the body of a function in the page, and returns its value. */
  readonly run: (body: string) => Promise<unknown>;
  /** Presses and releases keys one after the other. */
  readonly type: (text: string) => Promise<void>;
  /** Clicks an element. */
  readonly click: (selector: string) => Promise<void>;
}

/** Starts WebKitGTK on a virtual screen, and drives it with WebDriver. */
export async function launchWebkit() {
  const screen = Bun.spawn(["Xvfb", "-displayfd", "1", "-screen", "0", "1280x1024x24", "-nolisten", "tcp"], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "ignore",
  });
  const display = await firstLine(screen.stdout);
  const port = await freePort();
  const driver = Bun.spawn(["WebKitWebDriver", `--port=${port}`], {
    env: {
      ...process.env,
      DISPLAY: `:${display}`,
      WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
      NO_AT_BRIDGE: "1",
    },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
  });
  const stop = async (): Promise<void> => {
    for (const child of [driver, screen]) {
      child.kill();
      await child.exited;
    }
  };
  const send = async (method: string, path: string, body?: object): Promise<unknown> => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const { value } = JSON.parse(await response.text());
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(value)}`);
    return value;
  };
  try {
    await until(
      () =>
        fetch(`http://127.0.0.1:${port}/status`).then(
          (response) => response.ok,
          () => false,
        ),
      "WebKitWebDriver answers",
    );
    const created = await send("POST", "/session", { capabilities: {} });
    const session = `/session/${property(created, "sessionId")}`;
    return {
      version: JSON.stringify(property(created, "capabilities")),
      open: async (url: string): Promise<WebkitPage> => {
        await send("POST", `${session}/url`, { url });
        return {
          run: (script) => send("POST", `${session}/execute/sync`, { script, args: [] }),
          type: async (text) => {
            const actions = [...text].flatMap((value) => [
              { type: "keyDown", value },
              { type: "keyUp", value },
            ]);
            await send("POST", `${session}/actions`, { actions: [{ type: "key", id: "keyboard", actions }] });
          },
          click: async (value) => {
            const element = await send("POST", `${session}/element`, { using: "css selector", value });
            await send("POST", `${session}/element/${property(element, ELEMENT)}/click`, {});
          },
        };
      },
      [Symbol.asyncDispose]: async () => {
        await send("DELETE", session);
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

function property(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

async function firstLine(output: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of output) {
    text += decoder.decode(chunk, { stream: true });
    const end = text.indexOf("\n");
    if (end !== -1) return text.slice(0, end);
  }
  throw new Error(`the program ended without a line of output: ${text}`);
}
