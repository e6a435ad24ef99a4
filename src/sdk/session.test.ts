import { describe, expect, test } from "bun:test";
import { as, mint } from "../../test/credentials.ts";
import { errorOf } from "../../test/rejection.ts";
import { ANN, startPrivate as startWith } from "../../test/service.ts";
import { until } from "../../test/until.ts";
import { openMemory } from "../storage/memory/store.ts";
import { type LiveList, TodoApi } from "./client.ts";

async function startPrivate() {
  const store = openMemory();
  const service = startWith(store);
  const { token } = await mint(store.keys, "phone");
  const jar = { cookie: "" };
  const api = new TodoApi({
    baseUrl: service.url,
    fetch: async (url, init) => {
      const headers = new Headers(init.headers);
      if (jar.cookie !== "") headers.set("Cookie", jar.cookie);
      const response = await fetch(url, { ...init, headers });
      const [stored] = response.headers.get("set-cookie")?.split(";") ?? [];
      if (stored !== undefined) jar.cookie = stored.endsWith("=") ? "" : stored;
      return response;
    },
  });
  const createLink = async (): Promise<string> => {
    const response = await service.send("POST", "/api/session/links", as(`Bearer ${token}`));
    return JSON.parse(await response.text()).link;
  };
  const { url } = service;
  return { api, url, jar, createLink, store, token, [Symbol.asyncDispose]: service[Symbol.asyncDispose] };
}

function watch(api: TodoApi) {
  const list = api.follow();
  const states: LiveList[] = [];
  const stop = list.subscribe((state) => states.push(state));
  const reaches = (status: LiveList["status"]) => until(() => states.at(-1)?.status === status, status);
  return { list, states, reaches, [Symbol.dispose]: stop };
}

describe("signIn and signOut", () => {
  test("begin and end the followed list, with a password, a token and a link", async () => {
    await using service = await startPrivate();
    const { api, token } = service;
    using watched = watch(api);
    await watched.reaches("signed-out");
    expect(watched.list.getState()).toMatchObject({ todos: [], error: { code: "unauthorized" } });
    await api.signIn(ANN);
    await watched.reaches("connected");
    await watched.list.create("buy milk");
    for (const createCredentials of [() => ({ token }), async () => ({ link: await service.createLink() })]) {
      await api.signOut();
      expect(watched.list.getState().todos).toEqual([]);
      await watched.reaches("signed-out");
      await api.signIn(await createCredentials());
      await watched.reaches("connected");
      expect(watched.list.getState().todos).toMatchObject([{ title: "buy milk" }]);
    }
  });

  test("signIn says what to do where no cookies are kept", async () => {
    await using service = await startPrivate();
    const api = new TodoApi({ baseUrl: service.url });
    expect(await errorOf(api.signIn(ANN))).toMatchObject({
      name: "TypeError",
      message: expect.stringContaining("token"),
    });
    expect(await service.store.keys.list()).toHaveLength(1);
  });

  test("reject wrong credentials, and a sign-out without a session", async () => {
    await using service = await startPrivate();
    const { api } = service;
    const link = `http://todo.example/#sign-in=${"x".repeat(49)}`;
    for (const credentials of [{ ...ANN, password: "wrong" }, { token: "wrong" }, { link }])
      expect(await errorOf(api.signIn(credentials))).toMatchObject({ code: "unauthorized" });
    expect(await errorOf(api.signOut())).toMatchObject({ code: "unauthorized" });
  });

  test("a session that ends elsewhere empties the list at the next write, and sends no later write", async () => {
    await using service = await startPrivate();
    const { api, jar, store } = service;
    using watched = watch(api);
    await api.signIn(ANN);
    await watched.reaches("connected");
    await watched.list.create("of ann");
    jar.cookie = "";
    const [first, second] = [watched.list.create("lost"), watched.list.create("never sent")];
    expect(watched.list.getState().todos.map(({ title }) => title)).toContain("never sent");
    expect(await errorOf(first)).toMatchObject({ code: "unauthorized" });
    await api.signIn({ token: service.token });
    expect(await errorOf(second)).toMatchObject({ code: "unauthorized" });
    await watched.reaches("connected");
    expect(watched.list.getState().todos.map(({ title }) => title)).toEqual(["of ann"]);
    expect((await store.position()).sequence).toBe(1);
  });
});
