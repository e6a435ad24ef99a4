// Runs in a page of another site. Sends every write that a page can send to a collection and to one of its members,
// and returns all that it could read of the responses. `credentials` has the values that fetch accepts.
// biome-ignore lint/correctness/noUnusedVariables: the page's test calls it
async function forge({ collection, member, body, credentials }) {
  const read = [];
  const waiting = [];

  /** Submits a form whose response goes to a new frame. */
  const submit = (url, enctype, fields) => {
    const frame = document.createElement("iframe");
    frame.name = `frame${Math.random()}`;
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action: url, enctype, target: frame.name });
    for (const [name, value] of Object.entries(fields)) {
      form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
    }
    document.body.append(frame, form);
    waiting.push(new Promise((resolve) => frame.addEventListener("load", resolve)));
    form.submit();
  };
  // In text/plain, a form's "name=value" can be valid JSON.
  const hidden = { [`${body.slice(0, -1)},"padding":"`]: '"}' };
  for (const url of [collection, member]) {
    submit(url, "application/x-www-form-urlencoded", { title: "forged", name: "forged", _method: "DELETE" });
    submit(url, "multipart/form-data", { title: "forged", name: "forged", _method: "PATCH" });
    submit(url, "text/plain", hidden);
  }

  const send = (what, url, init) => {
    const text = fetch(url, { credentials, ...init }).then((response) => response.text());
    const note = (answer) => answer !== "" && read.push(`${what}: ${answer}`);
    waiting.push(text.then(note, () => {}));
  };
  const form = new FormData();
  form.set("title", "forged");
  const bodies = {
    text: body,
    form,
    urlencoded: new URLSearchParams({ title: "forged", name: "forged" }),
    plain: new Blob([body], { type: "text/plain" }),
    json: new Blob([body], { type: "application/json" }),
    bytes: new TextEncoder().encode(body),
  };
  for (const [what, sent] of Object.entries(bodies)) {
    for (const mode of ["no-cors", "cors"]) {
      for (const keepalive of [false, true]) {
        send(`${mode} ${what}`, collection, { method: "POST", mode, keepalive, body: sent });
      }
    }
    navigator.sendBeacon(collection, sent);
  }
  const headers = { "Content-Type": "application/json" };
  send("no-cors as JSON", collection, { method: "POST", mode: "no-cors", headers, body });
  send("as JSON", collection, { method: "POST", headers, body });
  send("oddly", collection, {
    method: "POST",
    headers: { "Content-Type": "text/plain; application/json" },
    body,
  });
  send("empty", collection, { method: "POST", mode: "no-cors" });
  send("PATCH", member, { method: "PATCH", headers, body: '{"done":true}' });
  send("DELETE", member, { method: "DELETE" });
  send("overridden", member, { method: "POST", headers: { "X-HTTP-Method-Override": "DELETE" } });
  send("GET", collection, {});
  send("opaque GET", collection, { mode: "no-cors" });
  send("GET of one", member, {});

  const xhr = new XMLHttpRequest();
  xhr.open("POST", collection);
  xhr.withCredentials = credentials === "include";
  xhr.addEventListener("load", () => read.push(`XHR: ${xhr.responseText}`));
  waiting.push(new Promise((resolve) => xhr.addEventListener("loadend", resolve)));
  xhr.send(body);

  const loads = { img: "src", script: "src", link: "href", object: "data", iframe: "src" };
  for (const [tag, attribute] of Object.entries(loads)) {
    const element = Object.assign(document.createElement(tag), {
      rel: "stylesheet",
      [attribute]: collection,
    });
    waiting.push(
      new Promise((resolve) => {
        for (const event of ["load", "error"]) element.addEventListener(event, resolve);
      }),
    );
    document.body.append(element);
  }

  await Promise.race([Promise.all(waiting), new Promise((resolve) => setTimeout(resolve, 5000))]);
  for (const frame of document.querySelectorAll("iframe")) {
    // The document of another site is null. A frame without a response belongs to this page and is empty.
    const text = frame.contentDocument?.body?.textContent;
    if (text) read.push(`frame: ${text}`);
  }
  return read;
}
