import { beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { errorOf } from "../../test/rejection.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { createFileAtomic, replaceFileAtomic } from "./atomic-file.ts";

const parent = temporaryFolder();

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(parent, "test-"));
  path = join(folder, "file");
});

const writing = (text: string) => async (part: string) => {
  writeFileSync(part, text);
  return text.length;
};

describe("replaceFileAtomic", () => {
  test("creates a file with the mode, and replaces it", async () => {
    for (const text of ["first", "second one"]) {
      const write = async (part: string) => writeFileSync(part, text);
      await replaceFileAtomic(path, 0o600, write);
      expect([readFileSync(path, "utf8"), statSync(path).mode & 0o777]).toEqual([text, 0o600]);
      expect(readdirSync(folder)).toEqual(["file"]);
    }
  });

  test("keeps the old file and leaves no other file if writing fails", async () => {
    writeFileSync(path, "old");
    const reason = new Error("enough");
    const write = async (part: string) => {
      await writing("new")(part);
      throw reason;
    };
    expect(await errorOf(replaceFileAtomic(path, 0o600, write))).toBe(reason);
    expect([readFileSync(path, "utf8"), readdirSync(folder)]).toEqual(["old", ["file"]]);
  });
});

describe("createFileAtomic", () => {
  test("does not write if the file exists", async () => {
    writeFileSync(path, "old");
    let isCalled = false;
    const write = async () => {
      isCalled = true;
    };
    const error = await errorOf(createFileAtomic(path, 0o600, write));
    expect([error.message, isCalled]).toEqual([`${path} already exists: name another file`, false]);
  });

  test("reports a missing folder, with the system's error as the cause", async () => {
    const gone = join(folder, "gone", "file");
    const error = await errorOf(createFileAtomic(gone, 0o600, writing("text")));
    expect(error.message).toBe(`${gone}.part cannot be created: no such file or folder`);
    expect(error.cause).toMatchObject({ code: "ENOENT" });
  });
});
