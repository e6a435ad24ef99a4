import { expect, test } from "bun:test";
import contract from "../openapi.json" with { type: "json" };
import { forDisplay } from "./openapi.ts";

const OPERATION = { tags: ["todos"], operationId: "a", summary: "A" };

test("the document on the page omits technical routes and keeps every other operation", () => {
  const paths = Object.keys(contract.paths);
  const document = {
    info: { description: "prose" },
    tags: [],
    paths: Object.fromEntries(paths.map((path) => [path, { get: { ...OPERATION, responses: {} } }])),
    components: { parameters: {}, responses: {} },
  };
  const shown = forDisplay(document);
  expect(shown.info.description).toBe("");
  const omitted = paths.filter((path) => !(path in shown.paths));
  expect(omitted.toSorted()).toEqual([
    "/",
    "/admin",
    "/assets/{name}",
    "/docs",
    "/favicon.ico",
    "/service-worker.js",
  ]);
});

test("the document on the page has errors as a collapsed list, and no example of an optional parameter", () => {
  const operation = {
    ...OPERATION,
    description: "Text.",
    parameters: [
      { required: true, example: 1 },
      { description: "The first.", example: 2 },
    ],
    responses: {
      "200": { description: "Yes." },
      "400": { $ref: "#/components/responses/Bad" },
      "500": { description: "No." },
    },
  };
  const shown = forDisplay({
    info: { description: "" },
    tags: [],
    paths: { "/x": { get: operation } },
    components: { parameters: { limit: { example: 3 } }, responses: { Bad: { description: "Wrong." } } },
  });
  expect(shown.paths["/x"]?.get).toEqual({
    ...operation,
    description:
      "Text.\n\n<details><summary>Errors (2)</summary>\n\n- **400** Wrong.\n- **500** No.\n\n</details>",
    parameters: [{ required: true, example: 1 }, { description: "The first. Example: `2`." }],
    responses: { "200": { description: "Yes." } },
  });
  expect(shown.components.parameters).toEqual({ limit: { description: " Example: `3`." } });
});
