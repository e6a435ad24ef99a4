/** Generates sequences of steps. The same seed gives the same sequences. */
import { malformedBodies, NOTATIONS, withOtherKeys } from "./bodies.ts";
import examples from "./examples.json" with { type: "json" };
import { Deck, Random } from "./random.ts";
import type { Credentials, IdText, Method, Request, Step } from "./step.ts";
import { Titles } from "./titles.ts";
import { GROUP, MAX_AT_ONCE } from "./walk.ts";

/** One more than the largest usual limit of a list. */
const MANY = 1001;

/** A body, or none. */
type Body = Pick<Request, "body">;

export class Generator {
  readonly #random: Random;
  readonly #titles: Titles;
  readonly #credentials: readonly Credentials[];
  readonly #ids: Deck<{ readonly method: Method; readonly text: string } & Body>;
  readonly #badCreates: Deck<Body>;
  readonly #badUpdates: Deck<Body>;
  #numbers = 0;
  #hadMany = false;

  constructor(seed: number, credentials: readonly Credentials[]) {
    const random = new Random(seed);
    this.#random = random;
    this.#titles = new Titles(random);
    this.#credentials = credentials;
    const methods = (text: string) => [
      ...(["GET", "DELETE"] as const).map((method) => ({ method, text })),
      ...['{"done":true}', random.pick(["{}", '{"done":null}', '{"done":"true"}'])].map((body) => ({
        method: "PATCH" as const,
        text,
        body,
      })),
    ];
    this.#ids = new Deck([...examples.ids.absent, ...examples.ids.malformed].flatMap(methods), random);
    const title = JSON.stringify(this.#titles.plain());
    const wrongTitles = examples.bodies.notStrings.map((value) => `{"title":${value}}`);
    const wrongDone = examples.bodies.notBooleans.map((value) => `{"done":${value}}`);
    const deck = (bodies: string[]) => new Deck<Body>([{}, ...bodies.map((body) => ({ body }))], random);
    this.#badCreates = deck([...malformedBodies("title", title), ...wrongTitles]);
    this.#badUpdates = deck([...malformedBodies("done", "true"), ...wrongDone]);
  }

  /** The sequences that every run executes. The first ones are plain, so that a plain fault has a plain sequence. */
  readonly required: readonly (() => Step[])[] = [
    () => this.#lifecycle(),
    () => this.#mixed(60, 0),
    () => this.#races(),
    () => [{ many: 130 }],
    () => this.#specialTitles(),
    () => this.#invalidTitles(),
    () => this.#paths(),
    () => this.#bodies(),
    () => this.#mixed(40, 0.5),
    () => [{ many: 260 }],
  ];

  /** Returns a random sequence, for the rest of the time. The first one is the longest list. */
  any(): Step[] {
    if (!this.#hadMany) {
      this.#hadMany = true;
      return [{ many: MANY }];
    }
    const choice = this.#random.below(12);
    if (choice < 3) return this.#mixed(40, 0.4);
    if (choice < 7) return this.#races();
    if (choice === 7) return this.#specialTitles();
    if (choice === 8) return this.#invalidTitles();
    if (choice === 9) return this.#paths();
    return choice === 10
      ? this.#bodies()
      : [{ many: this.#random.pick([30, 130, 260]) }, ...this.#mixed(10, 0.4)];
  }

  /** The plain life of plain to-dos, with every operation in every state. */
  #lifecycle(): Step[] {
    const created = new Map<string, Request>();
    const request = (operation: string): Request => {
      const [verb, name = ""] = operation.split(" ");
      // A capital names a second to-do with the same title.
      const title = created.get(name.toLowerCase())?.body;
      const todo = created.get(name) ?? {
        ...this.#create(),
        ...(title === undefined ? {} : { body: title }),
      };
      if (verb === "reject") return { method: "POST", body: this.#plainlyInvalid(name) };
      created.set(name, todo);
      const id = idOf(todo);
      if (verb === "create") return todo;
      if (verb === "next") return get({ ...id, text: "{+1}" });
      if (verb === "padded") return get({ ...id, text: "0{}" });
      if (verb === "delete") return remove(id);
      return verb === "get" ? get(id) : patch(id, verb === "true");
    };
    return examples.lifecycle.map((operation) => one(request(operation)));
  }

  #plainlyInvalid(kind: string): string {
    if (kind === "long") return JSON.stringify({ title: this.#titles.plain().padEnd(121, "x") });
    return kind === "empty" ? '{"title":""}' : kind;
  }

  /** Steps of all kinds on a few to-dos. `unusual` is the share of unusual titles, ids and bodies. */
  #mixed(length: number, unusual: number): Step[] {
    const numbers: number[] = [];
    const step = (): Step => {
      if (numbers.length === 0 || this.#random.chance(0.2)) return one(this.#createIn(numbers, unusual));
      if (this.#random.chance(0.15)) return { requests: this.#atOnce(numbers) };
      return one(this.#withCredentials(this.#onOne(this.#random.pick(numbers.slice(-6)), unusual)));
    };
    return Array.from({ length }, step);
  }

  #onOne(of: number, unusual: number): Request {
    const id = { of, text: "{}" };
    if (this.#random.chance(unusual / 4)) return this.#badId(of);
    const choice = this.#random.below(10);
    if (choice < 3) return get(id);
    if (choice < 5 || !this.#random.chance(unusual))
      return choice < 8 ? patch(id, this.#random.chance(0.5)) : remove(id);
    if (choice === 5) return { method: "POST", ...this.#badCreates.deal(1)[0] };
    return choice < 8 ? { method: "PATCH", id, ...this.#badUpdates.deal(1)[0] } : this.#update(id);
  }

  /** Requests that interfere with each other. */
  #races(): Step[] {
    const steps: Step[] = [];
    for (let round = 0; round < 14; round += 1) {
      const created = Array.from({ length: 2 + this.#random.below(4) }, () => this.#create());
      const ids = created.map(idOf);
      const first = ids[0] ?? idOf({ method: "POST" });
      const all = (make: (id: IdText, index: number) => Request): Request[] =>
        Array.from({ length: MAX_AT_ONCE }, (_, index) => make(ids[index % ids.length] ?? first, index));
      const kinds: readonly (() => Request[])[] = [
        () => all((_, index) => (index % 2 === 0 ? this.#create() : this.#create("once"))),
        () => all(() => remove(first)),
        () => all((_, index) => (index === 2 ? remove(first) : patch(first, index % 2 === 0))),
        () => all((id) => patch(id, true)).slice(0, ids.length),
        () => all((id) => get(id)),
        () => all((id, index) => (index < ids.length ? remove(id) : this.#create())),
        () => all((_, index) => (index % 2 === 0 ? this.#create() : LIST)),
        () => this.#atOnce(ids.map(({ of }) => of)),
        () => this.#whileRead(ids.slice(0, 2), (id) => patch(id, this.#random.chance(0.5))),
        () => this.#whileRead(ids.slice(0, 2), remove),
      ];
      const requests = (kinds[round] ?? this.#random.pick(kinds.slice(-2)))();
      const done = ids.filter(() => this.#random.chance(0.5)).map((id) => patch(id, true));
      steps.push(
        { requests: created },
        { requests: done },
        { requests },
        { requests: ids.slice(0, 2).map(get) },
      );
    }
    return steps;
  }

  /** Changes with GETs of the list and of the changed to-dos, in any order. */
  #whileRead(ids: readonly IdText[], change: (id: IdText) => Request): Request[] {
    return this.#random.shuffle(ids.flatMap((id) => [change(id), get(id), LIST, LIST]));
  }

  #atOnce(numbers: readonly number[]): Request[] {
    return Array.from({ length: 2 + this.#random.below(MAX_AT_ONCE - 1) }, () => {
      const id = { of: this.#random.pick(numbers.slice(-4)), text: "{}" };
      const choice = this.#random.below(8);
      if (choice < 2) return this.#create();
      if (choice < 5) return patch(id, this.#random.chance(0.5));
      if (choice < 7) return get(id);
      return this.#random.chance(0.8) ? remove(id) : LIST;
    });
  }

  /** Creates to-dos with special titles, and reads and changes them. */
  #specialTitles(): Step[] {
    const { characters, texts } = this.#titles;
    const titles = [
      ...Array.from({ length: Math.ceil(characters.size / 6) }, () => `a${characters.deal(6).join("b")}z`),
      ...texts.deal(texts.size),
      ...texts.deal(texts.size).map((text) => `a ${text} z`),
      ...Array.from({ length: 16 }, () => this.#titles.padded()),
      ...Array.from({ length: 16 }, () => this.#titles.special()),
    ];
    const created = titles.map((title) => this.#withCredentials(this.#create(title)));
    return [
      ...inGroups(created),
      ...inGroups(
        created.map((request, index) => (index % 3 === 0 ? patch(idOf(request), true) : get(idOf(request)))),
      ),
    ];
  }

  /** Creates with titles that are blank or too long, and with the longest valid ones. */
  #invalidTitles(): Step[] {
    const { blanks, lengths } = this.#titles;
    const titles = this.#random.shuffle([...blanks.deal(blanks.size), ...lengths.deal(lengths.size)]);
    const created = titles.map((title) => this.#create(title));
    return [...inGroups(created), ...inGroups(created.slice(0, 40).map((request) => get(idOf(request))))];
  }

  #paths(): Step[] {
    const created = [this.#create(), this.#create()];
    const requests = Array.from({ length: this.#ids.size }, () =>
      this.#badId(idOf(this.#random.pick(created)).of),
    );
    return [
      ...created.map(one),
      ...inGroups(requests),
      one(this.#create()),
      one(get(idOf(this.#random.pick(created)))),
    ];
  }

  #badId(of: number): Request {
    const [{ text, ...request } = { method: "GET" as const, text: "0" }] = this.#ids.deal(1);
    return { ...request, id: { of, text } };
  }

  #bodies(): Step[] {
    const [first, second] = [this.#create(), this.#create()];
    const [id, other] = [idOf(first), idOf(second)];
    const creates = this.#badCreates
      .deal(this.#badCreates.size)
      .map((body): Request => ({ method: "POST", ...body }));
    const updates = this.#badUpdates
      .deal(this.#badUpdates.size)
      .map((body): Request => ({ method: "PATCH", id, ...body }));
    const withId = ['"<id>"', "4611686018427387904"].map((other): Request => {
      const title = JSON.stringify(this.#titles.plain());
      return { ...this.#create(), named: id.of, body: `{"id":${other},"title":${title},"done":true}` };
    });
    const valid = NOTATIONS.map((write): Request => {
      const title = JSON.stringify(`${this.#titles.plain()} é😀\n"/\\`);
      return { ...this.#create(), body: write("title", title) };
    });
    const changed = Array.from({ length: 16 }, () => this.#create());
    return [
      ...[first, second].map(one),
      ...inGroups(creates),
      ...inGroups(updates.slice(0, updates.length / 2)),
      one(patch(id, true)),
      ...inGroups(updates.slice(updates.length / 2)),
      ...withId.map(one),
      ...inGroups([...valid, ...Array.from({ length: 8 }, () => this.#createIn([], 1)), ...changed]),
      ...inGroups(changed.map((request) => this.#update(idOf(request)))),
      ...inGroups(changed.map((request) => get(idOf(request)))),
      one(get(other)),
    ];
  }

  /** A PATCH in some notation, or one with keys that must have no effect. */
  #update(id: IdText): Request {
    const value = String(this.#random.chance(0.5));
    const others = { title: '"another title"', id: this.#random.pick(["0", '"<id>"']) };
    const body = this.#random.chance(0.5)
      ? this.#random.pick(NOTATIONS)("done", value)
      : withOtherKeys("done", value, others, this.#random);
    return {
      method: "PATCH",
      id,
      named: this.#named,
      body: this.#random.chance(0.1) ? '{"title":"another title"}' : body,
    };
  }

  #createIn(numbers: number[], unusual: number): Request {
    if (!this.#random.chance(unusual)) {
      const request = this.#create();
      numbers.push(idOf(request).of);
      return this.#withCredentials(request);
    }
    const title = JSON.stringify(this.#titles.any());
    const others = { id: this.#random.pick(['"<id>"', "4611686018427387904"]), done: "true" };
    const body = this.#random.chance(0.7)
      ? this.#random.pick(NOTATIONS)("title", title)
      : withOtherKeys("title", title, others, this.#random);
    const request = { ...this.#create(), named: this.#named, body };
    numbers.push(idOf(request).of);
    return this.#withCredentials(request);
  }

  #create(title = this.#titles.plain()): Request {
    return { method: "POST", creates: this.#number(), body: JSON.stringify({ title }) };
  }

  /** The number of one of the latest to-dos, whether it still exists or not. */
  get #named(): number {
    return Math.max(1, this.#numbers - this.#random.below(4));
  }

  #number(): number {
    this.#numbers += 1;
    return this.#numbers;
  }

  #withCredentials(request: Request): Request {
    return this.#random.chance(0.4)
      ? { ...request, credentials: this.#random.pick(this.#credentials) }
      : request;
  }
}

const LIST: Request = { method: "GET" };
const get = (id: IdText): Request => ({ method: "GET", id });
const remove = (id: IdText): Request => ({ method: "DELETE", id });
const patch = (id: IdText, done: boolean): Request => ({ method: "PATCH", id, body: `{"done":${done}}` });
const one = (request: Request): Step => ({ requests: [request] });

function idOf({ creates = 0 }: Request): IdText {
  return { of: creates, text: "{}" };
}

/** Requests that do not interfere, many at once. */
function inGroups(requests: readonly Request[]): Step[] {
  const count = Math.ceil(requests.length / GROUP);
  return Array.from({ length: count }, (_, index) => ({
    requests: requests.slice(index * GROUP, (index + 1) * GROUP),
  }));
}
