import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseMountPoints, removeDatabase } from "./files.ts";

test("parseMountPoints returns the mount point of each line, and decodes octal escapes", () => {
  const mountinfo = String.raw`36 35 98:0 /mnt1 / rw master:1 - ext3 /dev/root rw,errors=continue
1206 1190 259:1 /home/me/to\040dos.db /data/my\040to\134dos\011x\012.db rw - ext4 /dev/sda1 rw
`;
  expect(parseMountPoints(mountinfo)).toEqual(["/", "/data/my to\\dos\tx\n.db"]);
});

test("removeDatabase removes a database and its companion files, except the lock", () => {
  const folder = mkdtempSync(join(tmpdir(), "todo-files-"));
  for (const suffix of ["", "-journal", "-wal", "-shm", "-lock"])
    writeFileSync(join(folder, `file${suffix}`), "x");
  removeDatabase(join(folder, "file"));
  expect(readdirSync(folder)).toEqual(["file-lock"]);
  rmSync(folder, { recursive: true });
});
