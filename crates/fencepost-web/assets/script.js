// Keeps a page up to date. Everything works without it.
"use strict";
(() => {
  const body = document.body;
  // The server's clock, so that countdowns do not depend on the browser's.
  let ahead = Number(body.dataset.now || Date.now()) - Date.now();

  // Lengths of time as the server writes them, in at most two units.
  const two = (n) => String(n).padStart(2, "0");
  function length(ms) {
    const s = Math.max(0, Math.floor(ms / 1000));
    if (s < 60) return `${s}s`;
    if (s < 3600) return `${Math.floor(s / 60)}m`;
    if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor((s % 3600) / 60))}m`;
    return `${Math.floor(s / 86400)}d${two(Math.floor((s % 86400) / 3600))}h`;
  }
  function tick() {
    if (document.hidden) return;
    const now = Date.now() + ahead;
    for (const time of document.querySelectorAll("time.in, time.ago")) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      const text = time.classList.contains("ago") ? `${length(now - at)} ago` : at > now ? `in ${length(at - now)}` : "due";
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // Makes one element like another of the same name. Nodes that stay the same stay in place: focus, scroll and selection too.
  function attributes(old, fresh) {
    for (const { name } of [...old.attributes]) {
      // What the reader opened stays open.
      if (!fresh.hasAttribute(name) && !(name === "open" && old.tagName === "DETAILS")) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  function morph(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = fresh.nodeValue;
      return;
    }
    attributes(old, fresh);
    if (old.tagName === "INPUT" || old.tagName === "SELECT" || old.id === "live") return;
    const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    let place = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      while (place && place.nodeType === Node.ELEMENT_NODE && place.classList.contains("copy")) place = place.nextSibling;
      const same = child.id ? known.get(child.id) : place;
      const fits = same && same.nodeName === child.nodeName && (same.id || "") === (child.id || "");
      if (!fits) {
        old.insertBefore(child, place);
        continue;
      }
      if (same !== place) old.insertBefore(same, place);
      else place = place.nextSibling;
      if (same.tagName === "TR" && !same.isEqualNode(child)) mark(same, child);
      morph(same, child);
    }
    while (place) {
      const next = place.nextSibling;
      if (!(place.nodeType === Node.ELEMENT_NODE && place.classList.contains("copy"))) place.remove();
      place = next;
    }
  }
  // A row whose state or strip changed is marked for a moment.
  function mark(old, fresh) {
    const said = (row) => [...row.querySelectorAll(".word, .strip")].map((part) => part.outerHTML).join();
    if (said(old) === said(fresh)) return;
    fresh.classList.add("changed");
    setTimeout(() => old.classList.remove("changed"), 2000);
  }

  let pending = null;
  let last = 0;
  async function update() {
    pending = null;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
      if (answer.redirected) return location.reload();
      const text = await answer.text();
      if (!text) return;
      const fresh = new DOMParser().parseFromString(text, "text/html");
      const main = fresh.getElementById("main");
      if (!main || !fresh.body.dataset.now) return;
      ahead = Number(fresh.body.dataset.now) - Date.now();
      morph(document.getElementById("main"), main);
      const standing = fresh.getElementById("standing");
      if (standing) morph(document.getElementById("standing"), standing);
      show(true);
      copies();
      tick();
    } catch {
      show(false);
    }
  }
  // Events come in bursts: one update for all of them, at most one in two seconds, none while the page is hidden.
  function soon() {
    if (pending || document.hidden) {
      missed = document.hidden;
      return;
    }
    pending = setTimeout(update, Math.max(250, 2000 - (Date.now() - last)));
  }
  let missed = false;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && missed) soon();
    tick();
  });

  const light = document.getElementById("live");
  function show(works) {
    if (!light) return;
    light.hidden = false;
    light.textContent = works ? "live" : "not live";
    light.classList.toggle("off", !works);
  }

  // A button beside each command.
  function copies() {
    if (!navigator.clipboard) return;
    for (const code of document.querySelectorAll("code.command")) {
      if (code.nextElementSibling && code.nextElementSibling.classList.contains("copy")) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy link";
      button.textContent = "copy";
      button.setAttribute("aria-label", `Copy: ${code.textContent}`);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
        setTimeout(() => (button.textContent = "copy"), 1500);
      });
      code.after(button);
    }
  }

  // On a phone the timeline is wider than the page: it begins at now.
  for (const timeline of document.querySelectorAll(".timeline")) timeline.scrollLeft = timeline.scrollWidth;
  copies();
  tick();
  setInterval(tick, 1000);
  if (body.dataset.events && window.EventSource) {
    const events = new EventSource(body.dataset.events);
    events.onopen = () => show(true);
    events.onerror = () => show(false);
    events.addEventListener("board", soon);
  }
})();
