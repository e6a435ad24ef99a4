/**
 * Records the animation of the README from a real run: a shell in a terminal, and the page on a phone (Chromium).
 *
 *   npm run demo -- [FOLDER]
 *
 * It needs the programs chromium, script and ffmpeg, and port 3000. It writes docs/demo.gif. The pictures stay in FOLDER, which
 * must exist and be empty.
 */
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Page } from "playwright-core";
import { launchBrowser } from "../../test/chromium.ts";
import { openTerminal, type Terminal } from "../../test/terminal.ts";
import { until } from "../../test/until.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const STAGE = new URL("stage.html", import.meta.url).href;
const GIF = fileURLToPath(new URL("../demo.gif", import.meta.url));

const COLUMNS = 84;
const ROWS = 19;
/** Pixels of the animation per pixel of the stage, so that text is sharp on most screens. */
const SCALE = 1.5;
/** The page is smaller on the stage than on a phone. */
const PAGE_SCALE = 0.75;
const PROMPT = "$ ";
const SERVE = "todo serve --store sqlite:todos.db &>server.log &";

/** One picture, and how long it is shown. */
export interface Frame {
  readonly path: string;
  readonly ms: number;
}

/** What the stage shows beside the page. */
interface Scene {
  readonly lines: readonly string[];
  readonly caption: string;
  readonly pointer: { readonly x: number; readonly y: number } | undefined;
}

export interface RecordOptions {
  /** Where to write the pictures and the store. */
  readonly folder: string;
  readonly port: number;
}

/**
 * Plays the story and returns its frames. Throws an Error if the page or the terminal does not show what the story says, for
 * example if a to-do is lost.
 */
export async function record({ folder, port }: RecordOptions): Promise<readonly Frame[]> {
  const url = `http://127.0.0.1:${port}`;
  await using stack = new AsyncDisposableStack();
  const terminal = stack.use(
    openTerminal(`cd "${folder}" && exec bash --norc --noprofile --noediting`, {
      PATH: `${join(ROOT, "bin")}:${process.env.PATH}`,
      TODO_PORT: String(port),
      TODO_URL: url,
      PS1: PROMPT,
    }),
  );
  stack.defer(() => endServer(terminal));
  const browser = stack.adopt(await launchBrowser(), (one) => one.close());
  const stage = await browser.newPage({
    viewport: { width: 1200, height: 582 },
    deviceScaleFactor: SCALE,
  });
  const page = await browser.newPage({
    viewport: { width: 392, height: 656 },
    deviceScaleFactor: SCALE * PAGE_SCALE,
    isMobile: true,
    hasTouch: true,
    colorScheme: "light",
    reducedMotion: "reduce",
  });
  await stage.goto(STAGE);
  const story = new Story(terminal, stage, page, folder);
  await terminal.shows(PROMPT);

  story.caption("Start the server, with a file for the to-dos");
  await story.pause(600);
  await story.run(SERVE);
  await until(() => isLive(url), "the server responds");
  await page.goto(url);
  await page.getByText("Nothing here yet.").waitFor();
  story.showsPage = true;
  await story.pause(900);

  story.caption("Create to-dos over HTTP or with the command: the phone shows them");
  const body = `-H 'Content-Type: application/json' -d '{"title": "buy milk"}'`;
  await story.run(`curl -w '\\n' ${url}/api/todos ${body}`);
  await page.getByText("buy milk").waitFor();
  await story.pause(700);
  for (const title of ["Water the plants", "Call Ada"]) {
    await story.run(`todo add ${title}`);
    await page.getByText(title).waitFor();
    await story.pause(700);
  }

  story.caption("Tick one on the phone");
  await story.tap("buy milk");
  await until(async () => (await listOf(url))[0]?.done === true, "the first to-do is done");
  await story.pause(900);
  const before = await listOf(url);

  story.caption("Kill the server: the phone keeps the list");
  await story.run("kill -9 %1");
  await page.getByText("Offline.").waitFor();
  // The shell reports a killed job before its next prompt.
  await story.run("");
  await terminal.shows("Killed");
  await story.pause(1900);

  story.caption("Start it again");
  await story.run(SERVE);
  await until(() => isLive(url), "the server responds again");
  await page.getByText("Offline.").waitFor({ state: "hidden" });
  await story.pause(700);

  story.caption("Nothing is lost");
  await story.run("todo list");
  // Typed, added and listed.
  await terminal.shows("Call Ada", 3);
  const after = await listOf(url);
  if (JSON.stringify(after) !== JSON.stringify(before))
    throw new Error(`the list was ${JSON.stringify(before)} and is ${JSON.stringify(after)}`);
  await story.pause(3500);
  return story.frames;
}

/** Takes the pictures of a story, in which a person types and taps. */
class Story {
  readonly frames: Frame[] = [];
  showsPage = false;
  #caption = "";
  #pointer: Scene["pointer"];

  readonly #terminal: Terminal;
  readonly #stage: Page;
  readonly #page: Page;
  readonly #folder: string;

  constructor(terminal: Terminal, stage: Page, page: Page, folder: string) {
    this.#terminal = terminal;
    this.#stage = stage;
    this.#page = page;
    this.#folder = folder;
  }

  caption(text: string): void {
    this.#caption = text;
  }

  /** Types a command, and waits until the shell asks for the next one. */
  async run(command: string): Promise<void> {
    const prompts = this.#terminal.shown().split(`\n${PROMPT}`).length;
    for (let at = 0; at < command.length; at += 2) {
      const typed = command.slice(0, at + 2);
      this.#terminal.type(command.slice(at, at + 2));
      await until(() => this.#terminal.shown().endsWith(typed), `the terminal shows ${typed}`);
      await this.#take(60);
    }
    await this.#take(350);
    this.#terminal.type("\r");
    await this.#terminal.shows(`\n${PROMPT}`, prompts);
    await this.#take(200);
  }

  /** Moves a finger to the checkbox of a to-do, and taps it. */
  async tap(title: string): Promise<void> {
    const box = this.#page.getByRole("checkbox", { name: title });
    const place = await box.boundingBox();
    if (place === null) throw new Error(`the page does not show ${title}`);
    const target = { x: place.x + place.width / 2, y: place.y + place.height / 2 };
    const STEPS = 6;
    for (let step = 0; step <= STEPS; step++) {
      const left = 1 - step / STEPS;
      const at = { x: target.x + 200 * left, y: target.y + 150 * left * left };
      this.#pointer = { x: at.x * PAGE_SCALE, y: at.y * PAGE_SCALE };
      await this.#take(70);
    }
    await this.#take(250);
    await box.tap();
    await this.#take(900);
    this.#pointer = undefined;
  }

  /** Shows the current state for some time. */
  async pause(ms: number): Promise<void> {
    await this.#take(ms);
  }

  async #take(ms: number): Promise<void> {
    const lines = screenOf(this.#terminal.shown());
    const scene: Scene = { lines, caption: this.#caption, pointer: this.#pointer };
    const picture = this.showsPage ? await this.#page.screenshot() : undefined;
    await this.#stage.evaluate(render, {
      ...scene,
      prompt: PROMPT,
      picture: picture && `data:image/png;base64,${picture.toString("base64")}`,
    });
    const path = join(this.#folder, `frame-${String(this.frames.length).padStart(4, "0")}.png`);
    await this.#stage.screenshot({ path });
    this.frames.push({ path, ms });
  }
}

/** Returns the last lines of a terminal's output as they appear on its screen. */
function screenOf(output: string): string[] {
  // The output contains no escape sequences except colors, because the shell does not edit lines.
  const plain = Bun.stripANSI(output);
  const lines = plain.split("\n").flatMap((line) => line.match(new RegExp(`.{1,${COLUMNS}}`, "gu")) ?? [""]);
  return lines.slice(-ROWS);
}

/** Changes the stage; runs in its page. */
async function render(scene: Scene & { readonly prompt: string; readonly picture: string | undefined }) {
  const element = (id: string): HTMLElement => {
    const found = document.getElementById(id);
    if (found === null) throw new Error(`the stage has no ${id}`);
    return found;
  };
  const span = (text: string, name: string): HTMLElement => {
    const made = document.createElement("span");
    made.className = name;
    made.textContent = text;
    return made;
  };
  const screen = element("screen");
  screen.textContent = "";
  for (const [index, line] of scene.lines.entries()) {
    const isCommand = line.startsWith(scene.prompt);
    if (index > 0) screen.append("\n");
    if (isCommand) screen.append(span(scene.prompt, "prompt"));
    const rest = isCommand ? line.slice(scene.prompt.length) : line;
    screen.append(span(rest, /\[x\]/.test(rest) ? "dim" : ""));
  }
  screen.append(span(" ", "cursor"));
  element("caption").textContent = scene.caption;
  const pointer = element("pointer");
  pointer.toggleAttribute("hidden", scene.pointer === undefined);
  if (scene.pointer !== undefined)
    pointer.setAttribute("style", `left: ${scene.pointer.x}px; top: ${scene.pointer.y}px`);
  const image = document.querySelector("img");
  if (image === null) throw new Error("the stage has no picture");
  image.style.visibility = scene.picture === undefined ? "hidden" : "visible";
  if (scene.picture !== undefined) image.src = scene.picture;
  if (scene.picture !== undefined) await image.decode();
}

async function isLive(url: string): Promise<boolean> {
  try {
    return (await fetch(`${url}/livez`)).ok;
  } catch {
    // The server has not started yet.
    return false;
  }
}

async function listOf(url: string): Promise<{ readonly id: number; readonly done: boolean }[]> {
  return JSON.parse(await (await fetch(`${url}/api/todos`)).text());
}

/** Ends the server of the story, which outlives its terminal. The shell has shown its process id. */
function endServer(terminal: Terminal): void {
  const pid = [...terminal.shown().matchAll(/^\[1\] (\d+)/gm)].at(-1)?.[1];
  process.kill(Number(pid), "SIGTERM");
}

/** Joins the frames to an animated GIF, which repeats forever and starts with the end, because some programs show only that. */
async function encode(story: readonly Frame[], folder: string): Promise<void> {
  const frames = [...story.slice(-1).map(({ path }) => ({ path, ms: 1500 })), ...story];
  const list = frames.map(({ path, ms }) => `file '${path}'\nduration ${ms / 1000}\n`).join("");
  // The last picture needs a second entry, because its duration is ignored otherwise.
  writeFileSync(join(folder, "frames.txt"), `${list}file '${frames.at(-1)?.path}'\n`);
  const filter =
    "split[a][b];[a]palettegen=max_colors=192:stats_mode=full[p];[b][p]paletteuse=dither=none:diff_mode=rectangle";
  const input = ["-f", "concat", "-safe", "0", "-i", join(folder, "frames.txt")];
  const ffmpeg = Bun.spawn(
    [
      "ffmpeg",
      "-v",
      "error",
      "-y",
      ...input,
      "-filter_complex",
      filter,
      "-fps_mode",
      "vfr",
      "-loop",
      "0",
      join(folder, "demo.gif"),
    ],
    { stdin: "ignore" },
  );
  if ((await ffmpeg.exited) !== 0) throw new Error("ffmpeg failed");
  cpSync(join(folder, "demo.gif"), GIF);
}

if (import.meta.main) {
  const kept = process.argv[2];
  const folder = kept ?? mkdtempSync(join(tmpdir(), "todo-demo-"));
  try {
    const frames = await record({ folder, port: 3000 });
    await encode(frames, folder);
    const seconds = frames.reduce((sum, { ms }) => sum + ms, 0) / 1000;
    process.stdout.write(`${frames.length} frames, ${seconds} s: ${pathToFileURL(GIF).pathname}\n`);
  } finally {
    if (kept === undefined) rmSync(folder, { recursive: true });
  }
}
