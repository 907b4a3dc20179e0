// A bin's numbers beside the pointer, under a finger, or by keyboard: Tab to a chart, arrows through it, Escape to close.
"use strict";
const tip = document.getElementById("tip");

function show(hit) {
  tip.textContent = hit.dataset.tip;
  tip.hidden = false;
  const at = hit.getBoundingClientRect(), own = tip.getBoundingClientRect(), room = 8;
  const left = Math.min(Math.max(at.left + at.width / 2 - own.width / 2, room), innerWidth - own.width - room);
  const above = Math.max(at.top, room) - own.height - room;
  tip.style.left = left + "px";
  tip.style.top = (above > room ? above : Math.min(at.top + room, innerHeight - own.height - room)) + "px";
}
const hide = () => { tip.hidden = true; };

for (const chart of document.querySelectorAll("svg.chart")) {
  const hits = [...chart.querySelectorAll(".hit")];
  hits.forEach((hit, i) => {
    const title = hit.querySelector("title");
    hit.dataset.tip = title.textContent;
    title.remove();
    hit.setAttribute("tabindex", i === 0 ? "0" : "-1");
    hit.addEventListener("pointerenter", () => show(hit));
    hit.addEventListener("pointerdown", () => show(hit));
    hit.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    hit.addEventListener("focus", () => show(hit));
    hit.addEventListener("blur", hide);
    hit.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = event.key === "Home" ? hits[0] : event.key === "End" ? hits.at(-1) : step && hits[i + step];
      if (event.key === "Escape") hide();
      if (next) { next.focus(); event.preventDefault(); }
    });
  });
}
addEventListener("scroll", () => {
  const focused = document.activeElement;
  if (focused.matches(".hit") && !tip.hidden) show(focused); else hide();
}, { passive: true });
addEventListener("pointerdown", (event) => { if (!event.target.closest(".hit")) hide(); });

// A table wider than its place says so.
function mark() {
  for (const box of document.querySelectorAll(".scroll")) box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1);
}
addEventListener("resize", mark);
document.addEventListener("toggle", mark, true);
mark();
