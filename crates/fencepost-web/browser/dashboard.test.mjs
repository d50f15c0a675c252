// The dashboard in Chromium, on a real server.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { HOSTILE, World } from "./world.mjs";

const SCREENSHOTS = process.env.FENCEPOST_SCREENSHOTS;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
const QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];

const PAGES = {
  overview: "/",
  filtered: "/?show=attention&sort=next&order=down&q=a",
  timeline: "/timeline",
  week: "/timeline?range=week",
  job: "/jobs/failing",
  running: "/jobs/agent%2Ftriage",
  graph: "/graph",
  fences: "/fences",
  stores: "/stores",
  login: "/login",
  missing: "/jobs/nothing-here",
};

let world, browser;
before(async () => {
  await mkdir(SCREENSHOTS, { recursive: true });
  world = await World.create();
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: [...FLAGS, ...QUIET] });
});
after(async () => {
  await browser?.close();
  await world?.end();
});

// A page whose errors, dialogs and refused resources are kept.
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("dialog", (dialog) => {
    page.faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  return page;
}

async function signIn(page) {
  await page.goto(`${world.url}/login`);
  await page.getByLabel("Token", { exact: true }).fill(world.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(`${world.url}/`);
}

const isPaused = async (job) => JSON.parse(await world.run(["status", job, "--json"])).jobs[0].paused !== null;

for (const colorScheme of ["light", "dark"]) {
  for (const width of [400, 1400]) {
    test(`every page, ${colorScheme}, ${width} pixels: no fault by axe, no error, nothing cut off`, async () => {
      // axe is put into the page as a script, which the policy of the pages would refuse.
      const page = await open({ colorScheme, viewport: { width, height: 900 }, bypassCSP: true });
      for (const [name, path] of Object.entries(PAGES)) {
        await page.goto(world.url + path);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        assert.ok(wide <= 0, `${name} is ${wide} pixels too wide`);
        await page.screenshot({ path: `${SCREENSHOTS}/${name}-${width}-${colorScheme}.png`, fullPage: true });
        await page.addScriptTag({ path: AXE });
        const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
        const serious = violations.filter((fault) => ["serious", "critical"].includes(fault.impact));
        const told = serious.map((fault) => `${fault.id}: ${fault.nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
        assert.deepEqual(told, [], `${name} ${colorScheme} ${width}`);
      }
      const faults = page.faults.filter((fault) => !fault.includes("404"));
      assert.deepEqual(faults, []);
      await page.context().close();
    });
  }
}

test("the policy forbids inline style and script, and no page breaks it", async () => {
  const page = await open();
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`));
  });
  for (const path of Object.values(PAGES)) {
    const answer = await page.goto(world.url + path);
    const policy = answer.headers()["content-security-policy"];
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe/);
  }
  assert.deepEqual(page.faults.filter((fault) => !fault.includes("404")), []);
  await page.context().close();
});

test("everything is on the pages without script", async () => {
  const page = await open({ javaScriptEnabled: false });
  await page.goto(world.url);
  assert.match(await page.locator("#attention").innerText(), /failing failed \(exit 3\)/);
  await page.getByRole("searchbox").fill("back");
  await page.getByRole("button", { name: "Show" }).click();
  assert.deepEqual(await page.locator("tbody th a").allInnerTexts(), ["backup"]);
  await page.getByRole("link", { name: "backup" }).first().click();
  assert.match(await page.locator("#why .story").innerText(), /backup/);
  await signIn(page);
  await page.goto(`${world.url}/jobs/backup`);
  await page.getByText("Pause…").click();
  await page.getByLabel("Note").fill("by a page without script");
  await page.getByRole("button", { name: "Pause backup" }).click();
  await page.waitForLoadState();
  assert.ok(await isPaused("backup"));
  await page.goto(`${world.url}/jobs/backup`);
  assert.match(await page.locator("#facts").innerText(), /by a page without script \(by anna\)/);
  await page.getByText("Resume…").click();
  await page.getByRole("button", { name: "Resume backup" }).click();
  await page.waitForLoadState();
  assert.ok(!(await isPaused("backup")));
  await page.context().close();
});

test("a change appears by itself, and focus, text and scroll stay", async () => {
  const page = await open();
  await page.goto(world.url);
  await page.locator("#live", { hasText: "live" }).waitFor();
  await page.evaluate(() => {
    window.isSamePage = true;
    window.scrollTo(0, 200);
  });
  const search = page.getByRole("searchbox");
  await search.pressSequentially("arti");
  const before = await page.evaluate(() => window.scrollY);
  assert.equal(await page.locator("#job-new-one").count(), 0);
  await world.run(["run", "new-one", "--", "true"]);
  await page.locator("#job-new-one .word", { hasText: "ok" }).waitFor({ timeout: 15_000 });
  assert.ok(await page.evaluate(() => window.isSamePage));
  assert.equal(await page.evaluate(() => document.activeElement.name), "q");
  assert.equal(await search.inputValue(), "arti");
  assert.equal(await page.evaluate(() => window.scrollY), before);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("the keyboard reaches the content first, then the pages, then the jobs", async () => {
  const page = await open();
  await page.goto(world.url);
  const focused = () => page.evaluate(() => document.activeElement.innerText || document.activeElement.id);
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  const seen = [];
  for (let step = 0; step < 60 && seen.at(-1) !== "failing"; step++) {
    await page.keyboard.press("Tab");
    seen.push(await focused());
    const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(ring, "none", `${seen.at(-1)} has no focus ring`);
  }
  assert.equal(seen.at(-1), "failing");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/jobs/failing`);
  await page.context().close();
});

test("texts of attackers stay texts", async () => {
  const page = await open();
  await signIn(page);
  const shown = {
    "/": [HOSTILE.job, HOSTILE.host],
    "/jobs/backup": [HOSTILE.note],
    "/jobs/paused": [HOSTILE.pause],
    "/jobs/failing": [HOSTILE.log],
    "/timeline": [HOSTILE.host],
    [`/?q=${encodeURIComponent(HOSTILE.note)}&sort=${encodeURIComponent(HOSTILE.log)}`]: [HOSTILE.log],
  };
  for (const [path, texts] of Object.entries(shown)) {
    // The outcome with the note is not the newest.
    const slot = path === "/jobs/backup" ? "?slot=2d" : "";
    await page.goto(world.url + path + slot);
    const content = await page.locator("body").innerText();
    for (const text of texts) assert.ok(content.includes(text), `${path} does not show ${text}`);
    const foreign = await page.evaluate(() => document.querySelectorAll("img, b, script:not([src^='/assets/']), svg[onload]").length);
    assert.equal(foreign, 0, path);
  }
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("output and configuration are withheld without a token", async () => {
  const page = await open();
  await page.goto(`${world.url}/jobs/failing`);
  const content = await page.locator("main").innerText();
  assert.ok(!content.includes(HOSTILE.log));
  assert.match(await page.locator("#logs").innerText(), /signed in/);
  assert.match(await page.locator("#configuration").innerText(), /signed in/);
  assert.equal(await page.locator("form[method=post]").count(), 0);
  await page.context().close();
});

test("an action without a token, or without the page's own, is refused", async () => {
  const pause = `${world.url}/api/v1/jobs/failing/pause`;
  const form = { "content-type": "application/x-www-form-urlencoded", accept: "text/html" };
  assert.equal((await fetch(pause, { method: "POST", headers: form, body: "", redirect: "manual" })).status, 401);
  const page = await open();
  await signIn(page);
  for (const body of ["", "csrf=", "csrf=0000"]) {
    const status = await page.evaluate(
      async ([to, body]) => (await fetch(to, { method: "POST", body: new URLSearchParams(body), redirect: "manual" })).status,
      [pause, body],
    );
    assert.equal(status, 403, body);
  }
  assert.ok(!(await isPaused("failing")));
  await page.context().close();
});

test("a page of another origin cannot act, although the browser is signed in", async () => {
  const page = await open();
  await signIn(page);
  const forged = createServer((request, answer) => {
    answer.setHeader("content-type", "text/html");
    const to = `${world.url}/api/v1/jobs/failing/pause`;
    answer.end(`<form id=f method=post action="${to}"><input name=csrf value=x></form><script>f.submit()</script>`);
  });
  await new Promise((resolve) => forged.listen(0, "127.0.0.1", resolve));
  // Another port is the same site: the browser sends the cookie.
  const answered = page.waitForResponse((answer) => answer.url().endsWith("/failing/pause"));
  await page.goto(`http://127.0.0.1:${forged.address().port}/`).catch(() => {});
  assert.equal((await answered).status(), 403);
  assert.ok(!(await isPaused("failing")));
  await page.context().close();
  await new Promise((resolve) => forged.close(resolve));
});
