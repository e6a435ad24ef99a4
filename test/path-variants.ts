const words = (text: string): string[] => text.trim().split(/[ \n]+/);

const TAILS = [
  ...words(`? ?x=1 # #x / // /. /./ /.. /x /x/.. /%2e /%2e%2e/ /..;/ /%2f %2f %2F %5c \\ \\..\\ ; ;/ ;x=1 /;x=1
    %00 /%00 %20 /%20 %0a %23 %3f /%zz . .json /\xe9 /%C0%AF`),
  "\t",
];
const HEADS = [
  ...words(`/ // /. /./ /x/.. /.. /../.. /%2e /%2e%2e /x/%2e%2e /..; /;x /api/todos/../.. /api/todos/1/../../..
    /api/.. /livez/.. /%2f \\ /\\ http://localhost HTTP://LOCALHOST https://localhost //localhost
    http://localhost/x/.. http://localhost// http://user:password@localhost http://elsewhere.example`),
  " ",
];

/** Returns request targets that some server or proxy may treat as a path such as `/admin/`. */
export function pathVariants(path: string): string[] {
  const [first = "", rest] = [path.slice(1, 2), path.slice(2)];
  const code = first.charCodeAt(0).toString(16);
  const bare = path.replace(/\/$/, "");
  const coded = [`%${code}`, `%${code.toUpperCase()}`, `%25${code}`, `%u00${code}`, first.toUpperCase()];
  return [
    path,
    ...TAILS.map((tail) => bare + tail),
    ...HEADS.map((head) => head + path),
    ...coded.map((start) => `/${start}${rest}`),
    ...["\\", "%2f", "//"].map((slash) => path.replaceAll("/", slash)),
    path.toUpperCase(),
    path.replace("i", "\xef"),
    path.slice(1),
    ...words("* /* localhost:80"),
  ];
}
