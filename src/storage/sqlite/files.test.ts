import { expect, test } from "bun:test";
import { parseMountPoints } from "./files.ts";

test("parseMountPoints returns the mount point of each line, and decodes octal escapes", () => {
  const mountinfo = String.raw`36 35 98:0 /mnt1 / rw master:1 - ext3 /dev/root rw,errors=continue
1206 1190 259:1 /home/me/to\040dos.db /data/my\040to\134dos\011x\012.db rw - ext4 /dev/sda1 rw
`;
  expect(parseMountPoints(mountinfo)).toEqual(["/", "/data/my to\\dos\tx\n.db"]);
});
