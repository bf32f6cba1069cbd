"use strict";
// Keeps the page up to date: the broker sends the parts that changed, already
// rendered and escaped, each under the id of the element that it replaces.
(() => {
  const state = document.getElementById("live");
  const say = (name, text) => {
    if (state.dataset.state === name && state.textContent === text) return;
    state.dataset.state = name;
    state.textContent = text;
  };
  // Replacing what somebody marks or walks through with the keyboard would take
  // it from under their hands.
  const inUse = (part) => {
    const marked = document.getSelection();
    return (marked && !marked.isCollapsed && part.contains(marked.anchorNode)) ||
      (part !== document.activeElement && part.contains(document.activeElement));
  };
  let source = null;
  const open = () => {
    source = new EventSource(document.body.dataset.stream);
    const kept = new Map();
    for (const id of ["summary", "locks"]) {
      source.addEventListener(id, (e) => kept.set(id, e.data));
    }
    source.addEventListener("beat", (e) => {
      // A broker with very many keys is looked at less often: say so.
      const seconds = Math.round(Number(e.data) / 1000);
      say("live", seconds > 1 ? `live, every ${seconds} s` : "live");
      for (const [id, html] of kept) {
        const part = document.getElementById(id);
        if (inUse(part)) continue;
        part.innerHTML = html;
        kept.delete(id);
      }
    });
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) {
        say("cut", "not live: reload the page");
      } else {
        say("cut", "no answer, trying again");
      }
    };
  };
  const close = () => { if (source) { source.close(); source = null; } };
  // A page that nobody sees costs the broker nothing.
  document.addEventListener("visibilitychange", () => { close(); if (!document.hidden) open(); });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", () => { if (!source && !document.hidden) open(); });
  open();
})();
